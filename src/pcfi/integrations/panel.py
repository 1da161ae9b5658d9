"""Panels: readings of nodes over time and a graph of the nodes -> the filled table.

The model is in `pcfi.panels`: interpolation in time, corrected by the changes of neighbours and other columns.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from pcfi.errors import FeatureError, ParameterError, PcfiWarning, counted
from pcfi.estimation.result import seed_of
from pcfi.integrations.panel_tables import PanelTable, read_panel
from pcfi.integrations.panel_times import phases_of
from pcfi.panels.deviations import PanelAxes
from pcfi.panels.filling import FilledCells, fill_column
from pcfi.panels.fitting import fit_column, prepare_column
from pcfi.panels.gaps import typical_step
from pcfi.panels.other_columns import OtherColumns
from pcfi.panels.result import GapReports, PanelImputation, report_gaps

__all__ = ["impute"]


def impute(
    table: Any,
    graph: Any,
    *,
    node: str | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    nodes: Sequence[Any] | None = None,
    missing_values: Sequence[float] = (),
    season: Any = "auto",
    complete: bool = False,
    random_state: Any = None,
) -> PanelImputation:
    """Fill missing readings of sensors or regions over time, from their own past and future and from their neighbours.

    Parameters
    ----------
    table : DataFrame of pandas or polars, Table of pyarrow, or array
        Long (one row per node and time, if `node` is given) or wide (one row per time, one column per node; the times
        are the pandas index or the column `time`; rows of an array are equally spaced). Null and NaN mean missing.
    graph : table of edges, networkx graph, libpysal Graph or W, adjacency, edge index, or Graph
        Edges between the nodes, with the node names of the table. A graph with numbered nodes needs `nodes`, unless the
        table also numbers its nodes from 0. None: no neighbours.
    node : str, default=None
        The node column of a long table.
    time : str, default=None
        The time column: dates, date strings, or numbers, in any order and with any spacing.
    columns : list of str, default=None
        The columns of a long table to use and fill. None: all numeric columns. Columns are used to predict each other
        where this reduces the error on hidden cells.
    nodes : list, default=None
        Names of the nodes in the order of the graph.
    missing_values : list of numbers, default=()
        Additional values that mean missing, such as [-1].
    season : "auto", None, "day", "week", "year", number or list, default="auto"
        Seasonal periods. "auto" uses days, weeks and years if they reduce the error on hidden cells. A number is a
        period in the unit of time (seconds, if times are dates).
    complete : bool, default=False
        Whether a long table gets rows for all nodes and times, including nodes that are only in the graph.
    random_state : int, numpy Generator or None, default=None
        Seed for the choice of hidden cells. None is a fixed seed.

    Returns
    -------
    PanelImputation
        `values`, `interval()`, `expected_error` and `gaps` (the kind of gap of each cell) as tables like the input, and
        `columns`: errors on hidden cells for each kind of gap.

    Examples
    --------
    >>> import numpy as np, pcfi
    >>> hours = np.arange(200)
    >>> rain = np.sin(hours / 9)[:, None] + np.zeros(5)
    >>> rain[40:80, 2] = np.nan
    >>> path = [[0, 1, 2, 3], [1, 2, 3, 4]]
    >>> result = pcfi.panel.impute(rain, path)
    >>> bool(np.abs(result.values[40:80, 2] - np.sin(hours[40:80] / 9)).max() < 0.1)
    True
    """
    if not isinstance(complete, bool | np.bool_):
        raise ParameterError(f"must be True or False, got {complete!r}", parameter="complete")
    if complete:
        table = complete_table(table, graph, node, time, nodes)
    panel = replace(read_panel(table, graph, node, time, columns, nodes), missing_values=_numbers(missing_values))
    filled = _fill(panel, season, seed_of(random_state))
    n_unlearned = sum(int(np.isinf(cells.scale).sum()) for cells in filled.values())
    if n_unlearned:
        warnings.warn(
            f"before the first or after the last reading of all nodes, {counted(n_unlearned, 'cell')} got the expected "
            "value of the node, without an interval, because no known cell is comparable",
            PcfiWarning,
            stacklevel=2,
        )
    return _result(panel, filled)


def _fill(panel: PanelTable, season: Any, seed: int) -> dict[str, FilledCells]:
    """Estimates of the missing cells of each column, from its own readings and from the other columns."""
    columns = {}
    for number, name in enumerate(panel.names):
        values, known, missing = panel.readings(name)
        if not known.any():
            raise FeatureError(f"{f'the column {name!r}' if name else 'the table'} has no known reading")
        columns[name] = prepare_column(values, known, missing, _axes(panel, season, known), seed + number)
    smoothed = {name: column.smoothed() for name, column in columns.items()} if len(columns) > 1 else {}
    filled = {}
    for name, column in columns.items():
        others = OtherColumns.of([one for other, one in smoothed.items() if other != name])
        filled[name] = fill_column(column, fit_column(column, others), others)
    return filled


def _numbers(values: Any) -> tuple[float, ...]:
    if isinstance(values, str | bytes) or not all(isinstance(one, Real) for one in values):
        raise ParameterError(f"must be a list of numbers, such as [-1], got {values!r}", parameter="missing_values")
    return tuple(map(float, values))


def _axes(panel: PanelTable, season: Any, known: Any) -> PanelAxes:
    step = typical_step(known, panel.times)
    phases, is_given = phases_of(season, panel.times, panel.clock, step)
    return PanelAxes(panel.graph, (panel.times - panel.times[0]) / step, phases, is_given)


def _result(panel: PanelTable, filled: dict[str, FilledCells]) -> PanelImputation:
    return PanelImputation(
        values=panel.wrap({name: cells.values() for name, cells in filled.items()}, None),
        columns=GapReports(report for name, cells in filled.items() for report in report_gaps(name, cells)),
        n_missing=sum(len(cells.kind) for cells in filled.values()),
        shape=(*panel.shape, len(panel.names)),
        seasons={name: cells.model.season for name, cells in filled.items()},
        _cells=filled,
        _wrap=panel.wrap,
    )


def complete_table(table: Any, graph: Any, node: str | None, time: str | None, nodes: Any) -> Any:
    """A long table with a row for each node of the table or the graph, and each time of the table."""
    from pcfi.inputs.ids import narwhals, open_frame
    from pcfi.integrations.panel_forms import names_in

    if node is None or time is None:
        raise ParameterError("complete=True needs a long table: name its columns with node and time")
    frame = open_frame(table, "the table")
    held = frame.get_column(node).unique(maintain_order=True).to_list()
    names = [*held, *(name for name in (names_in(graph) if nodes is None else nodes) or () if name not in set(held))]
    times = frame.get_column(time).unique(maintain_order=True)
    place = np.tile(np.arange(len(times)), len(names)).tolist()
    everyone = [name for name in names for _ in range(len(times))]
    series = narwhals().new_series(node, everyone, dtype=frame.get_column(node).dtype, backend=frame.implementation)
    pairs = series.to_frame().with_columns(times[place].alias(time))
    return pairs.join(frame, on=[node, time], how="left").select(frame.columns).to_native()
