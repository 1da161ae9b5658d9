"""Which nodes to measure next: those whose measurement takes most off the total expected error.

The expected squared error of a missing cell is what the other columns of its node leave, times what the graph leaves of
that (`NodeField`). Measuring a node removes that of its own missing cells, and part of that of other nodes, as far as
the graph explains their columns. Nodes are chosen one after the other, each given those before it. Gains only shrink as
nodes are chosen, so a gain is computed again only when it is the largest (lazy greedy: Minoux, 1978).
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.cell_info import CellInfo
from pcfi.errors import FeatureError, ParameterError, counted
from pcfi.estimation.value_model import ValueModel, row_blocks
from pcfi.explanation.explanation import share
from pcfi.explanation.node_field import N_PROBES, NodeField, fit_node_field, random_signs
from pcfi.inputs.cell_names import CellNames

MAX_SHOWN = 20
MAX_POOL_CELLS = 1 << 25  # covariances that are kept at a time: 256 MB
POOL_PER_NODE = 4  # nodes that are compared exactly, for each one to choose
MIN_POOL = 64
SOLVED_AT_A_TIME = 64


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Suggestions:
    """Nodes to measure, in the order in which they were chosen.

    Attributes
    ----------
    rows : ndarray of int
    own, others : ndarray
        What measuring the node, after those before it, takes off the total expected squared error (in standard
        deviations of the columns), as a share of that total: at the node itself, and at other nodes.
    n_candidates : int
    names : CellNames
    """

    rows: Array
    own: Array
    others: Array
    n_candidates: int
    names: CellNames

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nodes(self) -> list[Any]:
        """What the caller calls the nodes."""
        return [self.names.node(row) for row in self.rows]

    def to_rows(self) -> list[dict[str, Any]]:
        """One dictionary per node, as a DataFrame takes it; shares are between 0 and 1, and `total` adds them up."""
        total = np.cumsum(self.own + self.others)
        return [
            {"node": node, "own": float(own), "others": float(others), "total": float(part)}
            for node, own, others, part in zip(self.nodes, self.own, self.others, total, strict=True)
        ]

    def to_frame(self) -> Any:
        """The same as a DataFrame of pandas."""
        from pcfi.optional import load

        names = ["node", "own", "others", "total"]
        return load("pandas", "to_frame", "frames").DataFrame(self.to_rows(), columns=names)

    def __repr__(self) -> str:
        if not len(self):
            return "Nothing to measure: no candidate misses a cell."
        rows = self.to_rows()
        shown = rows[:MAX_SHOWN]
        lines = [
            f"Measuring {counted(len(self), 'node')} would take {share(rows[-1]['total'])} off the expected squared "
            "error:"
        ]
        lines += [f"{share(row['own'] + row['others']):>8}  {row['node']!r}{_elsewhere(row)}" for row in shown]
        more = len(rows) - len(shown)
        return "\n".join([*lines, *([f"and {counted(more, 'more node')}"] if more else [])])


def _elsewhere(row: dict[str, Any]) -> str:
    part = row["others"] / max(row["own"] + row["others"], 1e-300)
    return f", {part:.0%} of it at other nodes" if part >= 0.005 else ""


def suggest(result: Any, k: int = 10, *, candidates: Iterable[Any] | None = None) -> Suggestions:
    """Nodes whose measurement would reduce the total expected error most, best first.

    A node is measured in all columns that it misses. Nodes are chosen one after the other, so that later ones do not
    repeat what earlier ones contribute.

    Parameters
    ----------
    result : Imputation
        Of `impute` with the value model.
    k : int, default=10
        Number of nodes.
    candidates : list of ids or row numbers, default=None
        Nodes that can be measured. None: all with a missing cell.

    Returns
    -------
    Suggestions
        Prints as text; `nodes` lists them, `to_frame()` is a table.

    Examples
    --------
    A path whose right half is unknown.

    >>> import numpy as np, pcfi
    >>> values = np.sin(np.arange(60) / 9)[:, None]
    >>> values[30:] = np.nan
    >>> result = pcfi.impute(values, [np.arange(59), np.arange(1, 60)])
    >>> bool((pcfi.suggest(result, 3).rows > 35).all())
    True
    """
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise ParameterError(f"must be a whole number of at least 1, got {k!r}", parameter="k")
    cells: CellInfo = result.cells
    if cells.hops is None or cells.model is None:
        raise ParameterError(
            "suggest needs the model of values, and this result has none: impute with objective='values' and "
            "method 'pcfi'"
        )
    if not len(cells.model.errors.scores):
        raise FeatureError("suggest needs errors learned from hidden cells, and too few cells could be hidden")
    table, node_field = _model(cells, cells.model)
    possible = table.missing.any(axis=1)
    if candidates is not None:
        asked = np.zeros(len(possible), dtype=np.bool_)
        asked[[cells.names.row(node, len(possible)) for node in candidates]] = True
        possible &= asked
    rows, own, others, total = _choose(table, node_field, np.flatnonzero(possible), int(k))
    return Suggestions(
        rows=rows, own=own / total, others=others / total, n_candidates=int(possible.sum()), names=cells.names
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ErrorTable:
    """Expected squared errors of the missing cells, summed over the channels of each pattern.

    Attributes
    ----------
    missing : ndarray of bool of shape (n_nodes, n_patterns)
    variance : ndarray of that shape
        Without the graph.
    explainable : ndarray of that shape
        Variance that the field explains a part of: that without the graph, times how much the graph explains of a
        channel relative to all channels.
    errors : ndarray of that shape
        `variance`, less the part of `explainable` that the field explains.
    weights : ndarray, one per pattern
        Number of columns.
    """

    missing: Array
    variance: Array
    explainable: Array
    errors: Array
    weights: Array

    def explain(self, nodes: Any, shares: Array) -> None:
        """The errors at nodes of which the field explains these shares."""
        explained = self.variance[nodes] - shares[:, None] * self.explainable[nodes]
        self.errors[nodes] = np.where(self.missing[nodes], np.maximum(explained, 0.0), 0.0)

    def own(self, node: int) -> float:
        """Error at a node."""
        return float(self.errors[node].sum())

    def reducible(self, node: int, others: Array) -> Array:
        """Variance at other nodes, in the patterns that a node misses, that its measurement can reduce."""
        patterns = np.flatnonzero(self.missing[node])
        at = np.ix_(others, patterns)
        return np.asarray(np.minimum(self.explainable[at], self.errors[at]).sum(axis=1))

    def measure(self, node: int, others: Array, shares: Array) -> None:
        """Take off what the measurement of a node explains."""
        patterns = np.flatnonzero(self.missing[node])
        at = np.ix_(others, patterns)
        self.errors[at] -= shares[:, None] * np.minimum(self.explainable[at], self.errors[at])
        self.errors[node] = 0.0
        self.missing[node] = False


def _model(cells: CellInfo, model: ValueModel) -> tuple[ErrorTable, NodeField]:
    hops, columns, scale = cells.host_hops, cells.columns, model.scale
    weight = scale.active / np.bincount(columns)[columns]  # a column of categories is several channels, and counts once
    problem = scale.transformed(cells.problem)
    node_field, signals = fit_node_field(cells.graph, scale.standardized(problem.values), problem.mask, weight)
    ratio = signals / node_field.signal
    n_patterns = hops.codes.shape[1]
    variance, explainable = np.zeros(hops.codes.shape), np.zeros(hops.codes.shape)
    for rows in row_blocks(len(hops.codes), len(columns)):
        known = hops.codes[rows][:, hops.patterns] == 0
        nowhere = np.zeros(known.shape, dtype=np.bool_)
        alone = np.where(known, 0.0, model.standard_deviations(known, nowhere) ** 2 * weight)
        for channel in np.flatnonzero(weight > 0):
            variance[rows, hops.patterns[channel]] += alone[:, channel]
            explainable[rows, hops.patterns[channel]] += alone[:, channel] * ratio[channel]
    weights = np.bincount(hops.patterns, weights=weight, minlength=n_patterns)
    missing = (hops.codes > 0) & (weights > 0)
    table = ErrorTable(
        missing=missing, variance=variance, explainable=explainable, errors=variance.copy(), weights=weights
    )
    table.explain(slice(None), node_field.signal - node_field.variances)
    return table, node_field


def _choose(table: ErrorTable, node_field: NodeField, candidates: Array, k: int) -> tuple[Array, Array, Array, float]:
    """Rows, what each takes off at itself and at others, and the error before. `table` is used up."""
    total = float(table.errors.sum())
    chosen: list[int] = []
    taken: list[tuple[float, float]] = []
    n_nodes = len(table.missing)
    largest = max(MAX_POOL_CELLS // n_nodes, 2 * POOL_PER_NODE)
    while len(chosen) < min(k, len(candidates)):
        left = np.setdiff1d(candidates, chosen)
        n_open = k - len(chosen)
        size = min(largest, max(MIN_POOL, POOL_PER_NODE * n_open), len(left))
        pool = left if size == len(left) else _screened(table, node_field, left, size)
        most = n_open if size == len(left) else max(size // POOL_PER_NODE, 1)
        known = node_field.known.copy()
        rows = _Covariances(node_field, pool, table)
        table.explain(pool, node_field.signal - rows.variances)
        total = total if chosen else float(table.errors.sum())
        for node, own, others, gained in _greedy(table, rows, min(most, n_open)):
            chosen.append(node)
            taken.append((own, others))
            known[node] += gained
        node_field = replace(node_field, known=np.minimum(known, 1.0))
    parts = np.array(taken, dtype=np.float64).reshape(-1, 2)
    return np.array(chosen, dtype=np.int64), parts[:, 0], parts[:, 1], max(total, 1e-300)


def _screened(table: ErrorTable, node_field: NodeField, candidates: Array, size: int) -> Array:
    """Candidates with the largest estimated gains: the sum over i of P_iv^2 w_i is that of squares of P sqrt(w) e."""
    reducible = np.minimum(table.explainable, table.errors).sum(axis=1)
    signs = random_signs(len(reducible), N_PROBES // 2)
    spread = node_field.covariance(np.sqrt(reducible)[:, None] * signs)
    misses = table.missing[candidates] @ table.weights / table.weights.sum()
    gain = table.errors[candidates].sum(axis=1) + misses * (spread[candidates] ** 2).mean(axis=1)
    return np.sort(candidates[np.argsort(-gain, kind="stable")[:size]])


def _greedy(table: ErrorTable, rows: "_Covariances", most: int) -> Iterable[tuple[int, float, float, float]]:
    """Choose nodes of the pool, one at a time: the node, its two gains, and the share of the columns that it misses."""
    pool = rows.pool
    queue = [(-rows.gain(place)[1].sum() - table.own(int(node)), place) for place, node in enumerate(pool)]
    heapq.heapify(queue)
    for _ in range(most):
        fresh: set[int] = set()
        while queue:
            _, place = heapq.heappop(queue)
            node = int(pool[place])
            others, parts = rows.gain(place)
            own = table.own(node)
            if place in fresh or not queue or own + parts.sum() >= -queue[0][0]:
                gained = float(table.weights[table.missing[node]].sum() / table.weights.sum())
                reduced = float(parts.sum())
                table.measure(node, others, rows.shares(place)[others])
                rows.condition(place, gained)
                yield node, own, reduced, gained
                break
            fresh.add(place)
            heapq.heappush(queue, (-own - parts.sum(), place))


class _Covariances:
    """Rows of P of the nodes of a pool, each brought up to date when it is asked for."""

    def __init__(self, node_field: NodeField, pool: Array, table: ErrorTable) -> None:
        self.pool, self._table, self._noise = pool, table, node_field.noise
        self._rows = np.empty((len(pool), len(node_field.known)))
        for start in range(0, len(pool), SOLVED_AT_A_TIME):
            part = pool[start : start + SOLVED_AT_A_TIME]
            units = np.zeros((len(node_field.known), len(part)))
            units[part, np.arange(len(part))] = 1.0
            self._rows[start : start + len(part)] = node_field.covariance(units).T
        self._picks: list[tuple[int, Array, float]] = []  # node, its row then, and its variance with noise
        self._done = np.zeros(len(pool), dtype=np.int64)

    @property
    def variances(self) -> Array:
        """P_vv of the nodes of the pool, before any is chosen."""
        return np.asarray(self._rows[np.arange(len(self.pool)), self.pool])

    def _row(self, place: int) -> Array:
        row = self._rows[place]
        for node, other, variance in self._picks[self._done[place] :]:
            row -= other * (row[node] / variance)
        self._done[place] = len(self._picks)
        return np.asarray(row)

    def shares(self, place: int) -> Array:
        """Share of the variance of each node that measuring this one takes off."""
        row = self._row(place)
        return np.asarray(np.minimum(row**2 / (max(row[self.pool[place]], 0.0) + self._noise), 1.0))

    def gain(self, place: int) -> tuple[Array, Array]:
        """Other nodes whose error the measurement reduces, and by how much."""
        shares, node = self.shares(place), int(self.pool[place])
        shares[node] = 0.0
        others = np.flatnonzero(shares > 1e-6 * shares.max(initial=0.0))
        return others, shares[others] * self._table.reducible(node, others)

    def condition(self, place: int, gained: float) -> None:
        """From now on the node is measured, in this share of the columns."""
        row, node = self._row(place).copy(), int(self.pool[place])
        self._picks.append((node, row, float(max(row[node], 0.0) + self._noise / max(gained, 1e-12))))
