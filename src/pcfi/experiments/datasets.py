"""The paper's data sets by name: features, labels and edges of the largest connected component."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pcfi.errors import DatasetError, ParameterError
from pcfi.experiments.arxiv import read_arxiv
from pcfi.experiments.catalog import DATASETS, SYNTHETIC
from pcfi.experiments.dataset import INSTALL, Dataset, connected, fetch, folder
from pcfi.experiments.synthetic import homophily_graph
from pcfi.files.writing import atomic_file


@lru_cache(maxsize=2)
def load(name: str) -> Dataset:
    """A data set by name, from the data folder; downloaded into it when it is not there yet.

    The folder is `PCFI_DATA` if that is set, else the platform's folder for caches. What was read once is kept in it in
    a form that loads faster.
    """
    synthetic = SYNTHETIC.fullmatch(name)
    if synthetic:
        return homophily_graph(float(synthetic["homophily"]), float(synthetic["scale"]), name=name)
    if name not in DATASETS:
        raise ParameterError(f"dataset must be one of {', '.join(DATASETS)}, got {name!r}")
    fast = folder() / "pcfi" / f"{name}.npz"
    if not fast.exists():
        dataset = _read(name)
        _keep(dataset, fast)
        return dataset
    return _restore(name, fast)


def _read(name: str) -> Dataset:
    if name == "OGBN-Arxiv":
        return read_arxiv(folder() / "ogbn_arxiv")
    try:
        from torch_geometric.datasets import Amazon, Planetoid
    except ImportError:
        raise DatasetError(INSTALL) from None
    loader = Amazon if name in ("Photo", "Computers") else Planetoid
    data = fetch(name, lambda: loader(str(folder()), name))[0]
    return connected(name, data.x.numpy(), data.y.numpy(), data.edge_index.numpy())


def _keep(dataset: Dataset, path: Path) -> None:
    """Write a data set so that it loads fast: features as the places and values of what is not 0, when few are."""
    flat = dataset.features.ravel()
    places = np.flatnonzero(flat)
    few = len(places) < flat.size // 4
    arrays: dict[str, Any] = {
        "shape": np.array(dataset.features.shape),
        "places": places if few else np.empty(0, np.int64),
        "values": flat[places] if few else flat,
        "labels": dataset.labels,
        "edges": dataset.edges,
        **{f"split_{part}": nodes for part, nodes in (dataset.split or {}).items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(str(path), force=True) as file:
        np.savez(file, **arrays)


def _restore(name: str, path: Path) -> Dataset:
    with np.load(path, allow_pickle=False) as kept:
        shape = tuple(kept["shape"])
        features = kept["values"]
        if len(kept["places"]):
            features = np.zeros(shape[0] * shape[1], np.float32)
            features[kept["places"]] = kept["values"]
        split = {key.removeprefix("split_"): kept[key] for key in kept.files if key.startswith("split_")}
        return Dataset(name, features.reshape(shape), kept["labels"], kept["edges"], split or None)
