"""Cell by cell facts behind a result, before they are put into the caller's container."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.estimation.value_model import ValueModel
from pcfi.inputs import tensors
from pcfi.inputs.cell_names import CellNames
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Problem, survey
from pcfi.settings import Settings
from pcfi.stages.hops import Hops


@dataclass(frozen=True, eq=False, kw_only=True)
class CellInfo:
    """Cell by cell facts behind an `Imputation`, before they are put into the caller's container.

    Attributes
    ----------
    filled : array or tensor of shape (n_nodes, n_channels)
        The filled values; a categorical column is several channels.
    hops : Hops or None
        None for methods that do not search the graph.
    empty_channels : ndarray of bool
        Channels without a known value, whose missing cells are unreachable by any method.
    dtype : dtype
        Of the values.
    wrap : callable
        Puts a table of the shape of `filled` into the caller's container.
    append : callable
        Puts position channels behind a result in the caller's container.
    wrap_values : callable
        Puts another completed table into the caller's container, as `values` are.
    first_channels, categorical : index of channels
        As in `Problem`.
    columns : ndarray of int
        Number of the column that each channel belongs to.
    wrap_categories : callable or None
        As in `Problem`.
    graph : Graph
    model : ValueModel or None
        The model that estimated the values, if one did.
    settings : Settings
        Without "auto".
    names : CellNames
        How the caller names nodes and columns.
    """

    filled: Any
    hops: Hops | None
    empty_channels: Array
    dtype: npt.DTypeLike
    wrap: Callable[[Any], Any]
    append: Callable[[Any, Array], Any]
    wrap_values: Callable[[Any], Any]
    first_channels: Any
    categorical: Any
    columns: Array
    wrap_categories: Callable[[int, Array], Any] | None
    graph: Graph
    model: ValueModel | None
    settings: Settings
    names: CellNames

    @property
    def unreachable(self) -> Any:
        """Mask of the cells that no source can reach."""
        if self.hops is not None:
            return self.hops.unreachable()
        return np.tile(self.empty_channels, (len(self.filled), 1))

    def unreachable_in(self, channel: int) -> Array:
        """The same for one channel, as an array."""
        if self.hops is None:
            return np.full(len(self.filled), bool(self.empty_channels[channel]))
        hops = self.host_hops
        return np.asarray(~hops.is_reachable(hops.codes[:, hops.patterns[channel]]))

    @cached_property
    def standardized_errors(self) -> Array | None:
        """Expected absolute error of every cell in standard deviations of its channel; None without a model."""
        if self.hops is None or self.model is None:
            return None
        return self.model.expected_errors(self.graph, self.host_hops, self.host_values)

    @cached_property
    def host_values(self) -> Array:
        """The filled values as an array of float64."""
        filled = self.filled if isinstance(self.filled, np.ndarray) else tensors.to_array(self.filled, "values")
        return filled.astype(np.float64, copy=False)

    @cached_property
    def host_hops(self) -> Hops:
        """The hops as an array."""
        if self.hops is None:
            raise ValueError("a method without hops has none")
        codes = self.hops.codes
        return self.hops if isinstance(codes, np.ndarray) else replace(self.hops, codes=tensors.to_array(codes, "hops"))

    def wrapped(self, cells: Array) -> Any:
        """An array of one number per cell in the caller's container, dtype and place."""
        cells = cells.astype(self.dtype)
        return self.wrap(cells if isinstance(self.filled, np.ndarray) else tensors.beside(self.filled, cells))

    @cached_property
    def problem(self) -> Problem:
        """What was filled: the known cells on the graph, as arrays."""
        hops = self.host_hops
        mask, values = hops.look_up(np.arange(hops.n_levels + 2) == 0), np.ascontiguousarray(self.host_values)
        return Problem(
            values=values,
            mask=np.ascontiguousarray(mask),
            graph=self.graph,
            channels=survey(values, mask),
            first_channels=self.first_channels,
            categorical=self.categorical,
            column_names=self.names.columns,
            names=self.names,
        )
