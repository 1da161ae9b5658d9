"""An imputation, its input and its graph -> `Facts`."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph
from pcfi.report.facts import ChannelFacts, Convergence, EvaluationFacts, Facts, GraphFacts, Histogram, HopFacts
from pcfi.report.graph_drawing import lay_out_graph
from pcfi.report.insight_facts import notable_cells, suggested_nodes, surprising_cells
from pcfi.result import Imputation
from pcfi.stages.hops import Hops

BINS = 24
MAX_HISTOGRAMS = 40  # for the channels with the most missing cells
MAX_HOPS = 60  # bars of a chart; the last one is the sum of the rest
PACKAGES = ("pcfi", "numpy", "scipy", "numba", "pyarrow", "narwhals")


@dataclass(frozen=True, eq=False, kw_only=True)
class FilledChannels:
    """Filled values and missing masks of the channels, one channel at a time.

    Attributes
    ----------
    names : sequence of str
        Names of the channels.
    missing : callable
        Mask of the missing cells of a channel, by its index in `names`.
    filled : callable
        Values of a channel, likewise; NaN if there is none.
    node_name : callable
        Name of a node by its row.
    places : sequence of int or None
        Indices of these channels among all channels of the result; None if they are all.
    categories : dict
        For each categorical column, the mask of missing cells and the position of its first channel.
    """

    names: Sequence[str]
    missing: Callable[[int], Array]
    filled: Callable[[int], Array]
    node_name: Any = str
    places: Sequence[int] | None = None
    categories: dict[str, tuple[Array, int]] = field(default_factory=dict)

    @staticmethod
    def of_arrays(before: Array, after: Array, **others: Any) -> "FilledChannels":
        """Create it from arrays of shape (n_nodes, n_channels), NaN where missing."""
        return FilledChannels(
            missing=lambda place: np.isnan(before[:, place]), filled=lambda place: after[:, place], **others
        )


@dataclass(frozen=True)
class RunDetails:
    """Details of a run for the report, besides the result."""

    title: str
    command: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    evaluation: EvaluationFacts | None = None


def collect_facts(filling: FilledChannels, result: Imputation, graph: Graph, details: RunDetails) -> Facts:
    """Gather the facts about one imputation."""
    return Facts(
        title=details.title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=details.command,
        method=result.method,
        graph=graph_facts(graph),
        channels=_channels(filling, result.cells.unreachable_in),
        n_patterns=1 if result.cells.hops is None else int(result.cells.hops.codes.shape[1]),
        hops=()
        if result.cells.hops is None
        else hop_facts(result.cells.hops, result.alpha, result.cells.first_channels),
        convergence=Convergence(
            result.status,
            result.converged,
            result.steps,
            float(result.residual),
            getattr(details.parameters.get("solver"), "rtol", None),
        ),
        parameters=_parameters(details.parameters, result),
        versions=versions(),
        files=details.files,
        stages=details.stages,
        warnings=details.warnings,
        picture=lay_out_graph(graph, _confidence_of_nodes(result, graph.n_nodes), filling.node_name),
        evaluation=details.evaluation,
        columns=tuple(result.columns),
        explained=notable_cells(result),
        surprises=surprising_cells(result),
        suggestions=suggested_nodes(result),
    )


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect the result."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:  # pragma: no cover
            continue
    return installed


def graph_facts(graph: Graph) -> GraphFacts:
    """Count nodes, edges, components and isolated nodes of a graph."""
    from scipy import sparse

    ones = np.ones(len(graph.indices), dtype=np.int8)
    matrix = sparse.csr_array((ones, graph.indices, graph.indptr), shape=(graph.n_nodes, graph.n_nodes))
    n_components, labels = sparse.csgraph.connected_components(matrix, directed=graph.directed, connection="weak")
    touched = np.diff(graph.indptr) > 0
    touched[graph.indices] = True
    return GraphFacts(
        n_nodes=graph.n_nodes,
        n_edges=graph.n_edges,
        n_components=int(n_components),
        largest_component=int(np.bincount(labels).max(initial=0)),
        n_isolated=int((~touched).sum()),
        directed=bool(graph.directed),
        weighted=graph.weights is not None,
    )


def hop_facts(hops: Hops, alpha: float | None, channels: Any = slice(None)) -> tuple[HopFacts, ...]:
    """Count the missing cells of these channels by hops."""
    levels = hops.n_levels
    sizes = np.bincount(hops.patterns[channels], minlength=hops.codes.shape[1])
    counts = np.zeros(levels + 2, dtype=np.int64)
    for pattern, size in enumerate(sizes):
        counts += size * np.bincount(np.minimum(hops.codes[:, pattern], levels + 1), minlength=levels + 2)

    def confidence(hop: int) -> float | None:
        return None if alpha is None else float(alpha) ** hop

    shown = [HopFacts(hop, int(counts[hop]), confidence(hop)) for hop in range(1, levels + 1)]
    if len(shown) > MAX_HOPS:
        rest = sum(one.n_cells for one in shown[MAX_HOPS - 1 :])
        shown = [*shown[: MAX_HOPS - 1], HopFacts(MAX_HOPS, rest, confidence(MAX_HOPS), or_more=True)]
    if counts[-1]:
        shown.append(HopFacts(None, int(counts[-1]), None if alpha is None else 0.0))
    return tuple(shown)


def _channels(filling: FilledChannels, unreachable: Callable[[int], Array]) -> tuple[ChannelFacts, ...]:
    n_missing = np.array([int(filling.missing(place).sum()) for place in range(len(filling.names))], dtype=np.int64)
    with_histogram = set(np.argsort(-n_missing, kind="stable")[:MAX_HISTOGRAMS].tolist())
    places = range(len(filling.names)) if filling.places is None else filling.places
    facts = []
    for place, (name, channel) in enumerate(zip(filling.names, places, strict=True)):
        gone, values = filling.missing(place), filling.filled(place)
        known, filled = values[~gone], values[gone]
        facts.append(
            ChannelFacts(
                name=str(name),
                n_known=len(known),
                n_missing=int(n_missing[place]),
                n_unreachable=int((unreachable(channel) & gone).sum()),
                mean_known=_mean(known),
                mean_filled=_mean(filled),
                histogram=_histogram(known, filled) if place in with_histogram else None,
            )
        )
    for name, (gone, channel) in filling.categories.items():
        n_gone, n_unreachable = int(gone.sum()), int((unreachable(channel) & gone).sum())
        facts.append(ChannelFacts(name, len(gone) - n_gone, n_gone, n_unreachable, None, None))
    return tuple(facts)


def _mean(values: Array) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean(dtype=np.float64)) if len(finite) else None


def _histogram(known: Array, filled: Array) -> Histogram | None:
    both = [part[np.isfinite(part)].astype(np.float64) for part in (known, filled)]
    low = min((part.min() for part in both if len(part)), default=0.0)
    high = max((part.max() for part in both if len(part)), default=0.0)
    if not np.isfinite(high - low):
        return None
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-300):
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    counts = [np.histogram(part, edges)[0] for part in both]
    return Histogram(tuple(edges.tolist()), *(tuple(count.tolist()) for count in counts))


def _parameters(parameters: dict[str, Any], result: Imputation) -> dict[str, Any]:
    """Parameters that were used; values that JSON cannot represent become text."""
    used = {**parameters, "method": result.method}
    for name in ("alpha", "beta", "objective"):
        if getattr(result, name, None) is not None:
            used[name] = getattr(result, name)
    plain = (str, int, float, bool, type(None))
    return {name: value if isinstance(value, plain) else str(value) for name, value in used.items()}


def _confidence_of_nodes(result: Imputation, n_nodes: int) -> Array:
    """Mean confidence of the missing cells of each node; NaN if it has none, or if there is no confidence."""
    total, n_missing = np.zeros(n_nodes), np.zeros(n_nodes)
    hops = result.cells.hops
    if hops is not None and result.alpha is not None:
        table = hops.confidence_by_code(result.alpha, np.float64)
        sizes = np.bincount(hops.patterns[result.cells.first_channels], minlength=hops.codes.shape[1])
        for pattern, size in enumerate(sizes):
            codes = np.minimum(hops.codes[:, pattern], hops.n_levels + 1)
            total += size * np.where(codes > 0, table[codes], 0.0)
            n_missing += size * (codes > 0)
    return np.asarray(np.divide(total, n_missing, out=np.full(n_nodes, np.nan), where=n_missing > 0))
