"""What tuning found, as data."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import counted
from pcfi.estimation.calibration import Calibration
from pcfi.estimation.means import Means
from pcfi.stages.degree_scaling import DegreeScale
from pcfi.stages.shrinkage import Shrinkage


@dataclass(frozen=True)
class Tried:
    """One row of the table: an alpha, the beta that is best with it, the error, and its standard error over folds.

    The better half of the alphas is tried on all folds, the others on some. `by_degree` is whether features were
    divided by the square root of the degree meanwhile.
    """

    alpha: float
    beta: float
    error: float
    standard_error: float
    folds: int
    by_degree: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Tuning:
    """Parameters chosen without labels, and what spoke for them.

    Attributes
    ----------
    objective : {"values", "representation"}
        What the parameters are for.
    alpha, beta : float
        The parameters chosen.
    kappa : ndarray
        Reliability by hops: how much of a filled cell's distance from its channel's mean is kept. 1 for known cells,
        and everywhere for a representation.
    trust : ndarray
        What that is multiplied by in each channel, up to 1 in all: some follow their neighbours, others do not.
    center : bool
        Whether the representation is better used with the channels' means subtracted.
    metric : str
        What was made small on the hidden cells.
    error : float
        The error to expect in that metric, with channels in units of their range (of k categories, of the root of k);
        estimated on hidden cells with parameters that were fitted without them. NaN if nothing was hidden.
    error_of_mean : float
        The same for filling in the (shrunken) mean of the channel.
    tried : tuple of Tried
        Everything that was tried.
    n_hidden, n_folds : int
        Cells that were hidden and judged, and the number of folds.
    note : str
        Why nothing was learned and defaults are used; empty if something was.
    by_degree : bool
        Whether values are divided by the square root of the degree of their node while they diffuse, because they grow
        with it.
    """

    objective: str
    alpha: float
    beta: float
    kappa: Array
    trust: Array
    center: bool
    metric: str
    error: float
    error_of_mean: float
    tried: tuple[Tried, ...]
    n_hidden: int
    n_folds: int
    note: str
    means: Means = field(repr=False)
    calibration: Calibration | None = field(repr=False)
    scale: DegreeScale | None = field(default=None, repr=False)

    @property
    def by_degree(self) -> bool:
        """Whether values are divided by the square root of the degree while they diffuse."""
        return self.scale is not None

    def __repr__(self) -> str:
        facts = [("objective", self.objective), ("chosen", f"alpha={self.alpha:g}, beta={self.beta:.3g}")]
        if self.note:
            facts.append(("note", f"defaults, because {self.note}"))
        elif self.objective == "representation":
            facts.append(("center", str(self.center)))
        else:
            shown = ", ".join(map(self._shown, self.kappa[1:7]))
            unit = f"{self.metric}, channels in units of their range"
            facts += [("scaled", "by the square root of the degree")] if self.by_degree else []
            facts += [
                ("reliability", f"{shown} at 1 to 6 hops"),
                ("error", f"{self.error:.4g}; of the mean {self.error_of_mean:.4g} ({unit})"),
                ("hidden", f"{counted(self.n_hidden, 'cell')} in {counted(self.n_folds, 'fold')}"),
                ("tried", "alpha    beta     folds    error"),
            ]
            facts += [("", _row(one)) for one in self.tried]
        return "Tuning\n" + "\n".join(f"  {name:<12}{text}" for name, text in facts)

    def _shown(self, kappa: float) -> str:
        least, most = (min(float(kappa * trust), 1.0) for trust in (self.trust.min(), self.trust.max()))
        return f"{least:.2f}" if least == most else f"{least:.2f}-{most:.2f}"

    @property
    def options(self) -> dict[str, Any]:
        """What was chosen as options of `impute`, so that `impute(features, graph, **tuning.options)` uses it."""
        chosen = {"alpha": self.alpha, "beta": self.beta, "objective": self.objective}
        return chosen | ({"center": self.center} if self.objective == "representation" else {})

    @property
    def shrinkage(self) -> Shrinkage:
        """How far filled values are drawn towards their channel's mean."""
        return Shrinkage(self.kappa, self.trust, self.means.values)

    def to_rows(self) -> list[dict[str, Any]]:
        """The table of everything tried, one dictionary per row, as a DataFrame takes it."""
        return [asdict(one) for one in self.tried]


def _row(one: Tried) -> str:
    numbers = f"{one.alpha:<8g} {one.beta:<8.3g} {one.folds:<8} {one.error:.4g} +- {one.standard_error:.1g}"
    return f"{numbers}, scaled" if one.by_degree else numbers


def seeded(random_state: Any) -> "np.random.Generator":
    """Random numbers from a seed, a generator, or None, which is the seed 0: the same call gives the same bits."""
    return np.random.default_rng(0 if random_state is None else random_state)
