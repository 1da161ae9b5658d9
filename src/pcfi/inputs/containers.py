"""Containers of features (arrays, tensors, tables): their contents, and how results are put back into them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, ParameterError, UnsupportedTypeError
from pcfi.inputs import tensors
from pcfi.inputs.cell_names import CellNames
from pcfi.inputs.code_columns import code_columns, warn_of_columns
from pcfi.inputs.columns import NodeColumns, refuse_long_integers
from pcfi.inputs.graphs import GraphLike
from pcfi.inputs.ids import is_frame
from pcfi.inputs.node_tables import NodeTable, read_table
from pcfi.inputs.position_columns import append_to_table

Wrap = Callable[[Array], Any]


def _identity(value: Any) -> Any:
    return value


def append_columns(values: Array, channels: Array) -> Array:
    """An array with further channels appended, in its dtype."""
    return np.concatenate([values, channels.astype(values.dtype)], axis=1)


def default_channel_name(channel: int) -> str:
    """Name of an unnamed channel in messages."""
    return f"channel {channel}"


@dataclass(frozen=True, eq=False, kw_only=True)
class ContainerLayout:
    """Columns of the caller's container, and functions that put results into such a container.

    Attributes
    ----------
    wrap_values : callable
        Filled values (float32 or float64) -> the container that the caller gets.
    wrap_cells : callable
        Another table of the same shape (confidence, hops, a mask) -> the container. Can be pickled, because the result
        keeps it.
    append : callable
        A result in the container, and an array of position channels -> both in one container. Can be pickled.
    first_channels : index of channels
        The first channel of each column; a categorical column has several channels, but its cells are counted once.
    categorical : index of channels
        Channels that represent a category.
    wrap_categories : callable or None
        Number of a categorical column, and an array with one number per row and category -> a table.
    column_names : tuple of str
        Names of the columns; empty if they have none.
    channel_name : callable
        Name of a channel in messages.
    names : CellNames
        How the caller refers to nodes and columns.
    """

    wrap_values: Wrap = _identity
    wrap_cells: Wrap = _identity
    append: Callable[[Any, Array], Any] = append_columns
    first_channels: Any = field(default_factory=lambda: slice(None))
    categorical: Any = field(default_factory=lambda: slice(0))
    wrap_categories: Callable[[int, Array], Any] | None = None
    column_names: tuple[str, ...] = ()
    channel_name: Callable[[int], str] = default_channel_name
    names: CellNames = field(default_factory=CellNames)

    def layout(self) -> dict[str, Any]:
        """The fields of this class by name, to pass them on."""
        return {one.name: getattr(self, one.name) for one in fields(ContainerLayout)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Container(ContainerLayout):
    """Features read from the caller's container.

    Attributes
    ----------
    array : ndarray of any real dtype, or a float32 or float64 tensor on a device that the compiled kernels cannot reach
    known : array-like or None
        The known mask; None if NaN marks missing cells.
    number_nodes : callable
        A graph that uses the node ids of the container -> a graph that uses row numbers.
    """

    array: Any
    known: Any = None
    number_nodes: Callable[[GraphLike], GraphLike] = _identity


def open_container(
    features: Any, known: Any, graph: GraphLike = None, categorical: Sequence[str] | None = None
) -> Container:
    """Read the features and the known mask; the graph determines which column of a table holds the ids."""
    if is_frame(features):
        columns = NodeColumns(categorical=categorical or (), finds_categories=categorical is None and known is None)
        features = read_table(features, columns, graph=graph)
        remedy = "drop them, or use pcfi.frames.impute with channels=[...]"
        warn_of_columns(features, code_columns(features, graph), remedy, stacklevel=4)
    elif categorical:
        raise ParameterError("names columns, but features is not a table: leave it out", parameter="categorical")
    return next(read for recognises, read in _READERS if recognises(features))(features, known)


def _is_table(features: object) -> bool:
    return isinstance(features, NodeTable)


def _read_table(table: NodeTable, known: Any) -> Container:
    mask = table.known(known)
    return Container(
        array=table.values(),
        known=mask,
        wrap_values=partial(table.wrap_values, known=mask),
        wrap_cells=table.wrap_cells,
        append=append_to_table,
        number_nodes=table.number_nodes,
        first_channels=table.first_channels(),
        categorical=table.categorical(),
        wrap_categories=table.wrap_categories,
        column_names=tuple(str(column.name) for column in table.columns),
        channel_name=table.channel_name,
        names=CellNames.of_table(table),
    )


def _read_tensor(features: Any, known: Any) -> Container:
    if str(features.dtype) == "torch.int64" and features.numel():
        refuse_long_integers(features.min(), features.max(), "features")
    array, wrapper = tensors.read_features(features)
    return Container(
        array=array, known=known, wrap_values=wrapper.values, wrap_cells=wrapper.table, append=wrapper.append
    )


def _read_array(features: Any, known: Any) -> Container:
    array = _to_array(features, known)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        refuse_long_integers(array.min(), array.max(), "features")
    return Container(array=array, known=known)


def _to_array(features: Any, known: Any) -> Array:
    if isinstance(features, np.ma.MaskedArray):
        raise UnsupportedTypeError(
            "features is a masked array: pass features.data with known=~np.ma.getmaskarray(features)"
        )
    if hasattr(features, "toarray") and hasattr(features, "nnz"):
        if known is None:
            raise FeatureError(
                "features is sparse, so missing cells cannot be told from zeros: pass known= (True = known) as well"
            )
        return np.asarray(features.toarray())
    if not isinstance(features, np.ndarray | list | tuple):
        name = f"{type(features).__module__}.{type(features).__qualname__}"
        raise UnsupportedTypeError(
            f"features is a {name}, which is not supported: pass a numpy array, nested lists, a torch tensor, a "
            "table of pandas, polars or pyarrow, or a scipy sparse matrix together with known="
        )
    try:
        return np.asarray(features)
    except ValueError as error:
        raise FeatureError(
            f"features has rows of different lengths ({error}): every node needs every channel"
        ) from None


_READERS: list[tuple[Callable[[Any], bool], Callable[[Any, Any], Container]]] = [
    (_is_table, _read_table),
    (tensors.is_tensor, _read_tensor),
    (lambda _: True, _read_array),
]
