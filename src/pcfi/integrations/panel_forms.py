"""Detect long or transposed tables that are passed as wide tables, and raise an error that says what to do."""

from typing import Any

from pcfi._typing import Array
from pcfi.errors import FeatureError
from pcfi.inputs.columns import EdgeColumns
from pcfi.inputs.edge_frames import open_edges
from pcfi.inputs.graphs import is_networkx, prepare_graph
from pcfi.inputs.ids import is_frame, kind_of
from pcfi.inputs.spatial_weights import is_spatial_weights, names_of_nodes


def names_in(graph: Any) -> list[Any] | None:
    """Names of the nodes of a graph; empty if there is no graph, None if its nodes are numbered."""
    if graph is None:
        return []
    if is_networkx(graph):
        return list(graph)
    if is_spatial_weights(graph):
        return names_of_nodes(graph)
    if is_frame(graph):
        frame, chosen = open_edges(graph, EdgeColumns())
        return list(dict.fromkeys(name for end in chosen.ends for name in frame.get_column(end).unique().to_list()))
    return None


def refuse_other_forms(table: Any, frame: Any, columns: list[str], graph: Any, time: str | None, nodes: Any) -> None:
    """Raise an error if a table without `node` has no column for any node of the graph, and is long or transposed.

    Parameters
    ----------
    table, frame : table
        As given, and as a narwhals DataFrame.
    columns : list of str
        Its numeric columns.
    graph, nodes
        The graph, and the names of its nodes if they are given.
    time : str or None
        The time column, if it is named.
    """
    index = getattr(table, "index", None)
    if getattr(index, "nlevels", 1) > 1:
        levels = ", ".join(repr(name) for name in table.index.names)
        remedy = "pass table.reset_index(), and name the columns with node= and time="
        raise FeatureError(f"the index of the table has the levels {levels}, as that of a long table: {remedy}")
    named = list(nodes) if nodes is not None else names_in(graph)
    numbers = set(range(prepare_graph(graph).n_nodes)) if named is None else set()
    if set(named if named is not None else numbers) & set(columns):
        return
    node = _column_of_nodes(frame, set(named or ()), numbers)
    if node is not None and frame.get_column(node).is_duplicated().any():
        others = [name for name in frame.columns if name not in columns and name != node]
        raise FeatureError(
            f"the table has no column for any node, but its column {node!r} contains node names: for a long table (one "
            f"row per node and time) pass node={node!r}, time={time or next(iter(others), '...')!r}"
        )
    in_index = named and index is not None and set(index) & set(named)
    if node is not None or in_index or len(numbers) == len(frame) != len(columns):
        turned = "table.T" if node is None else f"table.set_index({node!r}).T"
        raise FeatureError(
            "the table has one row per node and one column per time, but a wide table must have one row per time and "
            f"one column per node: pass {turned}"
        )


def _column_of_nodes(frame: Any, names: set[Any], numbers: set[int]) -> str | None:
    """The first column that contains nodes of the graph, or repeated text if the node names are unknown."""
    for column in frame.columns:
        values = frame.get_column(column)
        held = set(values.drop_nulls().unique().to_list())
        is_text = not kind_of(values.dtype).is_number and not values.dtype.is_temporal()
        is_repeated = len(held) < len(values)
        is_number = values.dtype.is_integer() and bool(numbers) and held <= numbers
        if held & names if names else is_repeated and (is_text or is_number):
            return str(column)
    return None


def refuse_transposed_array(table: Array, graph: Any, nodes: Any) -> None:
    """Raise an error if an array has as many rows as the graph has nodes, but another number of columns."""
    if graph is None or names_in(graph) is not None:
        return
    n_nodes = prepare_graph(graph).n_nodes if nodes is None else len(nodes)
    if n_nodes == len(table) != table.shape[1]:
        raise FeatureError(
            f"the array has {len(table)} rows and {table.shape[1]} columns, and the graph {n_nodes} nodes: an array of "
            "readings has one row per time and one column per node; pass array.T"
        )
