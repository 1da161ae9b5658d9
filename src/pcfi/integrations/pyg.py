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

    What `pcfi.impute` does to features and a graph, this does to a data object: a new one comes back, the one given
    stays as it is. Tensors keep their device and dtype; gradients do not flow through (what needs them is detached).
    The graph is `edge_index` or `adj_t`, with `edge_weight` as weights if there is one; `edge_attr` is never read as
    weights. Graphs of a `Batch` are filled one by one and never mix. In `HeteroData` each type of nodes is filled along
    the edges between its own nodes.

    Parameters
    ----------
    missing_mask : Tensor, str, or mapping from attribute to either, default=None
        True = missing: a mask of the shape of the features, or with one entry per node; or the name of an attribute of
        the data that holds it, so that one transform serves a whole data set. None: NaN is missing.
    attrs : str or sequence of str, default="x"
        Attributes to fill.
    add_confidence : bool, default=False
        Whether to add `data.confidence` (for an attribute other than `x`, `data.<attr>_confidence`): the confidence
        of every cell, for method "pcfi".
    add_indicator : bool, default=False
        Whether to append columns to the features that are 1 where a cell was missing: one for each channel.
    method, alpha, beta, solver, standardize, center, unreachable, directed, self_loops
        As in `pcfi.impute` with objective="representation", which is what a GNN learns from. Numbers for alpha and beta
        mean the paper; "auto" (default) also decides whether the channels' means are subtracted, from known cells, too.

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
        """Fill the attributes of a shallow copy of the data, which `__call__` makes."""
        if isinstance(data, HeteroData):
            jobs = list(self._hetero_jobs(data))
        elif isinstance(data, Data):
            jobs = [self._job(data, attr, self.masks.get(attr), "the data") for attr in self.attrs]
        else:
            name = f"{type(data).__module__}.{type(data).__qualname__}"
            raise UnsupportedTypeError(f"the data is a {name}, but must be a Data, Batch or HeteroData of PyG")
        notices = []
        for job in jobs:
            filled, heard = _fill(job, self.settings, with_confidence=self.add_confidence)
            notices += [_named(notice, job.place) for notice in heard]
            self._put(job, filled)
        for notice in _merged(notices):
            warnings.warn(notice, stacklevel=3)
        return data

    def _job(self, store: Any, attr: str, mask: Mask, place: str, edges: Any = None) -> "_Job":
        features = store.get(attr)
        if not isinstance(features, torch.Tensor):
            raise FeatureError(f"{place} has no tensor {attr!r} (it has {', '.join(map(repr, store.keys()))})")
        return _Job(
            store=store,
            attr=attr,
            features=features.detach(),
            missing=_missing(mask, features, store, attr),
            edges=edges_of(store, place) if edges is None else edges,
            ptr=_ptr(store, len(features)),
            place="" if place == "the data" else place,
        )

    def _hetero_jobs(self, data: Any) -> Iterator["_Job"]:
        wanted = [(name, attr) for name in data.node_types for attr in self.attrs if attr in data[name]]
        if not wanted:
            raise FeatureError(f"no type of nodes has an attribute {' or '.join(map(repr, self.attrs))}")
        for name, attr in wanted:
            mask = self.masks.get(attr)
            if isinstance(mask, torch.Tensor):
                raise ParameterError(
                    "one missing_mask cannot serve several types of nodes: pass the name of an attribute"
                )
            if mask is not None and any(mask in data[other] for other in data.node_types) and mask not in data[name]:
                mask = None  # a type of nodes without a mask goes by NaN
            yield self._job(data[name], attr, mask, f"node type {name!r}", _own_edges(data, name))

    def _put(self, job: "_Job", filled: "_Filled") -> None:
        values = filled.values
        if self.add_indicator:
            values = torch.cat([values, job.missing.to(values.dtype)], dim=1)
        job.store[job.attr] = values
        if self.add_confidence:
            job.store["confidence" if job.attr == "x" else f"{job.attr}_confidence"] = filled.confidence

    def __repr__(self) -> str:
        masks = {attr: _mask_words(mask) for attr, mask in self.masks.items()}
        words = [f"missing_mask={' and '.join(dict.fromkeys(masks.values()))}"] if masks else []
        words += [f"attrs={self.attrs!r}"] if self.attrs != ("x",) else []
        words += [f"method={self.settings.method!r}"] if self.settings.method != "pcfi" else []
        always = ("alpha", "beta", "solver") if self.settings.method == "pcfi" else ("solver",)
        words += [f"{name}={getattr(self.settings, name)!r}" for name in always]
        given = {name: getattr(self.settings, name) for name in _USUAL}
        words += [f"{name}={value!r}" for name, value in given.items() if value != _USUAL[name]]
        words += [f"{name}=True" for name in ("add_confidence", "add_indicator") if getattr(self, name)]
        return f"{type(self).__name__}({', '.join(words)})"


_USUAL = {"standardize": False, "center": None, "unreachable": "mean", "directed": False, "self_loops": True}


def _mask_words(mask: Mask) -> str:
    return f"<{mask.double().mean():.1%} missing>" if isinstance(mask, torch.Tensor) else repr(mask)


@dataclass(frozen=True, eq=False)
class _Job:
    """One attribute of one store: the features, what is missing, the edges, and where its graphs begin and end."""

    store: Any
    attr: str
    features: torch.Tensor
    missing: torch.Tensor
    edges: Any
    ptr: Array
    place: str


@dataclass(frozen=True, eq=False)
class _Filled:
    values: torch.Tensor
    confidence: torch.Tensor | None


def _fill(job: _Job, settings: Settings, *, with_confidence: bool) -> tuple[_Filled, list[PcfiWarning]]:
    """Fill each graph by itself."""
    if not job.features.is_floating_point() and bool(job.missing.any()):
        raise FeatureError(
            f"{job.attr} holds {job.features.dtype}, but a filled value may be a fraction: convert it first, "
            f"data.{job.attr} = data.{job.attr}.float()"
        )
    wanted = f"{job.attr} has {len(job.features)} rows"
    graph = read_graph(job.edges, len(job.features), wanted, directed=settings.directed)
    known = ~job.missing
    results, notices = [], []
    for rows, part in _split(graph, job.ptr):
        result, heard = complete(
            read_problem(job.features[rows], part, known[rows], directed=settings.directed), settings
        )
        results.append(result)
        notices += heard
    confidence = torch.cat([result.confidence for result in results]) if with_confidence else None
    filled = [result.representation for result in results]
    values = torch.cat(filled) if len(filled) > 1 else filled[0]
    return _Filled(values if job.features.is_floating_point() else job.features.clone(), confidence), notices


def _split(graph: Graph, ptr: Array) -> Iterator[tuple[slice, Graph]]:
    """The rows and the graph of each part of a batch; parts without nodes are left out."""
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
    """First node of each graph, and the number of nodes at the end."""
    if store.get("ptr") is not None:
        return np.asarray(store["ptr"].cpu())
    batch = store.get("batch")
    if batch is None:
        return np.array([0, n_nodes])
    if bool((batch.diff() < 0).any()):
        raise GraphError("the nodes of the batch are not sorted by graph: sort them by data.batch")
    return np.concatenate([[0], np.cumsum(np.bincount(batch.cpu()))])


def _missing(mask: Mask, features: torch.Tensor, store: Any, attr: str) -> torch.Tensor:
    """The mask of missing cells, checked, on the device of the features."""
    unknown = features.isnan()
    if mask is None:
        return unknown
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
    _check_convention(missing, unknown, name, attr)
    return missing


def _check_convention(missing: torch.Tensor, unknown: torch.Tensor, name: str, attr: str) -> None:
    """Refuse masks that say the opposite of what NaN says."""
    if not bool((unknown & ~missing).any()):
        if bool(missing.all()) and bool(unknown.any()) and not bool(unknown.all()):
            raise FeatureError(
                f"{name} is True everywhere, so that nothing is known, but {attr} has values beside its NaN: "
                f"True = missing; leave missing_mask out to go by NaN"
            )
        return
    if not bool(missing.any()):
        said = f"{name} is False everywhere, but {attr} has NaN"
    elif torch.equal(missing, ~unknown):
        said = f"{name} is True where {attr} has values and False where it is NaN"
    else:
        said = f"{name} is False for {int((unknown & ~missing).sum()):,} cells of {attr} that are NaN"
    raise FeatureError(f"{said}: True = missing; pass its opposite, or leave missing_mask out to go by NaN")


def _own_edges(data: Any, name: str) -> Any:
    """All edges between nodes of one type, as an edge index or as a pair with weights."""
    stores = [data[kind] for kind in data.edge_types if kind[0] == kind[2] == name]
    parts = [_edge_list(edges_of(store, f"edge type {store._key!r}")) for store in stores]
    parts = parts or [(torch.empty((2, 0), dtype=torch.long), None)]
    index = torch.cat([index for index, _ in parts], dim=1)
    if all(weights is None for _, weights in parts):
        return index
    sizes_and_weights = [(part.shape[1], weights) for part, weights in parts]
    ones = [
        torch.ones(size, device=index.device) if weights is None else weights for size, weights in sizes_and_weights
    ]
    return index, torch.cat([weights.double() for weights in ones])


def _edge_list(edges: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """An edge index and its weights, from any form of edges."""
    if isinstance(edges, tuple):
        return edges
    if edges.layout == torch.strided:
        return edges, None
    entries = edges.to_sparse_coo().coalesce()
    return entries.indices(), entries.values()


def _named(notice: PcfiWarning, place: str) -> PcfiWarning:
    return type(notice)(f"{place}: {notice}") if place else notice


def _merged(notices: list[PcfiWarning]) -> list[PcfiWarning]:
    """One warning of each kind: the first, and how many more there are."""
    merged = []
    for kind in dict.fromkeys(map(type, notices)):
        same = [str(notice) for notice in notices if type(notice) is kind]
        more = f" (and so in {len(same) - 1:,} more graphs or attributes)" if len(same) > 1 else ""
        merged.append(kind(f"{same[0]}{more}"))
    return merged
