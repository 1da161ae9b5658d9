"""What diffusion with some alpha says about the hidden cells of a fold."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends.cpu import CpuBackend
from pcfi.estimation.calibration import is_steady
from pcfi.estimation.closed_form import LEVELS, Moments, Places, moments_of
from pcfi.estimation.folds import Fold
from pcfi.estimation.means import ranges, shrunken_means, sums_of_squares
from pcfi.estimation.spreads import Typical, spreads
from pcfi.inputs.problem import Problem, survey
from pcfi.settings import Settings
from pcfi.stages.channel_propagation import Sharing, share, share_factored
from pcfi.stages.degree_scaling import DegreeScale
from pcfi.stages.diffusion import Factors, confidence_weighting, diffuse, varies
from pcfi.stages.hops import Hops, count_hops
from pcfi.stages.solvers import FixedSteps, Solver, UntilSettled

LOOSE = 1e-2  # settled enough to compare parameters, in units of a channel's range
FEW_KNOWN = 30  # cells of a channel


@dataclass(frozen=True, eq=False)
class Trial:
    """Hidden cells of a fold as diffusion fills them, in units of the channels' ranges, less the channels' means.

    Attributes
    ----------
    diffused : ndarray
        d = X-hat - mu of each judged cell.
    received : ndarray
        c, what it receives from other channels for beta = 1.
    moments : Moments
        The sums that decide reliability, trust and beta.
    """

    alpha: float
    diffused: Array
    received: Array
    moments: Moments


@dataclass(frozen=True, eq=False)
class Bench:
    """A fold with all that its trials share: hops, means, and the judged cells, those that a source can reach.

    Attributes
    ----------
    places : Places
        Hops and column of each judged cell, and its part of a hidden unit, so that the cells of a unit sum to about 1.
    unit : ndarray
        Unit of the channel of each judged cell, as in `Whole`.
    spread : ndarray
        Spread of its channel: from what the fold leaves known where that is little, so that a hidden cell has no part
        in what its own error is measured in; else from all that is known, as it will be when missing cells are filled.
    steady : ndarray of bool
        Whether its channel is (`is_steady`), as far as the fold leaves it known.
    mean : ndarray
        Mean of its channel from what the fold leaves known.
    wanted : ndarray
        y = (x - mu) / unit.
    factor : ndarray or 1.0
        What a filled value of `fold.problem` is multiplied by, if that problem was divided by powers of the degree.
    """

    fold: Fold
    hops: Hops
    places: Places
    unit: Array
    spread: Array
    steady: Array
    mean: Array
    wanted: Array
    factor: Any = 1.0

    def divided(self, scale: DegreeScale, whole: Problem) -> "Bench":
        """The same cells with the features divided; `whole` is the whole problem so."""
        fold, mask = self.fold, self.fold.problem.mask
        problem = replace(whole, mask=mask, channels=survey(whole.values, mask))
        return replace(self, fold=replace(fold, problem=problem), factor=scale.at(fold.nodes, fold.channels))

    def up_to(self, n_levels: int) -> "Bench":
        """The same, with sums over so many numbers of hops."""
        return replace(self, places=replace(self.places, shape=(n_levels, self.places.shape[1])))

    def start(self) -> Array:
        """An array for trials to fill, one after the other: known cells and constant channels stay as they are."""
        return CpuBackend().start(self.fold.problem, self.fold.problem.channels.mean)

    def compared(self, filled: Array) -> tuple[Array, Array, Array]:
        """Truth, filled and nodes as a metric takes them; `filled` is less the mean, in units, like `wanted`."""
        offset = self.mean / self.unit
        return self.wanted + offset, filled + offset, self.fold.nodes


@dataclass(frozen=True, eq=False)
class Whole:
    """What all folds need to know about the channels of the whole problem: unit, magnitude, sum of squares and spread.

    The unit is the range of the known values; of a category, 0 to 1, times the root of the number of categories, so
    that all of a column weigh like one channel.
    """

    units: Array
    magnitudes: Array
    squares: Array
    typical: Typical
    spread: Array

    @classmethod
    def of(cls, problem: Problem) -> "Whole":
        """Look at the known cells once."""
        channels, squares = problem.channels, sums_of_squares(problem)
        typical = Typical.of(channels, squares)
        width = np.bincount(problem.columns)[problem.columns]
        return cls(
            ranges(channels) * np.sqrt(width), channels.magnitude, squares, typical, spreads(channels, squares, typical)
        )

    def squares_without(self, fold: Fold) -> Array:
        """Sums of squares of what the fold leaves known, in units of its magnitudes."""
        hidden = (fold.truth / self.magnitudes[fold.channels]) ** 2
        left = self.squares - np.bincount(fold.channels, weights=hidden, minlength=len(self.squares))
        return np.maximum(left, 0.0) * (self.magnitudes / fold.problem.channels.magnitude) ** 2


def prepare_bench(fold: Fold, whole: Whole, *, progress: bool = False) -> Bench:
    """Count the hops of a fold and work out what all its trials share; cells that no source reaches are dropped."""
    problem = fold.problem
    squares = whole.squares_without(fold)
    means = shrunken_means(problem.channels, squares).values
    few = problem.channels.n_known < FEW_KNOWN
    spread = np.where(few, spreads(problem.channels, squares, whole.typical), whole.spread)
    hops = count_hops(problem, progress=progress)
    codes = hops.codes[fold.nodes, hops.patterns[fold.channels]]
    reached = codes <= hops.n_levels
    fold = Fold(problem, fold.nodes[reached], fold.channels[reached], fold.truth[reached])
    mean, unit = means[fold.channels], whole.units[fold.channels]
    steady = is_steady(problem.channels)[fold.channels]
    wanted = (fold.truth - mean) / unit
    places = _places(fold, codes[reached].astype(np.int64))
    return Bench(fold, hops, places, unit, spread[fold.channels], steady, mean, wanted)


def _places(fold: Fold, levels: Array) -> Places:
    problem, channels = fold.problem, fold.channels
    sizes = np.bincount(problem.channels.patterns)[problem.channels.patterns]
    widths = np.bincount(problem.columns)
    columns = problem.columns[channels]
    return Places(levels, columns, 1.0 / sizes[channels], 1.0 / widths[columns], (LEVELS, len(widths)))


def try_alpha(bench: Bench, alpha: float, settings: Settings, out: Array) -> Trial:
    """Diffuse and share in `out`, and look at the hidden cells."""
    fold, hops, problem = bench.fold, bench.hops, bench.fold.problem
    weighting = confidence_weighting(problem.graph, hops, alpha)
    solver = _loosened(settings.solver)
    sharers = np.flatnonzero(varies(problem, weighting, solver) & (alpha < 1))
    loops = settings.self_loops
    _, factors = diffuse(problem, hops, weighting, solver, out, self_loops=loops, keep_factored=sharers)
    sharing, units = Sharing(alpha, 1.0, bool(settings.standardize)), problem.channels.magnitude[sharers]
    nodes = np.unique(fold.nodes)
    if factors is None:
        diffused = fold.at(out)
        if len(sharers) > 1:
            share(out, hops, sharers, units, sharing, nodes if 2 * len(nodes) < len(out) else None)
    else:
        diffused = _product(factors, fold, out)
        share_factored(out, hops, factors, units, sharing, nodes)
    received = fold.at(out) - diffused
    diffused, received = (bench.factor * diffused - bench.mean) / bench.unit, bench.factor * received / bench.unit
    return Trial(alpha, diffused, received, moments_of(bench.places, diffused, received, bench.wanted))


def _loosened(solver: Solver) -> Solver:
    return solver if isinstance(solver, FixedSteps) else UntilSettled(max(LOOSE, solver.rtol), solver.max_steps)


def _product(factors: Factors, fold: Fold, out: Array) -> Array:
    """The hidden cells of channels kept as factors; the other channels are in `out`."""
    nodes, place = np.unique(fold.nodes, return_inverse=True)
    values = np.array(out[nodes], dtype=np.float64)
    product = (factors.influence[nodes] @ factors.known).astype(np.float64) + factors.shift
    values[:, factors.channels] = np.clip(product, *factors.bounds.astype(np.float64))
    return np.asarray(values[place, fold.channels])
