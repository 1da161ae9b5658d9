"""How do parameters and errors move with the size of the sample that the value model is fitted to?

The model is fitted to samples of growing size, and to all nodes, of the five data sets (64 channels with the most
different values, half of the cells missing) and of a generated graph of a million nodes whose channels are alike at
neighbours (16 channels, 90 % missing). Cells are hidden at the core of a sample, one in 32 to 64 of its nodes. Errors
are those of the missing cells, whose truth is known here.
"""

import sys
from collections.abc import Iterator

import numpy as np
from common import DATASETS, answer, hide, load, power_law_graph

import pcfi
from pcfi.estimation import sample

NODES_PER_CORE = sample.MAX_NODES // sample.MAX_CORE
N_CHANNELS = 64
SIZES = {"small": (512, 1024, 2048, 4096, 8192), "large": (1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19)}
GENERATED = "generated, 1 M nodes"
N_STEPS = 8  # of averaging over neighbours: what is left differs between the communities of the graph
SHAPE = (1_000_000, 8_000_000, 16)  # nodes, edges, channels


def generated(n_nodes: int, n_edges: int, n_channels: int) -> tuple[np.ndarray, pcfi.Graph]:
    """Channels that follow the graph in part, each to another extent."""
    graph = pcfi.prepare_graph(power_law_graph(n_nodes, n_edges), n_nodes)
    adjacency, rng = graph.matrix(), np.random.default_rng(1)
    degree = np.maximum(np.asarray(adjacency.sum(axis=1)), 1).astype(np.float32)
    values = np.empty((n_nodes, n_channels), dtype=np.float32)
    for channel in range(n_channels):
        noise = rng.normal(size=(2, n_nodes)).astype(np.float32)
        smooth = noise[0]
        for _ in range(N_STEPS):
            smooth = adjacency @ smooth / degree
            smooth /= smooth.std()
        values[:, channel] = smooth + (channel + 1) / n_channels * noise[1]
    return values, graph


def problem(name: str) -> tuple[np.ndarray, np.ndarray, pcfi.Graph]:
    """The truth, the features with missing cells, and the graph."""
    if name == GENERATED:
        truth, graph = generated(*SHAPE)
        return truth, hide(truth, "uniform", 0.9), graph
    truth, edges = load(name)
    chosen = np.sort(np.argsort(-truth.std(axis=0), kind="stable")[:N_CHANNELS])
    truth = np.ascontiguousarray(truth[:, chosen])
    return truth, hide(truth, "uniform", 0.5), pcfi.prepare_graph(edges, len(truth))


def measure(truth: np.ndarray, features: np.ndarray, graph: pcfi.Graph, size: int) -> dict:
    """What the model of a sample of some nodes is, and how far its estimates are from the truth."""
    sample.MAX_NODES, sample.MAX_CORE, sample.MAX_CELLS = size, size // NODES_PER_CORE, sys.maxsize
    result = pcfi.impute(features, graph)
    missing = np.isnan(features)
    unit = truth.std(axis=0)
    errors = np.abs(np.asarray(result.values) - truth) / np.where(unit > 0, unit, 1)
    low, high = result.interval(0.9)
    expected = np.asarray(result.expected_error) / np.where(unit > 0, unit, 1)
    covered = (low <= truth) & (truth <= high)
    return {
        "hidden": result.tuning.n_hidden,
        "alpha": float(result.alpha),
        "error": float(np.sqrt((errors[missing].astype(np.float64) ** 2).mean())),
        "expected over actual": float(expected[missing].mean() / errors[missing].mean()),
        "coverage": float(covered[missing].mean()),
    }


def rows(names: list[str]) -> Iterator[dict]:
    for name in names:
        truth, features, graph = problem(name)
        complete = measure(truth, features, graph, len(truth))
        for size in SIZES["large" if name == GENERATED else "small"]:
            if size < len(truth):
                yield row(name, size, measure(truth, features, graph, size), complete)
        yield row(name, len(truth), complete, complete)


def row(name: str, size: int, found: dict, complete: dict) -> dict:
    return {
        "data": name,
        "nodes of the sample": size,
        "hidden cells": found["hidden"],
        "alpha": found["alpha"],
        "error": found["error"],
        "error over that of all nodes": found["error"] / complete["error"],
        "expected over actual error": found["expected over actual"],
        "coverage of 90 % intervals": found["coverage"],
    }


if __name__ == "__main__":
    answer("sample_size", rows(sys.argv[1:] or [*DATASETS, GENERATED]))
