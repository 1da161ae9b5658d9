"""torch tensors <-> arrays: CPU tensors share their memory with numpy arrays, tensors on other devices stay there.

torch is not imported here before the caller has imported it.
"""

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import DivergenceError, FeatureError, GraphError, UnsupportedTypeError

Tensor = Any

KERNEL_DEVICES = ("cpu",)  # devices that the compiled kernels can access; on others the torch backend is used
_INTEGERS = {f"torch.{name}" for name in ("bool", "uint8", "int8", "int16", "int32", "int64")}
CELLS_AT_A_TIME = 1 << 24  # cells of a block on a device


def is_tensor(value: object) -> bool:
    """Whether this is a torch tensor; does not load torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def stays_on_device(value: object) -> bool:
    """Whether this is a tensor on a device that the compiled kernels cannot access."""
    return is_tensor(value) and value.device.type not in KERNEL_DEVICES  # type: ignore[attr-defined]


def is_dense(tensor: Tensor) -> bool:
    """Whether the tensor is dense."""
    import torch

    return bool(tensor.layout == torch.strided)


def to_array(tensor: Tensor, what: str) -> Array:
    """A dense tensor as an array: the same memory if it is on the CPU and numpy has its dtype."""
    if str(tensor.dtype) == "torch.bfloat16":  # numpy has no such numbers
        tensor = tensor.float()
    try:
        return np.asarray(tensor.detach().resolve_conj().resolve_neg().cpu().numpy())
    except (RuntimeError, TypeError) as error:
        raise UnsupportedTypeError(f"{what} is a {tensor.dtype} tensor that cannot be read: {error}") from None


def wide_dtype(device: Any) -> Any:
    """float64, or float32 on devices without float64."""
    import torch

    return torch.float32 if torch.device(device).type == "mps" else torch.float64


# Features


@dataclass(frozen=True)
class TensorWrapper:
    """Converts results to tensors on `device`; filled values get `dtype`."""

    dtype: Any
    device: Any

    def values(self, filled: Any) -> Tensor:
        """Filled values as a tensor for the caller."""
        import torch

        narrow = torch.as_tensor(filled, device=self.device).to(self.dtype)
        if self.dtype == torch.float16 and bool((torch.isinf(narrow)).any()):
            raise DivergenceError("a filled value overflows float16: pass the features as float32")
        return narrow

    def table(self, array: Any) -> Tensor:
        """Hops, confidence or a mask of the shape of the features as a tensor on their device."""
        import torch

        return torch.as_tensor(array, device=self.device)

    def append(self, values: Tensor, channels: Array) -> Tensor:
        """A tensor with further channels appended, in its dtype."""
        import torch

        return torch.cat([values, torch.as_tensor(channels, device=self.device).to(values.dtype)], dim=1)


def read_features(features: Tensor) -> tuple[Any, TensorWrapper]:
    """Features as an array (CPU) or a detached float32 or float64 tensor (elsewhere), and the conversion of results.

    Integers become float64; float16 and bfloat16 are computed in float32.
    """
    import torch

    if not is_dense(features):
        raise UnsupportedTypeError("features is a sparse tensor: pass features.to_dense() together with known=")
    is_real = features.dtype.is_floating_point and features.dtype.itemsize >= 2
    if features.dtype.is_complex or not (is_real or str(features.dtype) in _INTEGERS):
        raise FeatureError(
            f"features must be real numbers of at most 64 bits, got dtype {features.dtype}: convert it to float64"
        )
    wide = wide_dtype(features.device)
    narrow = features.dtype.is_floating_point and features.dtype != torch.float64
    working = torch.float32 if narrow else wide
    wrapper = TensorWrapper(features.dtype if features.dtype.is_floating_point else wide, features.device)
    if stays_on_device(features):
        return features.detach().to(working).contiguous(), wrapper
    return to_array(features, "features"), wrapper


def beside(values: Tensor, array: Any) -> Tensor:
    """An array or tensor as a tensor on the device of `values`."""
    import torch

    if isinstance(array, np.ndarray):
        array = np.require(array, requirements="W")  # torch warns about read-only memory
    return torch.as_tensor(array, device=values.device)


def survey(values: Tensor, mask: Tensor) -> tuple[Array, ...]:
    """Number of known cells, range, mean and a key of the known nodes of each channel, for features on a device.

    The key is the sum of a random number per known node, so channels with the same known nodes have the same key.
    """
    import torch

    n_nodes, n_channels = values.shape
    wide = wide_dtype(values.device)
    codes = np.random.default_rng(0).integers(-(2**62), 2**62, size=(n_nodes, 1))
    n_known = torch.zeros(n_channels, dtype=torch.int64, device=values.device)
    keys = torch.zeros_like(n_known)
    low = torch.full((n_channels,), torch.inf, dtype=values.dtype, device=values.device)
    high = -low
    mean = torch.zeros(n_channels, dtype=wide, device=values.device)
    for rows in row_blocks(n_nodes, n_channels):
        known = known_cells(values, mask, rows)
        n_known += known.sum(dim=0)
        keys += (known * beside(values, codes[rows])).sum(dim=0)
        low = torch.minimum(low, torch.where(known, values[rows], torch.inf).amin(dim=0))
        high = torch.maximum(high, torch.where(known, values[rows], -torch.inf).amax(dim=0))
    for rows in row_blocks(n_nodes, n_channels):
        known = known_cells(values, mask, rows)
        # divide first, because the sum could overflow
        mean += (torch.where(known, values[rows], 0).to(wide) / n_known.clamp(min=1)).sum(dim=0)
    return tuple(fact.cpu().numpy() for fact in (n_known, low, high, mean.cpu().double(), keys))


def known_cells(values: Tensor, mask: Tensor, rows: slice = slice(None)) -> Tensor:
    """Mask of the known cells in the given rows; if `mask` has no rows, NaN marks missing cells."""
    return mask[rows] if len(mask) else ~values[rows].isnan()


def row_blocks(n_rows: int, row_cells: int) -> Iterator[slice]:
    """Slices of rows with a bounded number of cells each."""
    size = max(1, CELLS_AT_A_TIME // max(1, row_cells))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


# Graphs


def is_pyg_data(value: object) -> bool:
    """Whether this is a graph of PyTorch Geometric; does not load it."""
    data = sys.modules.get("torch_geometric.data")
    return data is not None and isinstance(value, data.Data | data.HeteroData)


def holds_tensors(graph: object) -> bool:
    """Whether this is a tensor, a pair or list of tensors, or a graph of PyTorch Geometric."""
    if isinstance(graph, list | tuple):
        return any(map(is_tensor, graph))
    return is_tensor(graph) or is_pyg_data(graph)


def to_arrays(graph: Any) -> Any:
    """The same graph in arrays: an edge index, a pair with weights, or a scipy sparse adjacency."""
    if is_pyg_data(graph):
        return to_arrays(edges_of(graph, "the graph"))
    if isinstance(graph, list | tuple):
        return type(graph)(to_array(part, "the graph") if is_tensor(part) else part for part in graph)
    return to_array(graph, "the edge index") if is_dense(graph) else _to_scipy(graph)


def edges_of(store: Any, what: str) -> Any:
    """Edges of a PyG data object or of one of its edge types: an edge index, a pair with weights, or an adjacency.

    Weights are `edge_weight` only: `edge_attr` holds features of edges, which need not be similarities.
    """
    if hasattr(store, "edge_types"):
        raise GraphError(f"{what} has several types of nodes or edges: pass the edge_index of one of them")
    if store.get("edge_index") is not None:
        weights = store.get("edge_weight")
        return store["edge_index"] if weights is None else (store["edge_index"], weights)
    if store.get("adj_t") is not None:
        adjacency = store["adj_t"]
        if not is_tensor(adjacency):
            name = f"{type(adjacency).__module__}.{type(adjacency).__qualname__}"
            raise UnsupportedTypeError(f"adj_t of {what} is a {name}: pass a torch sparse tensor, or edge_index")
        return adjacency.t()
    raise GraphError(
        f"{what} has neither edge_index nor adj_t: add edge_index of shape (2, E), torch.empty(2, 0, dtype=torch.long) "
        "if there are no edges"
    )


def _to_scipy(adjacency: Tensor) -> Any:
    from scipy import sparse

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CS")  # torch warns that compressed layouts are a beta feature
        entries = adjacency.detach().to_sparse_coo().coalesce()
    if entries.dense_dim():
        raise GraphError("the adjacency holds vectors: one number per edge is needed")
    row_column = to_array(entries.indices(), "the adjacency")
    return sparse.coo_array(
        (to_array(entries.values(), "the adjacency"), tuple(row_column)), shape=tuple(adjacency.shape)
    )


def check_devices(features: object, known: object, graph: Any) -> None:
    """Raise an error if tensors are on different devices."""
    if is_pyg_data(graph):
        graph = [graph.get(name) for name in ("edge_index", "edge_weight", "adj_t") if hasattr(graph, "get")]
    parts = graph if isinstance(graph, list | tuple) else [graph]
    named: list[tuple[str, Any]] = [("features", features), ("known", known), *(("graph", part) for part in parts)]
    places = [(name, part.device) for name, part in named if is_tensor(part)]
    for name, device in places[1:]:
        if device != places[0][1]:
            error = GraphError if name == "graph" else FeatureError
            raise error(f"{name} is on {device}, but {places[0][0]} is on {places[0][1]}: move both to one device")
