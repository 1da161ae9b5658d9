"""An edge file -> a graph: a table of edges between ids, or an adjacency or edge index between rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi.errors import FileError, GraphError, counted
from pcfi.files.binary import (
    EDGES,
    arrow_schema,
    is_sparse_npz,
    parquet_schema,
    read_arrow,
    read_connectivities,
    read_npy,
    read_npz,
    read_parquet,
    read_sparse,
)
from pcfi.files.duckdb_files import duckdb_schema, read_duckdb
from pcfi.files.formats import EDGE_FORMATS
from pcfi.files.node_files import NodeFileContents, nearly_ids
from pcfi.files.opening import InputFile, clear_errors, open_input
from pcfi.files.text import dialect_of, first_rows, header, holds_integers, read_text
from pcfi.inputs.columns import (
    ChosenEdgeColumns,
    EdgeColumns,
    Kind,
    choose_edge_columns,
    headless,
    looks_like_data,
    unused_weight,
)
from pcfi.inputs.node_tables import kind_of_arrow

GRAPH_FORMATS = ("mtx", "npy", "npz", "h5ad")  # of edges between rows, without columns


READERS: dict[str, Callable[[InputFile], Any]] = {
    "parquet": read_parquet,
    "arrow": read_arrow,
    "duckdb": lambda file: read_duckdb(file.path),
}
SCHEMAS: dict[str, Callable[[InputFile], Any]] = {
    "parquet": parquet_schema,
    "arrow": arrow_schema,
    "duckdb": lambda file: duckdb_schema(file.path),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeFileContents:
    """The edges of a file, and the roles of its columns.

    Attributes
    ----------
    graph : pyarrow.Table, or a graph between rows
    columns : ChosenEdgeColumns or None
        None for a file that has no columns.
    unused_weight : str or None
        A numeric column that may have been meant as weights.
    dialect : str
        How a text file is written, in words, if not as its suffix says.
    by_names : bool
        Whether a graph without columns was matched to the ids of the nodes by names.
    """

    graph: Any
    columns: ChosenEdgeColumns | None = None
    unused_weight: str | None = None
    dialect: str = ""
    by_names: bool = False

    def edge_columns(self, unknown_ids: str = "error") -> EdgeColumns:
        """The chosen columns as `NodeTable.read_edges` takes them."""
        if self.columns is None:
            return EdgeColumns(unknown_ids=unknown_ids)
        source, target = self.columns.ends
        weight = self.columns.weight
        if weight is None:
            return EdgeColumns(source=source, target=target, weight=False, unknown_ids=unknown_ids)
        return EdgeColumns(source=source, target=target, weight=weight, unknown_ids=unknown_ids)


def open_edge_file(path: str) -> InputFile:
    """An edge file to read from."""
    return open_input(path, EDGE_FORMATS, "edges")


def kind_of_ends(file: InputFile, columns: EdgeColumns) -> Kind | None:
    """Kind of the ends of the edges, from the first rows of a text file; None if they are row numbers."""
    if file.format.name in GRAPH_FORMATS:
        return None
    with clear_errors(file):
        if file.format.is_text:
            rows = first_rows(file)
            ends = choose_edge_columns(rows.column_names, columns, file.words).ends
            return Kind.INTEGER if all(holds_integers(rows[name]) for name in ends) else Kind.TEXT
        schema = SCHEMAS[file.format.name](file)
        kinds = {
            kind_of_arrow(schema.field(name).type)
            for name in choose_edge_columns(schema.names, columns, file.words).ends
        }
        return Kind.INTEGER if kinds == {Kind.INTEGER} else Kind.TEXT


def read_edges(path: str | InputFile, nodes: NodeFileContents, columns: EdgeColumns | None = None) -> EdgeFileContents:
    """Read an edge file; ids get the type that those of the nodes have."""
    columns = columns or EdgeColumns()
    file = path if isinstance(path, InputFile) else open_edge_file(path)
    with clear_errors(file):
        dialect, graph = "", _read_graph(file, nodes, columns)
        if graph is not None:
            return EdgeFileContents(graph=graph, by_names=file.format.name == "h5ad" and nodes.id is not None)
        if file.format.is_text:
            chosen = choose_edge_columns(header(file), columns, file.words)
            if columns.source is None and columns.target is None:
                _refuse_data_as_header(chosen.ends, nodes, file)
            texts = read_text(file, decimal=columns.decimal)
            types = texts.types(() if nodes.id is None else chosen.ends)
            table, dialect = texts.typed(types), dialect_of(file).words({one.decimal for one in types.values()})
        else:
            table = READERS[file.format.name](file)
            chosen = choose_edge_columns(table.column_names, columns, file.words)
    _refuse_names_for_rows(table, chosen.ends, nodes, file)
    return EdgeFileContents(
        graph=_same_ids(table, chosen.ends, nodes, file),
        columns=chosen,
        unused_weight=unused_weight({one.name: kind_of_arrow(one.type) for one in table.schema}, chosen, columns),
        dialect=dialect,
    )


def _refuse_data_as_header(ends: tuple[str, str], nodes: NodeFileContents, file: InputFile) -> None:
    """Raise `GraphError` if the names of the columns are an edge."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def is_id(name: str) -> bool:
        if nodes.id is None:
            return name.isdecimal() and int(name) < nodes.table.num_rows
        ids = nodes.table[nodes.id]
        return bool(pc.any(pc.equal(ids.cast(pa.string()), name)).as_py())

    if looks_like_data(ends, is_id):
        raise headless(file.words, ends)


def _read_graph(file: InputFile, nodes: NodeFileContents, columns: EdgeColumns) -> Any:
    """A graph between rows, for formats that hold one; else None."""
    match file.format.name:
        case "mtx":
            return read_sparse(file)
        case "npy":
            return read_npy(file)
        case "npz":
            return read_sparse(file) if is_sparse_npz(file) else read_npz(file, EDGES)
        case "h5ad":
            return _by_names(*read_connectivities(file), nodes, columns, file)
    return None


def _by_names(adjacency: Any, names: list[str], nodes: NodeFileContents, columns: EdgeColumns, file: InputFile) -> Any:
    """An adjacency between observations as one between rows of the nodes, matched by name if both have names.

    Observations named 0, 1, 2, ... have no names of their own: they are rows, unless these are the ids of the nodes.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from scipy import sparse

    if nodes.id is None:
        return adjacency
    ids = nodes.table[nodes.id].cast(pa.string()).combine_chunks()
    rows = pc.fill_null(pc.index_in(pa.array(names, pa.string()), value_set=ids), -1).to_numpy()
    unknown = np.flatnonzero(rows < 0)
    if len(unknown) and names == [str(row) for row in range(len(names))]:
        return adjacency
    if len(unknown) and (columns.unknown_ids == "error" or len(unknown) == len(names)):
        raise GraphError(
            f"{file.words} names {names[unknown[0]]!r}, which is not in the column {nodes.id!r} of the nodes; "
            f"{counted(len(unknown), 'observation')} of {len(names):,} are not",
            remedy="add the rows, or leave their edges out with {unknown_ids='drop'}",
        )
    edges = adjacency.tocoo()
    source, target = rows[edges.row], rows[edges.col]
    known = (source >= 0) & (target >= 0)
    shape = (nodes.table.num_rows, nodes.table.num_rows)
    return sparse.coo_array((edges.data[known], (source[known], target[known])), shape=shape)


def _same_ids(table: Any, pair: tuple[str, str], nodes: NodeFileContents, file: InputFile) -> Any:
    """The edge table with ids in the type of the node ids; a text file takes the type of the other file."""
    if nodes.id is None:
        return table
    kind = nodes.table.schema.field(nodes.id).type
    for name in pair:
        place, column = table.column_names.index(name), table[name]
        if column.type != kind and (file.format.is_text or nodes.ids_are_text):
            table = table.set_column(place, name, _cast(column, kind, name, file))
    return table


def _refuse_names_for_rows(table: Any, pair: tuple[str, str], nodes: NodeFileContents, file: InputFile) -> None:
    """Raise `FileError` if edges use text ids, but the nodes have no id column."""
    import pyarrow as pa

    if nodes.id is not None or not any(pa.types.is_string(table.schema.field(name).type) for name in pair):
        return
    nearly = nearly_ids(nodes)
    text = f"{file.words} uses text ids, but no node column has unique ids"
    if nearly:
        raise FileError(f"{text}: {nearly}, but ids must be unique")
    raise FileError(text, remedy="name it with {id}")


def _cast(column: Any, kind: Any, name: str, file: InputFile) -> Any:
    import pyarrow as pa

    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise FileError(
            f"{file.words}: the ids of the nodes are {kind}, but the column {name!r} holds something else: {error}"
        ) from None


def described(edges: EdgeFileContents, path: str) -> str:
    """One line on what was read, and which columns are used."""
    if edges.columns is None:
        graph = edges.graph
        size = graph.nnz if hasattr(graph, "nnz") else np.shape(graph)[-1] if np.ndim(graph) else 0
        names = "the names of the observations" if edges.by_names else "row numbers"
        return f"{path}: {counted(int(size), 'entry').replace('entrys', 'entries')}, nodes named by {names}"
    return f"{path}{edges.dialect}: {counted(edges.graph.num_rows, 'edge')}, {edges.columns}"
