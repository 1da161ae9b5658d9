"""Features that vary slowly along a ring, some of them hidden."""

import numpy as np

from random_problems import random_known


def ring(size: int, reach: int = 2) -> np.ndarray:
    nodes = np.arange(size)
    return np.concatenate([np.stack([nodes, (nodes + step) % size]) for step in range(1, reach + 1)], axis=1)


def smooth(rng: np.random.Generator, n_nodes: int = 200, n_channels: int = 6, noise: float = 0.3) -> np.ndarray:
    """Channels that vary slowly around a ring, some of them together, with noise."""
    angle = np.arange(n_nodes)[:, None] / n_nodes * 2 * np.pi
    waves = np.sin(angle * rng.integers(1, 4, size=n_channels) + rng.integers(0, 3, size=n_channels))
    return 5 + waves + noise * rng.normal(size=(n_nodes, n_channels))


def hidden_at(rng: np.random.Generator, values: np.ndarray, kind: str = "structural", rate: float = 0.4) -> np.ndarray:
    return np.where(random_known(rng, kind, values.shape, rate), values, np.nan)
