"""The graph argument of `pcfi.scale.impute` -> a graph folder, built once for a run."""

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pcfi.errors import GraphError, ParameterError, PcfiWarning, StorageError, UnsupportedTypeError
from pcfi.files.paths import full_path, is_address, suffix_of, table_suffix
from pcfi.inputs.columns import EdgeColumns
from pcfi.memory import give_back, size_in_bytes
from pcfi.outofcore import file_names
from pcfi.outofcore.edge_tables import SUFFIXES
from pcfi.outofcore.feature_stores import FeatureStore, parquet_files
from pcfi.outofcore.folder import WorkFolder
from pcfi.outofcore.mapped_graph import MappedGraph, build_graph, refuse_damage
from pcfi.settings import Settings

USUAL_MEMORY = "2GB"  # to build a graph in


def build_columns(columns: EdgeColumns) -> dict[str, Any]:
    """The columns of an edge file as `build_graph` takes them."""
    return {name: value for name, value in asdict(columns).items() if name != "decimal"}


@dataclass(frozen=True)
class EdgeSource:
    """A graph folder, or an edge file with its columns.

    Attributes
    ----------
    path : str
    is_folder : bool
    id : str or None
        The column of the features with the ids that edges name nodes by; None: by row numbers.
    columns : dict
        Source, target, weight and unknown_ids as `build_graph` takes them.
    """

    path: str
    is_folder: bool
    id: str | None
    columns: dict[str, Any]

    @staticmethod
    def of(graph: Any, id_column: str | None, columns: dict[str, Any]) -> "EdgeSource":
        """The graph folder or edge file that `graph` refers to."""
        if isinstance(graph, MappedGraph) and graph.folder is not None:
            return EdgeSource(str(graph.folder), True, None, {})
        if not isinstance(graph, str | Path):
            raise UnsupportedTypeError(
                f"graph is a {type(graph).__qualname__}, but pcfi.scale works on files: pass the folder that "
                "pcfi.scale.build_graph made, or the path of an edge file"
            )
        path = full_path(graph)
        if is_address(path) or Path(path).is_file() or table_suffix(path) in SUFFIXES:
            by_rows = suffix_of(path) == ".npy"
            return EdgeSource(path, False, None if by_rows else id_column, columns)
        return EdgeSource(path, True, None, {})

    def facts(self) -> dict[str, Any] | None:
        """Facts that must not change between interruption and resumption; a graph folder has its own."""
        if self.is_folder:
            return None
        seen = [] if is_address(self.path) else [Path(file).stat() for file in parquet_files(self.path)]
        stamp = [[file.st_size, file.st_mtime_ns] for file in seen]
        return {"path": self.path, "id": self.id, **self.columns, "stamp": stamp}

    def folder(self, work: WorkFolder, store: FeatureStore, settings: Settings, memory: Any) -> Path:
        """The folder of the graph; an edge file is turned into one beside the work folder, once."""
        if self.is_folder:
            refuse_damage(Path(self.path))
            return Path(self.path)
        if work.has(file_names.JOB) and _is_intact(work.graph):
            return work.graph
        limit = size_in_bytes(USUAL_MEMORY if memory is None else memory, "memory")
        # besides the ids themselves, mapping them takes several times their size
        ids = None if self.id is None else store.column(self.id, limit // 8)
        build_graph(
            self.path,
            work.graph,
            n_nodes=store.shape[0] if ids is None else None,
            ids=ids,
            **self.columns,
            directed=settings.directed,
            memory=limit,
            overwrite=True,
            progress=settings.progress,
        )
        del ids
        give_back()
        return work.graph


def _is_intact(graph: Path) -> bool:
    """Whether the graph that a run has built is there as it was written; warns if it has changed."""
    if not graph.exists():
        return False
    try:
        refuse_damage(graph)
    except (ParameterError, GraphError, StorageError):
        warnings.warn(
            f"the graph in {str(graph)!r} changed while the run was stopped, and is built again",
            PcfiWarning,
            stacklevel=4,
        )
        return False
    return True
