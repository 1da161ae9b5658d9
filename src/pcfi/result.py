"""What `impute` gives back: the filled values, how far each can be trusted, and how it went."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import ParameterError, counted
from pcfi.estimation.calibration import Calibration
from pcfi.estimation.result import Tuning
from pcfi.inputs import tensors
from pcfi.inputs.columns import shortened
from pcfi.stages.hops import Hops


def _as_it_is(cells: Array) -> Array:
    return cells


@dataclass(frozen=True, eq=False, repr=False)
class Imputation:
    """Filled features, and an honest account of how they came about.

    Attributes
    ----------
    values : array of the shape of the features
        The features with the missing cells filled, in their container and dtype (integers become float64); known cells
        are bit-identical to the input.
    method : str
        The method used.
    alpha, beta : float or None
        The parameters used; None for methods that have none.
    objective : {"values", "representation"} or None
        What the result is for; None for methods that know one way only.
    steps : int
        Diffusion steps taken by the channel that took the most.
    residual : float
        The most that one further diffusion step would move any missing cell, relative to the range of its channel's
        known values (together with 0 where diffusion starts from 0, and for "fp"). A settled result is judged by
        a step without self-loops, which moves more.
    status : str
        How it went, in a sentence.
    converged : bool
        Whether the solver reached its goal: the wanted `rtol`, or the wanted number of steps.
    n_missing : int
        Number of cells that were missing.
    n_unreachable : int
        Number of missing cells that no source can reach; they hold what `unreachable=` says. For methods that do not
        search the graph, those in channels without any known value (none for "zero").
    shape : tuple of int
        Number of nodes and channels; a column of categories counts as one.
    column_names : tuple of str
        Names of the filled columns; empty if the features have none.
    tuning : Tuning or None
        What "auto" found, and what spoke for it.
    center : ndarray or None
        Mean of each channel that `representation` is less, if it is.
    """

    values: Any
    method: str
    alpha: float | None
    beta: float | None
    objective: str | None
    steps: int
    residual: float
    status: str
    converged: bool
    n_missing: int
    n_unreachable: int
    shape: tuple[int, int]
    column_names: tuple[str, ...] = ()
    tuning: Tuning | None = None
    center: Array | None = None
    _filled: Any = None  # the values before they are put into the caller's container
    _hops: Hops | None = None
    _unreachable_channels: Array = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    _dtype: npt.DTypeLike = np.float64
    _wrap_cells: Callable[[Array], Any] = _as_it_is
    _first_channels: Any = field(default_factory=lambda: slice(None))
    _categorical: Any = field(default_factory=lambda: slice(0))

    @cached_property
    def hops(self) -> Any:
        """Hops of every cell to its nearest source: 0 if known, `pcfi.UNREACHABLE` if there is no way.

        None for methods that do not search the graph. Kept per pattern, expanded when first asked for. A table, if the
        features were one.
        """
        return None if self._hops is None else self._wrap_cells(self._hops.expand())

    @cached_property
    def confidence(self) -> Any:
        """Confidence of every cell, alpha^hops: 1 if known, 0 if unreachable. None for methods without confidence.

        A table like that of the values, if the features were one.
        """
        if self._hops is None or self.alpha is None:
            return None
        return self._wrap_cells(self._hops.confidence(self.alpha, self._dtype))

    @cached_property
    def representation(self) -> Any:
        """The values, less the channels' means if `center` says so: what to train a network on."""
        if self.center is None:
            return self.values
        center = self.center.astype(self._dtype)
        is_array = isinstance(self._filled, np.ndarray)
        return self._wrap_cells(self._filled - (center if is_array else tensors.beside(self._filled, center)))

    @cached_property
    def expected_error(self) -> Any:
        """Absolute error to expect of every cell, in the channel's unit: 0 if known. None if nothing was calibrated.

        Learned from known cells that were hidden, so there is none for a result without tuning.
        """
        if self._hops is None or self._calibration is None:
            return None
        factors = self._calibration.factors(self._hops.n_levels)
        return self._wrap_cells(self._in_units(factors, self._calibration.scale, self._hops))

    def interval(self, coverage: float = 0.9) -> tuple[Any, Any]:
        """Lowest and highest value of every cell: the truth is between them with a probability of `coverage`.

        Learned from known cells that were hidden. Known cells have their value twice; channels without any known value
        have intervals without an end. Two tables, if the features were one; columns of categories have no intervals.
        """
        if not 0 < coverage < 1:
            raise ParameterError(f"coverage must be a number between 0 and 1 (both excluded), got {coverage!r}")
        if self._hops is None or self._calibration is None:
            raise ParameterError(
                "interval needs errors learned from hidden cells, and this result has none: impute with alpha='auto' "
                "or objective='values', method 'pcfi' and enough known cells"
            )
        half: Any = 0.0
        for by_code, by_channel in self._calibration.half_widths(self._hops.n_levels, coverage):
            by_channel[self._categorical] = np.nan
            half = half + self._in_units(by_code, by_channel, self._hops)
        return self._wrap_cells(self._filled - half), self._wrap_cells(self._filled + half)

    def _in_units(self, by_code: Array, scale: Any, hops: Hops) -> Any:
        """What a table by hops code says about every cell, times its channel's scale."""
        table = hops.look_up(by_code)
        scale = scale if isinstance(table, np.ndarray) else tensors.beside(table, scale)
        return (table * scale).astype(self._dtype) if isinstance(table, np.ndarray) else table * scale

    @property
    def _calibration(self) -> Calibration | None:
        chosen = self.tuning is not None and self.objective == "values"
        return self.tuning.calibration if chosen and self.tuning is not None else None

    @cached_property
    def unreachable(self) -> Any:
        """Mask of the cells that no source can reach."""
        return self._wrap_cells(self._unreachable_cells())

    def _unreachable_cells(self) -> Array:
        if self._hops is not None:
            return self._hops.unreachable()
        return np.tile(self._unreachable_channels, (self.shape[0], 1))

    def _facts(self) -> list[tuple[str, str]]:
        nodes, channels = self.shape
        facts = [
            ("method", self.method),
            ("features", f"{counted(nodes, 'node')} x {counted(channels, 'channel')}"),
            *([("channels", shortened(self.column_names))] if self.column_names else []),
            ("missing", f"{counted(self.n_missing, 'cell')} ({self.n_missing / (nodes * channels):.1%})"),
        ]
        if self.alpha is not None:
            facts.append(("parameters", f"alpha={self.alpha:g}, beta={self.beta:.3g}"))
            facts.append(("objective", f"{self.objective}" + (", centred" if self.center is not None else "")))
        if self.n_unreachable:
            facts.append(("unreachable", counted(self.n_unreachable, "cell")))
        return [*facts, ("status", self.status)]

    def __repr__(self) -> str:
        lines = [f"  {name:<12}{text}" for name, text in self._facts()]
        return "Imputation\n" + "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self._facts()
        )
        return f"<table><caption>Imputation</caption><tbody>{rows}</tbody></table>"
