"""How well the graph and the other columns predict each column, for `pcfi info`.

Known cells are hidden in the same pattern as the missing cells, and estimated. For a large table only part of the nodes
is used: the surroundings of some nodes, so that most nodes keep their neighbours.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation import ColumnReports, resolve
from pcfi.estimation.column_reports import MIN_R2
from pcfi.estimation.result import ColumnReport
from pcfi.inputs.graphs import Graph, prepare_graph
from pcfi.inputs.problem import Problem, known_mask, survey
from pcfi.settings import Settings

MAX_CELLS = 2_000_000  # takes a few seconds
N_STANDARD_ERRORS = 2  # a smaller improvement over the mean is not clear


def judge_columns(problem: Problem) -> tuple[ColumnReports, int]:
    """A report for each column, and the number of nodes used; empty if no cell could be hidden."""
    if not problem.n_missing:
        return ColumnReports(), 0
    part = _part(problem)
    tuning = resolve(part, Settings()).tuning
    reports = ColumnReports() if tuning is None else tuning.columns
    return ColumnReports(replace(one, verdict=verdict(one)) for one in reports), len(part.values)


def verdict(report: ColumnReport) -> str:
    """The verdict of a report, qualified if the improvement over the mean is not significant."""
    doubtful = MIN_R2 < report.r2 <= N_STANDARD_ERRORS * report.standard_error
    return f"not clearly better than the mean; if so, {report.verdict}" if doubtful else report.verdict


def _part(problem: Problem) -> Problem:
    """The problem, or a part of it around nodes of high degree."""
    n_nodes, n_channels = problem.values.shape
    most = max(MAX_CELLS // max(n_channels, 1), 100)
    if n_nodes <= most:
        return problem
    nodes = _surroundings(problem.graph, most)
    values, mask = np.ascontiguousarray(problem.values[nodes]), np.ascontiguousarray(known_mask(problem)[nodes])
    matrix: Any = problem.graph.matrix()[nodes][:, nodes]
    directed = problem.graph.directed
    graph = prepare_graph(matrix.T if directed else matrix, len(nodes), directed=directed)
    return replace(problem, values=values, mask=mask, graph=graph, channels=survey(values, mask))


def _surroundings(graph: Graph, most: int) -> Array:
    """The nodes nearest to the node of the highest degree, then to the next in an unvisited component."""
    from scipy.sparse.csgraph import breadth_first_order

    matrix, seen, count = graph.matrix(), np.zeros(graph.n_nodes, dtype=np.bool_), 0
    for start in np.argsort(-graph.degree, kind="stable"):
        if not seen[start]:
            found = breadth_first_order(matrix, int(start), directed=False, return_predecessors=False)[: most - count]
            seen[found], count = True, count + len(found)
        if count >= most:
            break
    return np.flatnonzero(seen)
