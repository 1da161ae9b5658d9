"""Stage 1: hops -> filled channels, by one loop for every method, over blocks of channels.

Both confidence-weighted diffusion (PCFI) and Feature Propagation are, in the right scale, the same recursion. With
y = scale o x, A the adjacency and w the weight of a self-loop, one step is

    y <- (A y + w y) / (d + w),      then reset the known cells

    PCFI                   scale = xi = alpha^hops      d_i = sum_j a_ij xi_j / xi_i      (paper, eq. 3-5)
    Feature Propagation    scale = (degree + w)^-1/2    d_i = degree_i

and its steady state solves (diag(d) - A) y = 0 at the missing cells, whatever w.

A channel takes one of three routes. Most are solved in blocks, in scaled form (`channel_blocks`). A pattern with few
sources and many channels diffuses the identity on its sources once and multiplies by their values (`influence_matrix`).
Very deep graphs, where the scale would underflow, and steady states of directed graphs are solved pattern by pattern
with relative weights (`sweeps`).
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.inputs.problem import Problem
from pcfi.progress import progress_bar
from pcfi.stages.diffusion.job import Factors, Job, Outcome, Weighting, confidence_weighting, degree_weighting
from pcfi.stages.hops import Hops
from pcfi.stages.solvers import Solver, UntilSettled

__all__ = [
    "Factors",
    "Outcome",
    "active_channels",
    "arithmetic",
    "confidence_weighting",
    "degree_weighting",
    "diffuse",
    "varies",
]


INFLUENCE_PAYS = 4  # channels per source from which a pattern goes through its influence matrix


def diffuse(
    problem: Problem,
    hops: Hops,
    weighting: Weighting,
    solver: Solver,
    out: Array,
    *,
    self_loops: bool = True,
    keep_factored: Array | None = None,
    progress: bool = False,
) -> tuple[Outcome, Factors | None]:
    """Fill the missing reachable cells of `out`, which holds the known values already.

    Channels that are silent (all known values 0) or, in a steady state that keeps constants, constant are left as
    they are: `out` must hold that constant in their missing cells. If the channels to fill are just those of
    `keep_factored`, and they go through one influence matrix, `out` is left as it is and the factors are returned.
    """
    active = active_channels(problem, hops, weighting, solver)
    with progress_bar("diffuse", len(active), show=progress) as advance:
        dtype = arithmetic(problem, solver)
        job = Job(problem, hops, weighting, solver, float(self_loops), dtype, out, advance)
        outcome, factors = _run(job, routes_of(job, active), keep_factored)
    return outcome, factors


def _run(job: Job, routes: "list[tuple[Route, Array]]", keep_factored: Array | None) -> tuple[Outcome, Factors | None]:
    from pcfi.stages.diffusion import influence_matrix

    if keep_factored is not None and len(routes) == 1 and routes[0][0] is influence_matrix.diffuse:
        chosen = routes[0][1]
        if np.array_equal(chosen, keep_factored):
            factors, outcome = influence_matrix.factorise(job, chosen)
            job.advance(len(chosen))
            if not outcome.stuck(job.solver):
                return outcome, factors
            influence_matrix.fill(job, factors)
            return influence_matrix.finish(job, chosen, outcome), None
    return Outcome.worst([route(job, chosen) for route, chosen in routes]), None


def varies(problem: Problem, weighting: Weighting, solver: Solver) -> Array:
    """Mask of the channels that are not the same everywhere once filled: judged by the known values, not by noise."""
    keeps_constants = weighting.keeps_constants and isinstance(solver, UntilSettled)
    return ~(problem.channels.constant if keeps_constants else problem.channels.silent)


def active_channels(problem: Problem, hops: Hops, weighting: Weighting, solver: Solver) -> Array:
    """Channels that diffuse: those that vary and have missing cells within reach."""
    n_missing = problem.values.shape[0] - problem.channels.n_known - hops.n_unreachable[hops.patterns]
    return np.flatnonzero((n_missing > 0) & varies(problem, weighting, solver))


def arithmetic(problem: Problem, solver: Solver) -> npt.DTypeLike:
    """float32 for float32 values where it is safe, float64 otherwise."""
    wide = isinstance(solver, UntilSettled) and solver.rtol < 1e-5
    lightest, heaviest = problem.graph.weight_range
    wide = wide or heaviest > 1e18 or lightest < 1e-18
    return np.float64 if wide else problem.values.dtype


Route = Callable[[Job, Array], Outcome]


def routes_of(job: Job, active: Array) -> list[tuple[Route, Array]]:
    """Which of the active channels go which way."""
    from pcfi.stages.diffusion import channel_blocks, influence_matrix, sweeps

    lightest = min(1.0, job.problem.graph.weight_range[0])
    smallest = job.weighting.by_hops[job.hops.n_levels] * lightest
    vanishes = smallest < 1e3 * np.finfo(job.dtype).tiny
    directed = job.settles and job.problem.graph.directed
    if vanishes or directed:
        return [(sweeps.diffuse, active)]
    patterns = job.hops.patterns[active]
    n_channels = np.bincount(patterns, minlength=job.hops.codes.shape[1])
    n_sources = job.problem.channels.n_known[job.problem.channels.representatives]
    pays = n_channels >= INFLUENCE_PAYS * n_sources
    through_sources = pays[patterns]
    routes: list[tuple[Route, Array]] = [
        (influence_matrix.diffuse, active[patterns == pattern]) for pattern in np.unique(patterns[through_sources])
    ]
    rest = active[~through_sources]
    return [*routes, (channel_blocks.diffuse, rest)] if len(rest) else routes
