"""How long, and how much memory, does `pcfi impute` take on 1 M nodes x 32 channels and 10 M edges, stage by stage?

The nodes have string ids. Both formats hold the same tables; the results are compared.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from common import answer, hide
from pyarrow import csv, parquet

N_NODES, N_EDGES, N_CHANNELS = 1_000_000, 10_000_000, 32

RUN = """
import json, sys, threading, time
from pcfi.cli.app import app
from pcfi.cli import session

def field(name):
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith(name)).split()[1]) * 1024

peaks, stage = {}, session.Session.stage

from contextlib import contextmanager

@contextmanager
def watched(self, name):
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # the peak starts again from here
    with stage(self, name):
        yield
    peaks[name] = field("VmHWM")
    seconds[name] = self.stages[name]

seconds = {}
session.Session.stage = watched
try:
    app(sys.argv[1:], standalone_mode=False)
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps({"seconds": seconds, "peaks": peaks}))
"""


def make(folder: Path, suffix: str) -> list[str]:
    """Node and edge files; ids are strings in a shuffled order, edges mostly local so that the graph is connected."""
    rng = np.random.default_rng(0)
    numbers = pa.array(rng.permutation(10 * N_NODES)[:N_NODES])
    ids = pc.binary_join_element_wise("node-", pc.cast(numbers, pa.string()), "")
    values = hide(rng.normal(size=(N_NODES, N_CHANNELS)).astype(np.float32), "uniform", 0.5)
    channels = {f"channel_{place}": pa.array(column, from_pandas=True) for place, column in enumerate(values.T)}
    nodes = pa.table({"id": ids, **channels})
    source = rng.integers(0, N_NODES, N_EDGES)
    target = (source + rng.integers(1, 1000, N_EDGES)) % N_NODES
    edges = pa.table({"source": ids.take(pa.array(source)), "target": ids.take(pa.array(target))})
    paths = [folder / f"{name}.{suffix}" for name in ("nodes", "edges")]
    for table, path in zip((nodes, edges), paths, strict=True):
        if suffix == "csv":
            csv.write_csv(table, path)
        else:
            parquet.write_table(table, path)
    return list(map(str, paths))


def measure(folder: Path, suffix: str) -> tuple[list[dict], np.ndarray]:
    """A row per stage, and a channel that was filled."""
    nodes, edges = make(folder, suffix)
    output = folder / f"filled.{suffix}"
    options = ["-q", "--alpha", "0.5", "--beta", "0.1", "--objective", "representation"]
    command = [sys.executable, "-c", RUN, "impute", nodes, edges, "-o", str(output), *options]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    total = time.perf_counter() - start
    found = json.loads(done.stdout.strip().splitlines()[-1])
    seconds, peaks = found["seconds"], found["peaks"]
    rows = [
        {"files": suffix, "stage": stage, "seconds": spent, "peak memory, GB": peaks[stage] / 1e9}
        for stage, spent in seconds.items()
    ]
    both = seconds["read edges"] + seconds["map ids"]
    rows.append({"files": suffix, "stage": "read edges and map ids", "million edges a second": N_EDGES / 1e6 / both})
    rows.append({"files": suffix, "stage": "in all, with start-up", "seconds": total})
    table = parquet.read_table(output) if suffix == "parquet" else csv.read_csv(output)
    return rows, table["channel_7"].to_numpy()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        measured = [measure(Path(name), suffix) for suffix in (sys.argv[1:] or ["parquet", "csv"])]
    assert all(np.allclose(filled, measured[0][1], atol=1e-3) for _, filled in measured)
    answer("files", [row for rows, _ in measured for row in rows], nodes=N_NODES, channels=N_CHANNELS, edges=N_EDGES)
