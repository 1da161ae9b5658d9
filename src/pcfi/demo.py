"""Data and picture of `pcfi demo`: 90 % of a set of handwritten digits are removed and filled in."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import pcfi
from pcfi._typing import Array
from pcfi.evaluation import DEFAULT_METHODS
from pcfi.optional import load

N_NEIGHBORS = 10
MISSING_RATE = 0.9


@dataclass(frozen=True, eq=False)
class Digits:
    """1,797 images of 8 x 8 pixels as nodes of a graph of similar images; most images are removed."""

    images: Array
    labels: Array
    edges: Any
    known: Array

    @property
    def features(self) -> Array:
        """The images, NaN where they were removed."""
        return np.where(self.known, self.images, np.nan)


def load_digits(seed: int = 0) -> Digits:
    """Load scikit-learn's digits, link each image to its nearest neighbours, and remove most images."""
    load("sklearn", "the demo", "demo")
    from sklearn.datasets import load_digits as load_images
    from sklearn.neighbors import NearestNeighbors

    data = load_images()
    images = data.data.astype(np.float32)
    # a tree makes ties between equally distant images independent of the number of OpenMP threads
    edges = NearestNeighbors(n_neighbors=N_NEIGHBORS, algorithm="kd_tree").fit(images).kneighbors_graph()
    keep = np.random.default_rng(seed).random(len(images)) >= MISSING_RATE
    return Digits(images, data.target, edges, np.broadcast_to(keep[:, None], images.shape))


def compare(digits: Digits) -> tuple[list[tuple[str, float, float]], dict[str, pcfi.Imputation]]:
    """Return the error on the removed pixels and the time of each method, and the results by method."""
    rows, results = [], {}
    features, removed = digits.features, ~digits.known
    graph = pcfi.prepare_graph(digits.edges)
    for method in DEFAULT_METHODS:
        pcfi.impute(features, graph, method=method)  # compiles or loads the kernels
        start = time.perf_counter()
        results[method] = pcfi.impute(features, graph, method=method)
        seconds = time.perf_counter() - start
        error = float(np.sqrt(np.mean((results[method].values - digits.images)[removed] ** 2)))
        rows.append((method, error, seconds))
    return rows, results


def draw(digits: Digits, result: pcfi.Imputation, file: Any) -> None:
    """Draw one image of each digit: original, known, filled by PCFI, and the confidence."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    confidence, hops = result.confidence, result.hops
    if confidence is None or hops is None:
        raise ValueError("only the method pcfi has a confidence to draw")
    chosen = _one_of_each(digits, hops[:, 0])
    rows = {
        "original": (digits.images, "gray_r", 16),
        "known": (digits.features, "gray_r", 16),
        "filled": (result.values, "gray_r", 16),
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
    figure.suptitle("90 % of the images were removed; PCFI filled them from the graph")
    figure.savefig(file, format="png", dpi=150, bbox_inches="tight")
    plt.close(figure)


def _one_of_each(digits: Digits, hops: Array) -> list[int]:
    """Choose an image of each digit, at 0 hops from a known image for digit 0 and up to 3 hops for 7 to 9."""
    target = (digits.labels + 2) // 3
    return [int(np.argmin(np.abs(hops - target) + 99.0 * (digits.labels != digit))) for digit in range(10)]


def channel_names() -> list[str]:
    """Names of the 64 pixels, by row and column."""
    return [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]


def node_name(digits: Digits, node: int) -> str:
    """Name of a node in the report."""
    return f"image {node} (a {digits.labels[node]})"


def describe(digits: Digits) -> str:
    """Description of the demo."""
    n_known = int(digits.known[:, 0].sum())
    return (
        f"{len(digits.images):,} images of handwritten digits are the nodes of a graph: each image is linked to the "
        f"{N_NEIGHBORS} most similar ones, measured on the full images. Then all but {n_known} images are removed, and "
        "each method fills them from the graph and the images that remain."
    )


def as_tables(digits: Digits) -> tuple[Any, Any]:
    """Return the node table (id, digit, a column per pixel, null where removed) and the edge table, of pyarrow."""
    import pyarrow as pa

    ids = pa.array([f"image_{node:04d}" for node in range(len(digits.images))])
    pixels = [pa.array(column, from_pandas=True) for column in digits.features.T]
    nodes = pa.table([ids, pa.array(digits.labels), *pixels], names=["id", "digit", *channel_names()])
    edges = digits.edges.tocoo()
    return nodes, pa.table({"source": ids.take(pa.array(edges.row)), "target": ids.take(pa.array(edges.col))})
