"""PyTorch Geometric: `ImputeFeatures`, a transform that fills the missing node features of a data object.

>>> import torch
>>> from torch_geometric.data import Data
>>> from pcfi.pyg import ImputeFeatures
>>> x = torch.tensor([[0.0], [torch.nan], [torch.nan], [3.0]])
>>> data = Data(x=x, edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
>>> ImputeFeatures(alpha=0.5)(data).x.ravel()
tensor([0.0000, 0.7500, 2.2500, 3.0000])
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

try:
    import torch
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.data.datapipes import functional_transform
    from torch_geometric.transforms import BaseTransform
except ModuleNotFoundError as error:
    if error.name not in ("torch", "torch_geometric"):
        raise
    raise ModuleNotFoundError('pcfi.pyg needs PyTorch Geometric: pip install "pcfi[pyg]"', name=error.name) from None

from pcfi._typing import Array
from pcfi.errors import FeatureError, GraphError, ParameterError, PcfiWarning, UnsupportedTypeError
from pcfi.imputation import complete
from pcfi.inputs.graphs import Graph, read_graph
from pcfi.inputs.problem import read_problem
from pcfi.inputs.tensors import edges_of
from pcfi.settings import Settings
from pcfi.stages.solvers import Solver, UntilSettled

__all__ = ["ImputeFeatures"]

Mask = Any  # a Tensor, the name of one, or None


@functional_transform("impute_features")
class ImputeFeatures(BaseTransform):  # type: ignore[misc]
    """Fill the missing node features of `Data`, `Batch` or `HeteroData` (functional name: `impute_features`).

    Applies `pcfi.impute` to a data object and returns a new one; the input is not modified. Tensors keep their device
    and dtype, and the result is detached from the autograd graph. The graph is `edge_index` or `adj_t`, with
    `edge_weight` as weights if present; `edge_attr` is never read as weights. The graphs of a `Batch` are filled
    independently. In `HeteroData` each node type is filled along the edges between its own nodes.

    Parameters
    ----------
    missing_mask : Tensor, str, or mapping from attribute to either, default=None
        True = missing: a mask of the shape of the features, or with one entry per node; or the name of an attribute of
        the data that holds it, so that one transform can be used for all graphs of a data set. None: NaN is missing.
    attrs : str or sequence of str, default="x"
        Attributes to fill.
    add_confidence : bool, default=False
        Whether to add `data.confidence` (for an attribute other than `x`, `data.<attr>_confidence`): the confidence
        of every cell, for method "pcfi".
    add_indicator : bool, default=False
        Whether to append one column per channel to the features, 1 where the cell was missing.
    method, alpha, beta, solver, standardize, center, unreachable, directed, self_loops
        As in `pcfi.impute` with objective="representation", the input of a GNN. Numbers for alpha and beta give the
        paper's method; "auto" (default) also decides whether to subtract the channels' means from all cells.

    Examples
    --------
    >>> ImputeFeatures(missing_mask="missing", alpha=0.9)
    ImputeFeatures(missing_mask='missing', alpha=0.9, beta='auto', solver=UntilSettled(rtol=0.0001, max_steps=1000))
    """

    def __init__(
        self,
        missing_mask: Mask | Mapping[str, Mask] = None,
        *,
        attrs: str | Iterable[str] = "x",
        add_confidence: bool = False,
        add_indicator: bool = False,
        method: str = "pcfi",
        alpha: float | str = "auto",
        beta: float | str = "auto",
        solver: Solver = UntilSettled(),  # noqa: B008  a frozen value
        standardize: bool | None = None,
        center: bool | str | None = None,
        unreachable: str = "mean",
        directed: bool = False,
        self_loops: bool = True,
    ) -> None:
        self.settings = Settings(
            method=method,
            alpha=alpha,
            beta=beta,
            solver=solver,
            standardize=False if standardize is None else standardize,
            unreachable=unreachable,
            directed=directed,
            self_loops=self_loops,
            progress=False,
            objective="representation",
            center=center,
        )
        self.attrs = (attrs,) if isinstance(attrs, str) else tuple(attrs)
        if not self.attrs or not all(isinstance(attr, str) for attr in self.attrs):
            raise ParameterError(f"attrs must be the names of one or more attributes, got {attrs!r}")
        if isinstance(missing_mask, Mapping):
            self.masks = dict(missing_mask)
        else:
            self.masks = {} if missing_mask is None else dict.fromkeys(self.attrs, missing_mask)
        for mask in self.masks.values():
            if mask is not None and not isinstance(mask, torch.Tensor | str):
                raise ParameterError(f"missing_mask must be a boolean tensor or the name of one, got {mask!r}")
        if add_confidence and method != "pcfi":
            raise ParameterError(f"add_confidence needs method='pcfi', got {method!r}, which has no confidence")
        self.add_confidence = add_confidence
        self.add_indicator = add_indicator

    def forward(self, data: Any) -> Any:
        """Fill the attributes of `data`, a shallow copy made by `__call__`."""
        if isinstance(data, HeteroData):
            tasks = list(self._hetero_tasks(data))
        elif isinstance(data, Data):
            tasks = [self._task(data, attr, self.masks.get(attr), "the data") for attr in self.attrs]
        else:
            name = f"{type(data).__module__}.{type(data).__qualname__}"
            raise UnsupportedTypeError(f"the data is a {name}, but must be a Data, Batch or HeteroData of PyG")
        caught: list[PcfiWarning] = []
        for task in tasks:
            filled = _fill(task, self.settings, with_confidence=self.add_confidence)
            caught += [type(one)(f"{task.prefix}{one}") for one in filled.warnings]
            self._store(task, filled)
        for warning in _merge_by_type(caught):
            warnings.warn(warning, stacklevel=3)
        return data

    def _task(self, store: Any, attr: str, mask: Mask, location: str, edges: Any = None) -> "_FillTask":
        features = store.get(attr)
        if not isinstance(features, torch.Tensor):
            raise FeatureError(f"{location} has no tensor {attr!r} (it has {', '.join(map(repr, store.keys()))})")
        return _FillTask(
            store=store,
            attr=attr,
            features=features.detach(),
            missing=_missing_cells(mask, features, store, attr),
            edges=edges_of(store, location) if edges is None else edges,
            ptr=_ptr(store, len(features)),
            prefix="" if location == "the data" else f"{location}: ",
        )

    def _hetero_tasks(self, data: Any) -> Iterator["_FillTask"]:
        pairs = [(name, attr) for name in data.node_types for attr in self.attrs if attr in data[name]]
        if not pairs:
            raise FeatureError(f"no node type has an attribute {' or '.join(map(repr, self.attrs))}")
        for name, attr in pairs:
            mask = self.masks.get(attr)
            if isinstance(mask, torch.Tensor):
                raise ParameterError(
                    "one missing_mask cannot be used for several node types: pass the name of an attribute"
                )
            if mask is not None and any(mask in data[other] for other in data.node_types) and mask not in data[name]:
                mask = None  # in a node type without the mask, NaN is missing
            yield self._task(data[name], attr, mask, f"node type {name!r}", _own_edges(data, name))

    def _store(self, task: "_FillTask", filled: "_FilledAttribute") -> None:
        values = filled.values
        if self.add_indicator:
            values = torch.cat([values, task.missing.to(values.dtype)], dim=1)
        task.store[task.attr] = values
        if self.add_confidence:
            task.store["confidence" if task.attr == "x" else f"{task.attr}_confidence"] = filled.confidence

    def __repr__(self) -> str:
        masks = dict.fromkeys(_describe_mask(mask) for mask in self.masks.values())
        words = [f"missing_mask={' and '.join(masks)}"] if masks else []
        words += [f"attrs={self.attrs!r}"] if self.attrs != ("x",) else []
        words += [f"method={self.settings.method!r}"] if self.settings.method != "pcfi" else []
        always = ("alpha", "beta", "solver") if self.settings.method == "pcfi" else ("solver",)
        words += [f"{name}={getattr(self.settings, name)!r}" for name in always]
        others = {name: getattr(self.settings, name) for name in _DEFAULTS}
        words += [f"{name}={value!r}" for name, value in others.items() if value != _DEFAULTS[name]]
        words += [f"{name}=True" for name in ("add_confidence", "add_indicator") if getattr(self, name)]
        return f"{type(self).__name__}({', '.join(words)})"


_DEFAULTS = {"standardize": False, "center": None, "unreachable": "mean", "directed": False, "self_loops": True}


def _describe_mask(mask: Mask) -> str:
    return f"<{mask.double().mean():.1%} missing>" if isinstance(mask, torch.Tensor) else repr(mask)


@dataclass(frozen=True, eq=False)
class _FillTask:
    """One attribute of one store: features, missing cells, edges, first node of each graph, prefix of warnings."""

    store: Any
    attr: str
    features: torch.Tensor
    missing: torch.Tensor
    edges: Any
    ptr: Array
    prefix: str


@dataclass(frozen=True, eq=False)
class _FilledAttribute:
    values: torch.Tensor
    confidence: torch.Tensor | None
    warnings: list[PcfiWarning]


def _fill(task: _FillTask, settings: Settings, *, with_confidence: bool) -> _FilledAttribute:
    """Fill each graph of a batch separately."""
    if not task.features.is_floating_point() and bool(task.missing.any()):
        raise FeatureError(
            f"{task.attr} holds {task.features.dtype}, but a filled value may be a fraction: convert it first, "
            f"data.{task.attr} = data.{task.attr}.float()"
        )
    size_origin = f"{task.attr} has {len(task.features)} rows"
    graph = read_graph(task.edges, len(task.features), size_origin, directed=settings.directed)
    known = ~task.missing
    results, caught = [], []
    for rows, part in _split(graph, task.ptr):
        result, new = complete(
            read_problem(task.features[rows], part, known[rows], directed=settings.directed), settings
        )
        results.append(result)
        caught += new
    confidence = torch.cat([result.confidence for result in results]) if with_confidence else None
    values = task.features.clone()
    if values.is_floating_point():
        parts = [result.representation for result in results]
        values = torch.cat(parts) if len(parts) > 1 else parts[0]
    return _FilledAttribute(values, confidence, caught)


def _split(graph: Graph, ptr: Array) -> Iterator[tuple[slice, Graph]]:
    """Yield the rows and the graph of each part of a batch; parts without nodes are left out."""
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


def _ptr(store: Any, n_nodes: int) -> Array:
    """Return the first node of each graph, and the number of nodes as the last entry."""
    if store.get("ptr") is not None:
        return np.asarray(store["ptr"].cpu())
    batch = store.get("batch")
    if batch is None:
        return np.array([0, n_nodes])
    if bool((batch.diff() < 0).any()):
        raise GraphError("the nodes of the batch are not sorted by graph: sort them by data.batch")
    return np.concatenate([[0], np.cumsum(np.bincount(batch.cpu()))])


def _missing_cells(mask: Mask, features: torch.Tensor, store: Any, attr: str) -> torch.Tensor:
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


def _own_edges(data: Any, name: str) -> Any:
    """Return all edges between nodes of one type, as an edge index or as a pair with weights."""
    stores = [data[kind] for kind in data.edge_types if kind[0] == kind[2] == name]
    parts = [_edge_list(edges_of(store, f"edge type {store._key!r}")) for store in stores]
    parts = parts or [(torch.empty((2, 0), dtype=torch.long), None)]
    index = torch.cat([part for part, _ in parts], dim=1)
    if all(own is None for _, own in parts):
        return index
    weights = [torch.ones(part.shape[1], device=index.device) if own is None else own for part, own in parts]
    return index, torch.cat([part.double() for part in weights])


def _edge_list(edges: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return an edge index and its weights, from any form of edges."""
    if isinstance(edges, tuple):
        return edges
    if edges.layout == torch.strided:
        return edges, None
    entries = edges.to_sparse_coo().coalesce()
    return entries.indices(), entries.values()


def _merge_by_type(caught: list[PcfiWarning]) -> list[PcfiWarning]:
    """Return one warning of each type: the first, with the number of further ones."""
    merged = []
    for kind in dict.fromkeys(map(type, caught)):
        messages = [str(warning) for warning in caught if type(warning) is kind]
        more = f" (and likewise in {len(messages) - 1:,} more graphs or attributes)" if len(messages) > 1 else ""
        merged.append(kind(f"{messages[0]}{more}"))
    return merged
