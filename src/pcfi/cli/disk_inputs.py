"""Convert node and edge files that can only be read completely to files that can be read in parts.

The converted files are next to the work folder and are kept until the run is complete, so that it can be resumed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.cli.loading import SimilarRows
from pcfi.cli.session import Session
from pcfi.errors import ParameterError, counted
from pcfi.files import edge_files, node_files
from pcfi.files.atomic_output import atomic_output
from pcfi.files.duckdb_files import DuckdbPlace
from pcfi.files.formats import EDGE_FORMATS, NODE_FORMATS, STANDARD, Format, format_of
from pcfi.files.geo_files import read_geometry
from pcfi.files.opening import InputFile, clear_errors, open_input
from pcfi.files.paths import is_address, remove, suffix_of
from pcfi.files.writing import write_table, write_tables
from pcfi.inputs.columns import EdgeColumns, NodeColumns
from pcfi.inputs.graphs import prepare_graph
from pcfi.inputs.ids import is_frame
from pcfi.integrations.geo_graphs import Neighborhood, find_neighbors
from pcfi.outofcore import file_names

CONVERTED = ("nodes-in.parquet", "edges-in.npy", "edges-in.parquet", "weights-in.npy", "weights-in.json")
FORMATS_IN_PARTS = ("parquet", "csv", "tsv", "npy")  # that can be read in parts


@dataclass(frozen=True)
class DiskFiles:
    """Paths of node and edge files that are read in parts.

    `weights` are paths of edge weights, one for each candidate of a map; None means unweighted. `shown` is
    how the user calls nodes and edges; None: as the files are called.
    """

    nodes: str
    edges: str
    weights: tuple[str | None, ...] = (None,)
    shown: tuple[str, str] | None = None


@contextmanager
def disk_files(
    session: Session, sources: tuple[str, Any], columns: NodeColumns, edges: EdgeColumns, prefix: Path
) -> Iterator[DiskFiles]:
    """The files of a run, converted if needed; converted files are removed at the end."""
    path, graph = sources
    if isinstance(graph, SimilarRows):
        raise ParameterError(
            "--knn compares rows in memory, so it cannot be combined with --memory or --cluster: leave these out, or "
            "name an edge file"
        )
    made = {name: prefix.with_name(f"{prefix.name}.{name}") for name in CONVERTED}
    try:
        nodes = _nodes(session, path, made["nodes-in.parquet"])
        if isinstance(graph, Neighborhood):
            files = _neighbors(session, nodes, graph, made["edges-in.npy"], made["weights-in.npy"])
        else:
            files = _edges(session, DiskFiles(nodes, graph), path, columns, edges, made)
        is_map = isinstance(graph, Neighborhood)
        yield replace(files, shown=(path, _neighbours_in_words(files, path) if is_map else graph))
    except BaseException:
        if any((place / file_names.JOB).exists() for place in (prefix, prefix.with_name(f"{prefix.name}.work"))):
            raise  # the run can be resumed
        _remove(made)
        raise
    _remove(made)


def _remove(made: dict[str, Path]) -> None:
    for path in made.values():
        remove(path)


def _neighbours_in_words(files: DiskFiles, path: str) -> str:
    n_pairs = np.load(files.edges, mmap_mode="r", allow_pickle=False).shape[1]
    return f"{path}, {counted(n_pairs, 'pair')} of neighbours"


def _is_in_parts(path: str, allowed: tuple[str, ...], what: str) -> bool:
    is_other = path == STANDARD or is_address(path) or Path(path).is_dir() or suffix_of(path) == ".zarr"
    return is_other or ".zarr/" in path or format_of(path.rstrip("/"), allowed, what).name in FORMATS_IN_PARTS


def _nodes(session: Session, path: str, target: Path) -> str:
    if _is_in_parts(path, NODE_FORMATS, "nodes"):
        return path
    source = open_input(path, NODE_FORMATS, "nodes")
    if not target.exists():
        with session.stage("convert nodes"), clear_errors(source):
            _convert(source, target)
    return str(target)


def _convert(source: InputFile, target: Path) -> None:
    """Write a file as Parquet; a database table is converted in parts."""
    place = DuckdbPlace.of(source.path)
    if place is None:
        table, geometry = node_files.read_binary(source)
        write_table(table, str(target), Format("parquet"), geometry=geometry)
        return
    with place.batches() as batches:
        empty = [batches.schema.empty_table()]
        tables = (table for part in (empty, map(_as_table, batches)) for table in part)
        write_tables(tables, 0, str(target), Format("parquet"))


def _as_table(batch: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def _edges(
    session: Session, files: DiskFiles, nodes: str, columns: NodeColumns, edges: EdgeColumns, made: dict[str, Path]
) -> DiskFiles:
    if _is_in_parts(files.edges, EDGE_FORMATS, "edges"):
        return files
    table, array, weights = made["edges-in.parquet"], made["edges-in.npy"], made["weights-in.npy"]
    if not (table.exists() or array.exists()):
        with session.stage("convert edges"):
            file = edge_files.open_edge_file(files.edges)
            if file.format.name == "duckdb":
                _convert(file, table)
                return replace(files, edges=str(table))
            contents = node_files.read_nodes(nodes, columns, lambda: edge_files.kind_of_ends(file, edges))
            graph = edge_files.read_edges(file, contents, edges).graph
            if is_frame(graph):
                write_table(graph, str(table), Format("parquet"))
            else:
                _save_graph(graph, contents.table.num_rows, array, weights)
    if table.exists():
        return replace(files, edges=str(table))
    return replace(files, edges=str(array), weights=(str(weights) if weights.exists() else None,))


def _save_graph(graph: Any, n_nodes: int, array: Path, weights: Path) -> None:
    """Save the edges of a graph of row numbers; an undirected edge in both directions."""
    prepared = prepare_graph(graph, n_nodes, directed=True)
    rows = np.repeat(np.arange(prepared.n_nodes), np.diff(prepared.indptr))
    if prepared.weights is not None:
        _save(weights, np.asarray(prepared.weights))
    _save(array, np.stack([np.asarray(prepared.indices, dtype=np.int64), rows]))


def _neighbors(session: Session, path: str, rule: Neighborhood, target: Path, weights: Path) -> DiskFiles:
    """Save the edges between neighbouring places; this needs 500 bytes of memory per place."""
    if not target.exists():
        with session.stage("find neighbours"):
            edges = find_neighbors(read_geometry(path), rule)
            ends, weight = edges.weighted_pairs()
            _save(weights, weight)
            _save(target, ends)
    return DiskFiles(path, str(target), (None, str(weights)))


def _save(path: Path, array: Array) -> None:
    with atomic_output(path) as file:
        np.save(file, array, allow_pickle=False)
