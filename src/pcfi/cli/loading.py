"""Node and edge files -> the input of `pcfi.impute`; prints which columns were chosen."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.cli.arguments import option_text
from pcfi.cli.preloading import preloading
from pcfi.cli.session import Session
from pcfi.errors import FeatureError, FileError, ParameterError, counted
from pcfi.files import edge_files, node_files
from pcfi.inputs.category_columns import gaps_text
from pcfi.inputs.code_columns import code_columns, code_text
from pcfi.inputs.columns import EdgeColumns, NodeColumns
from pcfi.inputs.graphs import Graph, read_graph
from pcfi.inputs.ids import is_frame
from pcfi.inputs.knn import knn_graph
from pcfi.inputs.node_columns import NodeColumn
from pcfi.inputs.node_tables import NodeTable, read_table
from pcfi.integrations.geo_graphs import Neighborhood, find_neighbors


@dataclass(frozen=True)
class SimilarRows:
    """Rule that links each row of a table to its most similar rows; a function of the channels."""

    n_neighbors: int

    def __call__(self, features: Array) -> Any:
        """The graph of these rows."""
        return knn_graph(features, self.n_neighbors)


@dataclass(frozen=True, eq=False)
class Loaded:
    """A problem from files.

    Attributes
    ----------
    nodes : NodeFileContents
        The node file.
    table : NodeTable
        The node table with its channels.
    graph : Graph
    candidates : tuple of Graph
        For a map: graphs with the same edges and different weights; the best one is used.
    rule : SimilarRows or None
        Builds the graph, if it is built from the table.
    incomplete : frozenset of str or None
        Columns that have missing cells, of a table that comes in parts; None: look at the table.
    """

    nodes: node_files.NodeFileContents
    table: NodeTable
    graph: Graph
    candidates: tuple[Graph, ...] = ()
    rule: SimilarRows | None = None
    incomplete: frozenset[str] | None = None

    def is_incomplete(self, column: NodeColumn) -> bool:
        """Whether a column has missing cells."""
        return bool(column.missing.any() if self.incomplete is None else column.name in self.incomplete)

    @property
    def graph_like(self) -> Any:
        """The graph, or the function that builds it."""
        return self.graph if self.rule is None else self.rule

    @property
    def names(self) -> list[str]:
        """Names of the numeric columns to fill, in the order of the table."""
        return [column.name for column in self.table.columns if column.codes is None]

    @property
    def places(self) -> dict[str, int]:
        """First channel of every column; a categorical column has several channels."""
        starts = np.cumsum([0, *(column.width for column in self.table.columns)])
        return {column.name: int(start) for start, column in zip(starts, self.table.columns, strict=False)}

    def array(self, table: Any) -> Array:
        """The numeric columns of a table with this layout as one array, NaN where missing."""
        columns = [table[name].to_numpy(zero_copy_only=False) for name in self.names]
        if not columns:
            return np.empty((table.num_rows, 0))
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)

    def node_name(self, row: int) -> str:
        """Id of a node in the file."""
        return str(row if self.nodes.id is None else self.nodes.table[self.nodes.id][row].as_py())


def load(
    session: Session,
    sources: tuple[str, str | Neighborhood | SimilarRows],
    node_columns: NodeColumns,
    edge_columns: EdgeColumns,
    *,
    directed: bool = False,
    rounds: bool = False,
) -> Loaded:
    """Read both files, match ids to rows, and prepare the graph; or link neighbouring places or similar rows."""
    path, edges = sources
    if isinstance(edges, str):
        return _load_with_edges(session, (path, edges), node_columns, edge_columns, directed=directed, rounds=rounds)
    nodes = _read_nodes(session, path, node_columns)
    _warn_of_gaps(session, nodes, node_columns, [])
    table = _choose_channels(nodes, rounds=rounds)
    if isinstance(edges, SimilarRows):
        with session.stage("link similar rows"):
            graph = read_graph(edges(table.values()), nodes.table.num_rows, path, directed=False)
        session.say(f"{path}: {counted(graph.n_edges, 'pair')} of similar rows")
        loaded = Loaded(nodes, table, graph, rule=edges)
    else:
        candidates = _spatial_graphs(session, nodes, path, edges)
        session.say(f"{path}: {counted(candidates[0].n_edges, 'pair')} of neighbours")
        loaded = Loaded(nodes, table, candidates[0], candidates)
    _warn_of_codes(session, table, node_columns)
    refuse_infinite(loaded)
    return loaded


def _load_with_edges(
    session: Session,
    paths: tuple[str, str],
    node_columns: NodeColumns,
    edge_columns: EdgeColumns,
    *,
    directed: bool,
    rounds: bool,
) -> Loaded:
    if paths[0] == paths[1] == "-":
        raise ParameterError("only one of the two files can come from standard input")
    edge_file = cache(lambda: edge_files.open_edge_file(paths[1]))
    with preloading(*paths):
        nodes = _read_nodes(session, paths[0], node_columns, lambda: edge_files.kind_of_ends(edge_file(), edge_columns))
        dressed = node_files.dressed_numbers(nodes, node_columns)
        for name, value in dressed:
            session.warn(dressed_text(name, value))
        _warn_of_gaps(session, nodes, node_columns, [name for name, _ in dressed])
        with session.stage("read edges"):
            edges = edge_files.read_edges(edge_file(), nodes, edge_columns)
    session.say(edge_files.described(edges, paths[1]))
    if edges.unused_weight is not None:
        session.warn(unused_weight_text(paths[1], edges.unused_weight))
    with session.stage("map ids"):
        table = _choose_channels(nodes, rounds=rounds)
        graph = _by_rows(session, table, edges, edge_columns, paths[1])
        if is_frame(edges.graph) and node_columns.id is None:
            _warn_of_ids(session, table, edges)
    _warn_of_codes(session, table, node_columns, edges)
    edges = replace(edges, graph=None)  # its memory is needed for the graph
    with session.stage("prepare graph"):
        n_nodes = nodes.table.num_rows
        rows = f"{paths[0]} has {n_nodes} rows" + (" (or name its ids with --id)" if nodes.id is None else "")
        prepared = read_graph(graph, n_nodes, rows, directed=directed)
    if prepared.weights is not None and edges.columns is not None and edges.columns.weight is None:
        session.say(f"{paths[1]}: the weights of duplicate edges are added, so the graph is weighted")
    loaded = Loaded(nodes, table, prepared)
    refuse_infinite(loaded)
    return loaded


def _read_nodes(session: Session, path: str, *choices: Any) -> node_files.NodeFileContents:
    with session.stage("read nodes"):
        nodes = node_files.read_nodes(path, *choices)
    session.say(node_files.described(nodes, path))
    return nodes


def _warn_of_gaps(session: Session, nodes: node_files.NodeFileContents, columns: NodeColumns, apart: list[str]) -> None:
    """Warn about columns, except those `apart`, whose missing cells stay missing, unless the user names the columns."""
    names = [] if columns.channels is not None else [name for name in nodes.passed if name not in apart]
    excluded = {*columns.exclude, nodes.geometry.name if nodes.geometry is not None else None}
    text = gaps_text({name: nodes.table[name].null_count for name in names if name not in excluded}, "--categorical")
    if text:
        session.warn(text)


def _choose_channels(nodes: node_files.NodeFileContents, *, rounds: bool) -> NodeTable:
    chosen = NodeColumns(id=nodes.id, channels=nodes.channels, categorical=nodes.categorical)
    return read_table(nodes.table, chosen, round=rounds)


def _spatial_graphs(
    session: Session, nodes: node_files.NodeFileContents, path: str, rule: Neighborhood
) -> tuple[Graph, Graph]:
    """Graphs of neighbouring places, with equal weights and with weights by distance."""
    if nodes.geometry is None:
        raise FileError(
            f"{path} has no geometry to find neighbours by: name an edge file after it, or link similar rows with "
            "--knn 10, or use a .gpkg, .geojson or GeoParquet file"
        )
    with session.stage("find neighbours"):
        edges = find_neighbors(nodes.geometry.frame(nodes.table), rule)
        return edges.graph("equal"), edges.graph("distance")


def fill_loaded(session: Session, loaded: Loaded, parameters: dict[str, Any]) -> Any:
    """Fill the table with its graph, or with the best of several."""
    from pcfi.integrations.geo import impute_best

    with session.stage("impute"):
        graphs = loaded.candidates or (loaded.graph_like,)
        on_map = bool(loaded.candidates)
        return impute_best(loaded.table, graphs, from_geometry=on_map, **parameters, progress=session.progress)


def dressed_text(column: str, value: str) -> str:
    """What to say about a column of numbers that are written as text."""
    return (
        f"the column {column!r} is not filled, because {value!r} is text: write it as a plain number, or add "
        f"{option_text('exclude', value=column)} if the column should not be filled"
    )


def _warn_of_codes(session: Session, table: NodeTable, columns: NodeColumns, edges: Any = None) -> None:
    """Warn about codes that are used as measurements, unless the user names the columns."""
    graph, ends = (None, None) if edges is None else (edges.graph, edges.edge_columns())
    warn_of_code_columns(session, [] if columns.channels is not None else code_columns(table, graph, ends))


def warn_of_code_columns(session: Session, names: list[str]) -> None:
    """Warn of codes that are used like measurements, with the options that leave them out."""
    if names:
        session.warn(f"{code_text(names)}: leave out with {option_text('exclude', value=names)}")


def unused_weight_text(path: str, column: str) -> str:
    """Message about a numeric column that is not used as weights."""
    option = option_text("weight", value=column)
    return f"{path}: the edges are unweighted; if the numbers in {column!r} are weights, add {option}"


def _by_rows(
    session: Session, table: NodeTable, edges: edge_files.EdgeFileContents, columns: EdgeColumns, path: str
) -> Any:
    """The graph with row numbers instead of ids."""
    if not is_frame(edges.graph):
        return edges.graph
    graph = table.read_edges(edges.graph, edges.edge_columns(columns.unknown_ids))
    n_edges, n_left = edges.graph.num_rows, graph[0].shape[1]
    if n_left < n_edges:
        unknown = f"{n_edges - n_left:,} of {counted(n_edges, 'edge')}"
        session.say(f"{path}: {unknown} refer to unknown ids and were dropped")
    return graph


def _warn_of_ids(session: Session, table: NodeTable, edges: edge_files.EdgeFileContents) -> None:
    name = table.id_like_channel(edges.graph, edges.edge_columns())
    if name is not None:
        session.warn(id_like_text(table.ids.words, name))


def id_like_text(ids: str, column: str) -> str:
    """Message about a channel that looks like ids."""
    return (
        f"nodes are identified by {ids}, and {column!r} is filled like any numeric column: if it holds the ids, add "
        f"{option_text('id', value=column)}"
    )


def refuse_infinite(loaded: Loaded) -> None:
    """Raise `FeatureError` if a channel holds an infinite value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in loaded.names:
        column = loaded.nodes.table[name]
        if not pa.types.is_floating(column.type) or not pc.any(pc.is_inf(column)).as_py():
            continue
        infinite = np.isinf(np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64))
        row = int(np.argmax(infinite))
        value = column[row].as_py()
        raise FeatureError(
            f"the column {name!r} holds {value} at node {loaded.node_name(row)!r} "
            f"({counted(int(infinite.sum()), 'such cell')}): known values must be finite; if it means missing, add "
            f"--missing-value {value}"
        )
