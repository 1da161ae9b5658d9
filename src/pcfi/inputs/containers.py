"""The containers that features come in: arrays, tensors, tables. What is in them, and the ways back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, UnsupportedTypeError
from pcfi.inputs import tensors
from pcfi.inputs.graphs import GraphLike
from pcfi.inputs.ids import is_frame
from pcfi.inputs.tables import Table, read_table

Restore = Callable[[Array], Any]


def _as_it_is(given: Any) -> Any:
    return given


def by_number(channel: int) -> str:
    """What a channel without a name is called."""
    return f"channel {channel}"


@dataclass(frozen=True, eq=False)
class Container:
    """Features as they came in, and the ways back.

    Attributes
    ----------
    array : ndarray of any real dtype, or a float32 or float64 tensor on a device that the compiled kernels cannot reach
    known : array-like or None
        The known mask; None if NaN decides.
    restore : callable
        Filled values (in float32 or float64) -> what the caller gets.
    wrap : callable
        Another table of the same shape (confidence, hops, a mask) -> what the caller gets. Kept by the result, so it
        can be pickled.
    number : callable
        A graph that names nodes as the container does -> one that names rows.
    leading : index of channels
        Those whose cells are counted: of a column of categories, which is several channels, the first.
    categorical : index of channels
        Those that are a category of a column.
    named : callable
        What a channel is called in messages.
    """

    array: Any
    known: Any
    restore: Restore = _as_it_is
    wrap: Restore = _as_it_is
    number: Callable[[GraphLike], GraphLike] = _as_it_is
    leading: Any = field(default_factory=lambda: slice(None))
    categorical: Any = field(default_factory=lambda: slice(0))
    named: Callable[[int], str] = by_number


def open_container(features: Any, known: Any) -> Container:
    """The features and the known mask out of whatever they came in."""
    return next(read for recognises, read in _READERS if recognises(features))(features, known)


def _is_table(features: object) -> bool:
    return is_frame(features) or isinstance(features, Table)


def _read_table(features: Any, known: Any) -> Container:
    table = features if isinstance(features, Table) else read_table(features)
    mask = table.known(known)
    restore = partial(table.restore, known=mask)
    return Container(
        table.values(), mask, restore, table.wrap, table.number, table.leading(), table.categorical(), table.named
    )


def _read_tensor(features: Any, known: Any) -> Container:
    if str(features.dtype) == "torch.int64" and features.numel():
        _refuse_long_integers(features)
    array, back = tensors.read_features(features)
    return Container(array, known, back.values, back.table)


def _read_array(features: Any, known: Any) -> Container:
    array = _to_array(features, known)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        _refuse_long_integers(array)
    return Container(array, known)


def _to_array(features: Any, known: Any) -> Array:
    if isinstance(features, np.ma.MaskedArray):
        raise UnsupportedTypeError(
            "features is a masked array: pass features.data with known=~np.ma.getmaskarray(features)"
        )
    if hasattr(features, "toarray") and hasattr(features, "nnz"):
        if known is None:
            raise FeatureError(
                "features is sparse, which cannot tell missing from zero: pass known= (True = known) as well"
            )
        return np.asarray(features.toarray())
    if not isinstance(features, np.ndarray | list | tuple):
        name = f"{type(features).__module__}.{type(features).__qualname__}"
        raise UnsupportedTypeError(
            f"features is a {name}, which pcfi does not know: pass a numpy array, nested lists, a torch tensor, a "
            "table of pandas, polars or pyarrow, or a scipy sparse matrix together with known="
        )
    try:
        return np.asarray(features)
    except ValueError as error:
        raise FeatureError(
            f"features has rows of different lengths ({error}): every node needs every channel"
        ) from None


def _refuse_long_integers(values: Any) -> None:
    if int(values.max()) > 2**53 or int(values.min()) < -(2**53):
        raise FeatureError(
            "features holds integers beyond 2^53, which float64 cannot tell apart: subtract an offset or rescale them"
        )


_READERS: list[tuple[Callable[[Any], bool], Callable[[Any, Any], Container]]] = [
    (_is_table, _read_table),
    (tensors.is_tensor, _read_tensor),
    (lambda _: True, _read_array),
]
