"""The plain neighbour fill: each missing cell takes the weighted mean of its known neighbours."""

import numpy as np

from pcfi._typing import Array
from pcfi.errors import DivergenceError
from pcfi.inputs.problem import SMALL, Problem


def fill_from_neighbors(problem: Problem, out: Array) -> None:
    """Fill the missing cells of `out` that have a known neighbour; the others stay as they are."""
    from pcfi._kernels.csr_graph import CsrGraph
    from pcfi._kernels.neighbor_mean import neighbour_means
    from pcfi._kernels.threads import run_rows

    graph = problem.graph
    csr_graph = CsrGraph(graph.indptr, graph.indices, graph.weights_as(np.float64))
    finite = run_rows(
        len(out),
        lambda first, last: neighbour_means(csr_graph, problem.values, problem.mask, first, last, out),
        inline=len(graph.indices) * out.shape[1] < SMALL,
    )
    refuse_non_finite(all(finite))


def refuse_non_finite(finite: bool) -> None:
    """Raise if the mean of some neighbours is not finite."""
    if not finite:
        raise DivergenceError("the mean of the neighbours left the finite numbers: rescale the features or the weights")
