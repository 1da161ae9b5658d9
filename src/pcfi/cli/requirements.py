"""Memory, disk space and time needed to fill files, in memory and on disk, for `pcfi info`."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from pcfi.cli.loading import SimilarRows
from pcfi.cli.metadata import count_edges, read_metadata, serves
from pcfi.cli.session import Session
from pcfi.errors import PcfiError
from pcfi.inputs.columns import EdgeColumns, NodeColumns
from pcfi.memory import MAX_SHARE_OF_AVAILABLE, ProblemSize, diffusion_bytes
from pcfi.settings import Settings
from pcfi.system_memory import available, size_in_words

TABLE_COPIES = 3  # copies of a table: read, mapped to channels, filled
EDGE_BYTES = 60  # peak memory per edge while a graph is built from a table
TEXT_COPIES = 6  # memory over the size of a text file: raw text, cells, and numbers
PACKED = 4  # size of text over its compressed size
NEIGHBORS = 8  # of a place of a map


@dataclass(frozen=True)
class Requirements:
    """Resources needed to fill files; the field names are keys of the JSON of `pcfi info`.

    Attributes
    ----------
    in_memory : int
        Bytes that `pcfi impute` needs without --memory, besides the tables.
    available : int
        Bytes of available memory; 0 if unknown.
    least : int
        Smallest budget for --memory, in bytes.
    graph, disk : int
        Bytes of the mapped graph, and of everything on disk with --memory, including graph and result.
    seconds : float
        Approximate time to fill, on two cores.
    advised : bool
        Whether --memory is advised.
    """

    in_memory: int
    available: int
    least: int
    graph: int
    disk: int
    seconds: float
    advised: bool

    def rows(self) -> dict[str, str]:
        """Rows of the table that `pcfi info` prints."""
        from pcfi.outofcore.sizing import in_words

        words = "advised" if self.advised else "not needed"
        return {
            "time": f"about {in_words(self.seconds)} to fill, on two cores",
            "--memory": f"{words}; at least {size_in_words(self.least)}, plus {size_in_words(self.graph)} for the "
            f"mapped graph and {size_in_words(self.disk)} of disk",
        }

    def remarks(self) -> list[str]:
        """Advice if memory is short."""
        if not self.advised:
            return []
        budget = ceil(1.2 * self.least / 1e9)
        if budget * 1e9 > self.available:
            return [f"This machine has too little memory: --memory {budget}GB is needed, plus the mapped graph."]
        return [f"Filling this in memory takes about {size_in_words(self.in_memory)}: use --memory {budget}GB."]


@dataclass(frozen=True)
class FileSizes:
    """Sizes of files that are larger than memory, from their metadata; the field names are keys of the JSON."""

    n_nodes: int
    n_edges: int
    n_channels: int
    job: Requirements


def requirements(
    shape: tuple[int, int],
    n_edges: int,
    in_memory: int,
    *,
    n_patterns: int | None = None,
    dtype: Any = float,
    weighted: bool = False,
    directed: bool = False,
) -> Requirements:
    """Estimate the resources, with the cost model of `pcfi.scale`."""
    from pcfi.outofcore import estimate

    kind = {"n_patterns": n_patterns, "dtype": dtype, "weighted": weighted, "directed": directed}
    cost = estimate(shape[0], n_edges, shape[1], **kind)
    free = available()
    return Requirements(
        in_memory=in_memory,
        available=free,
        least=cost.memory,
        graph=cost.graph,
        disk=cost.graph + cost.work + cost.result,
        seconds=cost.build_seconds + cost.seconds,
        advised=in_memory > MAX_SHARE_OF_AVAILABLE * free,
    )


def read_sizes(
    session: Session, paths: tuple[str, str], nodes: NodeColumns, edges: EdgeColumns, *, directed: bool
) -> FileSizes | None:
    """Read the metadata of files that are larger than memory; None if they fit."""
    from pcfi.outofcore.feature_stores import open_features

    free = available()
    if not serves(paths):
        return None
    try:
        store, n_edges = open_features(paths[0], "the node file"), count_edges(paths[1])
    except (PcfiError, OSError, ValueError):
        return None  # reading the file gives a better error
    fits = bytes_in_memory(store.shape, n_edges, store.dtype.itemsize) <= MAX_SHARE_OF_AVAILABLE * free
    if fits and not any(map(is_only_on_disk, paths)):
        return None
    metadata = read_metadata(session, paths, nodes, edges, free // 8)
    needed = bytes_in_memory(metadata.shape, n_edges, metadata.dtype.itemsize)
    weighted = bool(metadata.edge_columns.get("weight"))
    job = requirements(metadata.shape, n_edges, needed, dtype=metadata.dtype, weighted=weighted, directed=directed)
    return FileSizes(metadata.shape[0], n_edges, metadata.shape[1], job)


def disk_budget(session: Session, sources: tuple[str, Any], outputs: Iterable[str]) -> int | None:
    """Bytes of memory to process files on disk with, and a message; None if they fit into memory, or if unknown.

    `sources` are the nodes, and the edges or the rule that links them.
    """
    if isinstance(sources[1], SimilarRows):
        return None
    free = available()
    budget = int(MAX_SHARE_OF_AVAILABLE * free)
    path = next(filter(is_only_on_disk, (one for one in (*sources, *outputs) if isinstance(one, str))), None)
    if path is not None:
        session.say(f"{path} is processed on disk, within {size_in_words(budget)} (--memory sets another budget)")
        return budget
    needed = _bytes_of_files(sources)
    if needed is None or needed <= budget:
        return None
    session.say(
        f"Filling these files in memory takes about {size_in_words(needed)}, and {size_in_words(free)} are available: "
        f"they are processed on disk within {size_in_words(budget)} (--memory sets another budget)"
    )
    return budget


def is_only_on_disk(path: str) -> bool:
    """Whether a file can be processed on disk only: Zarr, a remote address, a graph folder."""
    from pcfi.files.paths import is_address, suffix_of

    is_graph_folder = (Path(path) / "indptr.npy").is_file()
    return is_address(path) or suffix_of(path) == ".zarr" or ".zarr/" in path or is_graph_folder


def _bytes_of_files(paths: tuple[str, Any]) -> int | None:
    """Approximate bytes to fill files in memory, from their metadata; None if they cannot be read."""
    from pcfi.files.paths import compression_of, is_address, table_suffix
    from pcfi.outofcore.edge_tables import SUFFIXES
    from pcfi.outofcore.feature_stores import open_features

    if not serves(paths, text=True):
        return None
    try:
        if not isinstance(paths[1], str):
            places = open_features(paths[0], "the node file")
            return bytes_in_memory(places.shape, NEIGHBORS * places.shape[0], places.dtype.itemsize)
        n_edges = count_edges(paths[1])
        if table_suffix(paths[0]) in SUFFIXES and table_suffix(paths[0]) != ".parquet":
            if is_address(paths[0]):
                return None
            size = Path(paths[0]).stat().st_size * (PACKED if compression_of(paths[0]) else 1)
            return TEXT_COPIES * size + EDGE_BYTES * n_edges
        store = open_features(paths[0], "the node file")
    except (PcfiError, OSError, ValueError):
        return None  # reading the file gives a better error
    return bytes_in_memory(store.shape, n_edges, store.dtype.itemsize)


def bytes_in_memory(shape: tuple[int, int], n_edges: int, itemsize: int) -> int:
    """Approximate bytes to read the files and fill them in memory."""
    cells, settings = shape[0] * shape[1], Settings(alpha=0.5, beta=0.0, objective="representation")
    filling = cells * (itemsize + 1) + diffusion_bytes(ProblemSize.of_shape(shape, itemsize, settings), settings)
    return TABLE_COPIES * cells * itemsize + EDGE_BYTES * n_edges + filling
