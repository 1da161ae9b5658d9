"""Which label-free input does the common network learn best from: the study behind the default of `ImputeFeatures`.

Candidates are compared by validation accuracy (links: validation AUC), one choice for all data sets; test scores are
reported only. Positions are computed here, with scipy or by filling random columns, so that the study does not depend
on what was built from it. Differences from "plain" are those on the same splits, with their standard errors.
Runs that are in the results already are not repeated: delete benchmarks/results/position.json to start anew.

    python benchmarks/position.py --datasets Cora CiteSeer --splits 5 --candidates plain "random 128"
    python benchmarks/position.py --summary
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from common import RESULTS, load, machine

import pcfi
from pcfi import positions

RATE = 0.995
DATASETS = ("Cora", "CiteSeer", "Photo", "PubMed", "Computers")
LARGE_MEANS = ("Photo", "Computers")  # where the rule of `impute` finds large channel means


@dataclass(frozen=True)
class Candidate:
    """How features are filled, and what is appended to them.

    `scale` is the size of the appended channels: their Frobenius norm relative to that of the centred filled features.
    """

    alpha: float | None = None  # None: the rule of `impute`
    center: bool | None = False  # None: the rule of `impute`
    kind: str = "none"
    n_channels: int = 128
    steps: int = 60
    scale: float = 1.0
    n_sources: int = 64  # of each column, kind "sources"
    source_alpha: float | None = 0.9  # None: that of the features
    without_mean: bool = False  # of the appended channels
    row_norm: float | None = None  # root mean square of the rows' norms; None: as they are
    size: float | None = None  # of the appended channels: root of the sum of their variances; None: see `scale`
    min_size: float = 0.0
    factor: float = 1.0  # of the features
    mixed: bool = False  # kind "library": half of the columns has 16 sources and alpha 0.5
    change: Callable[[Any, np.ndarray], np.ndarray] | None = field(default=None, compare=False)


def several_alphas(run_input: Any, filled: np.ndarray) -> np.ndarray:
    """The features filled with alpha 0.9 and with 0.3, side by side."""
    return np.concatenate([filled, fill(run_input, 0.3)[0]], axis=1)


def with_confidence(run_input: Any, filled: np.ndarray) -> np.ndarray:
    """One further channel: the mean confidence of the node."""
    confidence = fill(run_input, 0.9)[1].mean(axis=1, keepdims=True)
    return np.concatenate([filled, confidence * _norm(filled) / _norm(confidence) * 0.3], axis=1)


def unit_variance(_: Any, filled: np.ndarray) -> np.ndarray:
    """Every channel in units of its filled values' standard deviation, the whole as large as before."""
    spread = filled.std(axis=0)
    scaled = np.divide(filled, spread, out=np.zeros_like(filled), where=spread > 1e-6 * spread.max())
    return scaled * (_norm(filled) / _norm(scaled))


def teleport(run_input: Any, filled: np.ndarray) -> np.ndarray:
    """Far nodes drawn to the channel's mean: confidence x + (1 - confidence) mean."""
    confidence, known = fill(run_input, 0.9)[1], run_input.known
    mean = np.where(known, filled, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return (mean + confidence * (filled - mean)).astype(np.float32)


def synthetic_sources(run_input: Any, filled: np.ndarray) -> np.ndarray:
    """Propagate and Inject: a random source in each of the 70 % of channels that vary least, diffused again."""
    rng = np.random.default_rng(run_input.run.seed)
    known, values = run_input.known.copy(), filled.copy()
    low = np.argsort(filled.var(axis=0), kind="stable")[: int(0.7 * filled.shape[1])]
    nodes = rng.integers(0, len(filled), size=len(low))
    fresh = ~known[nodes, low]
    values[nodes[fresh], low[fresh]] = rng.uniform(0, filled.max(axis=0)[low[fresh]] + 1e-12)
    known[nodes, low] = True
    features = np.where(known, values, np.float32(np.nan))
    return pcfi.impute(features, run_input.edges, alpha=0.9, beta=0.0, objective="representation").values


LIBRARY = Candidate(kind="library", n_channels=256)  # those of `pcfi.position`
COARSE = replace(LIBRARY, n_sources=16, source_alpha=0.6)
CANDIDATES = {
    "auto with centring (before)": Candidate(center=None),
    "plain": Candidate(),
    "plain, alpha 0.9": Candidate(alpha=0.9),
    "plain, alpha 0.5": Candidate(alpha=0.5),
    "random 128": Candidate(kind="random"),
    "random 128, scale 1/2": Candidate(kind="random", scale=0.5),
    "random 128, scale 2": Candidate(kind="random", scale=2.0),
    "random 128, scale 4": Candidate(kind="random", scale=4.0),
    "random 64": Candidate(kind="random", n_channels=64),
    "random 256": Candidate(kind="random", n_channels=256),
    "random 256, scale 1/2": Candidate(kind="random", n_channels=256, scale=0.5),
    "random 256, without degrees": Candidate(kind="walk", n_channels=256),
    "random 256, without degrees, scale 1/2": Candidate(kind="walk", n_channels=256, scale=0.5),
    "random 512, without degrees, scale 1/2": Candidate(kind="walk", n_channels=512, scale=0.5),
    "random 128, 20 steps": Candidate(kind="random", steps=20),
    "random 128, 200 steps": Candidate(kind="random", steps=200),
    "random 128, without degrees": Candidate(kind="walk"),
    "eigenvectors 128": Candidate(kind="eigen"),
    "eigenvectors 128, scale 1/2": Candidate(kind="eigen", scale=0.5),
    "eigenvectors 128, scale 2": Candidate(kind="eigen", scale=2.0),
    "eigenvectors 128, without degrees": Candidate(kind="eigen-walk"),
    "centred, random 128": Candidate(center=None, kind="random"),
    "centred, random 128, scale 1/2": Candidate(center=None, kind="random", scale=0.5),
    "sources 256, alpha as for features, scale 1/2": Candidate(
        kind="sources", n_channels=256, scale=0.5, source_alpha=None
    ),
    "sources 256, 16 each, alpha as for features, scale 1/2": Candidate(
        kind="sources", n_channels=256, scale=0.5, n_sources=16, source_alpha=None
    ),
    "sources 512, alpha as for features, scale 1/2": Candidate(
        kind="sources", n_channels=512, scale=0.5, source_alpha=None
    ),
    "sources 256, alpha 0.5, scale 1/2": Candidate(kind="sources", n_channels=256, scale=0.5, source_alpha=0.5),
    "sources 256, alpha 0.5": Candidate(kind="sources", n_channels=256, source_alpha=0.5),
    "sources 256, alpha 0.5, scale 2": Candidate(kind="sources", n_channels=256, source_alpha=0.5, scale=2.0),
    "sources 256": Candidate(kind="sources", n_channels=256),
    "sources 256, scale 2": Candidate(kind="sources", n_channels=256, scale=2.0),
    "sources 256, without their mean": Candidate(kind="sources", n_channels=256, without_mean=True),
    "sources 256, without their mean, scale 1/2": Candidate(
        kind="sources", n_channels=256, without_mean=True, scale=0.5
    ),
    "alpha 0.5 for both, sources 256, scale 1/2": Candidate(
        alpha=0.5, kind="sources", n_channels=256, source_alpha=0.5, scale=0.5
    ),
    "alpha 0.5 for both, sources 256": Candidate(alpha=0.5, kind="sources", n_channels=256, source_alpha=0.5),
    "alpha 0.5 for both, sources 256, scale 2": Candidate(
        alpha=0.5, kind="sources", n_channels=256, source_alpha=0.5, scale=2.0
    ),
    "library": LIBRARY,
    **{f"library, size {size:g}": replace(LIBRARY, size=size) for size in (1.0, 3.0, 10.0)},
    "library, 16 sources, alpha 0.6": COARSE,
    "library, 8 sources, alpha 0.6": replace(COARSE, n_sources=8),
    "library, 16 sources, alpha 0.6, size at least 1": replace(COARSE, min_size=1.0),
    "library, 16 sources, alpha 0.6, size at least 3": replace(COARSE, min_size=3.0),
    "library, 16 sources, two alphas": replace(LIBRARY, n_sources=16, mixed=True),
    "library, 64 and 16 sources, two alphas": replace(LIBRARY, mixed=True),
    "plain, alpha 0.3": Candidate(alpha=0.3),
    "plain, ten times": Candidate(factor=10.0),
    "plain, alpha 0.3, ten times": Candidate(alpha=0.3, factor=10.0),
    "rows of norm 1": Candidate(row_norm=1.0),
    "rows of norm 3": Candidate(row_norm=3.0),
    "several alphas": Candidate(change=several_alphas),
    "confidence as a channel": Candidate(change=with_confidence),
    "channels of unit variance": Candidate(change=unit_variance),
    "far nodes drawn to the mean": Candidate(change=teleport),
    "synthetic sources": Candidate(change=synthetic_sources),
}


def _norm(values: np.ndarray) -> float:
    return float(np.linalg.norm(values - values.mean(axis=0)))


def fill(run_input: Any, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Filled features and their confidence."""
    result = pcfi.impute(
        run_input.features, run_input.edges, alpha=alpha, beta=0.0, objective="representation", unreachable="zero"
    )
    return result.values, result.confidence


def symmetric_adjacency(edges: np.ndarray, n_nodes: int) -> tuple[Any, np.ndarray]:
    """D^-1/2 A D^-1/2 without self-loops, and the roots of the degrees; nodes without edges have 0."""
    from scipy import sparse

    adjacency = sparse.csr_array((np.ones(edges.shape[1], np.float32), tuple(edges)), shape=(n_nodes, n_nodes))
    root = np.sqrt(np.asarray(adjacency.sum(axis=1)).ravel())
    inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
    return (sparse.diags_array(inverse) @ adjacency @ sparse.diags_array(inverse)).tocsr().astype(np.float32), root


def without_constants(position: np.ndarray, matrix: Any, root: np.ndarray) -> np.ndarray:
    """The position less its part along the first eigenvector of each connected component."""
    from scipy.sparse.csgraph import connected_components

    n_components, component = connected_components(matrix, directed=False)
    for column in position.T:
        part = np.bincount(component, weights=root * column, minlength=n_components)
        size = np.bincount(component, weights=root**2, minlength=n_components)
        column -= (np.divide(part, size, out=np.zeros_like(part), where=size > 0)[component] * root).astype(np.float32)
    return position


@cache
def eigen(key: tuple[str, str, int], n_channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors of the graph of `GRAPHS[key]`, the first one left out, and their eigenvalues."""
    from scipy.sparse.linalg import eigsh

    matrix, _ = symmetric_adjacency(*GRAPHS[key])
    start = np.random.default_rng(0).standard_normal(matrix.shape[0])
    values, vectors = eigsh(matrix.astype(np.float64), k=n_channels + 1, which="LA", v0=start, tol=1e-5)
    order = np.argsort(values)[::-1][1:]
    return vectors[:, order].astype(np.float32), values[order]


GRAPHS: dict[tuple[str, str, int], tuple[np.ndarray, int]] = {}


def position(run_input: Any, candidate: Candidate) -> np.ndarray:
    """The channels to append, before they are scaled."""
    run, n_nodes = run_input.run, run_input.dataset.n_nodes
    matrix, root = symmetric_adjacency(run_input.edges, n_nodes)
    if candidate.kind.startswith("eigen"):
        key = (run.dataset, run.task, 0 if run.task == "classification" else run.seed)
        GRAPHS[key] = (run_input.edges, n_nodes)
        vectors, values = eigen(key, candidate.n_channels)
        found = vectors * np.exp(-30 * (1 - values)).astype(np.float32)
    elif candidate.kind == "library":
        return library_positions(run_input, candidate)
    elif candidate.kind == "sources":
        found = filled_sources(run_input, candidate)
    else:
        rng = np.random.default_rng(run.seed)
        found = rng.standard_normal((n_nodes, candidate.n_channels), dtype=np.float32)
        for _ in range(candidate.steps):
            found = (found + matrix @ found) / np.float32(2)
        found = without_constants(found, matrix, root)
    if candidate.kind.endswith("walk"):
        found = found / np.maximum(root, 1)[:, None]
    return found - found.mean(axis=0) if candidate.without_mean else found


def filled_sources(run_input: Any, candidate: Candidate) -> np.ndarray:
    """Columns that hold normal random numbers at some random nodes, filled as features are."""
    rng = np.random.default_rng(1000 + run_input.run.seed)
    n_nodes = run_input.dataset.n_nodes
    columns = np.full((n_nodes, candidate.n_channels), np.nan, dtype=np.float32)
    for column in columns.T:
        column[rng.choice(n_nodes, candidate.n_sources, replace=False)] = rng.standard_normal(candidate.n_sources)
    alpha = candidate.source_alpha or feature_alpha(run_input.run.dataset, candidate)
    options = {"alpha": alpha, "beta": 0.0, "objective": "representation", "unreachable": "zero"}
    return pcfi.impute(columns, run_input.edges, **options).values


def library_positions(run_input: Any, candidate: Candidate) -> np.ndarray:
    """Positions as `pcfi.position` computes them, with this number of sources and this alpha."""
    first = form(run_input, candidate.n_channels, candidate.n_sources, candidate.source_alpha)
    if not candidate.mixed:
        return first
    half = candidate.n_channels // 2
    parts = first[:, :half], form(run_input, candidate.n_channels, 16, 0.5)[:, half:]
    return np.concatenate([part / np.float32(_norm(part)) for part in parts], axis=1)


def form(run_input: Any, n_channels: int, n_sources: int, alpha: float | None) -> np.ndarray:
    usual = positions.DIFFUSION, positions.MAX_SOURCES
    positions.DIFFUSION, positions.MAX_SOURCES = replace(positions.DIFFUSION, alpha=alpha), n_sources
    graph = pcfi.prepare_graph(run_input.edges, run_input.dataset.n_nodes)
    found = positions.source_positions(graph, n_channels, run_input.run.seed)
    positions.DIFFUSION, positions.MAX_SOURCES = usual
    return found


def feature_alpha(name: str, candidate: Candidate) -> float:
    """Alpha that features are filled with."""
    return candidate.alpha or (0.2 if name in LARGE_MEANS else 0.9)


class SideBySide:
    """Two constant matrices as one, for the first layer."""

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right

    def __matmul__(self, weights: Any) -> Any:
        width = self.left.shape[1]
        return self.left @ weights[:width] + self.right @ weights[width:]


def measure(task: str, name: str, kind: str, seed: int, candidate: Candidate) -> dict[str, float]:
    """Validation and test score on one split."""
    from pcfi.experiments.data.run_input import load_run_input
    from pcfi.experiments.run import Run
    from pcfi.experiments.training.constant_matrix import ConstantMatrix, propagated
    from pcfi.experiments.training.tasks import first_layer_on_features, first_layer_on_matrix, train_network

    run_input = load_run_input(Run(task, name, kind, RATE, "pcfi", (), seed))
    filled = fill(run_input, feature_alpha(name, candidate))[0] * np.float32(candidate.factor)
    if candidate.change is not None:
        filled = candidate.change(run_input, filled).astype(np.float32)
    if candidate.row_norm is not None:
        filled = filled * np.float32(candidate.row_norm * np.sqrt(len(filled)) / np.linalg.norm(filled))
    features = filled
    if candidate.center or (candidate.center is None and name in LARGE_MEANS):
        features = filled - filled.mean(axis=0)
    if candidate.kind == "none":
        first = first_layer_on_features(run_input, features)
    else:
        more = position(run_input, candidate)
        unit = np.sqrt(len(filled))
        size = candidate.size or max(candidate.scale * _norm(filled) / unit, candidate.min_size)
        more *= np.float32(size * unit / _norm(more))
        channels = np.flatnonzero(features.any(axis=0))
        left = propagated(run_input.adjacency, features[:, channels])
        right = ConstantMatrix(np.asarray(run_input.adjacency @ more))
        width = features.shape[1] + more.shape[1]
        kept = np.concatenate([channels, np.arange(features.shape[1], width)])
        first = first_layer_on_matrix(SideBySide(left, right), kept, width)
    output = train_network(run_input, first)
    if output.labels is None:
        return {"validation": output.metrics["validation_auc"], "test": output.metrics["auc"]}
    test = run_input.split.test
    accuracy = 100 * float((output.labels == run_input.dataset.labels)[test].mean())
    return {"validation": output.metrics["validation_accuracy"], "test": accuracy}


def summarize(runs: dict[str, Any]) -> list[dict[str, Any]]:
    """Means over the splits that were run, and the difference to "plain" on the same splits."""
    rows = []
    groups = dict.fromkeys((*key.split(" | ")[:3], key.split(" | ")[4]) for key in runs)
    for task, name, kind, label in sorted(groups):
        scores = {
            seed: runs[key] for seed in range(100) if (key := f"{task} | {name} | {kind} | {seed} | {label}") in runs
        }
        plain = {seed: runs[key] for seed in scores if (key := f"{task} | {name} | {kind} | {seed} | plain") in runs}
        row: dict[str, Any] = {"task": task, "data": name, "missing": kind, "input": label, "splits": len(scores)}
        for part in ("validation", "test"):
            row[part] = float(np.mean([one[part] for one in scores.values()]))
            over = np.array([scores[seed][part] - plain[seed][part] for seed in plain])
            row[f"{part} over plain"] = float(over.mean()) if plain else None
            row[f"{part} standard error"] = float(over.std(ddof=1) / np.sqrt(len(over))) if len(over) > 1 else None
        rows.append(row)
    return rows


def write(runs: dict[str, Any]) -> None:
    target = RESULTS / "position.json"
    scratch = target.with_suffix(".tmp")
    text = json.dumps({"machine": machine(), "rows": summarize(runs), "runs": runs}, indent=1, default=float)
    scratch.write_text(text + "\n")
    scratch.replace(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["classification"])
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--missing", nargs="+", default=["structural", "uniform"])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES))
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    path = RESULTS / "position.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else {}
    if not options.summary:
        cases = product(options.tasks, options.datasets, options.missing, range(options.splits), options.candidates)
        for task, name, kind, seed, label in cases:
            key = f"{task} | {name} | {kind} | {seed} | {label}"
            if key not in runs:
                load(name)
                runs[key] = measure(task, name, kind, seed, CANDIDATES[label])
                write(runs)
                print(key, runs[key], flush=True)
    for row in summarize(runs):
        over = " ".join(
            f"{row[f'{part} over plain'] or 0:+6.2f} ± {row[f'{part} standard error'] or 0:.2f}"
            for part in ("validation", "test")
        )
        print(
            f"{row['task']:14} {row['data']:9} {row['missing']:10} {row['input']:36} {row['splits']:2} "
            f"{row['validation']:6.2f} {row['test']:6.2f}  {over}"
        )


if __name__ == "__main__":
    main()
