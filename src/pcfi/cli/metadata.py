"""Files of any size -> ids, channels, ends of edges and sizes, by what their heads say, without reading them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcfi.cli.loading import EdgeColumns
from pcfi.cli.session import Session
from pcfi.errors import FileError, ParameterError, TooLargeError, counted
from pcfi.files import edge_files, node_files
from pcfi.files.formats import Format
from pcfi.files.opening import InputFile

SAMPLE = 1 << 20  # bytes of a text file that tell the length of its lines


@dataclass(frozen=True, eq=False)
class FileMetadata:
    """What `pcfi.scale.impute` has to be told about the columns, and how much there is.

    Attributes
    ----------
    id : str or None
    columns : list of str or None
        The channels; None: a file without names of columns.
    ends : dict
        Columns of the edges and what to do with unknown ids; empty if the edges name rows.
    shape : tuple of int
        Nodes and channels.
    dtype : numpy dtype
        Of the channels.
    """

    id: str | None
    columns: list[str] | None
    ends: dict[str, Any]
    shape: tuple[int, int]
    dtype: Any


def serves(paths: tuple[str, str]) -> bool:
    """Whether both files are of a kind whose head says enough."""
    from pcfi.files.paths import suffix_of, table_suffix
    from pcfi.outofcore.edge_tables import SUFFIXES as TABLES
    from pcfi.outofcore.feature_stores import SUFFIXES

    nodes = suffix_of(paths[0]) in SUFFIXES or ".zarr/" in paths[0]
    return nodes and (table_suffix(paths[1]) in (*TABLES, ".npy") or Path(paths[1]).is_dir())


def read_metadata(
    told: Session, paths: tuple[str, str], wanted: node_files.Wanted, ends: EdgeColumns, most: int
) -> FileMetadata:
    """Choose columns by the rules for all files, and say so; looking for ids takes at most `most` bytes of memory."""
    from pcfi.files.paths import is_address
    from pcfi.outofcore.feature_stores import ParquetStore, open_features

    for path, what in zip(paths, ("nodes", "edges"), strict=True):
        if not is_address(path) and not Path(path).exists():
            raise FileError(f"{path} does not exist: check the name of the file of {what}")
    _refuse_others(paths)
    store = open_features(paths[0], "the node file")
    id_column, columns, n_channels = None, None, store.shape[1]
    if isinstance(store, ParquetStore):
        id_column, columns = _choose_columns(told, store, wanted, paths[0], most)
        n_channels = len(columns)
        store = open_features(paths[0], "the node file", columns)
    else:
        named = next((option for option, _ in wanted.names()), None)
        if named is not None:
            raise ParameterError(f"{named} names columns, but {paths[0]} has none: leave it out")
        told.say(f"{paths[0]}: {counted(store.shape[0], 'node')}, {counted(n_channels, 'channel')}")
    return FileMetadata(
        id_column, columns, _choose_ends(told, paths[1], ends), (store.shape[0], n_channels), store.dtype
    )


def _refuse_others(paths: tuple[str, str]) -> None:
    if serves(paths):
        return
    from pcfi.files.paths import suffix_of
    from pcfi.outofcore.feature_stores import SUFFIXES

    if suffix_of(paths[0]) not in SUFFIXES and ".zarr/" not in paths[0]:
        raise ParameterError(
            "with --memory or --cluster nodes come as .parquet (a file, or a folder of files), .npy or .zarr, got "
            f"{paths[0]}: convert it, or leave the budget out"
        )
    raise ParameterError(
        "with --memory or --cluster edges come as .parquet (a file, or a folder of files), .csv, .tsv (also .gz, "
        f".zst), .npy or a folder of pcfi.scale.build_graph, got {paths[1]}: convert it, or leave the budget out"
    )


def _choose_columns(
    told: Session, store: Any, wanted: node_files.Wanted, path: str, most: int
) -> tuple[str | None, list[str]]:
    n_nodes = store.shape[0]
    if not n_nodes:
        raise FileError(f"{path} has no rows: one row per node is needed")

    def is_unique(name: str) -> bool:
        _, first = next(store.batches(0, n_nodes, 1 << 16, [name]))
        if not node_files.differ(first.column(name)):
            return False
        try:
            return node_files.differ(store.column(name, most))
        except TooLargeError as error:
            raise TooLargeError(f"{error}; if it holds no ids, name the column that does, --id") from None

    table = store.schema.empty_table()
    id_column, columns = node_files.choose_columns(table, wanted, InputFile(path, Format("parquet")), is_unique)
    told.say(node_files.described(node_files.NodeFileContents(table, id_column, columns), path, n_nodes))
    return id_column, columns


def _choose_ends(told: Session, path: str, ends: EdgeColumns) -> dict[str, Any]:
    from pcfi.files.paths import table_suffix
    from pcfi.outofcore.edge_tables import SUFFIXES, schema_of

    if table_suffix(path) not in SUFFIXES:
        told.say(f"{path}: nodes named by row numbers")
        return {}
    schema = schema_of(path)
    pair = edge_files.choose_ends(schema.names, ends.source, ends.target, path)
    chosen = edge_files.Ends(*pair, edge_files.choose_weight(schema, pair, ends.weight, path))
    told.say(f"{path}: {chosen}")
    found = {"source": chosen.source, "target": chosen.target, "weight": chosen.weight}
    return found | {"unknown_ids": ends.unknown_ids}


def count_edges(path: str) -> int:
    """How many edges a file holds; of a text file, by its size and the length of its first lines."""
    import numpy as np

    from pcfi.files.paths import compression_of, opened, suffix_of, table_suffix
    from pcfi.outofcore.feature_stores import parquet_files
    from pcfi.outofcore.mapped_graph import open_graph

    kind = table_suffix(path)
    if kind == ".parquet":
        import pyarrow.parquet as pq

        return sum(pq.read_metadata(part).num_rows for part in parquet_files(path))
    if suffix_of(path) == ".npy":
        return int(np.load(path, mmap_mode="r", allow_pickle=False).shape[-1])
    if Path(path).is_dir():
        return open_graph(path).n_edges
    with opened(path) as file:
        sample = file.read(SAMPLE)
    packed = 4 if compression_of(path) else 1  # as text of this kind usually is
    line = 16 if packed > 1 else len(sample) / max(1, sample.count(b"\n"))
    return int(packed * Path(path).stat().st_size / line)
