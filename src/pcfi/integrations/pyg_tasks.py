"""Tasks of the PyG transform: the attributes of `Data`, or of all node types of `HeteroData`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pcfi._typing import Array
from pcfi.errors import FeatureError, ParameterError, PcfiWarning
from pcfi.estimation.resolution import on_host, resolve
from pcfi.imputation import complete
from pcfi.inputs import tensors
from pcfi.inputs.graphs import Graph, read_graph
from pcfi.inputs.problem import Problem, read_problem
from pcfi.integrations.edge_type_weights import Weights, learn_weights
from pcfi.integrations.pyg_stores import Mask, first_nodes, missing_cells, split_graph
from pcfi.integrations.typed_graph import TypedGraph
from pcfi.settings import Settings


@dataclass(frozen=True, eq=False, kw_only=True)
class FillTask:
    """One attribute of one or more stores whose channels are the same, on one graph.

    Attributes
    ----------
    attr : str
    name : str
        Name of the task in messages.
    prefix : str
        Prefix of warnings.
    stores : list
        Stores of PyG, of one node type each.
    own_features, own_missing : list of Tensor
        Features and missing mask of each store.
    numbers : list of ndarray, or None
        For each store, the number of each of its nodes in the graph; None if the only store has all nodes in order.
    graph : Graph
    ptr : ndarray of int
        First node of each graph of a batch, and the number of nodes as the last entry.
    """

    attr: str
    name: str
    prefix: str
    stores: list[Any]
    own_features: list[torch.Tensor]
    own_missing: list[torch.Tensor]
    numbers: list[Array] | None
    graph: Graph
    ptr: Array

    def joined(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and known mask of all nodes of the graph; nodes of other types are missing."""
        first = self.own_features[0]
        if self.numbers is None:
            return first, ~self.own_missing[0]
        features = torch.zeros((self.graph.n_nodes, first.shape[1]), dtype=first.dtype, device=first.device)
        known = torch.zeros(features.shape, dtype=torch.bool, device=first.device)
        for numbers, own, missing in zip(self.numbers, self.own_features, self.own_missing, strict=True):
            rows = torch.as_tensor(numbers, device=first.device)
            features[rows], known[rows] = own, ~missing
        return features, known

    def counted_nodes(self) -> Array | None:
        """Numbers of the nodes of these stores; None if they are all nodes."""
        return None if self.numbers is None else np.sort(np.concatenate(self.numbers))

    def apart(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Rows of all nodes of the graph -> those of each store."""
        if self.numbers is None:
            return [rows]
        return [rows[torch.as_tensor(numbers, device=rows.device)] for numbers in self.numbers]


@dataclass(frozen=True, eq=False)
class FilledAttribute:
    """Filled features and confidence of each store, and warnings."""

    values: list[torch.Tensor]
    confidence: list[torch.Tensor]
    warnings: list[PcfiWarning]


def data_tasks(data: Any, attrs: Sequence[str], masks: Mapping[str, Mask], settings: Settings) -> list[FillTask]:
    """The attributes of a `Data` or `Batch`."""
    return [_data_task(data, attr, masks.get(attr), settings) for attr in attrs]


def _data_task(data: Any, attr: str, mask: Mask, settings: Settings) -> FillTask:
    features, missing = _read(data, attr, mask, "the data")
    origin = f"{attr} has {len(features)} rows"
    return FillTask(
        attr=attr,
        name=attr,
        prefix="",
        stores=[data],
        own_features=[features],
        own_missing=[missing],
        numbers=None,
        graph=read_graph(tensors.edges_of(data, "the data"), len(features), origin, directed=settings.directed),
        ptr=first_nodes(data, len(features)),
    )


def hetero_tasks(
    data: Any,
    attrs: Sequence[str],
    masks: Mapping[str, Mask],
    settings: Settings,
    weights: "str | Weights",
    *,
    shared: bool,
) -> list[FillTask]:
    """The attributes of all node types of a `HeteroData`, on one graph of all types; `weights` may be "auto"."""
    having = {attr: [name for name in data.node_types if attr in data[name]] for attr in attrs}
    if not any(having.values()):
        raise FeatureError(f"no node type has an attribute {' or '.join(map(repr, attrs))}")
    typed = TypedGraph.of(data)
    if not isinstance(weights, str) and (unknown := set(weights) - set(typed.edges)):
        raise ParameterError(
            f"names {min(unknown)!r}, but the edge types are {', '.join(map(repr, typed.edges))}",
            parameter="edge_type_weights",
        )
    tasks = []
    for attr, names in having.items():
        for group in [names] if shared and names else [[name] for name in names]:
            task = _hetero_task(data, typed, group, attr, masks.get(attr))
            chosen = _learn(typed, task, settings) if isinstance(weights, str) else weights
            tasks.append(replace(task, graph=typed.graph(chosen, directed=settings.directed)))
    return tasks


def learned_weights(data: Any, node_type: str, attr: str, mask: Mask, settings: Settings) -> Weights:
    """The weights of edge types that "auto" learns for one attribute of one node type."""
    typed = TypedGraph.of(data)
    return _learn(typed, _hetero_task(data, typed, [node_type], attr, mask), settings)


def _hetero_task(data: Any, typed: TypedGraph, names: list[str], attr: str, mask: Mask) -> FillTask:
    if isinstance(mask, torch.Tensor):
        raise ParameterError("one missing_mask cannot be used for several node types: pass the name of an attribute")
    named = mask is not None and any(mask in data[other] for other in data.node_types)
    cells = [
        # in a node type without the mask, NaN is missing
        _read(data[name], attr, None if named and mask not in data[name] else mask, f"node type {name!r}")
        for name in names
    ]
    _check_shared([features for features, _ in cells], names, attr)
    label = f"node type {' and '.join(map(repr, names))}"
    return FillTask(
        attr=attr,
        name=f"{attr} of {label}",
        prefix=f"{label}: ",
        stores=[data[name] for name in names],
        own_features=[features for features, _ in cells],
        own_missing=[missing for _, missing in cells],
        numbers=[typed.numbers[name] for name in names],
        graph=typed.graph({}, directed=False),
        ptr=typed.ptr,
    )


def _check_shared(features: list[torch.Tensor], names: list[str], attr: str) -> None:
    for one, name in zip(features, names, strict=True):
        if (one.shape[1], one.dtype, one.device) != (features[0].shape[1], features[0].dtype, features[0].device):
            raise FeatureError(
                f"{attr} has shape {tuple(one.shape)} and dtype {one.dtype} in node type {name!r}, but "
                f"{tuple(features[0].shape)} and {features[0].dtype} in {names[0]!r}: with shared_channels=True both "
                "must have the same channels"
            )


def _learn(typed: TypedGraph, task: FillTask, settings: Settings) -> Weights:
    n_missing = sum(int(missing.sum()) for missing in task.own_missing)
    if not n_missing or not task.own_features[0].is_floating_point() or settings.method not in ("pcfi", "auto"):
        return {}
    problem = on_host(_problem(task, slice(None), task.graph, settings))
    return learn_weights(typed, problem, resolve(problem, settings).settings)


def _read(store: Any, attr: str, mask: Mask, location: str) -> tuple[torch.Tensor, torch.Tensor]:
    features = store.get(attr)
    if not isinstance(features, torch.Tensor):
        raise FeatureError(f"{location} has no tensor {attr!r} (it has {', '.join(map(repr, store.keys()))})")
    return features.detach(), missing_cells(mask, features, store, attr)


def fill_task(task: FillTask, settings: Settings, *, position: int, center: Any) -> FilledAttribute:
    """Fill each graph of a batch separately."""
    first = task.own_features[0]
    if not first.is_floating_point():
        _refuse_integers(task, position)
    settings = replace(settings, position=position, center=center)
    results, caught = [], []
    for rows, part in split_graph(task.graph, task.ptr):
        result, new = complete(_problem(task, rows, part, settings), settings)
        results.append(result)
        caught += new
    values = [own.clone() for own in task.own_features]
    if first.is_floating_point():
        values = task.apart(_stacked([result.representation for result in results]))
    is_pcfi = settings.method == "pcfi"
    confidence = task.apart(_stacked([result.confidence for result in results])) if is_pcfi else []
    return FilledAttribute(values, confidence, caught)


def _refuse_integers(task: FillTask, position: int) -> None:
    advice = f"convert it first, data.{task.attr} = data.{task.attr}.float()"
    held = f"{task.attr} holds {task.own_features[0].dtype}"
    if any(bool(missing.any()) for missing in task.own_missing):
        raise FeatureError(f"{held}, but a filled value may be a fraction: {advice}")
    if position:
        raise FeatureError(f"{held}, but position channels are fractions: {advice}")


def _problem(task: FillTask, rows: slice, graph: Graph, settings: Settings) -> Problem:
    """The problem of one graph of the batch."""
    features, known = task.joined()
    problem = read_problem(features[rows], graph, known[rows], directed=settings.directed)
    counted = task.counted_nodes()
    if counted is None:
        return problem
    start = rows.start or 0
    inside = (counted >= start) & (counted < start + graph.n_nodes)
    return replace(problem, counted_nodes=counted[inside] - start)


def _stacked(parts: list[Any]) -> torch.Tensor:
    return torch.cat(parts) if len(parts) > 1 else parts[0]
