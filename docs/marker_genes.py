"""Marker genes of blood cells before and after: the picture and the numbers of docs/howto/anndata.md.

Run `python docs/marker_genes.py`; needs `pip install scanpy`, for the data set that it ships.
"""

import warnings
from importlib.util import find_spec
from pathlib import Path

import anndata
import matplotlib as mpl
import numpy as np
from scipy import sparse

import pcfi

mpl.use("agg")
import matplotlib.pyplot as plt

PICTURE = Path(__file__).parent / "pictures" / "marker_genes.png"
MARKERS = {"CD79A": "B cells", "NKG7": "natural killer cells", "CST3": "monocytes", "CD3D": "T cells"}


def load() -> anndata.AnnData:
    """700 blood cells x 765 genes: log counts, many of them zero, and scanpy's graph of the cells."""
    path = Path(find_spec("scanpy").origin).parent / "datasets" / "10x_pbmc68k_reduced.h5ad"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file is in an old format
        reduced = anndata.read_h5ad(path)
    cells = reduced.raw.to_adata()
    cells.obsp["connectivities"] = reduced.obsp["connectivities"]
    return cells


def hidden_counts(cells: anndata.AnnData, rate: float) -> dict[str, float]:
    """Error on hidden cells of PCFI, of the gene's mean, and of smoothing as in MAGIC."""
    truth = cells.X.toarray()
    hidden = np.random.default_rng(0).random(truth.shape) < rate
    trial = anndata.AnnData(np.where(hidden, np.float32(np.nan), truth), obsp=dict(cells.obsp))
    filled = {}
    for method in ("pcfi", "mean"):
        pcfi.anndata.impute(trial, method=method)
        filled[method] = trial.layers["pcfi"]
    walk = sparse.csr_array(cells.obsp["connectivities"]) + sparse.eye_array(len(truth))
    walk = sparse.diags_array(1 / walk.sum(axis=1)) @ walk
    for start, fill in {"zero": 0.0, "mean": np.nanmean(trial.X, axis=0)}.items():
        filled[f"smoothing, from {start}"] = walk @ (walk @ (walk @ np.where(hidden, fill, truth)))
    return {name: float(np.sqrt(np.mean((values - truth)[hidden] ** 2))) for name, values in filled.items()}


def draw(cells: anndata.AnnData, rate: float = 0.7) -> None:
    """Hide most values of four marker genes, and fill them in from the cells that are similar by all genes."""
    measured = cells[:, list(MARKERS)].copy()
    truth = measured.X.toarray()
    measured.X = np.where(np.random.default_rng(0).random(truth.shape) < rate, np.float32(np.nan), truth)
    pcfi.anndata.impute(measured)
    rows = {
        "measured": truth,
        f"{rate:.0%} hidden": measured.X,
        "filled": measured.layers["pcfi"],
        "confidence": measured.layers["pcfi_confidence"],
    }
    figure, axes = plt.subplots(len(rows), len(MARKERS), figsize=(11, 10.5), layout="constrained")
    for row, (name, matrix) in zip(axes, rows.items(), strict=True):
        row[0].set_ylabel(name, fontsize=13)
        for column, axis in enumerate(row):
            _scatter(figure, axis, cells.obsm["X_umap"], matrix[:, column], truth[:, column].max(), name)
    for axis, (gene, where) in zip(axes[0], MARKERS.items(), strict=True):
        axis.set_title(f"{gene}: {where}")
    figure.savefig(PICTURE, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _scatter(figure: plt.Figure, axis: plt.Axes, places: np.ndarray, values: np.ndarray, top: float, name: str) -> None:
    axis.scatter(*places.T, c="#d9d9d9", s=5)
    order = np.argsort(values, kind="stable")  # NaN comes last, and is not drawn
    certain = name == "confidence"
    colours = {"cmap": "viridis" if certain else "magma_r", "vmin": 0, "vmax": 1 if certain else top}
    dots = axis.scatter(*places[order].T, c=values[order], s=7, **colours)
    axis.set(xticks=[], yticks=[])
    figure.colorbar(dots, ax=axis, shrink=0.7)


if __name__ == "__main__":
    for rate in (0.1, 0.3, 0.5):
        print(rate, {name: round(error, 3) for name, error in hidden_counts(load(), rate).items()})
    draw(load())
