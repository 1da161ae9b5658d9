"""The demo: 90 % of the images of handwritten digits are removed and filled in again. `pcfi demo` shows it."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import pcfi
from pcfi._typing import Array
from pcfi.optional import load

METHODS = ("zero", "mean", "neighbors", "fp", "pcfi")
NEIGHBOURS = 10
MISSING_RATE = 0.9


@dataclass(frozen=True, eq=False)
class Digits:
    """1,797 images of 8 x 8 pixels as nodes, linked to similar images; the pixels of most are taken away."""

    images: Array
    labels: Array
    edges: Any
    known: Array

    @property
    def features(self) -> Array:
        """The images, NaN where they were taken away."""
        return np.where(self.known, self.images, np.nan)


def load_digits(seed: int = 0) -> Digits:
    """Scikit-learn's digits; each is linked to its nearest neighbours among the full images."""
    load("sklearn", "the demo", "demo")
    from sklearn.datasets import load_digits as load_images
    from sklearn.neighbors import NearestNeighbors

    data = load_images()
    images = data.data.astype(np.float32)
    # a tree: which of equally distant images counts as near would otherwise depend on the number of OpenMP threads
    edges = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="kd_tree").fit(images).kneighbors_graph()
    keep = np.random.default_rng(seed).random(len(images)) >= MISSING_RATE
    return Digits(images, data.target, edges, np.broadcast_to(keep[:, None], images.shape))


def compare(digits: Digits) -> tuple[list[tuple[str, float, float]], dict[str, pcfi.Imputation]]:
    """Error on the removed pixels and time of each method; and what each filled in."""
    rows, results = [], {}
    features, removed = digits.features, ~digits.known
    graph = pcfi.prepare_graph(digits.edges)
    for method in METHODS:
        pcfi.impute(features, graph, method=method)  # compiles or loads the kernels
        start = time.perf_counter()
        results[method] = pcfi.impute(features, graph, method=method)
        seconds = time.perf_counter() - start
        error = float(np.sqrt(np.mean((results[method].values - digits.images)[removed] ** 2)))
        rows.append((method, error, seconds))
    return rows, results


def draw(digits: Digits, result: pcfi.Imputation, file: Any) -> None:
    """Original, what was left, what PCFI filled in, and its confidence, for one image of each digit."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    confidence, hops = result.confidence, result.hops
    if confidence is None or hops is None:
        raise ValueError("only PCFI has a confidence to draw")
    chosen = _one_of_each(digits, hops[:, 0])
    rows = {
        "original": (digits.images, "gray_r", 16),
        "what was left": (digits.features, "gray_r", 16),
        "filled in": (result.values, "gray_r", 16),
        "confidence": (confidence, "viridis", 1),
    }
    figure, axes = plt.subplots(len(rows), len(chosen), figsize=(10, 4.6))
    for row, (name, (images, colours, top)) in zip(axes, rows.items(), strict=True):
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for axis, node in zip(row, chosen, strict=True):
            axis.imshow(images[node].reshape(8, 8), cmap=colours, vmin=0, vmax=top)
            axis.set(xticks=[], yticks=[], facecolor="#dde7f0")
    for axis, node in zip(axes[-1], chosen, strict=True):
        unit = "hop" if hops[node, 0] == 1 else "hops"
        axis.set_xlabel(f"{hops[node, 0]} {unit}\n{confidence[node, 0]:.3g}")
    figure.suptitle("90 % of the images were removed; PCFI filled them in from the graph")
    figure.savefig(file, format="png", dpi=150, bbox_inches="tight")
    plt.close(figure)


def _one_of_each(digits: Digits, hops: Array) -> list[int]:
    """An image of each digit: the first was kept, the later ones are further and further from a kept one."""
    farther = (digits.labels + 2) // 3  # 0 wants 0 hops, 1 to 3 one, 4 to 6 two, 7 to 9 three
    return [int(np.argmin(np.abs(hops - farther) + 99.0 * (digits.labels != digit))) for digit in range(10)]


def channel_names() -> list[str]:
    """Names of the 64 pixels, by row and column."""
    return [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]


def node_name(digits: Digits, node: int) -> str:
    """What a node is called in files and reports."""
    return f"image {node} (a {digits.labels[node]})"


def story(digits: Digits) -> str:
    """What the demo does, in words."""
    n_known = int(digits.known[:, 0].sum())
    return (
        f"{len(digits.images):,} images of handwritten digits are the nodes of a graph: each is linked to its "
        f"{NEIGHBOURS} most similar images (by the full images, before any is taken away). The pixels of all but "
        f"{n_known} are then removed, and filled in again from the graph and the images that are left."
    )


def as_tables(digits: Digits) -> tuple[Any, Any]:
    """The node table (id, the digit, a column per pixel, null where removed) and the edge table, of pyarrow."""
    import pyarrow as pa

    ids = pa.array([f"image_{node:04d}" for node in range(len(digits.images))])
    pixels = [pa.array(column, from_pandas=True) for column in digits.features.T]
    nodes = pa.table([ids, pa.array(digits.labels), *pixels], names=["id", "digit", *channel_names()])
    edges = digits.edges.tocoo()
    return nodes, pa.table({"source": ids.take(pa.array(edges.row)), "target": ids.take(pa.array(edges.col))})
