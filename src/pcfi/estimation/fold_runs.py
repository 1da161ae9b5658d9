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
from pcfi.pipeline import run_stages
from pcfi.settings import Settings
from pcfi.stages.degree_scaling import DegreeScale
from pcfi.stages.diffusion import Diffused, Diffusion, InfluenceProduct
from pcfi.stages.hops import Hops, count_hops
from pcfi.stages.solvers import FixedSteps, Solver, UntilSettled

MIN_FOLD_RTOL = 1e-2  # settled enough to compare parameters, in units of a channel's range
MIN_KNOWN_FOR_SPREAD = 30  # known cells of a channel from which hiding some does not change its spread much


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
    few = problem.channels.n_known < MIN_KNOWN_FOR_SPREAD
    spread = np.where(few, spreads(problem.channels, squares, whole.typical), whole.spread)
    hops = count_hops(problem, progress=progress)
    codes = hops.codes_at(fold.nodes, fold.channels)
    reached = hops.is_reachable(codes)
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


def try_alpha(bench: Bench, alpha: float, settings: Settings, backend: "FoldBackend") -> Trial:
    """Run the stages with an alpha and beta = 1, and compare the hidden cells with what they were."""
    candidate = replace(
        settings, method="pcfi", alpha=alpha, beta=1.0, solver=_loosened(settings.solver), unreachable="mean"
    )
    filled = run_stages(bench.fold.problem, replace(candidate, progress=False), backend)
    diffused = backend.diffused
    received = bench.fold.at(filled.values) - diffused
    diffused, received = (bench.factor * diffused - bench.mean) / bench.unit, bench.factor * received / bench.unit
    return Trial(alpha, diffused, received, moments_of(bench.places, diffused, received, bench.wanted))


class FoldBackend(CpuBackend):
    """The stages on a fold: hops are counted once, and one array serves all candidates.

    Stage 2 refines hidden nodes only; `diffused` keeps what stage 1 filled into the hidden cells.
    """

    def __init__(self, bench: Bench) -> None:
        self._fold, self._hops = bench.fold, bench.hops
        self._out = super().start(bench.fold.problem, bench.fold.problem.channels.mean)
        self._nodes, self._places = np.unique(bench.fold.nodes, return_inverse=True)
        self.diffused = np.empty(0)

    def count_hops(self, problem: Problem, *, progress: bool) -> Hops:  # noqa: ARG002
        """Those of the fold."""
        return self._hops

    def start(self, problem: Problem, fill: Array) -> Array:  # noqa: ARG002
        """The array of the candidate before: known cells and constant channels are as they were."""
        return self._out

    def diffuse(self, diffusion: Diffusion, out: Array, *, keep_product: bool) -> Diffused:
        """Stage 1, and a look at the hidden cells."""
        result = super().diffuse(diffusion, out, keep_product=keep_product)
        some = result.product is not None or 2 * len(self._nodes) < len(out)  # a few rows are copied out and back
        self.propagation_nodes = self._nodes if some else None
        self.diffused = self._fold.at(out) if result.product is None else self._product_at_hidden(result.product, out)
        return result

    def _product_at_hidden(self, product: InfluenceProduct, out: Array) -> Array:
        """The hidden cells of channels that are a product; the other channels are in `out`."""
        values = np.array(out[self._nodes], dtype=np.float64)
        values[:, product.channels] = product.rows(self._nodes)
        return np.asarray(values[self._places, self._fold.channels])


def _loosened(solver: Solver) -> Solver:
    return solver if isinstance(solver, FixedSteps) else UntilSettled(max(MIN_FOLD_RTOL, solver.rtol), solver.max_steps)
