"""PyG stores -> missing cells, edges, and the first node of each graph of a batch."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from pcfi._typing import Array
from pcfi.errors import FeatureError, GraphError
from pcfi.inputs.graphs import Graph

Mask = Any  # a Tensor, the name of one, or None


def split_graph(graph: Graph, ptr: Array) -> Iterator[tuple[slice, Graph]]:
    """Yield the rows and the graph of each graph of a batch; graphs without nodes are skipped."""
    if len(ptr) == 2:
        yield slice(0, graph.n_nodes), graph
        return
    first_of_row = np.repeat(np.repeat(ptr[:-1], np.diff(ptr)), np.diff(graph.indptr))
    last_of_row = np.repeat(np.repeat(ptr[1:], np.diff(ptr)), np.diff(graph.indptr))
    between = (graph.indices < first_of_row) | (graph.indices >= last_of_row)
    if between.any():
        node = graph.indices[np.flatnonzero(between)[0]]
        raise GraphError(f"an edge of node {node} leads to another graph of the batch: drop the edge")
    for first, last in pairwise(ptr):
        if first == last:
            continue
        entries = slice(graph.indptr[first], graph.indptr[last])
        weights = None if graph.weights is None else graph.weights[entries]
        yield (
            slice(int(first), int(last)),
            replace(
                graph,
                n_nodes=int(last - first),
                indptr=graph.indptr[first : last + 1] - graph.indptr[first],
                indices=graph.indices[entries] - np.int32(first),
                weights=None if weights is None or (weights == 1).all() else weights,
                _cast={},
            ),
        )


def first_nodes(store: Any, n_nodes: int) -> Array:
    """Return the first node of each graph, and the number of nodes as the last entry."""
    if store.get("ptr") is not None:
        return np.asarray(store["ptr"].cpu())
    batch = store.get("batch")
    if batch is None:
        return np.array([0, n_nodes])
    if bool((batch.diff() < 0).any()):
        raise GraphError("the nodes of the batch are not sorted by graph: sort them by data.batch")
    return np.concatenate([[0], np.cumsum(np.bincount(batch.cpu()))])


def missing_cells(mask: Mask, features: torch.Tensor, store: Any, attr: str) -> torch.Tensor:
    """Check the mask and return it in the shape of the features."""
    is_nan = features.isnan()
    if mask is None:
        return is_nan
    name = "missing_mask" if isinstance(mask, torch.Tensor) else f"data.{mask}"
    if isinstance(mask, str):
        if not isinstance(store.get(mask), torch.Tensor):
            raise FeatureError(f"the data has no mask {mask!r} (it has {', '.join(map(repr, store.keys()))})")
        mask = store[mask]
    if mask.dtype != torch.bool:
        raise FeatureError(f"{name} must be a boolean mask (True = missing), got dtype {mask.dtype}: use {name}.bool()")
    if mask.device != features.device:
        raise FeatureError(f"{name} is on {mask.device}, but {attr} is on {features.device}: move both to one device")
    if mask.shape not in (features.shape, features.shape[:1]):
        raise FeatureError(
            f"{name} has shape {tuple(mask.shape)}, but {attr} has shape {tuple(features.shape)}: both must agree"
        )
    missing = mask if mask.shape == features.shape else mask[:, None].expand_as(features)
    _check_convention(missing, is_nan, name, attr)
    return missing


def _check_convention(missing: torch.Tensor, is_nan: torch.Tensor, name: str, attr: str) -> None:
    """Raise an error if the mask contradicts NaN in the features, as an inverted mask does."""
    if not bool((is_nan & ~missing).any()):
        if bool(missing.all()) and bool(is_nan.any()) and not bool(is_nan.all()):
            raise FeatureError(
                f"{name} is True everywhere, so nothing is known, but {attr} has values besides NaN: "
                f"True = missing; leave missing_mask out if NaN is missing"
            )
        return
    if not bool(missing.any()):
        problem = f"{name} is False everywhere, but {attr} has NaN"
    elif torch.equal(missing, ~is_nan):
        problem = f"{name} is True where {attr} has values and False where it is NaN"
    else:
        problem = f"{name} is False for {int((is_nan & ~missing).sum()):,} cells of {attr} that are NaN"
    raise FeatureError(f"{problem}: True = missing; invert the mask, or leave missing_mask out if NaN is missing")


def edge_list(edges: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return an edge index and its weights, from any form of edges."""
    if isinstance(edges, tuple):
        return edges
    if edges.layout == torch.strided:
        return edges, None
    entries = edges.to_sparse_coo().coalesce()
    return entries.indices(), entries.values()
