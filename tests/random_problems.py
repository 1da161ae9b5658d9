"""Small random problems of every kind, with their dense flow matrix."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st


@dataclass(frozen=True, eq=False)
class RandomProblem:
    """A small problem: edges from `source` to `target`, features with a known mask, and the dense flow."""

    edge_index: np.ndarray
    weights: np.ndarray | None
    directed: bool
    features: np.ndarray
    known: np.ndarray

    @property
    def graph(self) -> Any:
        return self.edge_index if self.weights is None else (self.edge_index, self.weights)

    @property
    def flow(self) -> np.ndarray:
        """Dense flow[i, j] from j into i, built the slow way from the rules of DESIGN."""
        size = len(self.features)
        flow = np.zeros((size, size))
        for e, (i, j) in enumerate(self.edge_index.T):
            if i != j:
                flow[j, i] += 1.0 if self.weights is None else self.weights[e]
        return flow if self.directed else np.maximum(flow, flow.T)

    @property
    def masked(self) -> np.ndarray:
        return np.where(self.known, self.features, np.nan).astype(self.features.dtype)


def random_known(rng: np.random.Generator, kind: str, shape: tuple[int, int], rate: float) -> np.ndarray:
    n_nodes, n_channels = shape
    if kind == "structural":
        return np.repeat(rng.random((n_nodes, 1)) < rate, n_channels, axis=1)
    if kind == "uniform":
        return rng.random(shape) < rate
    if kind == "block":
        known = np.ones(shape, dtype=bool)
        for columns in np.array_split(np.arange(n_channels), 2):
            start = rng.integers(n_nodes)
            known[start : start + n_nodes // 2, columns[:, None]] = False
            known[: n_nodes // 4, columns[:, None]] = rng.random() < 0.5
        return known
    half = n_channels // 2
    left = random_known(rng, "structural", (n_nodes, half), rate)
    return np.concatenate([left, random_known(rng, "uniform", (n_nodes, n_channels - half), rate)], axis=1)


def random_problem(
    rng: np.random.Generator,
    *,
    n_nodes: int = 20,
    n_channels: int = 6,
    degree: float = 2.0,
    kind: str = "uniform",
    rate: float = 0.3,
    directed: bool = False,
    weighted: bool = False,
    dtype: Any = np.float64,
    empty: bool = False,
) -> RandomProblem:
    n_edges = rng.poisson(degree * n_nodes / 2)
    edge_index = rng.integers(0, n_nodes, size=(2, n_edges))
    weights = rng.choice([0.0, 0.25, 1.0, 3.0], size=n_edges) if weighted else None
    features = rng.normal(size=(n_nodes, n_channels)).astype(dtype)
    known = random_known(rng, kind, (n_nodes, n_channels), rate)
    known[:, -1] &= not empty
    return RandomProblem(edge_index, weights, directed, features, known)


@st.composite
def problems(draw: Any, *, directed: bool | None = None, max_nodes: int = 24, max_channels: int = 20) -> RandomProblem:
    """Random problems of every kind: weighted, directed, disconnected, every pattern, an empty channel, both dtypes."""
    return random_problem(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        n_nodes=draw(st.integers(1, max_nodes)),
        n_channels=draw(st.integers(2, max_channels)),
        degree=draw(st.floats(0.5, 6.0)),
        kind=draw(st.sampled_from(["structural", "uniform", "block", "mixed"])),
        rate=draw(st.floats(0.05, 0.95)),
        directed=draw(st.booleans()) if directed is None else directed,
        weighted=draw(st.booleans()),
        dtype=draw(st.sampled_from([np.float32, np.float64])),
        empty=draw(st.booleans()),
    )


@contextmanager
def numba_threads(count: int) -> Iterator[None]:
    """Kernels use `count` threads meanwhile, or as many as there are."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        numba.set_num_threads(before)
