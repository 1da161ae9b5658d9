"""Accuracy and cosine similarity by hops to the nearest source, pooled over the records of several splits."""

from collections.abc import Iterable
from dataclasses import dataclass

from pcfi.experiments.run import Record


@dataclass(frozen=True)
class HopScores:
    """Scores of the nodes at one number of hops from their nearest source; None if there are no nodes."""

    hops: int
    tested: int
    accuracy: float | None
    nodes: int
    cosine: float | None


def pooled_by_hops(records: Iterable[Record]) -> list[HopScores]:
    """Pool the splits: each node counts once for each split that it is in."""
    rows: dict[int, list[dict[str, float]]] = {}
    for record in records:
        for row in record.details.get("hops", ()) if record.done else ():
            rows.setdefault(int(row["hops"]), []).append(row)
    return [_pool(hops, rows[hops]) for hops in sorted(rows)]


def _pool(hops: int, rows: list[dict[str, float]]) -> HopScores:
    tested = int(sum(row.get("tested", 0) for row in rows))
    correct = sum(row.get("correct", 0) for row in rows)
    filled = [row for row in rows if "cosine" in row]
    nodes = int(sum(row["nodes"] for row in filled))
    cosine = sum(row["cosine"] * row["nodes"] for row in filled)
    return HopScores(hops, tested, 100 * correct / tested if tested else None, nodes, cosine / nodes if nodes else None)
