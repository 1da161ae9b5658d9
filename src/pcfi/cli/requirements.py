"""What a job will take, for `pcfi info`: in memory, and within a budget of memory."""

from dataclasses import dataclass
from math import ceil
from typing import Any

from pcfi.cli.loading import EdgeColumns
from pcfi.cli.metadata import count_edges, read_metadata, serves
from pcfi.cli.session import Session
from pcfi.errors import PcfiError
from pcfi.files.node_files import Wanted
from pcfi.files.sizes import size_of

SHARE_OF_AVAILABLE = 0.8  # that a job may take without worry
TABLE_COPIES = 3  # of a table that is read, mapped and filled
EDGE_BYTES = 60  # of an edge on its way from a table to a graph


@dataclass(frozen=True)
class Job:
    """What filling will take.

    Attributes
    ----------
    in_memory : int
        Bytes that `pcfi impute` still needs without a budget.
    available : int
        Bytes of memory that are there; 0 if nobody says.
    least : int
        Bytes that --memory must grant at least.
    graph, disk : int
        Bytes of the mapped graph, and of all that is on disk with --memory, the graph and the result included.
    seconds : float
        Rough time to fill, on two cores.
    advised : bool
        Whether --memory is.
    """

    in_memory: int
    available: int
    least: int
    graph: int
    disk: int
    seconds: float
    advised: bool

    def rows(self) -> dict[str, str]:
        """What a table of facts says about it."""
        from pcfi.outofcore.sizing import in_words

        words = "advised" if self.advised else "not needed"
        return {
            "time": f"about {in_words(self.seconds)} to fill, on two cores",
            "--memory": f"{words}; from {size_of(self.least)} on, besides {size_of(self.graph)} for the mapped graph, "
            f"and {size_of(self.disk)} of disk",
        }

    def remarks(self) -> list[str]:
        """What to do if memory is short."""
        if not self.advised:
            return []
        asked = ceil(1.2 * self.least / 1e9)
        if asked * 1e9 > self.available:
            return [f"This takes a machine with more memory: --memory {asked}GB, and the mapped graph besides."]
        return [f"Filling this at once would take about {size_of(self.in_memory)} of memory: use --memory {asked}GB."]


@dataclass(frozen=True)
class Outline:
    """What the heads of files say that are larger than memory."""

    n_nodes: int
    n_edges: int
    n_channels: int
    job: Job


def job_of(
    shape: tuple[int, int],
    n_edges: int,
    in_memory: int,
    *,
    n_patterns: int | None = None,
    dtype: Any = float,
    weighted: bool = False,
    directed: bool = False,
) -> Job:
    """What a job of this size will take, by the cost model of `pcfi.scale`."""
    from pcfi.memory import available
    from pcfi.outofcore import estimate

    kind = {"n_patterns": n_patterns, "dtype": dtype, "weighted": weighted, "directed": directed}
    said = estimate(shape[0], n_edges, shape[1], **kind)
    there = available() or 0
    return Job(
        in_memory=in_memory,
        available=there,
        least=said.memory,
        graph=said.graph,
        disk=said.graph + said.work + said.result,
        seconds=said.build_seconds + said.seconds,
        advised=bool(there) and in_memory > SHARE_OF_AVAILABLE * there,
    )


def outline(
    told: Session, paths: tuple[str, str], wanted: Wanted, ends: EdgeColumns, *, directed: bool
) -> Outline | None:
    """What the heads of the files say if they are larger than memory; None if they can be read as a whole."""
    from pcfi.memory import available
    from pcfi.outofcore.feature_stores import open_features

    there = available()
    if there is None or not serves(paths):
        return None
    try:
        store, n_edges = open_features(paths[0], "the node file"), count_edges(paths[1])
    except (PcfiError, OSError, ValueError):
        return None  # whoever reads the file says what is wrong with it
    if bytes_in_memory(store.shape, n_edges, store.dtype.itemsize) <= there:
        return None
    heads = read_metadata(told, paths, wanted, ends, there // 8)
    needed = bytes_in_memory(heads.shape, n_edges, heads.dtype.itemsize)
    weighted = heads.ends.get("weight") is not None
    job = job_of(heads.shape, n_edges, needed, dtype=heads.dtype, weighted=weighted, directed=directed)
    return Outline(heads.shape[0], n_edges, heads.shape[1], job)


def bytes_in_memory(shape: tuple[int, int], n_edges: int, itemsize: int) -> int:
    """Bytes that reading the files and filling them takes without a budget, roughly."""
    from pcfi._kernels.vectors import ROW_BYTES
    from pcfi.stages.diffusion.block_solver import BLOCKS_TO_SETTLE

    cells = shape[0] * shape[1]
    filling = cells * (itemsize + 1) + shape[0] * ROW_BYTES * BLOCKS_TO_SETTLE
    return TABLE_COPIES * cells * itemsize + EDGE_BYTES * n_edges + filling
