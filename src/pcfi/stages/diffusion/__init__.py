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

from dataclasses import replace

from pcfi._typing import Array
from pcfi.progress import progress_bar
from pcfi.stages.diffusion.definition import (
    Diffused,
    Diffusion,
    DiffusionOutcome,
    InfluenceProduct,
    Route,
    confidence_weights,
    degree_weights,
)

__all__ = [
    "Diffused",
    "Diffusion",
    "DiffusionOutcome",
    "InfluenceProduct",
    "Route",
    "confidence_weights",
    "degree_weights",
    "diffuse",
]


def diffuse(diffusion: Diffusion, out: Array, *, keep_product: bool = False) -> Diffused:
    """Fill the missing reachable cells of `out`, which holds the known values already.

    Channels that are silent (all known values 0) or, in a steady state that keeps constants, constant are left as
    they are: `out` must hold that constant in their missing cells. With `keep_product`, channels that all go through
    one influence matrix are returned as a product, and `out` is left as it is.
    """
    with progress_bar("diffuse", len(diffusion.active), show=diffusion.progress) as advance:
        counted = replace(diffusion, advance=advance)
        if keep_product and diffusion.is_one_product:
            return _diffuse_product(counted, out)
        return Diffused(
            DiffusionOutcome.worst([_take(route, counted, chosen, out) for route, chosen in counted.routes])
        )


def _take(route: Route, diffusion: Diffusion, chosen: Array, out: Array) -> DiffusionOutcome:
    from pcfi.stages.diffusion import channel_blocks, influence_matrix, sweeps

    functions = {
        Route.BLOCKS: channel_blocks.diffuse,
        Route.INFLUENCE: influence_matrix.diffuse,
        Route.SWEEPS: sweeps.diffuse,
    }
    return functions[route](diffusion, chosen, out)


def _diffuse_product(diffusion: Diffusion, out: Array) -> Diffused:
    """The active channels as a product; if it has not settled, they are filled and swept further instead."""
    from pcfi.stages.diffusion import influence_matrix

    product, outcome = influence_matrix.factorise(diffusion, diffusion.active)
    diffusion.advance(len(diffusion.active))
    if not outcome.stuck(diffusion.solver):
        return Diffused(outcome, product)
    influence_matrix.fill(diffusion, product, out)
    return Diffused(influence_matrix.finish(diffusion, diffusion.active, outcome, out))
