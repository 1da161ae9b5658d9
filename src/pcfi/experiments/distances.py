"""Records of runs in which nodes miss all channels or none -> accuracy and cosine similarity by hops."""

from collections.abc import Iterable
from dataclasses import dataclass

from pcfi.experiments.store import Record


@dataclass(frozen=True)
class AtHops:
    """What nodes at the same number of hops from their nearest source come to, all splits pooled; None: no nodes."""

    hops: int
    tested: int
    accuracy: float | None
    nodes: int
    cosine: float | None


def by_hops(records: Iterable[Record]) -> list[AtHops]:
    """Pool the splits: every node counts once for each split it is in."""
    rows: dict[int, list[dict[str, float]]] = {}
    for record in records:
        for row in record.details.get("hops", ()) if record.done else ():
            rows.setdefault(int(row["hops"]), []).append(row)
    return [_pooled(hops, rows[hops]) for hops in sorted(rows)]


def _pooled(hops: int, rows: list[dict[str, float]]) -> AtHops:
    tested = int(sum(row.get("tested", 0) for row in rows))
    correct = sum(row.get("correct", 0) for row in rows)
    filled = [row for row in rows if "cosine" in row]
    nodes = int(sum(row["nodes"] for row in filled))
    similarity = sum(row["cosine"] * row["nodes"] for row in filled)
    return AtHops(
        hops, tested, 100 * correct / tested if tested else None, nodes, similarity / nodes if nodes else None
    )
