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


def random_edges(rng: np.random.Generator, shape: str, n_nodes: int, degree: float) -> np.ndarray:
    """Edges of a random graph, a path, a star or a random tree, in random order of the nodes."""
    if shape == "random":
        return rng.integers(0, n_nodes, size=(2, rng.poisson(degree * n_nodes / 2)))
    later = np.arange(1, n_nodes)
    earlier = {"path": later - 1, "star": np.zeros_like(later), "tree": (rng.random(n_nodes - 1) * later).astype(int)}
    return rng.permutation(n_nodes)[np.stack([earlier[shape], later])]


def random_features(rng: np.random.Generator, values: str, shape: tuple[int, int]) -> np.ndarray:
    """Normal values, or values that are hard on floating-point numbers: offsets, many scales, few distinct values."""
    features = rng.normal(size=shape)
    match values:
        case "offset":
            features += 10.0 ** rng.integers(0, 7, size=shape[1])
        case "scales":
            features *= 10.0 ** rng.integers(-15, 16, size=shape[1])
        case "binary":
            features = (features > 1).astype(np.float64)
    return features


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
    shape: str = "random",
    values: str = "normal",
) -> RandomProblem:
    edge_index = random_edges(rng, shape, n_nodes, degree)
    weights = rng.choice([0.0, 0.25, 1.0, 3.0], size=edge_index.shape[1]) if weighted else None
    features = random_features(rng, values, (n_nodes, n_channels)).astype(dtype)
    known = random_known(rng, kind, (n_nodes, n_channels), rate)
    known[:, -1] &= not empty
    return RandomProblem(edge_index, weights, directed, features, known)


@st.composite
def problems(
    draw: Any,
    *,
    directed: bool | None = None,
    max_nodes: int = 24,
    max_channels: int = 20,
    values: tuple[str, ...] = ("normal",),
) -> RandomProblem:
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
        shape=draw(st.sampled_from(["random", "random", "path", "star", "tree"])),
        values=draw(st.sampled_from(values)),
    )


def problems_of_all_scales(**options: Any) -> st.SearchStrategy[RandomProblem]:
    """The same with values on which rounding is hard, for laws that hold exactly."""
    return problems(**options, values=("normal", "offset", "scales", "binary"))


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
