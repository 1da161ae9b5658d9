"""How many steps of conjugate gradients would a coarse space save, if one were added to the preconditioner?

Plain numpy, some channels of Photo and PubMed, 99.5 % missing at random, alpha 0.5. The preconditioner (I + P) / d is
used as it is, and with the correction Z (Z' K Z)^-1 Z' added, Z the indicators of: all cells, shells of equal hops, or
communities that Louvain's method finds. Products with the graph until the residual is at most 1e-4.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from common import answer, hide, load
from scipy import linalg, sparse

import pcfi
from pcfi._kernels import reference

ALPHA, RATE, RTOL, CHANNELS = 0.5, 0.995, 1e-4, 10


class System(NamedTuple):
    """The steady state of one channel: x = matrix @ x + inflow at the free nodes, inner products weighted."""

    free: np.ndarray
    matrix: Any
    inflow: np.ndarray
    weights: np.ndarray
    hops: np.ndarray
    guess: np.ndarray
    spread: float


def make_system(adjacency: Any, values: np.ndarray) -> System:
    known = ~np.isnan(values)
    hops, guess = levels(adjacency, known), np.where(known, values, 0).astype(float)
    for level in range(1, hops.max() + 1):  # means of neighbours that have a value, near to far
        own, near = np.flatnonzero(hops == level), (hops >= 0) & (hops < level)
        guess[own] = (adjacency[own] @ np.where(near, guess, 0)) / (adjacency[own] @ near.astype(float))
    confidence = np.where(hops >= 0, ALPHA ** np.maximum(hops, 0.0), 0.0)
    conductance = sparse.diags(confidence) @ adjacency @ sparse.diags(confidence)
    free, sums = np.flatnonzero(hops > 0), np.asarray(conductance.sum(axis=1)).ravel()
    flow = (sparse.diags(1 / sums[free]) @ conductance.tocsr()[free]).tocsc()
    inflow = flow[:, np.flatnonzero(known)] @ values[known].astype(float)
    spread = float(np.ptp(values[known]))
    return System(free, flow[:, free].tocsr(), inflow, sums[free], hops[free], guess[free], spread)


def levels(adjacency: Any, known: np.ndarray) -> np.ndarray:
    hops, level = np.where(known, 0, reference.UNREACHED), 0
    while True:
        following = (adjacency @ (hops == level).astype(float) > 0) & (hops < 0)
        if not following.any():
            return hops
        level += 1
        hops[following] = level


def count_products(system: System, precondition: Callable[[np.ndarray], np.ndarray]) -> int:
    x, direction, previous, products = system.guess.copy(), 0.0, 1.0, 0
    residual = system.inflow + system.matrix @ x - x
    while np.abs(residual).max() > RTOL * system.spread:
        z = precondition(residual)
        norm = (system.weights * residual) @ z
        direction = z + norm / previous * direction if products else z
        image = direction - system.matrix @ direction
        step = norm / ((system.weights * direction) @ image)
        x, residual, previous, products = x + step * direction, residual - step * image, norm, products + 2
    return products


def corrected(system: System, groups: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The preconditioner with the correction on groups of free cells."""
    _, groups = np.unique(groups, return_inverse=True)
    z = sparse.csr_array((np.ones(len(groups)), (np.arange(len(groups)), groups)))
    image = sparse.diags(system.weights) @ (z - system.matrix @ z)
    factor = linalg.cho_factor((z.T @ image).toarray())
    return lambda r: r + system.matrix @ r + z @ linalg.cho_solve(factor, z.T @ (system.weights * r))


def rows() -> Iterator[dict[str, Any]]:
    for name in ("Photo", "PubMed"):
        features, edges = load(name)
        graph, hidden = pcfi.prepare_graph(edges, len(features)), hide(features, "uniform", RATE)
        adjacency = sparse.csr_array((np.ones(len(graph.indices)), graph.indices, graph.indptr))
        found = nx.community.louvain_communities(nx.from_scipy_sparse_array(adjacency), seed=0)
        communities = np.empty(len(features), dtype=np.int64)
        for number, nodes in enumerate(found):
            communities[list(nodes)] = number
        varying = np.flatnonzero(np.nanmax(hidden, axis=0) > np.nanmin(hidden, axis=0))
        chosen = varying[np.linspace(0, len(varying) - 1, CHANNELS).astype(int)]
        systems = [make_system(adjacency, hidden[:, channel]) for channel in chosen]
        preconditioners = {
            "as it is": lambda system: lambda r, matrix=system.matrix: r + matrix @ r,
            "with all cells": lambda system: corrected(system, np.zeros_like(system.free)),
            "with shells of hops": lambda system: corrected(system, system.hops),
            "with communities": lambda system, groups=communities: corrected(system, groups[system.free]),
        }
        for kind, make in preconditioners.items():
            products = [count_products(system, make(system)) for system in systems]
            yield {
                "dataset": name,
                "preconditioner": kind,
                "communities": len(found),
                "products, mean": float(np.mean(products)),
                "products, most": max(products),
            }


if __name__ == "__main__":
    answer("deflation", rows(), alpha=ALPHA, rate=RATE, channels=CHANNELS)
