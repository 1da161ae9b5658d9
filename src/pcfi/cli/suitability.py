"""Whether the graph and the other columns say anything about each column, before a table is filled, for `pcfi info`.

Known cells are hidden in the way cells are missing, and estimated. Of a large table a part is taken: nodes around some
node, so that most of them keep their neighbours.
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

MAX_CELLS = 2_000_000  # of the part: some seconds
N_STANDARD_ERRORS = 2  # that an advantage over the mean must have to be clear


def judge_columns(problem: Problem) -> tuple[ColumnReports, int]:
    """A report of each column, and the number of nodes that it is made from; nothing if nothing could be hidden."""
    if not problem.n_missing:
        return ColumnReports(), 0
    part = _part(problem)
    tuning = resolve(part, Settings()).tuning
    reports = ColumnReports() if tuning is None else tuning.columns
    return ColumnReports(replace(one, verdict=verdict(one)) for one in reports), len(part.values)


def verdict(report: ColumnReport) -> str:
    """The verdict of a report; doubtful if its advantage over the mean is within the error of the comparison."""
    doubtful = MIN_R2 < report.r2 <= N_STANDARD_ERRORS * report.standard_error
    return f"not clearly better than the mean; if so, {report.verdict}" if doubtful else report.verdict


def _part(problem: Problem) -> Problem:
    """The problem, or the part of it around some node of high degree."""
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
