"""Known cells, hidden and filled in again: the error of each method."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi.errors import FeatureError, ParameterError, PcfiWarning
from pcfi.graphs import Graph
from pcfi.hops import Hops, count_hops
from pcfi.imputation import impute
from pcfi.parameters import METHODS
from pcfi.problem import read_problem

Array = npt.NDArray[Any]

SHARE = 0.1  # of the known cells
UNIT = "standard deviations of the channel (1 is about as good as its mean)"


@dataclass(frozen=True)
class ErrorAtHops:
    """Error of a method on hidden cells that are so many hops from a source; None hops is unreachable."""

    hops: int | None
    n_cells: int
    error: float


@dataclass(frozen=True)
class MethodError:
    """Error of a method on hidden cells."""

    method: str
    rmse: float
    mae: float
    seconds: float
    by_hops: tuple[ErrorAtHops, ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """What hiding known cells showed."""

    n_hidden: int
    how: str
    seed: int
    methods: tuple[MethodError, ...]
    unit: str = UNIT


def evaluate(
    features: Array,
    graph: Graph,
    *,
    methods: Sequence[str] = METHODS,
    share: float = SHARE,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = False,
) -> Evaluation:
    """Hide a share of the known cells in the way cells are missing, and measure how far off each method is there.

    `features` has NaN where cells are missing; `options` are further parameters of `impute`.
    """
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        raise ParameterError(f"methods must be among {', '.join(METHODS)}, got {unknown[0]!r}")
    if not 0 < share < 1:
        raise ParameterError(f"the share of cells to hide must be between 0 and 1, got {share:g}")
    hidden, how = hide(features, share, np.random.default_rng(seed))
    if not hidden.any():
        raise FeatureError("there are too few known cells to hide some of them: every channel needs at least two")
    left = np.where(hidden, np.nan, features)
    unit = _spread(features)
    hops = count_hops(read_problem(left, graph, directed=graph.directed))
    further = {name: value for name, value in (options or {}).items() if name not in ("method", "unreachable")}
    rows = []
    for method in methods:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PcfiWarning)  # about cells that are missing anyway
            filled = impute(left, graph, method=method, progress=progress, **further).values
        seconds = time.perf_counter() - start
        rows.append(judge(method, filled / unit - features / unit, hidden, hops, seconds))
    return Evaluation(int(hidden.sum()), how, seed, tuple(rows))


def hide(features: Array, share: float, rng: np.random.Generator) -> tuple[Array, str]:
    """Mask of the cells to hide, and the way in words.

    Channels that miss the same nodes lose the same nodes again; every channel keeps a known cell.
    """
    known = ~np.isnan(features)
    if known.all():
        patterns, how = np.arange(features.shape[1]), "single cells"
    else:
        _, patterns = np.unique(np.packbits(known, axis=0), axis=1, return_inverse=True)
        patterns = patterns.ravel()
        how = "whole nodes" if patterns.max() == 0 else "cells in the way they are missing"
    hidden = np.zeros(known.shape, dtype=np.bool_)
    for pattern in range(int(patterns.max()) + 1):
        channels = np.flatnonzero(patterns == pattern)
        nodes = np.flatnonzero(known[:, channels[0]])
        chosen = rng.permutation(nodes)[: max(1, round(share * len(nodes)))] if len(nodes) > 1 else nodes[:0]
        hidden[np.ix_(chosen, channels)] = True
    return hidden, how


def _spread(features: Array) -> Array:
    """Standard deviation of the known cells of each channel; 1 if that is 0."""
    known = np.where(np.isnan(features).all(axis=0), 0.0, features)
    size = np.nanmax(np.abs(known), axis=0)
    size = np.where(size > 0, size, 1.0)  # squares of huge numbers would overflow
    spread = size * np.nanstd(known / size, axis=0, dtype=np.float64)
    return np.where(spread > 0, spread, 1.0)


def judge(method: str, errors: Array, hidden: Array, hops: Hops, seconds: float) -> MethodError:
    """The error of a method, overall and by hops, from the errors of all cells and the mask of those that count."""
    wrong = errors[hidden].astype(np.float64)
    codes = np.minimum(hops.codes, hops.n_levels + 1)[:, hops.patterns][hidden]
    counts = np.bincount(codes, minlength=hops.n_levels + 2)
    squares = np.bincount(codes, weights=wrong**2, minlength=hops.n_levels + 2)
    by_hops = tuple(
        ErrorAtHops(
            None if code > hops.n_levels else code, int(counts[code]), float(np.sqrt(squares[code] / counts[code]))
        )
        for code in np.flatnonzero(counts).tolist()
    )
    return MethodError(method, float(np.sqrt(np.mean(wrong**2))), float(np.abs(wrong).mean()), seconds, by_hops)
