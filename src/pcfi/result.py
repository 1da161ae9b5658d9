"""What `impute` gives back: the filled values, how far each can be trusted, and how it went."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi.errors import counted
from pcfi.hops import Hops

Array = npt.NDArray[Any]


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
        Number of nodes and channels.
    """

    values: Any
    method: str
    alpha: float | None
    beta: float | None
    steps: int
    residual: float
    status: str
    converged: bool
    n_missing: int
    n_unreachable: int
    shape: tuple[int, int]
    _hops: Hops | None = None
    _unreachable_channels: Array = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    _dtype: npt.DTypeLike = np.float64
    _wrap: Callable[[Array], Any] = _as_it_is

    @cached_property
    def hops(self) -> Any:
        """Hops of every cell to its nearest source: 0 if known, `pcfi.UNREACHABLE` if there is no way.

        None for methods that do not search the graph. Kept per pattern, expanded when first asked for. A table, if the
        features were one.
        """
        return None if self._hops is None else self._wrap(self._hops.expand())

    @cached_property
    def confidence(self) -> Any:
        """Confidence of every cell, alpha^hops: 1 if known, 0 if unreachable. None for methods without confidence.

        A table like that of the values, if the features were one.
        """
        if self._hops is None or self.alpha is None:
            return None
        return self._wrap(self._hops.confidence(self.alpha, self._dtype))

    @cached_property
    def unreachable(self) -> Any:
        """Mask of the cells that no source can reach."""
        if self._hops is not None:
            return self._wrap(self._hops.unreachable())
        return self._wrap(np.broadcast_to(self._unreachable_channels, self.shape).copy())

    def _facts(self) -> list[tuple[str, str]]:
        nodes, channels = self.shape
        facts = [
            ("method", self.method),
            ("features", f"{counted(nodes, 'node')} x {counted(channels, 'channel')}"),
            ("missing", f"{counted(self.n_missing, 'cell')} ({self.n_missing / (nodes * channels):.1%})"),
        ]
        if self.alpha is not None:
            facts.append(("parameters", f"alpha={self.alpha:g}, beta={self.beta:g}"))
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
