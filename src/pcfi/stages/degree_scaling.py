"""Features that grow with the degree of their node: diffused as if they did not, and scaled up again.

A popular product has more reviews, and more words in them. With d the degree, x_i / sqrt(d_i) is then more alike
between neighbours than x_i, and is what Feature Propagation averages: its symmetric weights, x_i = sum over j of
x_j / sqrt(d_i d_j), say the same as x_i / sqrt(d_i) = mean over j of x_j / sqrt(d_j).
"""

from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import SMALL, Problem, known_cells, survey

POWER = 0.5  # of the degree
SLOPE = 0.1  # power of the degree with which known values grow, from which on it is worth a try
EXPLAINED = 0.005  # part of the variance of known values that this growth accounts for, likewise


@dataclass(frozen=True, eq=False)
class DegreeScale:
    """What the cells of a node are divided by, and the channels that are: all but those with one known value only.

    Attributes
    ----------
    by_node : ndarray
        A power of the degree, relative to its geometric mean over the nodes.
    channels : ndarray of bool
    logarithmic : ndarray of bool
        Channels that hold logarithms, from which that of `by_node` is subtracted.
    usual : float
        That geometric mean.
    """

    by_node: Array
    channels: Array
    logarithmic: Array
    usual: float

    @classmethod
    def of(cls, problem: Problem, logarithmic: Array | None = None, power: float = POWER) -> "DegreeScale":
        """By the degrees of the graph."""
        relative, usual = _log_degree(problem.graph)
        channels = ~problem.channels.constant
        if logarithmic is None:
            logarithmic = np.zeros_like(channels)
        return cls(np.exp(power * relative), channels, logarithmic, float(np.exp(power * usual)))

    def of_rows(self, rows: slice) -> "DegreeScale":
        """The scale of some nodes."""
        return replace(self, by_node=self.by_node[rows])

    def of_channels(self, chosen: Array) -> "DegreeScale":
        """The scale of some channels."""
        return replace(self, channels=self.channels[chosen], logarithmic=self.logarithmic[chosen])

    def divide(self, problem: Problem) -> Problem:
        """The problem with its features divided."""
        from pcfi._kernels.threads import run_rows

        values = np.empty_like(problem.values)

        def divide(first: int, last: int) -> None:
            rows = slice(first, last)
            values[rows] = self.divided(problem.values[rows], rows)

        run_rows(len(values), divide, inline=values.size < SMALL)
        return replace(problem, values=values, channels=survey(values, problem.mask, problem.channel_name))

    def divided(self, values: Array, rows: slice) -> Array:
        """The values of some rows, divided."""
        factors = self._factors(self.by_node[rows, None]).astype(values.dtype)
        with np.errstate(all="ignore"):  # of what stands in missing cells
            if not self.logarithmic.any():
                return np.asarray(values / factors)
            return np.asarray(np.where(self.logarithmic, values - np.log(factors), values / factors))

    def multiplied(self, values: Array, rows: slice | Array = slice(None)) -> Array:
        """Values of some rows, which were divided before they diffused, scaled up again."""
        factors = self._factors(self.by_node[rows, None])
        return np.where(self.logarithmic, values + np.log(factors), values * factors)

    def multiplied_at(self, values: Array, nodes: Array, channels: Array) -> Array:
        """The same for a list of cells."""
        factors = np.where(self.channels[channels], self.by_node[nodes], 1.0)
        return np.where(self.logarithmic[channels], values + np.log(factors), values * factors)

    def of_new(self, degree: Array) -> "DegreeScale":
        """The scale of nodes that come later, given their degrees."""
        by_node = np.where(degree > 0, np.maximum(degree, np.finfo(np.float64).tiny) ** POWER / self.usual, 1.0)
        return replace(self, by_node=by_node)

    def _factors(self, by_node: Array) -> Array:
        return np.where(self.channels, by_node, 1.0)


def grows_with_degree(problem: Problem, variances: Array) -> bool:
    """Whether the known values of the channels grow with the degree, by enough to look closer.

    `variances` are those of the channels' known values, in units of their ranges.
    """
    if not _room_to_scale(problem):
        return False
    power, explained = growth(problem, variances)
    return power >= SLOPE and explained >= EXPLAINED


def growth(problem: Problem, variances: Array) -> tuple[float, float]:
    """The power of the degree with which known values grow, and the part of their variance that this accounts for.

    A line in the logarithm t of the degree, mu (1 + c t), is fitted to the known values of all channels together, in
    units of their ranges.
    """
    channels = problem.channels
    units = np.where(channels.constant, 1.0, (channels.high - channels.low).astype(np.float64))
    log_degree, _ = _log_degree(problem.graph)
    sums = np.zeros((3, len(channels.n_known)))
    for rows, of_cells, values in known_cells(problem):
        t = log_degree[rows]
        for total, part in zip(sums, (t, t**2, t * values / units[of_cells]), strict=True):
            total += np.bincount(of_cells, weights=part, minlength=len(total))
    mean, n_known = channels.mean.astype(np.float64), np.maximum(channels.n_known, 1)
    judged = ~channels.constant
    relative = mean / units
    slope = (relative * (sums[2] - sums[0] * relative))[judged].sum()
    curve = (relative**2 * (sums[1] - sums[0] ** 2 / n_known))[judged].sum()
    spread = (n_known * variances)[judged].sum()
    if curve <= 0 or spread <= 0:
        return 0.0, 0.0
    return float(slope / curve), float(slope**2 / (curve * spread))


def _log_degree(graph: Graph) -> tuple[Array, float]:
    """Logarithm of the degree less its mean, and that mean; nodes without neighbours count as average ones."""
    degree = graph.degree
    linked = (degree > 0) & np.isfinite(degree)
    if not linked.any():
        return np.zeros(len(degree)), 0.0
    logarithm = np.log(degree, out=np.zeros(len(degree)), where=linked)
    mean = float(logarithm[linked].mean())
    return np.where(linked, logarithm - mean, 0.0), mean


def _room_to_scale(problem: Problem) -> bool:
    """Whether the values can be divided and multiplied without leaving the finite numbers."""
    most = float(np.exp(POWER * np.abs(_log_degree(problem.graph)[0]).max(initial=0.0)))
    return float(problem.channels.magnitude.max(initial=0.0)) < float(np.finfo(problem.dtype).max) / (4 * most)
