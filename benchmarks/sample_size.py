"""How do parameters and errors move with the size of the sample that the value model is fitted to?

The model is fitted to samples of growing size, and to all nodes, of the five data sets (64 channels with the most
different values, half of the cells missing) and of a generated graph of a million nodes whose channels are alike at
neighbours (16 channels, 90 % missing). A sample has a core, at which cells are hidden, and up to 32 times as many nodes
around it. Errors are those of the missing cells, whose truth is known here.
"""

import sys
from collections.abc import Iterator

import numpy as np
from common import DATASETS, answer, hide, load, power_law_graph

import pcfi
from pcfi.estimation import sample

NODES_PER_CORE = 32  # as MAX_NODES / MAX_CORE
N_CHANNELS = 64
CORES = {"small": (128, 256, 512, 1024, 2048), "large": (512, 1024, 2048, 4096, 8192, 16384)}
GENERATED = "generated, 1 M nodes"
SHAPE = (1_000_000, 8_000_000, 16)  # nodes, edges, channels


def generated(n_nodes: int, n_edges: int, n_channels: int) -> tuple[np.ndarray, pcfi.Graph]:
    """Channels that follow the graph in part, each to another extent."""
    graph = pcfi.prepare_graph(power_law_graph(n_nodes, n_edges), n_nodes)
    adjacency, rng = graph.matrix(), np.random.default_rng(1)
    degree = np.maximum(np.asarray(adjacency.sum(axis=1)), 1).astype(np.float32)
    values = np.empty((n_nodes, n_channels), dtype=np.float32)
    for channel in range(n_channels):
        noise = rng.normal(size=(2, n_nodes)).astype(np.float32)
        smooth = adjacency @ (adjacency @ noise[0] / degree) / degree
        values[:, channel] = smooth / smooth.std() + (channel + 1) / n_channels * noise[1]
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


def measure(truth: np.ndarray, features: np.ndarray, graph: pcfi.Graph, core: int | None) -> dict:
    """What the model of one sample is, and how far its estimates are from the truth."""
    n_nodes = len(truth)
    limits = (n_nodes + 1, n_nodes) if core is None else (min(NODES_PER_CORE * core, n_nodes - 1), core)
    sample.MAX_NODES, sample.MAX_CORE = limits
    sample.MIN_CORE, sample.MAX_CELLS = min(256, limits[1]), sys.maxsize
    result = pcfi.impute(features, graph)
    missing = np.isnan(features)
    unit = truth.std(axis=0)
    errors = np.abs(np.asarray(result.values) - truth) / np.where(unit > 0, unit, 1)
    low, high = result.interval(0.9)
    expected = np.asarray(result.expected_error) / np.where(unit > 0, unit, 1)
    covered = (low <= truth) & (truth <= high)
    return {
        "alpha": float(result.alpha),
        "error": float(np.sqrt((errors[missing].astype(np.float64) ** 2).mean())),
        "expected over actual": float(expected[missing].mean() / errors[missing].mean()),
        "coverage": float(covered[missing].mean()),
    }


def rows(names: list[str]) -> Iterator[dict]:
    for name in names:
        truth, features, graph = problem(name)
        complete = measure(truth, features, graph, None)
        for core in CORES["large" if name == GENERATED else "small"]:
            if core < len(truth):
                yield row(name, core, measure(truth, features, graph, core), complete)
        yield row(name, len(truth), complete, complete)


def row(name: str, core: int, found: dict, complete: dict) -> dict:
    return {
        "data": name,
        "nodes with hidden cells": core,
        "alpha": found["alpha"],
        "error": found["error"],
        "error over that of all nodes": found["error"] / complete["error"],
        "expected over actual error": found["expected over actual"],
        "coverage of 90 % intervals": found["coverage"],
    }


if __name__ == "__main__":
    answer("sample_size", rows(sys.argv[1:] or [*DATASETS, GENERATED]))
