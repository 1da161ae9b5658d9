"""Which nodes to measure next: those whose measurement takes most off the total expected error.

The errors are those of the estimator that fills the table, before and after (`measurement_design`): the cells of a
measured node become known, the graph's estimates of others have a further source, and the next fit learns from it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends.cpu import CpuBackend
from pcfi.cell_info import CellInfo
from pcfi.errors import FeatureError, ParameterError, counted
from pcfi.estimation.graph_estimates import with_channels
from pcfi.estimation.value_model import ValueModel, row_blocks
from pcfi.explanation.estimate_moments import fit_moments
from pcfi.explanation.explanation import share
from pcfi.explanation.measurement_design import Diffuse, MeasurementDesign
from pcfi.inputs.cell_names import CellNames
from pcfi.pipeline import run_stages
from pcfi.stages.solvers import FixedSteps, UntilSettled

MAX_SHOWN = 20
MAX_PATTERNS = 4  # sets of columns with the same sources that estimates are followed in
RTOL = 1e-2  # of the solver: gains are compared, not reported to many digits


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
    """Nodes whose measurement would reduce the total expected error most, in the order of choice.

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
        raise ParameterError(f"must be an integer of at least 1, got {k!r}", parameter="k")
    cells: CellInfo = result.cells
    if cells.hops is None or cells.model is None:
        raise ParameterError(
            "suggest needs the model of values, and this result has none: impute with objective='values' and "
            "method 'pcfi'"
        )
    if not len(cells.model.errors.scores):
        raise FeatureError("suggest needs errors learned from hidden cells, and too few cells could be hidden")
    design = _design(cells, cells.model)
    possible = (cells.host_hops.codes[:, np.unique(cells.host_hops.patterns[cells.model.scale.active])] > 0).any(axis=1)
    if candidates is not None:
        asked = np.zeros(len(possible), dtype=np.bool_)
        asked[[cells.names.row(node, len(possible)) for node in candidates]] = True
        possible &= asked
    chosen = design.choose(np.flatnonzero(possible), int(k))
    return Suggestions(
        rows=chosen.nodes,
        own=chosen.own / chosen.total,
        others=chosen.others / chosen.total,
        n_candidates=int(possible.sum()),
        names=cells.names,
    )


def _design(cells: CellInfo, model: ValueModel) -> MeasurementDesign:
    hops, columns = cells.host_hops, cells.columns
    counts = model.scale.active / np.bincount(columns)[columns]  # a categorical column is several channels: one
    variance = _variances(cells, model, counts)
    sizes = np.bincount(hops.patterns, weights=counts, minlength=hops.codes.shape[1])
    chosen = np.sort(np.argsort(-sizes, kind="stable")[:MAX_PATTERNS])
    chosen = chosen[sizes[chosen] > 0]
    total, followed = variance.sum(axis=1), variance[:, chosen].sum(axis=1)
    weight = variance[:, chosen] * np.divide(total, followed, out=np.zeros(len(total)), where=followed > 0)[:, None]
    return MeasurementDesign(
        graph=cells.graph,
        moments=fit_moments(cells, model, counts),
        alpha=float(cells.settings.alpha),
        diffuse=_diffusion(cells),
        known=hops.codes[:, chosen] == 0,
        weight=weight,
        rest=np.where(followed > 0, 0.0, total),
    )


def _variances(cells: CellInfo, model: ValueModel, counts: Array) -> Array:
    """Variance of the missing cells of each node without the graph, summed over the channels of each pattern."""
    hops = cells.host_hops
    variance = np.zeros(hops.codes.shape)
    for rows in row_blocks(len(variance), len(counts)):
        known = hops.codes[rows][:, hops.patterns] == 0
        nowhere = np.zeros(known.shape, dtype=np.bool_)
        alone = np.where(known, 0.0, model.standard_deviations(known, nowhere) ** 2 * counts)
        for channel in np.flatnonzero(counts > 0):
            variance[rows, hops.patterns[channel]] += alone[:, channel]
    return variance


def _diffusion(cells: CellInfo) -> Diffuse:
    solver = cells.settings.solver
    loose = solver if isinstance(solver, FixedSteps) else UntilSettled(max(RTOL, solver.rtol), solver.max_steps)
    settings = replace(cells.settings, beta=0.0, solver=loose, unreachable="zero", progress=False)

    def diffuse(values: Array, sources: Array) -> tuple[Array, Array]:
        values = np.where(sources, values, 0.0).astype(np.float32)
        problem = with_channels(cells.problem, values, np.ascontiguousarray(sources))
        filled = run_stages(problem, settings, CpuBackend())
        hops = filled.hops
        if hops is None:
            raise ValueError("diffusion counts hops")
        codes = np.asarray(hops.codes)
        levels = np.where(hops.is_reachable(codes), codes, np.inf).astype(np.float32)
        return np.asarray(filled.values), levels[:, hops.patterns]

    return diffuse
