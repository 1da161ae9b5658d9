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
from collections.abc import Iterable, Mapping
from typing import Any

try:
    import torch
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.data.datapipes import functional_transform
    from torch_geometric.transforms import BaseTransform
except ModuleNotFoundError as error:
    if error.name not in ("torch", "torch_geometric"):
        raise
    raise ModuleNotFoundError('pcfi.pyg needs PyTorch Geometric: pip install "pcfi[pyg]"', name=error.name) from None

from pcfi.errors import FeatureError, ParameterError, PcfiWarning, UnsupportedTypeError
from pcfi.estimation import tune
from pcfi.integrations.pyg_stores import Mask
from pcfi.integrations.pyg_tasks import FilledAttribute, FillTask, data_tasks, fill_task, hetero_tasks, learned_weights
from pcfi.integrations.typed_graph import EdgeType
from pcfi.settings import Settings
from pcfi.stages.solvers import Solver, UntilSettled

__all__ = ["ImputeFeatures", "edge_type_weights"]


@functional_transform("impute_features")
class ImputeFeatures(BaseTransform):  # type: ignore[misc]
    """Fill the missing node features of `Data`, `Batch` or `HeteroData` (functional name: `impute_features`).

    Applies `pcfi.impute` to a data object and returns a new one; the input is not modified, and known cells keep their
    values. Tensors keep their device and dtype, and the result is detached from the autograd graph. The graph is
    `edge_index` or `adj_t`, with `edge_weight` as weights if present; `edge_attr` is never read as weights. The graphs
    of a `Batch` are filled independently. In `HeteroData` each node type is filled along the edges of all types.

    Parameters
    ----------
    missing_mask : Tensor, str, or mapping from attribute to either, default=None
        True = missing: a mask of the shape of the features, or with one entry per node; or the name of an attribute of
        the data that holds it, so that one transform can be used for all graphs of a data set. None: NaN is missing.
    attrs : str or sequence of str, default="x"
        Attributes to fill.
    position : int, default=0
        Number of position channels to append to the features (`pcfi.position`), which encode where a node lies in the
        graph. They are comparable only within one graph, so use them for tasks on the nodes or edges of one graph.
    add_confidence : bool, default=False
        Whether to add `data.confidence` (for an attribute other than `x`, `data.<attr>_confidence`): the confidence
        of every cell, for method "pcfi".
    add_indicator : bool, default=False
        Whether to append one column per channel to the features, 1 where the cell was missing.
    center : bool, "auto" or Tensor, default=False
        Whether to subtract the channels' means, from known cells too: the given means, those of the graphs passed to
        `fit`, or, without `fit`, those of the graph itself. A batch of graphs needs one of the first two. "auto"
        subtracts them if they are large relative to the channels' standard deviations.
    edge_type_weights : "auto", None, or mapping from edge type to number, default="auto"
        Weights of the edge types of a `HeteroData`: learned from hidden known cells ("auto"), all equal (None), or as
        given (1 for types that are not named).
    shared_channels : bool, default=False
        Whether the attribute has the same channels in all node types of a `HeteroData`, so that values flow from one
        type to another. By default each type has its own channels.
    method, alpha, beta, solver, standardize, unreachable, directed, self_loops, random_state
        As in `pcfi.impute` with objective="representation", the input of a GNN. Numbers for alpha and beta give the
        paper's method.

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
        position: int = 0,
        add_confidence: bool = False,
        add_indicator: bool = False,
        method: str = "pcfi",
        alpha: float | str = "auto",
        beta: float | str = "auto",
        solver: Solver = UntilSettled(),  # noqa: B008  a frozen value
        standardize: bool | None = None,
        center: Any = False,
        unreachable: str = "mean",
        directed: bool = False,
        self_loops: bool = True,
        edge_type_weights: "str | Mapping[EdgeType, float] | None" = "auto",
        shared_channels: bool = False,
        random_state: Any = None,
    ) -> None:
        self._given_means = center if isinstance(center, torch.Tensor) else None
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
            center=False if self._given_means is not None else center,
            position=position,
            random_state=random_state,
        )
        self.attrs = (attrs,) if isinstance(attrs, str) else tuple(attrs)
        if not self.attrs or not all(isinstance(attr, str) for attr in self.attrs):
            raise ParameterError(f"attrs must be the names of one or more attributes, got {attrs!r}")
        self.masks = _read_masks(missing_mask, self.attrs)
        if add_confidence and method != "pcfi":
            raise ParameterError(f"add_confidence needs method='pcfi', got {method!r}, which has no confidence")
        self.add_confidence = add_confidence
        self.add_indicator = add_indicator
        self.edge_type_weights = _read_weights(edge_type_weights)
        self.shared_channels = shared_channels
        self._fitted_means: dict[str, torch.Tensor | None] = {}

    def fit(self, data: Any) -> "ImputeFeatures":
        """Learn the means that `center` subtracts, from the filled features of one or more graphs.

        Parameters
        ----------
        data : Data, Batch, HeteroData, or an iterable of them
            The graphs of the training set.

        Returns
        -------
        ImputeFeatures
            The transform itself.
        """
        graphs = [data] if isinstance(data, Data | HeteroData) else list(data)
        gathered: dict[str, list[tuple[FillTask, FilledAttribute]]] = {}
        for graph in graphs:
            for task in self._tasks(graph):
                filled = fill_task(task, self.settings, position=0, center=False)
                gathered.setdefault(task.name, []).append((task, filled))
        self._fitted_means = {name: self._means(parts) for name, parts in gathered.items()}
        return self

    def _means(self, parts: "list[tuple[FillTask, FilledAttribute]]") -> torch.Tensor | None:
        """Means of all nodes of one attribute; None if "auto" finds them small."""
        if self.settings.center == "auto":
            features = torch.cat([values for task, _ in parts for values in task.own_features])
            known = ~torch.cat([missing for task, _ in parts for missing in task.own_missing])
            no_edges = torch.empty((2, 0), dtype=torch.long, device=features.device)
            if not tune(features, no_edges, known=known, objective="representation").center:
                return None
        values = torch.cat([values for _, filled in parts for values in filled.values])
        return values.double().nanmean(dim=0)

    def forward(self, data: Any) -> Any:
        """Fill the attributes of `data`, a shallow copy made by `__call__`."""
        caught: list[PcfiWarning] = []
        for task in self._tasks(data):
            is_fitted = self._given_means is not None or bool(self._fitted_means)
            if self.settings.center and not is_fitted and len(task.ptr) > 2:
                raise ParameterError(
                    f"center={self.settings.center!r} subtracts the means of the data set, but the data is a batch of "
                    f"{len(task.ptr) - 1} graphs: call fit(training graphs) first, or pass the means as center="
                )
            center = False if is_fitted else self.settings.center
            filled = fill_task(task, self.settings, position=self.settings.position, center=center)
            caught += [type(one)(f"{task.prefix}{one}") for one in filled.warnings]
            self._store(task, filled, self._subtracted(task))
        for warning in _merge_by_type(caught):
            warnings.warn(warning, stacklevel=3)
        return data

    def _tasks(self, data: Any) -> "list[FillTask]":
        if isinstance(data, HeteroData):
            return hetero_tasks(
                data, self.attrs, self.masks, self.settings, self.edge_type_weights, shared=self.shared_channels
            )
        if isinstance(data, Data):
            return data_tasks(data, self.attrs, self.masks, self.settings)
        name = f"{type(data).__module__}.{type(data).__qualname__}"
        raise UnsupportedTypeError(f"the data is a {name}, but must be a Data, Batch or HeteroData of PyG")

    def _subtracted(self, task: "FillTask") -> torch.Tensor | None:
        """Means to subtract; None if there are none, or if the graph's own means are already subtracted."""
        means = self._given_means
        if means is None and self._fitted_means:
            if task.name not in self._fitted_means:
                raise ParameterError(f"fit has not seen {task.name}: it has seen {', '.join(self._fitted_means)}")
            means = self._fitted_means[task.name]
        n_channels = task.own_features[0].shape[1]
        if means is not None and tuple(means.shape) != (n_channels,):
            raise ParameterError(
                f"center has shape {tuple(means.shape)}, but {task.name} has {n_channels} channels: pass one mean each"
            )
        return means

    def _store(self, task: "FillTask", filled: "FilledAttribute", means: torch.Tensor | None) -> None:
        for place, (store, missing) in enumerate(zip(task.stores, task.own_missing, strict=True)):
            values = filled.values[place]
            if means is not None:
                shift = values.new_zeros(values.shape[1])
                shift[: len(means)] = means.to(values)
                values = values - shift
            if self.add_indicator:
                values = torch.cat([values, missing.to(values.dtype)], dim=1)
            store[task.attr] = values
            if self.add_confidence:
                name = "confidence" if task.attr == "x" else f"{task.attr}_confidence"
                store[name] = filled.confidence[place]

    def __repr__(self) -> str:
        masks = dict.fromkeys(_describe_mask(mask) for mask in self.masks.values())
        words = [f"missing_mask={' and '.join(masks)}"] if masks else []
        words += [f"attrs={self.attrs!r}"] if self.attrs != ("x",) else []
        words += [f"method={self.settings.method!r}"] if self.settings.method != "pcfi" else []
        always = ("alpha", "beta", "solver") if self.settings.method == "pcfi" else ("solver",)
        words += [f"{name}={getattr(self.settings, name)!r}" for name in always]
        others = {name: getattr(self.settings, name) for name in _DEFAULTS}
        words += [f"{name}={value!r}" for name, value in others.items() if value != _DEFAULTS[name]]
        words += ["center=<means>"] if self._given_means is not None else []
        words += [] if self.edge_type_weights == "auto" else [f"edge_type_weights={self.edge_type_weights!r}"]
        flags = ("add_confidence", "add_indicator", "shared_channels")
        words += [f"{name}=True" for name in flags if getattr(self, name)]
        return f"{type(self).__name__}({', '.join(words)})"


_DEFAULTS = {
    "standardize": False,
    "center": False,
    "position": 0,
    "unreachable": "mean",
    "directed": False,
    "self_loops": True,
    "random_state": None,
}


def edge_type_weights(data: Any, node_type: str, attr: str = "x", **options: Any) -> dict[EdgeType, float]:
    """Learn the weight of each edge type of a `HeteroData` for filling an attribute of a node type, without labels.

    Known nodes are hidden and filled from the others. The weight of an edge type, together with its reverse, is changed
    if that significantly lowers the errors of the hidden nodes.

    Parameters
    ----------
    data : HeteroData
    node_type : str
    attr : str, default="x"
    **options
        As in `ImputeFeatures`.

    Returns
    -------
    dict from edge type to number
    """
    transform = ImputeFeatures(attrs=attr, **options)
    if not isinstance(data, HeteroData) or node_type not in data.node_types or attr not in data[node_type]:
        raise FeatureError(f"the data has no node type {node_type!r} with an attribute {attr!r}: pass a HeteroData")
    return learned_weights(data, node_type, attr, transform.masks.get(attr), transform.settings)


def _read_masks(missing_mask: Any, attrs: tuple[str, ...]) -> dict[str, Mask]:
    if isinstance(missing_mask, Mapping):
        masks = dict(missing_mask)
    else:
        masks = {} if missing_mask is None else dict.fromkeys(attrs, missing_mask)
    for mask in masks.values():
        if mask is not None and not isinstance(mask, torch.Tensor | str):
            raise ParameterError(f"missing_mask must be a boolean tensor or the name of one, got {mask!r}")
    return masks


def _read_weights(weights: Any) -> "str | dict[EdgeType, float]":
    if weights is None or weights == "auto":
        return weights or {}
    wrong = not isinstance(weights, Mapping) or not all(
        isinstance(kind, tuple) and len(kind) == 3 and isinstance(weight, int | float) and 0 <= weight < float("inf")
        for kind, weight in weights.items()
    )
    if wrong:
        raise ParameterError(
            "must be 'auto', None, or a mapping from edge types (source, relation, target) to finite numbers of at "
            f"least 0, got {weights!r}",
            parameter="edge_type_weights",
        )
    return dict(weights)


def _describe_mask(mask: Mask) -> str:
    return f"<{mask.double().mean():.1%} missing>" if isinstance(mask, torch.Tensor) else repr(mask)


def _merge_by_type(caught: list[PcfiWarning]) -> list[PcfiWarning]:
    """Return one warning of each type: the first, with the number of further ones."""
    merged = []
    for kind in dict.fromkeys(map(type, caught)):
        messages = [str(warning) for warning in caught if type(warning) is kind]
        more = f" (and likewise in {len(messages) - 1:,} more graphs or attributes)" if len(messages) > 1 else ""
        merged.append(kind(f"{messages[0]}{more}"))
    return merged
