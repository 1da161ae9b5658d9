"""Fill in the missing node features of a graph, and estimate the error of each filled value.

>>> import numpy as np, pcfi
>>> features = np.array([[1.0], [np.nan], [3.0]])
>>> pcfi.impute(features, [[0, 1], [1, 2]], alpha=0.5, beta=0.1, objective="representation").values.ravel()
array([1., 2., 3.])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pcfi.errors import (
    ColumnWarning,
    DivergenceError,
    FeatureError,
    GraphError,
    GraphWarning,
    NotSettledWarning,
    ParameterError,
    PcfiError,
    PcfiWarning,
    ScaleWarning,
    TooLargeError,
    TuningWarning,
    UnreachableError,
    UnreachableWarning,
    UnsupportedTypeError,
)
from pcfi.estimation import Tuning, tune
from pcfi.evaluation import Evaluation, evaluate
from pcfi.explanation.pooling import pool
from pcfi.explanation.suggestion import suggest
from pcfi.imputation import impute
from pcfi.inputs.graphs import Graph, prepare_graph
from pcfi.inputs.knn import knn_graph
from pcfi.positions import position
from pcfi.result import Imputation
from pcfi.stages.hops import UNREACHABLE
from pcfi.stages.solvers import FixedSteps, UntilSettled

if TYPE_CHECKING:  # the names of `_LAZY`, for type checkers and editors
    from pcfi import anndata as anndata
    from pcfi import datasets as datasets
    from pcfi import frames as frames
    from pcfi import geo as geo
    from pcfi import networkx as networkx
    from pcfi import panel as panel
    from pcfi import pyg as pyg
    from pcfi import scale as scale
    from pcfi.integrations.sklearn import PCFI as PCFI

    __version__: str

__all__ = [
    "UNREACHABLE",
    "ColumnWarning",
    "DivergenceError",
    "Evaluation",
    "FeatureError",
    "FixedSteps",
    "Graph",
    "GraphError",
    "GraphWarning",
    "Imputation",
    "NotSettledWarning",
    "ParameterError",
    "PcfiError",
    "PcfiWarning",
    "ScaleWarning",
    "TooLargeError",
    "Tuning",
    "TuningWarning",
    "UnreachableError",
    "UnreachableWarning",
    "UnsupportedTypeError",
    "UntilSettled",
    "evaluate",
    "impute",
    "knn_graph",
    "pool",
    "position",
    "prepare_graph",
    "suggest",
    "tune",
]


# modules with optional dependencies, or not needed by everyone: loaded on first use
_LAZY = {
    "PCFI": "integrations.sklearn",
    "anndata": "anndata",
    "datasets": "datasets",
    "frames": "frames",
    "geo": "geo",
    "networkx": "networkx",
    "panel": "panel",
    "pyg": "pyg",
    "scale": "scale",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":  # looked up on demand: this takes longer than importing all of our own modules
        from importlib.metadata import version

        return version("pcfi")
    if name in _LAZY:
        module = import_module(f"pcfi.{_LAZY[name]}")
        return getattr(module, name) if name == "PCFI" else module
    raise AttributeError(f"module 'pcfi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
