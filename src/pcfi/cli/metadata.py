"""Files of any size -> id, channel and edge columns and sizes, from their metadata."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pcfi.cli.loading import dressed_text, id_like_text, unused_weight_text, warn_of_code_columns
from pcfi.cli.session import Session
from pcfi.errors import FileError, ParameterError
from pcfi.files import node_files
from pcfi.inputs.category_columns import gaps_text
from pcfi.inputs.columns import EdgeColumns, NodeColumns, choose_edge_columns, unused_weight
from pcfi.inputs.node_tables import kind_of_arrow

OTHER_FORMATS = (".zarr", "a folder of pcfi.scale.build_graph")  # of nodes, of edges
SAMPLE = 1 << 20  # bytes of a text file used to estimate the length of its lines


@dataclass(frozen=True, eq=False, kw_only=True)
class FileMetadata:
    """Contents of both files, from their metadata.

    Attributes
    ----------
    nodes : NodeSource
        The node file with its columns chosen.
    edge_columns : dict
        Edge columns as parameters of `pcfi.scale.impute`; empty if the edges use row numbers.
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
        """Dtype of the channels."""
        return self.nodes.store.dtype


def serves(paths: tuple[str, Any], *, text: bool = False) -> bool:
    """Whether both files have formats whose metadata is sufficient; edges may be a rule that links the nodes."""
    is_rule = not isinstance(paths[1], str)
    return _serves_nodes(paths[0], text=text and not is_rule) and (is_rule or _serves_edges(paths[1]))


def _serves_nodes(path: str, *, text: bool) -> bool:
    from pcfi.files.paths import suffix_of, table_suffix
    from pcfi.outofcore.edge_tables import SUFFIXES as TABLES
    from pcfi.outofcore.feature_stores import SUFFIXES

    return suffix_of(path) in SUFFIXES or ".zarr/" in path or (text and table_suffix(path) in TABLES)


def _serves_edges(path: str) -> bool:
    from pcfi.files.paths import table_suffix
    from pcfi.outofcore.edge_tables import SUFFIXES

    return table_suffix(path) in (*SUFFIXES, ".npy") or Path(path).is_dir()


def read_metadata(
    session: Session,
    paths: tuple[str, str],
    node_columns: NodeColumns,
    edge_columns: EdgeColumns,
    limit: int,
    conversion: Any = None,
    shown: tuple[str, str] | None = None,
) -> FileMetadata:
    """Choose columns by the rules for all files, and print them; the search for ids uses at most `limit` bytes.

    `conversion` is where `pcfi.scale` stores a converted node table; without it, nothing is converted. `shown` is
    how the user calls both files; None: as they are called.
    """
    from pcfi.files.paths import is_address
    from pcfi.outofcore.node_source import code_channels, ends_of, id_like_channel, open_nodes, text_numbers

    for path, what in zip(paths, ("nodes", "edges"), strict=True):
        if not is_address(path) and not Path(path).exists():
            raise FileError(f"{path} does not exist: check the name of the file of {what}")
    _check_formats(paths, text=conversion is not None)
    chosen, line = _choose_ends(session, paths[1], edge_columns)
    nodes = open_nodes(paths[0], node_columns, ends_of(paths[1], edge_columns), limit, conversion)
    nodes = replace(nodes, has_names=True)  # on the command line, every file is a table
    named = shown or paths
    session.say(_described(nodes, named[0]))
    dressed = dict(text_numbers(nodes, node_columns))
    for column, value in dressed.items():
        session.warn(dressed_text(column, value))
    gaps = gaps_text({name: count for name, count in nodes.gaps.items() if name not in dressed}, "--categorical")
    if gaps:
        session.warn(gaps)
    session.say(line.replace(paths[1], named[1], 1))
    name = id_like_channel(nodes, paths[1], edge_columns, limit)
    if name is not None:
        session.warn(id_like_text("their row numbers", name))
    if node_columns.channels is None:
        warn_of_code_columns(session, [one for one in code_channels(nodes, limit) if one != name])
    return FileMetadata(nodes=nodes, edge_columns=chosen)


def _described(nodes: Any, path: str) -> str:
    import pyarrow as pa

    names = [(name, pa.float64()) for name in nodes.channels]
    table = (nodes.schema or pa.schema(names)).empty_table()
    contents = node_files.NodeFileContents(
        table=table, id=nodes.id, channels=nodes.channels, categorical=list(nodes.categories)
    )
    return node_files.described(contents, path, nodes.store.shape[0])


def _check_formats(paths: tuple[str, str], *, text: bool) -> None:
    nodes, edges = _serves_nodes(paths[0], text=text), _serves_edges(paths[1])
    for path, what, other, is_served in zip(paths, ("nodes", "edges"), OTHER_FORMATS, (nodes, edges), strict=True):
        if not is_served:
            raise ParameterError(
                f"with --memory or --cluster, {what} must be .parquet (a file, or a folder of files), .csv, .tsv (also "
                f".gz, .zst), .npy or {other}, got {path}: convert the file, or leave out --memory and --cluster"
            )


def _choose_ends(session: Session, path: str, columns: EdgeColumns) -> tuple[dict[str, Any], str]:
    """Edge columns as parameters of `pcfi.scale.impute`, and a message about them."""
    from pcfi.files.paths import table_suffix
    from pcfi.outofcore.edge_tables import SUFFIXES, schema_of

    if table_suffix(path) not in SUFFIXES:
        return {}, f"{path}: edges between row numbers"
    schema = schema_of(path)
    chosen = choose_edge_columns(schema.names, columns, path)
    unused = unused_weight({one.name: kind_of_arrow(one.type) for one in schema}, chosen, columns)
    if unused is not None:
        session.warn(unused_weight_text(path, unused))
    named = {"source": chosen.source, "target": chosen.target, "weight": chosen.weight or False}
    return named | {"unknown_ids": columns.unknown_ids}, f"{path}: {chosen}"


def count_edges(path: str) -> int:
    """Number of edges in a file; estimated for a text file, from its size and the length of its first lines."""
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
    packed = 4 if compression_of(path) else 1  # typical compression ratio of edge lists
    line = 16 if packed > 1 else len(sample) / max(1, sample.count(b"\n"))
    return int(packed * Path(path).stat().st_size / line)
