"""Which position channels go best with filled features: alpha and number of sources, by a linear classifier.

A ridge regression on features after two graph convolutions takes a second where the network takes a minute, so that
many forms can be compared on many splits: at 99.5 % missing, by validation accuracy, its regularization chosen on
validation too (test nodes are not used). Positions of one seed, of the size of the features or half or twice of it,
or alone; gains over the features without positions, in points, with standard errors over splits.

    python benchmarks/position_forms.py --datasets Cora CiteSeer --splits 10
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from common import answer, load

import pcfi
from pcfi import positions

RATE, N_CHANNELS = 0.995, 256
ALPHAS, SOURCES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.2), (4, 8, 16, 32, 64, 256)
SIZES = {"half": 0.5, "equal": 1.0, "twice": 2.0, "alone": np.inf}
PENALTIES = 10.0 ** np.arange(-5, 2)
Kernel = tuple[np.ndarray, np.ndarray]  # of training with training nodes, and of validation with training nodes


def convolved(adjacency: Any, channels: np.ndarray) -> np.ndarray:
    """Two graph convolutions without weights, less the means."""
    smooth = np.asarray(adjacency @ (adjacency @ channels))
    return smooth - smooth.mean(axis=0, dtype=np.float64).astype(np.float32)


def kernel(smooth: np.ndarray, split: Any, size: float = 1.0) -> Kernel:
    """Inner products of the rows, times the squared size."""
    train, validation = (smooth[part].astype(np.float64) * size for part in (split.train, split.validation))
    return train @ train.T, validation @ train.T


def accuracy(inner: Kernel, run_input: Any) -> float:
    """Validation accuracy of ridge regression, at its best penalty."""
    own, other = inner
    labels, split = run_input.dataset.labels, run_input.split
    target = np.eye(run_input.dataset.n_classes)[labels[split.train]]
    unit = np.trace(own) / len(own) * np.eye(len(own))
    fitted = [other @ np.linalg.solve(own + penalty * unit, target - target.mean(axis=0)) for penalty in PENALTIES]
    return max(100 * float((scores.argmax(axis=1) == labels[split.validation]).mean()) for scores in fitted)


def convolved_positions(adjacency: Any, edges: np.ndarray, alpha: float, n_sources: int) -> tuple[np.ndarray, float]:
    """Positions of this form after the convolutions, and their size before."""
    usual = positions.DIFFUSION, positions.MAX_SOURCES
    positions.DIFFUSION, positions.MAX_SOURCES = replace(positions.DIFFUSION, alpha=alpha), n_sources
    found = pcfi.position(edges, N_CHANNELS)
    positions.DIFFUSION, positions.MAX_SOURCES = usual
    return convolved(adjacency, found), size_of(found)


def size_of(channels: np.ndarray) -> float:
    """Root of the sum of the variances."""
    return float(np.sqrt(channels.var(axis=0, dtype=np.float64).sum()))


def gains(run_input: Any, forms: dict[tuple[float, int], tuple[np.ndarray, float]]) -> dict[Any, float]:
    """Validation accuracy without positions (key None), and the gain of each form and size."""
    features = pcfi.impute(run_input.features, run_input.edges, objective="representation", unreachable="zero").values
    own, other = kernel(convolved(run_input.adjacency, features), run_input.split)
    plain = accuracy((own, other), run_input)
    scores: dict[Any, float] = {None: plain}
    for form, (smooth, size) in forms.items():
        more = kernel(smooth, run_input.split, size_of(features) / size)
        for name, ratio in SIZES.items():
            both = more if ratio == np.inf else (own + ratio**2 * more[0], other + ratio**2 * more[1])
            scores[form, name] = accuracy(both, run_input) - plain
    return scores


def rows(name: str, kinds: list[str], n_splits: int, forms: list[tuple[float, int]]) -> Iterator[dict[str, Any]]:
    from pcfi.experiments.data.run_input import load_run_input
    from pcfi.experiments.run import Run

    load(name)
    run_of = partial(Run, "classification", name, rate=RATE, system="pcfi", parameters=())
    first = load_run_input(run_of(missing=kinds[0], seed=0))
    smooth = {form: convolved_positions(first.adjacency, first.edges, *form) for form in forms}
    for kind in kinds:
        found = [gains(load_run_input(run_of(missing=kind, seed=seed)), smooth) for seed in range(n_splits)]
        for form in forms:
            row = {"data": name, "missing": kind, "splits": n_splits, "alpha": form[0], "sources": form[1]}
            row["without"] = float(np.mean([one[None] for one in found]))
            for size in SIZES:
                values = np.array([one[form, size] for one in found])
                row[size] = float(values.mean())
                row[f"{size}, standard error"] = float(values.std(ddof=1) / np.sqrt(n_splits))
            yield row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["Cora", "CiteSeer", "PubMed", "Photo"])
    parser.add_argument("--missing", nargs="+", default=["uniform", "structural"])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--alphas", nargs="+", type=float, default=list(ALPHAS))
    parser.add_argument("--sources", nargs="+", type=int, default=list(SOURCES))
    options = parser.parse_args()
    forms = [(alpha, n_sources) for alpha in options.alphas for n_sources in options.sources]
    found = (row for name in options.datasets for row in rows(name, options.missing, options.splits, forms))
    answer("position_forms", found)
