"""Per-cell data behind a result, before it is put into the caller's container."""

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
    """Per-cell data behind an `Imputation`, before it is put into the caller's container.

    Attributes
    ----------
    filled : array or tensor of shape (n_nodes, n_channels)
        The filled values; a categorical column has several channels.
    hops : Hops or None
        None for methods that do not search the graph.
    empty_channels : ndarray of bool
        Channels without a known value; their missing cells are unreachable for any method.
    dtype : dtype
        Dtype of the values.
    wrap : callable
        `wrap_cells` of the problem.
    columns : ndarray of int
        Number of the column that each channel belongs to.
    append, wrap_values, first_channels, categorical, wrap_categories, names
        As in `Problem`.
    graph : Graph
    model : ValueModel or None
        The model that estimated the values, if one did.
    settings : Settings
        Without "auto".
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
        """Mask of the unreachable cells of one channel, as an array."""
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
            raise ValueError("this method does not count hops")
        codes = self.hops.codes
        return self.hops if isinstance(codes, np.ndarray) else replace(self.hops, codes=tensors.to_array(codes, "hops"))

    def wrapped(self, cells: Array) -> Any:
        """An array with one number per cell, in the caller's container and dtype and on its device."""
        cells = cells.astype(self.dtype, copy=False)
        return self.wrap(cells if isinstance(self.filled, np.ndarray) else tensors.beside(self.filled, cells))

    @cached_property
    def problem(self) -> Problem:
        """The problem that was filled, as arrays."""
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
