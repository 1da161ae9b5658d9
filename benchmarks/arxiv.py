"""Does `pcfi reproduce` work on files of the size and format of OGBN-Arxiv, and in what time and memory?

The data set itself cannot be redistributed here, so its published files are imitated: names, columns, number of nodes
and edges, class sizes, split by year. Classes follow the graph and features follow classes, so that training does
something; the accuracy means nothing else. Then the one command that a user with the real files types is run.
"""

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import answer
from pyarrow import csv

from pcfi.experiments.runs.store import RunStore

NODES, EDGES, CHANNELS, CLASSES = 169_343, 1_166_243, 128, 40
LARGEST, SMALLEST = 27_321, 29  # nodes in a class; sizes between them fall geometrically
TRAIN, VALIDATION = 90_941, 29_799  # papers until 2017, papers of 2018; later ones are for testing
HOMOPHILY = 0.65


def labels_by_year(rng: np.random.Generator) -> np.ndarray:
    """Class of each paper, in the order of publication."""
    share = np.geomspace(LARGEST, SMALLEST, CLASSES)
    return rng.permutation(np.searchsorted(np.cumsum(share) / share.sum(), (np.arange(NODES) + 0.5) / NODES))


def citations(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each paper cites earlier ones, most of its class, early ones more often; each but the first at least one."""
    source = np.sort(np.concatenate([np.arange(1, NODES), rng.integers(1, NODES, EDGES - NODES + 1)]))
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(CLASSES))
    rank = np.empty(NODES, np.int64)
    rank[order] = np.arange(NODES) - starts[labels[order]]  # number of earlier papers of the same class
    skewed = rng.random(EDGES) ** 2
    same = (rng.random(EDGES) < HOMOPHILY) & (rank[source] > 0)
    inside = order[starts[labels[source]] + (skewed * rank[source]).astype(np.int64)]
    return np.stack([source, np.where(same, inside, (skewed * source).astype(np.int64))])


def write_files(folder: Path, seed: int) -> None:
    """Write the files of the published archive, papers in random order."""
    rng = np.random.default_rng(seed)
    labels = labels_by_year(rng)
    edges = citations(labels, rng)
    features = 0.1 * rng.standard_normal((CLASSES, CHANNELS))[labels] + 0.2 * rng.standard_normal((NODES, CHANNELS))
    number = rng.permutation(NODES)  # of each paper, by year -> in the files
    by_number = np.argsort(number)
    parts = np.split(number, [TRAIN, TRAIN + VALIDATION])
    _write(folder / "raw" / "node-feat.csv.gz", features[by_number].astype(np.float32).round(6))
    _write(folder / "raw" / "node-label.csv.gz", labels[by_number][:, None])
    _write(folder / "raw" / "edge.csv.gz", number[edges].T)
    for name, nodes in zip(("train", "valid", "test"), parts, strict=True):
        _write(folder / "split" / "time" / f"{name}.csv.gz", np.sort(nodes)[:, None])


def _write(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({str(column): values for column, values in enumerate(array.T)})
    with gzip.open(path, "wb", compresslevel=1) as file:
        csv.write_csv(table, file, csv.WriteOptions(include_header=False))


def reproduce(data: Path, arguments: list[str]) -> list[dict[str, float | str]]:
    """Run the command, and return time, memory and outcome of each run."""
    store = data / "runs.jsonl"
    command = ["pcfi.cli", "reproduce", "table1", "--datasets", "OGBN-Arxiv", "--store", str(store), "--out", str(data)]
    environment = {**os.environ, "PCFI_DATA": str(data)}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", *command, *arguments], check=True, env=environment)
    print(f"command: {time.perf_counter() - start:.0f} s")
    return [
        {
            "system": record.run.system,
            "missing": record.run.missing,
            "outcome": record.status,
            "imputation (s)": record.metrics.get("imputing_seconds", 0.0),
            "training (s)": record.metrics.get("training_seconds", 0.0),
            "epochs": int(record.metrics.get("epochs", 0)),
            "accuracy (%)": record.metrics.get("accuracy", 0.0),
            "peak memory (GB)": record.peak_mb / 1024,
        }
        for record in RunStore(store)
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder for the files, kept; default: a temporary one")
    known, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = known.data or Path(scratch)
        if not (folder / "ogbn_arxiv").exists():
            write_files(folder / "ogbn_arxiv", seed=0)
        options = rest or [
            "--systems",
            "pcfi",
            "lp",
            "--missing",
            "structural",
            "--splits",
            "1",
            "--jobs",
            "1",
            "--set",
            "epochs=50",
        ]
        answer("arxiv", reproduce(folder, options), options=" ".join(options))
