"""The command `pcfi` as a user runs it: in a process of its own, on files."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa

COMMAND = [sys.executable, "-m", "pcfi.cli"]
N_NODES = 40


def run(*arguments, folder=None, stdin=None, **more):
    """Run the command; stdout and stderr as bytes."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        input=stdin,
        cwd=folder,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
        **more,
    )


def features(seed=0, rate=0.4, n_nodes=N_NODES):
    """Three channels on a ring, NaN where missing."""
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(n_nodes) / n_nodes
    values = np.stack([np.sin(angle), 50 + 10 * np.cos(angle), np.sin(2 * angle)], axis=1)
    return np.where(rng.random(values.shape) < rate, np.nan, values)


def ring(n_nodes=N_NODES):
    """Edge index of a ring."""
    return np.stack([np.arange(n_nodes), (np.arange(n_nodes) + 1) % n_nodes])


def node_table(values, *, ids=True):
    """A table with ids such as 007, three channels, a label and a date."""
    columns = {"id": [f"{row:03d}" for row in range(len(values))]} if ids else {}
    for name, column in zip(("age", "income", "height"), values.T, strict=True):
        columns[name] = pa.array(column, from_pandas=True)
    return pa.table(columns | {"label": np.arange(len(values)) % 3, "since": ["2020-01-01 10:00:00"] * len(values)})


def edge_table(index, *, ids=True):
    """The edges by id, or by row."""
    ends = [[f"{node:03d}" for node in row] for row in index] if ids else list(index)
    return pa.table({"source": ends[0], "target": ends[1]})
