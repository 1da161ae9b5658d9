"""An edge file -> a folder with the graph in compressed sparse rows, which is mapped into memory instead of read.

Two passes over the edges, whatever their number: one puts them into buckets of rows on disk, one sorts, merges and
writes bucket after bucket. Memory is needed for a chunk of edges and for one bucket. The outcome is what
`pcfi.prepare_graph` makes of the same edges.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import GraphError, ParameterError, StorageError, TooLargeError, counted
from pcfi.files.atomic_output import atomic_output
from pcfi.files.checksums import with_checksum, without_checksum
from pcfi.files.paths import remove
from pcfi.inputs.graphs import Graph, check_n_nodes
from pcfi.memory import size_in_bytes
from pcfi.outofcore.buckets import Buckets, array_checksum, write_rows
from pcfi.outofcore.edge_chunks import EdgeFile, checked, count_nodes, open_edges
from pcfi.progress import progress_bar
from pcfi.system_memory import size_in_words

FORMAT = 2
FACTS = "graph.json"
LARGEST_CHUNK = 1 << 21  # edges
CHUNK_BYTES = 200  # of an edge on its way into its bucket: columns, checks, entries in both directions, weights


@dataclass(frozen=True, eq=False, repr=False)
class MappedGraph(Graph):
    """A graph whose arrays are mapped from a folder: it takes no memory of its own, and processes share it.

    Attributes
    ----------
    folder : Path or None
        Where it is.
    """

    folder: Path | None = None
    _facts: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def degree(self) -> Array:
        """Sum of the weights that flow into each node, in float64."""
        if self.weights is None:
            return np.diff(self.indptr).astype(np.float64)
        return self._map("degree")

    @cached_property
    def weight_range(self) -> tuple[float, float]:
        """The smallest and the largest weight; 1 and 1 if there are none."""
        return self._facts["lightest"], self._facts["heaviest"]

    @cached_property
    def outgoing(self) -> tuple[Array, Array]:
        """`indptr` and `indices` of the out-neighbours."""
        if not self.directed:
            return self.indptr, self.indices
        return self._map("outgoing_indptr"), self._map("outgoing_indices")

    def weights_as(self, dtype: npt.DTypeLike) -> Array:
        """Weights in `dtype`; an empty array stands for "all are 1"."""
        if self.weights is None:
            return np.empty(0, dtype=dtype)
        return self.weights if np.dtype(dtype) == np.float64 else self._map("weights_float32")

    def _map(self, name: str) -> Array:
        if self.folder is None:
            raise GraphError("a mapped graph needs its folder: use pcfi.scale.open_graph")
        return map_array(self.folder / f"{name}.npy")

    def __reduce__(self) -> tuple[Any, ...]:
        return open_graph, (self.folder,)


def map_array(path: Path) -> Array:
    """Map a .npy file as an array without the read-only flag; it must not be written to.

    Kernels would be compiled once more for read-only arrays, and take several times as long to start.
    """
    import ctypes

    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, FileNotFoundError):
        raise _damage(path.parent, [path.name]) from None
    if not mapped.size:
        return np.empty(mapped.shape, dtype=mapped.dtype)
    buffer = (ctypes.c_char * mapped.nbytes).from_address(mapped.ctypes.data)
    buffer.mapped = mapped  # keeps the file mapped as long as the array lives
    return np.frombuffer(buffer, dtype=mapped.dtype).reshape(mapped.shape)


def open_graph(folder: str | Path) -> MappedGraph:
    """The graph of a folder that `build_graph` made, mapped into memory: it opens at once, whatever its size.

    Pass it wherever a graph is accepted. Nothing may write to its arrays: they are mapped for reading only.

    Parameters
    ----------
    folder : str or Path

    Returns
    -------
    Graph
    """
    path = Path(folder)
    facts = graph_facts(path)
    return MappedGraph(
        n_nodes=facts["n_nodes"],
        indptr=map_array(path / "indptr.npy"),
        indices=map_array(path / "indices.npy"),
        weights=map_array(path / "weights.npy") if facts["weighted"] else None,
        directed=facts["directed"],
        folder=path.resolve(),
        _facts=facts,
    )


def graph_facts(folder: Path) -> dict[str, Any]:
    """What `build_graph` wrote about the graph, with the checksums of its arrays."""
    try:
        content = (folder / FACTS).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise ParameterError(f"{str(folder)!r} is not a graph folder: create one with pcfi.scale.build_graph") from None
    text = without_checksum(content)
    if text is None and b"crc32" in content:
        raise _damage(folder, [FACTS])
    facts: dict[str, Any] = {} if text is None else json.loads(text)
    if facts.get("format") != FORMAT:
        raise GraphError(f"{str(folder)!r} was written in another format, by another version of pcfi: build it again")
    return facts


def refuse_damage(folder: Path) -> None:
    """Compare the arrays of a graph folder with their checksums; raises `StorageError` if they have changed."""
    checksums = graph_facts(folder)["checksums"]
    damaged = [
        name
        for name, value in checksums.items()
        if not (folder / name).exists() or array_checksum(folder / name) != value
    ]
    if damaged:
        raise _damage(folder, damaged)


def _damage(folder: Path, names: list[str]) -> StorageError:
    return StorageError(f"the graph folder {str(folder)!r} is damaged ({', '.join(names)}): build it again")


def build_graph(
    edges: Any,
    folder: str | Path,
    *,
    n_nodes: int | None = None,
    source: str | None = None,
    target: str | None = None,
    weight: Any = None,
    ids: Any = None,
    unknown_ids: str = "error",
    directed: bool = False,
    memory: int | float | str = "2GB",
    overwrite: bool = False,
    progress: bool = False,
) -> MappedGraph:
    """Build a mapped graph from an edge file of any length, in bounded memory.

    The rules are those of `pcfi.prepare_graph`: duplicate edges in one direction add up, an undirected graph then takes
    the larger of both directions, self-loops and edges of weight zero are dropped. The folder appears when it is
    complete; a build that was killed leaves `<folder>.partial` behind and starts again.

    Parameters
    ----------
    edges : path of an edge file, or (2, E) array
        .parquet (a file, or a folder of them), .csv or .tsv (also packed, .gz or .zst), or .npy of shape (2, E).
        Tables may be at any address that fsspec opens.
    folder : str or Path
        Where the graph goes, on a local or shared disk. Takes 4 bytes per entry (an undirected edge has two), 16 with
        weights, and 8 per node; while it is built, about twice as much.
    n_nodes : int, default=None
        Number of nodes. None takes the largest row number plus one, or the number of ids.
    source, target : str, default=None
        Columns of an edge table. None: by their usual names ("source" and "target", "src" and "dst", "from" and "to"
        and the like), else the first two of two or three.
    weight : str, path or array, default=None
        Column of an edge table (None: "weight", "weights" or "w" if there is one; False: all edges count 1); for .npy
        edges, a .npy file or an array.
    ids : array or list, default=None
        The ids of the nodes, in the order of their rows, if the edge table names nodes by ids; they are held in memory.
        None: the edges name nodes by row numbers from 0.
    unknown_ids : {"error", "drop"}, default="error"
        What an edge means that names an id which no node has.
    directed : bool, default=False
        Whether values flow only from source to target.
    memory : int, float or str, default="2GB"
        Bytes of private memory that the process may take in all.
    overwrite : bool, default=False
        Whether a folder that is there may be replaced.
    progress : bool, default=False
        Whether to show progress bars.

    Returns
    -------
    Graph
        As from `open_graph`.
    """
    check_n_nodes(n_nodes)
    final = Path(folder)
    if final.exists() and not overwrite:
        raise ParameterError(f"{str(final)!r} exists: pass overwrite=True to replace it, or open it with open_graph")
    limit = size_in_bytes(memory, "memory")
    file = open_edges(edges, source=source, target=target, weight=weight, ids=ids, unknown_ids=unknown_ids)
    if file.held > limit // 2:
        raise TooLargeError(
            f"mapping ids to rows takes about {size_in_words(file.held)}, more than half of a memory of "
            f"{size_in_words(limit)}: grant more, or name nodes by row numbers"
        )
    limit -= file.held
    chunk = int(min(LARGEST_CHUNK, max(1 << 14, limit // 4 // CHUNK_BYTES)))
    size = count_nodes(file, chunk) if n_nodes is None or ids is not None else int(n_nodes)
    if n_nodes not in (None, size):
        raise ParameterError(f"n_nodes is {n_nodes}, but there are {counted(size, 'id')}: leave n_nodes out")
    n_nodes_origin = "nodes are numbered from 0" if n_nodes is None else f"n_nodes is {size}"
    partial = final.with_name(f"{final.name}.partial")
    remove(partial)
    partial.mkdir(parents=True)
    try:
        _build(file, partial, size, n_nodes_origin, directed, chunk, limit // 2, progress)
    except BaseException:
        remove(partial)
        raise
    remove(final)
    partial.rename(final)
    return open_graph(final)


def _build(
    file: EdgeFile,
    folder: Path,
    n_nodes: int,
    n_nodes_origin: str,
    directed: bool,
    chunk: int,
    limit: int,
    progress: bool,
) -> None:
    """Edges -> buckets -> arrays in `folder`."""
    incoming = Buckets(folder / "incoming", n_nodes, file.weighted)
    outgoing = Buckets(folder / "outgoing", n_nodes, False) if directed else None
    seen = 0
    with progress_bar("edges", 0, show=progress) as advance:
        for raw in file.chunks(chunk):
            edges = checked(raw, seen, n_nodes, n_nodes_origin)
            incoming.add(edges.target, edges.source, edges.weights, both_sides=not directed)
            if outgoing is not None:
                outgoing.add(edges.source, edges.target, edges.weights, both_sides=False)
            seen += len(edges.source)
            advance(len(edges.source))
    with progress_bar("rows", n_nodes, show=progress) as advance:
        facts = write_rows(incoming, folder, "", limit, advance, weights=True)
        if outgoing is not None:
            more = write_rows(outgoing, folder, "outgoing_", limit, advance, weights=False)
            facts["checksums"] |= more["checksums"]
    facts |= {"format": FORMAT, "n_nodes": n_nodes, "directed": directed, "edges_read": seen}
    with atomic_output(folder / FACTS) as out:
        out.write(with_checksum(json.dumps(facts, indent=1)))
