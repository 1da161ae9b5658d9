"""An edge file -> a graph: a table of edges between ids, or an adjacency or edge index between rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi.errors import FileError, ParameterError, counted
from pcfi.files.binary import (
    EDGES,
    is_sparse_npz,
    read_arrow,
    read_connectivities,
    read_npy,
    read_npz,
    read_parquet,
    read_sparse,
)
from pcfi.files.formats import EDGE_FORMATS
from pcfi.files.node_files import NodeFileContents, nearly_ids
from pcfi.files.opening import InputFile, clear_errors, open_input
from pcfi.files.text import dialect_of, header, read_text
from pcfi.inputs.ids import WEIGHTS, usual_ends
from pcfi.inputs.node_tables import is_number


@dataclass(frozen=True)
class Ends:
    """The columns of an edge table; None for a file that has no columns."""

    source: str
    target: str
    weight: str | None = None

    def __str__(self) -> str:
        weight = "unweighted" if self.weight is None else f"weights in {self.weight!r}"
        return f"{self.source!r} to {self.target!r}, {weight}"


@dataclass(frozen=True, eq=False)
class EdgeFileContents:
    """Edges as `pcfi.frames.impute` takes them, the columns that were chosen, and how a text file is written."""

    graph: Any
    ends: Ends | None = None
    dialect: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """What `pcfi.frames.impute` has to be told about the columns."""
        ends = self.ends
        return {} if ends is None else {"source": ends.source, "target": ends.target, "weight": ends.weight}


def read_edges(
    path: str, nodes: NodeFileContents, source: str | None, target: str | None, weight: str | None
) -> EdgeFileContents:
    """Read an edge file; ids get the type that those of the nodes have."""
    file = open_input(path, EDGE_FORMATS, "edges")
    with clear_errors(file):
        graph = _read_graph(file)
        if graph is not None:
            return EdgeFileContents(graph)
        if file.format.is_text:
            pair = choose_ends(header(file), source, target, file.words)
            table = read_text(file, as_text=() if nodes.id is None else pair)
        else:
            table = {"parquet": read_parquet, "arrow": read_arrow}[file.format.name](file)
            pair = choose_ends(table.column_names, source, target, file.words)
    _refuse_names_for_rows(table, pair, nodes, file)
    chosen = choose_weight(table.schema, pair, weight, file.words)
    dialect = str(dialect_of(file)) if file.format.is_text else ""
    return EdgeFileContents(_same_ids(table, pair, nodes, file), Ends(*pair, chosen), dialect)


def _read_graph(file: InputFile) -> Any:
    """A graph between rows, for formats that hold one; else None."""
    match file.format.name:
        case "mtx":
            return read_sparse(file)
        case "npy":
            return read_npy(file)
        case "npz":
            return read_sparse(file) if is_sparse_npz(file) else read_npz(file, EDGES)
        case "h5ad":
            return read_connectivities(file)
    return None


def choose_ends(names: Sequence[str], source: str | None, target: str | None, words: str) -> tuple[str, str]:
    """The columns of both ends: as named, by their usual names, or the first two of two or three."""
    for option, name in (("--source", source), ("--target", target)):
        _check_name(option, name, names, words)
    usual = usual_ends(names)
    if usual is None and (source is None or target is None):
        raise FileError(
            f"{words} has the columns {_shown(names)}: say which hold the ends of an edge, --source and --target"
        )
    return source or (usual or ("", ""))[0], target or (usual or ("", ""))[1]


def choose_weight(schema: Any, pair: tuple[str, str], weight: str | None, words: str) -> str | None:
    """The column of weights: as named, by its usual name, or the third of three if it holds numbers."""
    names = schema.names
    _check_name("--weight", weight, names, words)
    if weight is not None:
        return weight
    usual = next((name for name in names if name.lower() in WEIGHTS and name not in pair), None)
    if usual is None and len(names) == 3 and set(pair) == set(names[:2]) and is_number(schema.field(2).type):
        return str(names[2])
    return usual


def _check_name(option: str, name: str | None, names: Sequence[str], words: str) -> None:
    if name is not None and name not in names:
        raise ParameterError(f"{option} names {name!r}, but {words} has only the columns {_shown(names)}")


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")


def _same_ids(table: Any, pair: tuple[str, str], nodes: NodeFileContents, file: InputFile) -> Any:
    """The edge table with ids as the nodes have them: text files know no types, so they take those of the other."""
    if nodes.id is None:
        return table
    kind = nodes.table.schema.field(nodes.id).type
    for name in pair:
        place, column = table.column_names.index(name), table[name]
        if column.type != kind and (file.format.is_text or nodes.ids_are_text):
            table = table.set_column(place, name, _cast(column, kind, name, file))
    return table


def _refuse_names_for_rows(table: Any, pair: tuple[str, str], nodes: NodeFileContents, file: InputFile) -> None:
    """Raise `FileError` if edges name nodes by text, but no column of the nodes was taken for ids."""
    import pyarrow as pa

    if nodes.id is not None or not any(pa.types.is_string(table.schema.field(name).type) for name in pair):
        return
    nearly = nearly_ids(nodes)
    reason = f": {nearly}, but every node needs an id of its own" if nearly else ": name it with --id"
    raise FileError(f"{file.words} names nodes by text, but no column of the nodes holds ids that all differ{reason}")


def _cast(column: Any, kind: Any, name: str, file: InputFile) -> Any:
    import pyarrow as pa

    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise FileError(
            f"{file.words}: the ids of the nodes are {kind}, but the column {name!r} holds something else: {error}"
        ) from None


def described(edges: EdgeFileContents, path: str) -> str:
    """What was chosen, in a sentence."""
    if edges.ends is None:
        graph = edges.graph
        size = graph.nnz if hasattr(graph, "nnz") else np.shape(graph)[-1] if np.ndim(graph) else 0
        return f"{path}: {counted(int(size), 'entry').replace('entrys', 'entries')}, nodes named by row numbers"
    return f"{path}{edges.dialect}: {counted(edges.graph.num_rows, 'edge')}, {edges.ends}"
