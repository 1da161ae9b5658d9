"""The published raw files of ogbn-arxiv, downloaded on first use -> a `Dataset`."""

import tempfile
from pathlib import Path
from urllib.request import urlopen
from zipfile import ZipFile

import numpy as np

from pcfi._typing import Array
from pcfi.errors import DatasetError
from pcfi.experiments.data.dataset import INSTALL, Dataset, fetch, largest_component

ADDRESS = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
PARTS = {"train": "train", "validation": "valid", "test": "test"}


def read_arxiv(folder: Path) -> Dataset:
    """Read `raw/{edge,node-feat,node-label}.csv.gz` and `split/time/{train,valid,test}.csv.gz` in `folder`."""
    if not (folder / "raw" / "edge.csv.gz").exists():
        fetch("OGBN-Arxiv", lambda: _download(folder))
    raw, split = folder / "raw", folder / "split" / "time"
    return largest_component(
        "OGBN-Arxiv",
        _read_csv(raw / "node-feat.csv.gz", np.float32),
        _read_csv(raw / "node-label.csv.gz", np.int64).ravel(),
        _read_csv(raw / "edge.csv.gz", np.int64).T,
        {part: _read_csv(split / f"{file}.csv.gz", np.int64).ravel() for part, file in PARTS.items()},
    )


def _read_csv(path: Path, dtype: type) -> Array:
    try:
        from pyarrow import csv, float32, int64
    except ImportError:
        raise DatasetError(INSTALL) from None
    column_type = float32() if dtype is np.float32 else int64()
    n_columns = len(csv.open_csv(path, csv.ReadOptions(autogenerate_column_names=True)).schema)
    names = [str(column) for column in range(n_columns)]
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=names),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, column_type)),
    )
    return np.column_stack([column.to_numpy() for column in table.columns])


def _download(folder: Path) -> None:
    """Download the archive, with a progress bar, and unpack it as `folder`, which appears when it is complete."""
    from tqdm import tqdm

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        archive = Path(scratch) / "arxiv.zip"
        with urlopen(ADDRESS, timeout=60) as response, archive.open("wb") as file:
            size = int(response.headers.get("Content-Length", 0)) or None
            with tqdm(total=size, unit="B", unit_scale=True, desc="OGBN-Arxiv") as bar:
                while chunk := response.read(1 << 20):
                    file.write(chunk)
                    bar.update(len(chunk))
        with ZipFile(archive) as unpacked:
            unpacked.extractall(scratch)
        (Path(scratch) / "arxiv").rename(folder)
