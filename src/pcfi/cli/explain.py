"""`pcfi explain`: print which known cells the values of some filled cells are computed from."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command, names
from pcfi.cli.loading import fill_loaded
from pcfi.cli.requirements import disk_budget
from pcfi.cli.session import Session, open_session
from pcfi.errors import ParameterError
from pcfi.files.paths import remove
from pcfi.inputs.cell_names import CellNames
from pcfi.inputs.ids import narwhals


@dataclass(frozen=True)
class CellOptions:
    """The cells to explain."""

    node: list[str] = o.filling_option("--node", "ID,...", "Ids of the nodes to explain; repeatable.", default=...)
    column: list[str] = o.filling_option("--column", "COLUMN,...", "Columns to explain; repeatable.", default=...)


def explain(
    inputs: o.InputOptions,
    cells: CellOptions,
    estimation: o.EstimationOptions,
    budget: o.BudgetOptions,
    running: o.RunOptions,
) -> None:
    """Fill the missing cells, and print which known cells some of the values are computed from, with their weights.

    Every named node is explained in every named column. No files are written.

    Example: pcfi explain nodes.csv edges.csv --node ann --column income
    """
    with open_session(**vars(running)) as session:
        nodes, chosen = names(cells.node), names(cells.column)
        if not nodes or not chosen:
            raise ParameterError("--node and --column each need at least one name")
        parameters = estimation.parameters(directed=inputs.directed)
        memory = None if budget.is_set else disk_budget(session, inputs.sources, ())
        budget = budget if memory is None else replace(budget, memory=str(memory))
        if budget.is_set:
            explanations = _explain_on_disk(session, inputs, parameters, budget, (nodes, chosen))
        else:
            loaded = inputs.load(session)
            known_names = CellNames.of_table(loaded.table)
            _check_names(known_names, (nodes, chosen), (loaded.graph.n_nodes, len(loaded.table.columns)))
            result = fill_loaded(session, loaded, parameters)
            explanations = _explained(session, result, nodes, chosen)
        if running.as_json:
            typer.echo(json.dumps([_as_json(one) for one in explanations], default=str))
        session.answer(repr(explanations))


def _check_names(known: CellNames, cells: tuple[list[str], list[str]], shape: tuple[int, int]) -> None:
    for column in cells[1]:
        known.column(column, shape[1])
    for node in cells[0]:
        known.row(node, shape[0])


def _explained(session: Session, result: Any, nodes: list[str], columns: list[str]) -> Any:
    pairs = [(node, column) for node in nodes for column in columns]
    with session.stage("explain"):
        return result.explain(*map(list, zip(*pairs, strict=True)))


def _as_json(one: Any) -> dict[str, Any]:
    from pcfi.report.facts import finite

    facts = {"node": str(one.node), "column": one.column, "value": finite(one.value), "text": repr(one)}
    return facts | {"logarithmic": one.logarithmic, "parts": finite(one.to_rows())}


def _explain_on_disk(
    session: Session,
    inputs: o.InputOptions,
    parameters: dict[str, Any],
    budget: o.BudgetOptions,
    cells: tuple[list[str], list[str]],
) -> Any:
    """The same within a memory budget; the default work folder is in the current folder."""
    from pcfi.cli.disk_inputs import disk_files
    from pcfi.cli.outofcore import DiskCall, stream
    from pcfi.outofcore.stored_cells import stored_imputation

    selection, work = (inputs.node_columns(), inputs.edge_columns()), Path(budget.work or "pcfi-explain.work")
    with disk_files(session, inputs.sources, *selection, work) as files:
        call = DiskCall(
            files=files,
            nodes=selection[0],
            edges=selection[1],
            parameters=parameters,
            outputs=o.OutputOptions(f"{work}.values.parquet", force=True),
            budget=replace(budget, work=str(work)),
        )

        def check(nodes: Any) -> None:
            ids = None if nodes.id is None else nodes.store.column(nodes.id, call.budget.bytes // 8)
            series = None if ids is None else narwhals().from_native(ids, series_only=True)
            _check_names(CellNames(ids=series, columns=(*nodes.channels, *nodes.categories)), cells, nodes.store.shape)

        def finish(run: Any, stored: Any) -> Any:
            explained = _explained(session, stored_imputation(run, stored, call.budget.bytes // 8), *cells)
            remove(Path(stored.values))
            return explained

        return stream(session, call, finish, check)


command = grouped_command(explain)
