"""How much faster are kernels that hold a row of a block in vector registers than the same loops in plain numba?

One block of 16 channels in float32 and one thread. "Plain" loops over the lanes with a small array for the running
sum; "plain, fixed lanes" tells the compiler the number of lanes. On large graphs the vector kernels prefetch the rows
of neighbours; "without prefetch" leaves that out.

`--tiny` checks on a small graph that all candidates agree, and writes nothing.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
from common import answer, interleave, power_law_graph

import pcfi
from pcfi._kernels import (
    blocks,
    conjugate_gradients,
    csr_graph,
    hop_relaxation,
    hop_search,
    initial_guess,
    steps,
    thread_team,
)

LANES = blocks.lane_count(np.float32)
PIECE_ROWS = conjugate_gradients.PIECE_ROWS
ALPHA, SELF_WEIGHT, STEPS, RTOL, MAX_STEPS = 0.5, np.float32(1.0), 50, 1e-4, 1000
GRAPHS = {"Cora-size": (2_485, 5_069), "Photo-size": (7_487, 119_043), "Arxiv-size": (169_343, 1_166_243)}
TINY = (300, 900)
REPEATS = 7

plain = numba.njit(nogil=True, error_model="numpy", fastmath={"contract"})


class System(NamedTuple):
    """One block, ready to be solved: 90 % of the cells missing at random."""

    graph: Any
    rows: np.ndarray
    start: np.ndarray
    guess: np.ndarray
    scales: np.ndarray
    diagonal: np.ndarray
    inverse: np.ndarray


def make_system(n_nodes: int, n_edges: int) -> System:
    rng = np.random.default_rng(0)
    values = np.where(rng.random((n_nodes, LANES)) < 0.1, rng.normal(size=(n_nodes, LANES)), np.nan).astype(np.float32)
    prepared = pcfi.prepare_graph(power_law_graph(n_nodes, n_edges), n_nodes)
    graph = csr_graph.make_csr_graph(prepared.indptr, prepared.indices, prepared.weights_as(np.float32))
    codes, unreached = np.empty((n_nodes, LANES), np.uint8), np.zeros(LANES, np.int64)
    bytes_block = blocks.aligned_block(n_nodes, np.uint8)
    hop_relaxation.mark_sources(hop_search.Sources(values, np.empty((0, 1), bool), np.arange(LANES)), 0, bytes_block)
    hop_relaxation.relax(graph.indptr, graph.indices, bytes_block, np.zeros(1, np.uint8))
    depth = hop_relaxation.read_hops(bytes_block, 0, codes, unreached)
    scale = blocks.CellScale(np.append(ALPHA ** np.arange(depth + 1), 0).astype(np.float32), np.ones(n_nodes, "f4"))
    channels = blocks.BlockChannels(np.arange(LANES), np.arange(LANES), np.zeros(LANES, "f4"), np.ones(LANES, "f4"))
    cells = blocks.BlockCells(*(blocks.aligned_block(n_nodes, np.float32) for _ in range(3)))
    rows = np.empty(n_nodes, np.int32)
    rows = rows[: blocks.gather_block(values, codes, channels, scale, cells, rows, 0, n_nodes)]
    guess, scratch, diagonal, inverse = (blocks.aligned_block(n_nodes, np.float32) for _ in range(4))
    guess[:], diagonal[:] = cells.solution, cells.free
    count = np.zeros((2, 1), np.int64)
    initial_guess.fill_initial_guess(graph, rows.copy(), cells.free, scratch, cells.scales, guess, alone(), count)
    blocks.confidence_diagonal(graph, rows, cells.scales, cells.free, diagonal)
    inverse[:] = diagonal
    steps.invert_diagonal(rows, diagonal, SELF_WEIGHT, inverse)
    return System(graph, rows, cells.solution, guess, cells.scales, diagonal, inverse)


def alone() -> thread_team.ThreadTeam:
    return thread_team.ThreadTeam(0, 1, np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.uint8))


def plain_steps(fixed_lanes: bool) -> Callable[..., None]:
    """`steps.take_steps` in loops over the lanes."""

    @plain
    def step(graph, rows, block, out, inverse, self_weight):
        lanes = LANES if fixed_lanes else block.shape[1]
        total = np.empty(lanes, block.dtype)
        for node in rows:
            for lane in range(lanes):
                total[lane] = self_weight * block[node, lane]
            for edge in range(graph.indptr[node], graph.indptr[node + 1]):
                neighbour = graph.indices[edge]
                for lane in range(lanes):
                    total[lane] += block[neighbour, lane]
            for lane in range(lanes):
                factor = inverse[node, lane]
                out[node, lane] = factor * total[lane] if factor > 0 else block[node, lane]

    @plain
    def take_steps(graph, rows, block, other, inverse, self_weight, steps):
        for _ in range(steps):
            step(graph, rows, block, other, inverse, self_weight)
            block, other = other, block

    return take_steps


def plain_solver(fixed_lanes: bool) -> Callable[..., None]:  # noqa: C901 (one function for each kernel)
    """`conjugate_gradients.solve_steady_state` in loops over the lanes."""

    @plain
    def add_neighbours(graph, block, node, total):
        lanes = LANES if fixed_lanes else block.shape[1]
        total[:] = 0
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            neighbour = graph.indices[edge]
            for lane in range(lanes):
                total[lane] += block[neighbour, lane]

    @plain
    def compute_residual(graph, rows, work, largest):
        lanes = LANES if fixed_lanes else largest.shape[0]
        total = np.empty(lanes, largest.dtype)
        largest[:] = 0
        for node in rows:
            add_neighbours(graph, work.solution, node, total)
            for lane in range(lanes):
                weight, scale = work.diagonal[node, lane], work.scales[node, lane]
                residual = total[lane] / weight - work.solution[node, lane] if weight > 0 else np.float32(0)
                work.residual[node, lane] = residual
                largest[lane] = max(largest[lane], abs(residual) / (scale if weight > 0 else np.float32(1)))

    @plain
    def multiply(graph, rows, work, block, sign, sums):
        """Set `image` to (I + sign P) block at the free cells, and `sums` to its product with `block`."""
        lanes = LANES if fixed_lanes else block.shape[1]
        total, part = np.empty(lanes, block.dtype), np.empty(lanes, block.dtype)
        sums[:] = 0
        for piece in range(0, len(rows), PIECE_ROWS):
            part[:] = 0
            for node in rows[piece : piece + PIECE_ROWS]:
                add_neighbours(graph, block, node, total)
                for lane in range(lanes):
                    weight, value = work.diagonal[node, lane], block[node, lane]
                    image = value + sign * (total[lane] / weight) if weight > 0 else np.float32(0)
                    work.image[node, lane] = image
                    part[lane] += weight * value * image
            for lane in range(lanes):
                sums[lane] += part[lane]

    @plain
    def update_direction(rows, work, ratios):
        lanes = LANES if fixed_lanes else ratios.shape[0]
        for node in rows:
            for lane in range(lanes):
                work.direction[node, lane] = work.image[node, lane] + ratios[lane] * work.direction[node, lane]

    @plain
    def update_solution(rows, work, sizes, largest):
        lanes = LANES if fixed_lanes else sizes.shape[0]
        largest[:] = 0
        for node in rows:
            for lane in range(lanes):
                residual = work.residual[node, lane] - sizes[lane] * work.image[node, lane]
                work.residual[node, lane] = residual
                work.solution[node, lane] += sizes[lane] * work.direction[node, lane]
                scale = work.scales[node, lane]
                largest[lane] = max(largest[lane], abs(residual) / (scale if scale > 0 else np.float32(1)))

    @plain
    def solve(graph, rows, work, rtol, max_steps, steps, largest):
        lanes = len(largest)
        norms, previous, curvature = np.zeros(lanes), np.zeros(lanes), np.zeros(lanes)
        ratios, sizes = np.zeros_like(largest), np.zeros_like(largest)
        compute_residual(graph, rows, work, largest)
        while largest.max() > rtol and steps.max() < max_steps:
            multiply(graph, rows, work, work.residual, np.float32(1), norms)
            for lane in range(lanes):
                ratios[lane] = norms[lane] / previous[lane] if previous[lane] > 0 else 0
                previous[lane] = norms[lane]
            update_direction(rows, work, ratios)
            multiply(graph, rows, work, work.direction, np.float32(-1), curvature)
            for lane in range(lanes):
                active = largest[lane] > rtol and curvature[lane] > 0
                sizes[lane] = norms[lane] / curvature[lane] if active else 0
                steps[lane] += 2 if active else 0
            update_solution(rows, work, sizes, largest)
        compute_residual(graph, rows, work, largest)

    return solve


def step_candidates(system: System, results: dict[str, np.ndarray]) -> dict[str, Callable[[], None]]:
    block, other = system.start.copy(), system.start.copy()

    def timed(name: str, run: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            block[:], other[:] = system.start, system.start
            run()
            results[name] = block.copy()

        return call

    def vector(graph: Any) -> Callable[[], None]:
        return lambda: steps.take_steps(graph, system.rows, block, other, system.inverse, SELF_WEIGHT, STEPS, alone())

    def loops(kernel: Callable[..., None]) -> Callable[[], None]:
        return lambda: kernel(system.graph, system.rows, block, other, system.inverse, SELF_WEIGHT, STEPS)

    return {
        "vector": timed("vector", vector(system.graph)),
        "without prefetch": timed("without prefetch", vector(csr_graph.CsrGraph(*system.graph))),
        "plain": timed("plain", loops(plain_steps(False))),
        "plain, fixed lanes": timed("plain, fixed lanes", loops(plain_steps(True))),
    }


def solve_candidates(system: System, results: dict[str, np.ndarray]) -> dict[str, Callable[[], None]]:
    work = conjugate_gradients.Workspace(
        *(blocks.aligned_block(len(system.guess), np.float32) for _ in range(4)), system.diagonal, system.scales
    )
    reductions = conjugate_gradients.make_partial_reductions(len(system.rows), np.float32)
    rule = conjugate_gradients.make_stopping_rule(RTOL, MAX_STEPS, np.float32)
    pieces = 0, len(reductions.norms)

    def timed(name: str, run: Callable[[np.ndarray, np.ndarray], None]) -> Callable[[], None]:
        def call() -> None:
            work.solution[:], work.residual[:], work.direction[:] = system.guess, 0, 0
            taken, largest = np.zeros(LANES, np.int64), np.zeros((1, LANES), np.float32)
            run(taken, largest)
            assert largest.max() <= 1.1 * RTOL, f"{name}: residual {largest.max()} after {taken.max()} steps"
            results[name] = work.solution / np.where(system.scales > 0, system.scales, 1)

        return call

    def vector(graph: Any) -> Callable[[np.ndarray, np.ndarray], None]:
        def run(taken: np.ndarray, largest: np.ndarray) -> None:
            state = conjugate_gradients.make_lane_state(LANES, np.float32)
            conjugate_gradients.solve_steady_state(graph, system.rows, work, reductions, rule, alone(), pieces, state)
            taken[:], largest[0] = state.steps, state.max_residual

        return run

    def loops(kernel: Callable[..., None]) -> Callable[[np.ndarray, np.ndarray], None]:
        return lambda taken, largest: kernel(system.graph, system.rows, work, RTOL, MAX_STEPS, taken, largest[0])

    return {
        "vector": timed("vector", vector(system.graph)),
        "without prefetch": timed("without prefetch", vector(csr_graph.CsrGraph(*system.graph))),
        "plain": timed("plain", loops(plain_solver(False))),
        "plain, fixed lanes": timed("plain, fixed lanes", loops(plain_solver(True))),
    }


def compare(name: str, n_nodes: int, n_edges: int, repeats: int = REPEATS) -> Iterator[dict[str, Any]]:
    system = make_system(n_nodes, n_edges)
    # the two steady states are each within the tolerance, in units of the known values, of the same exact one
    for task, candidates, tolerance in (
        (f"{STEPS} steps", step_candidates, 1e-5),
        ("steady state", solve_candidates, 100 * RTOL),
    ):
        results: dict[str, np.ndarray] = {}
        seconds = interleave(candidates(system, results), repeats=repeats, seconds=30.0)
        for other in results:
            np.testing.assert_allclose(results[other], results["vector"], atol=tolerance, err_msg=f"{task}, {other}")
        prefetches = isinstance(system.graph, csr_graph.LargeCsrGraph)
        yield {
            "graph": name,
            "task": task,
            "vector, seconds": seconds["vector"],
            "vs plain": seconds["plain"] / seconds["vector"],
            "vs plain, fixed lanes": seconds["plain, fixed lanes"] / seconds["vector"],
            "vs without prefetch": seconds["without prefetch"] / seconds["vector"] if prefetches else "",
        }


if __name__ == "__main__":
    if "--tiny" in sys.argv:
        for row in compare("tiny", *TINY, repeats=2):
            print(row)
    else:
        answer("vector_kernels", (row for name, size in GRAPHS.items() for row in compare(name, *size)))
