"""An imputation -> explanations of some values, suspicious known values, and nodes to measure next."""

from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.cell_info import CellInfo
from pcfi.errors import PcfiError
from pcfi.estimation.value_model import ValueModel, row_blocks
from pcfi.explanation.suggestion import suggest
from pcfi.report.facts import ExplainedCell, SuggestedNode, SurprisingCell
from pcfi.result import Imputation

MAX_SURPRISES, MAX_SUGGESTIONS = 20, 20
MAX_CELLS = 500_000  # larger tables are not checked, which would take several times as long as filling
MAX_NODES = 20_000  # for larger graphs no nodes are suggested
MIN_SURPRISE = 3.0  # times the expected error, to be shown


def notable_cells(result: Imputation) -> tuple[ExplainedCell, ...]:
    """Explanations of the least certain, the farthest and the most unusual filled cell."""
    cells, model, errors = result.cells, result.cells.model, result.cells.standardized_errors
    if cells.hops is None or model is None or errors is None:
        return ()
    best: dict[str, tuple[Any, tuple[int, int]]] = {}
    for rows in row_blocks(*errors.shape):
        if not np.isfinite(errors[rows]).all():
            return ()
        for reason, score in _scores(cells, model, np.asarray(errors[rows]), rows).items():
            place = np.unravel_index(int(np.argmax(score)), score.shape)
            if np.isfinite(score[place]) and (reason not in best or score[place] > best[reason][0]):
                best[reason] = score[place], (rows.start + int(place[0]), int(cells.columns[place[1]]))
    chosen: dict[tuple[int, int], str] = {}
    for reason, (_, cell) in best.items():
        chosen[cell] = f"{chosen[cell]}, {reason}" if cell in chosen else reason
    return tuple(_explained(result, row, column, reason) for (row, column), reason in chosen.items())


def _scores(cells: CellInfo, model: ValueModel, errors: Array, rows: slice) -> dict[str, Array]:
    """Score of the cells of some rows for each reason to explain a cell; -inf for cells that are not filled."""
    hops = cells.host_hops
    codes = hops.codes[rows][:, hops.patterns]
    filled = hops.is_filled(codes) & model.scale.active
    filled[:, cells.categorical] = False
    host_values = cells.host_values[rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(model.scale.logarithmic, np.log(host_values), host_values)
        unusual = np.abs(np.nan_to_num(model.scale.standardized(values), posinf=0.0, neginf=0.0))
    scores = {
        "least certain": errors,
        "farthest from known values": codes + errors / (1 + errors),  # ties go to the least certain
        "farthest from the mean of its column": unusual,
    }
    return {reason: np.where(filled, score, -np.inf) for reason, score in scores.items()}


def _explained(result: Imputation, row: int, column: int, reason: str) -> ExplainedCell:
    names = result.cells.names
    explanation = result.explain(names.node(row), names.columns[column] if names.columns else column)
    return ExplainedCell(
        reason=reason,
        node=str(explanation.node),
        title=explanation.title,
        lines=tuple(explanation.lines()),
        remarks=tuple(explanation.remarks),
        paths=tuple(tuple(map(str, path)) for path in explanation.paths),
    )


def surprising_cells(result: Imputation) -> tuple[SurprisingCell, ...]:
    """Known cells that contradict the others; none if the table is large or has no value model."""
    if result.cells.model is None or result.cells.hops is None or result.cells.host_values.size > MAX_CELLS:
        return ()
    try:
        rows = result.surprise.to_rows(MAX_SURPRISES)
    except PcfiError:
        return ()
    return tuple(SurprisingCell(**row | {"node": str(row["node"])}) for row in rows if row["surprise"] >= MIN_SURPRISE)


def suggested_nodes(result: Imputation) -> tuple[SuggestedNode, ...]:
    """Nodes to measure next; none if the graph is large or there are no suggestions."""
    if not result.n_missing or result.cells.graph.n_nodes > MAX_NODES:
        return ()
    try:
        rows = suggest(result, MAX_SUGGESTIONS).to_rows()
    except PcfiError:
        return ()
    return tuple(SuggestedNode(**row | {"node": str(row["node"])}) for row in rows)
