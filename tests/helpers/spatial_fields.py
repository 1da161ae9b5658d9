"""Graphs of near points, fields that vary slowly over them, hidden cells, and errors."""

import numpy as np
from scipy import sparse


def neighbour_graph(n_nodes, seed, n_neighbours=6):
    from sklearn.neighbors import kneighbors_graph

    points = np.random.default_rng(seed).random((n_nodes, 2))
    graph = sparse.csr_array(kneighbors_graph(points, n_neighbours))
    return graph.maximum(graph.T)


def smooth_field(graph, seed, range_=0.05):
    """A field that varies slowly over the graph, with mean 0 and variance 1."""
    from scipy.sparse.linalg import splu

    laplacian = sparse.diags_array(graph.sum(axis=1)) - graph
    system = (laplacian + range_ * sparse.eye_array(graph.shape[0])).tocsc()
    field = splu(system).solve(np.random.default_rng(seed).standard_normal(graph.shape[0]))
    return (field - field.mean()) / field.std()


def hide(truth, rate, seed):
    missing = np.random.default_rng(seed).random(truth.shape) < rate
    return np.where(missing, np.nan, truth), missing


def rmse(filled, truth, missing):
    return float(np.sqrt(np.mean((filled - truth)[missing] ** 2)))
