"""Estimates from several completed tables -> one estimate with a confidence interval (Rubin, 1987)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ParameterError
from pcfi.settings import check_coverage


@dataclass(frozen=True, eq=False)
class Pooled:
    """A pooled estimate; numbers, or arrays if the estimates are.

    Attributes
    ----------
    estimate : mean of the estimates
    variance : within + (1 + 1/m) * between
    within, between : mean of the variances, variance of the estimates
    degrees_of_freedom : of the t distribution that the interval goes by
    missing_information : share of the variance that comes from missing values
    """

    estimate: Any
    variance: Any
    within: Any
    between: Any
    degrees_of_freedom: Any
    missing_information: Any

    @property
    def standard_error(self) -> Any:
        """Root of the variance."""
        return np.sqrt(self.variance)

    def interval(self, coverage: float = 0.95) -> tuple[Any, Any]:
        """Ends of the confidence interval."""
        check_coverage(coverage)
        from scipy.stats import t

        half = t.ppf((1 + coverage) / 2, self.degrees_of_freedom) * self.standard_error
        return self.estimate - half, self.estimate + half


def pool(estimates: Any, variances: Any, *, complete_degrees_of_freedom: float | None = None) -> Pooled:
    """Combine what an analysis says about each of several completed tables by Rubin's rules.

    Parameters
    ----------
    estimates : array of shape (m,) or (m, n_parameters)
        One estimate per completed table.
    variances : array of the same shape
        Their squared standard errors.
    complete_degrees_of_freedom : float, default=None
        Degrees of freedom of the analysis if nothing were missing, such as n - 2 of a regression line; for the
        correction of small samples (Barnard and Rubin, 1999). None: large.

    Returns
    -------
    Pooled

    Examples
    --------
    >>> import pcfi
    >>> pooled = pcfi.pool([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])
    >>> float(pooled.estimate), round(float(pooled.variance), 4), round(float(pooled.degrees_of_freedom), 3)
    (3.0, 2.3333, 6.125)
    """
    values, squared = (_numbers(part, name) for part, name in ((estimates, "estimates"), (variances, "variances")))
    if values.shape != squared.shape or len(values) < 2:
        raise ParameterError(
            f"and variances must have the same shape with at least 2 rows, got {values.shape} and {squared.shape}",
            parameter="estimates",
        )
    if (squared < 0).any():
        raise ParameterError("must be at least 0: they are squared standard errors", parameter="variances")
    m = len(values)
    within, between = squared.mean(axis=0), values.var(axis=0, ddof=1)
    variance = within + (1 + 1 / m) * between
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(variance > 0, (1 + 1 / m) * between / variance, 0.0)
        degrees = (m - 1) / share**2
        if complete_degrees_of_freedom is not None:
            complete = float(complete_degrees_of_freedom)
            observed = (complete + 1) / (complete + 3) * complete * (1 - share)
            degrees = 1 / (1 / degrees + 1 / observed)
    parts = (values.mean(axis=0), variance, within, between, degrees, share)
    return Pooled(*(part.item() if np.ndim(part) == 0 else part for part in map(np.asarray, parts)))


def _numbers(given: Any, name: str) -> Array:
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"must be numbers, got {given!r}", parameter=name) from None
    if values.ndim not in (1, 2) or not np.isfinite(values).all():
        raise ParameterError("must be finite numbers, one row per completed table", parameter=name)
    return values
