"""`pcfi explain`: which known cells the filled values of some cells come from."""

import json
from dataclasses import dataclass

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command, names
from pcfi.cli.loading import fill_loaded, load
from pcfi.cli.session import open_session
from pcfi.errors import ParameterError
from pcfi.inputs.cell_names import CellNames


@dataclass(frozen=True)
class CellOptions:
    """The cells to explain."""

    node: list[str] = o.filling_option("--node", "ID,...", "Ids of the nodes to explain; repeatable.", default=...)
    column: list[str] = o.filling_option("--column", "COLUMN,...", "Columns to explain; repeatable.", default=...)


def explain(
    files: o.FileOptions,
    maps: o.MapOptions,
    cells: CellOptions,
    columns: o.ColumnOptions,
    estimation: o.EstimationOptions,
    running: o.RunOptions,
) -> None:
    """Fill the missing cells and print which known cells some of the values come from, with their weights.

    Nothing is written. Every node is explained in every column that is named.

    Example: pcfi explain nodes.csv edges.csv --node ann --column income
    """
    with open_session(**vars(running)) as session:
        parameters = estimation.parameters(directed=columns.directed)
        selection = columns.node_columns(), columns.edge_columns()
        loaded = load(session, maps.sources(files), *selection, directed=bool(columns.directed))
        nodes, chosen = names(cells.node), names(cells.column)
        if not nodes or not chosen:
            raise ParameterError("--node and --column need a name each")
        known_names = CellNames.of_table(loaded.table)
        for column in chosen:
            known_names.column(column, len(loaded.table.columns))
        for node in nodes:
            known_names.row(node, loaded.graph.n_nodes)
        result = fill_loaded(session, loaded, parameters)
        pairs = [(node, column) for node in nodes for column in chosen]
        with session.stage("explain"):
            explanations = result.explain(*map(list, zip(*pairs, strict=True)))
        if running.as_json:
            from pcfi.report.facts import finite

            typer.echo(
                json.dumps(
                    [
                        {"node": str(one.node), "column": one.column, "value": finite(one.value), "text": repr(one)}
                        | {"logarithmic": one.logarithmic, "parts": finite(one.to_rows())}
                        for one in explanations
                    ],
                    default=str,
                )
            )
        session.answer(repr(explanations))


command = grouped_command(explain)
