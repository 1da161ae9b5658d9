"""Files of any size -> ids, channels, ends of edges and sizes, by what their heads say, without reading them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcfi.cli.loading import dressed_text, id_like_text, unused_weight_text, warn_of_code_columns
from pcfi.cli.session import Session
from pcfi.errors import FileError, ParameterError, counted
from pcfi.files import node_files
from pcfi.inputs.columns import EdgeColumns, NodeColumns, choose_edge_columns, unused_weight
from pcfi.inputs.node_tables import kind_of_arrow

SAMPLE = 1 << 20  # bytes of a text file that tell the length of its lines


@dataclass(frozen=True, eq=False, kw_only=True)
class FileMetadata:
    """What both files hold, as far as that is known without reading them.

    Attributes
    ----------
    nodes : NodeSource
        The node file with its columns chosen.
    edge_columns : dict
        Columns of the edges as `pcfi.scale.impute` takes them; empty if the edges name rows.
    """

    nodes: Any
    edge_columns: dict[str, Any]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of nodes and channels."""
        shape: tuple[int, int] = self.nodes.store.shape
        return shape

    @property
    def dtype(self) -> Any:
        """Of the channels."""
        return self.nodes.store.dtype


def serves(paths: tuple[str, str], *, text: bool = False) -> bool:
    """Whether both files are of a kind whose head says enough."""
    from pcfi.files.paths import suffix_of, table_suffix
    from pcfi.outofcore.edge_tables import SUFFIXES as TABLES
    from pcfi.outofcore.feature_stores import SUFFIXES

    nodes = suffix_of(paths[0]) in SUFFIXES or ".zarr/" in paths[0] or (text and table_suffix(paths[0]) in TABLES)
    return nodes and (table_suffix(paths[1]) in (*TABLES, ".npy") or Path(paths[1]).is_dir())


def read_metadata(
    session: Session,
    paths: tuple[str, str],
    node_columns: NodeColumns,
    edge_columns: EdgeColumns,
    limit: int,
    conversion: Any = None,
    shown: tuple[str, str] | None = None,
) -> FileMetadata:
    """Choose columns by the rules for all files, and say so; looking for ids takes at most `limit` bytes of memory.

    `conversion` is where `pcfi.scale` converts a node table to if it has to; without, nothing is converted. `shown` is
    how the user calls both files; None: as they are called.
    """
    from pcfi.files.paths import is_address
    from pcfi.outofcore.node_source import code_channels, ends_of, id_like_channel, open_nodes, text_numbers

    for path, what in zip(paths, ("nodes", "edges"), strict=True):
        if not is_address(path) and not Path(path).exists():
            raise FileError(f"{path} does not exist: check the name of the file of {what}")
    _refuse_others(paths, text=conversion is not None)
    chosen, line = _choose_ends(session, paths[1], edge_columns)
    nodes = open_nodes(paths[0], node_columns, ends_of(paths[1], edge_columns), limit, conversion)
    named = shown or paths
    session.say(_described(nodes, named[0]))
    for column, value in text_numbers(nodes, node_columns):
        session.warn(dressed_text(column, value))
    session.say(line.replace(paths[1], named[1], 1))
    name = id_like_channel(nodes, paths[1], edge_columns, limit)
    if name is not None:
        session.warn(id_like_text("their row numbers", name))
    if node_columns.channels is None:
        warn_of_code_columns(session, [one for one in code_channels(nodes, limit) if one != name])
    return FileMetadata(nodes=nodes, edge_columns=chosen)


def _described(nodes: Any, path: str) -> str:
    n_nodes, n_channels = nodes.store.shape
    if nodes.schema is None:
        return f"{path}: {counted(n_nodes, 'node')}, {counted(n_channels, 'channel')}"
    table = nodes.schema.empty_table()
    contents = node_files.NodeFileContents(
        table=table, id=nodes.id, channels=nodes.channels, categorical=list(nodes.categories)
    )
    return node_files.described(contents, path, n_nodes)


def _refuse_others(paths: tuple[str, str], *, text: bool) -> None:
    if serves(paths, text=text):
        return
    from pcfi.files.paths import suffix_of, table_suffix
    from pcfi.outofcore.edge_tables import SUFFIXES as TABLES
    from pcfi.outofcore.feature_stores import SUFFIXES

    if suffix_of(paths[0]) not in SUFFIXES and table_suffix(paths[0]) not in TABLES and ".zarr/" not in paths[0]:
        raise ParameterError(
            "with --memory or --cluster nodes come as .parquet (a file, or a folder of files), .csv, .tsv (also .gz, "
            f".zst), .npy or .zarr, got {paths[0]}: convert it, or leave the budget out"
        )
    raise ParameterError(
        "with --memory or --cluster edges come as .parquet (a file, or a folder of files), .csv, .tsv (also .gz, "
        f".zst), .npy or a folder of pcfi.scale.build_graph, got {paths[1]}: convert it, or leave the budget out"
    )


def _choose_ends(session: Session, path: str, columns: EdgeColumns) -> tuple[dict[str, Any], str]:
    """The columns of the edges as `pcfi.scale.impute` takes them, and a line about them."""
    from pcfi.files.paths import table_suffix
    from pcfi.outofcore.edge_tables import SUFFIXES, schema_of

    if table_suffix(path) not in SUFFIXES:
        return {}, f"{path}: nodes named by row numbers"
    schema = schema_of(path)
    chosen = choose_edge_columns(schema.names, columns, path)
    unused = unused_weight({one.name: kind_of_arrow(one.type) for one in schema}, chosen, columns)
    if unused is not None:
        session.warn(unused_weight_text(path, unused))
    named = {"source": chosen.source, "target": chosen.target, "weight": chosen.weight or False}
    return named | {"unknown_ids": columns.unknown_ids}, f"{path}: {chosen}"


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
