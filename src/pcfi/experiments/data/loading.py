"""The paper's data sets by name: features, labels and edges of the largest connected component."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pcfi.errors import DatasetError, ParameterError
from pcfi.experiments.catalog import DATASETS, SYNTHETIC
from pcfi.experiments.data.arxiv import read_arxiv
from pcfi.experiments.data.dataset import INSTALL, Dataset, fetch, folder, largest_component
from pcfi.experiments.data.synthetic import homophily_graph
from pcfi.files.writing import atomic_file


@lru_cache(maxsize=2)
def load(name: str) -> Dataset:
    """Return a data set by name, from the data folder; it is downloaded on first use.

    The folder is `PCFI_DATA`, or a folder in the user's cache. A copy that loads faster is written there on first use.
    """
    synthetic = SYNTHETIC.fullmatch(name)
    if synthetic:
        return homophily_graph(float(synthetic["homophily"]), float(synthetic["scale"]), name=name)
    if name not in DATASETS:
        raise ParameterError(f"dataset must be one of {', '.join(DATASETS)}, got {name!r}")
    cached = folder() / "pcfi" / f"{name}.npz"
    if not cached.exists():
        dataset = _read(name)
        _write_cached(dataset, cached)
        return dataset
    return _read_cached(name, cached)


def _read(name: str) -> Dataset:
    if name == "OGBN-Arxiv":
        return read_arxiv(folder() / "ogbn_arxiv")
    try:
        from torch_geometric.datasets import Amazon, Planetoid
    except ImportError:
        raise DatasetError(INSTALL) from None
    loader = Amazon if name in ("Photo", "Computers") else Planetoid
    data = fetch(name, lambda: loader(str(folder()), name))[0]
    return largest_component(name, data.x.numpy(), data.y.numpy(), data.edge_index.numpy())


def _write_cached(dataset: Dataset, path: Path) -> None:
    """Write a data set so that it loads fast, with sparse features as positions and values of the nonzero cells."""
    flat = dataset.features.ravel()
    positions = np.flatnonzero(flat)
    sparse = len(positions) < flat.size // 4
    arrays: dict[str, Any] = {
        "shape": np.array(dataset.features.shape),
        "places": positions if sparse else np.empty(0, np.int64),
        "values": flat[positions] if sparse else flat,
        "labels": dataset.labels,
        "edges": dataset.edges,
        **{f"split_{part}": nodes for part, nodes in (dataset.split or {}).items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(str(path), force=True) as file:
        np.savez(file, **arrays)


def _read_cached(name: str, path: Path) -> Dataset:
    with np.load(path, allow_pickle=False) as arrays:
        shape = tuple(arrays["shape"])
        features = arrays["values"]
        if len(arrays["places"]):
            features = np.zeros(shape[0] * shape[1], np.float32)
            features[arrays["places"]] = arrays["values"]
        split = {key.removeprefix("split_"): arrays[key] for key in arrays.files if key.startswith("split_")}
        return Dataset(name, features.reshape(shape), arrays["labels"], arrays["edges"], split or None)
