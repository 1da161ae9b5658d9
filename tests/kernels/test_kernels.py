"""Kernels against their reference implementations, on random graphs."""

import mmap
import os
import threading

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcfi._kernels import reference
from pcfi._kernels.blocks import aligned_block, lane_count
from pcfi._kernels.channel_stats import ChannelStats, add_channel_stats, copy_known
from pcfi._kernels.csr_graph import CsrGraph, LargeCsrGraph, known_neighbour_mean, make_csr_graph, neighbour_sum
from pcfi._kernels.error_fields import add_outgoing_sums, add_step_weights, take_chebyshev_step
from pcfi._kernels.hop_relaxation import mark_sources, read_hops, relax
from pcfi._kernels.hop_search import Sources, search
from pcfi._kernels.leaf_elimination import eliminate_leaves, restore_leaves
from pcfi._kernels.neighbor_mean import neighbour_means
from pcfi._kernels.neighbor_spread import add_neighbour_terms
from pcfi._kernels.sweeps import order_by_hops
from pcfi._kernels.thread_team import ThreadTeam
from pcfi._kernels.threads import run_tasks, thread_count
from pcfi._kernels.vectors import absolute, count_nan, load, maximum, splat, store, where_not_nan, where_positive
from pcfi.inputs.graphs import prepare_graph
from pcfi.inputs.problem import read_problem
from pcfi.stages.hops import UNREACHABLE, count_hops
from random_problems import RandomProblem, problems, random_problem

NO_MASK = np.empty((0, 1), dtype=bool)


def reference_hops(problem: RandomProblem) -> np.ndarray:
    columns = [reference.hops(problem.flow, problem.known[:, d]) for d in range(problem.known.shape[1])]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vector_operations_are_those_of_numpy(dtype):
    @numba.njit
    def compute(a, b, out):
        for i in range(len(a)):
            x = load(a, i)
            y = load(b, i)
            store(out, 5 * i, x + y * splat(a, 2.0))
            store(out, 5 * i + 1, (x - y) / y)
            store(out, 5 * i + 2, maximum(x, y))
            store(out, 5 * i + 3, absolute(x))
            store(out, 5 * i + 4, where_positive(x, y, x))

    rng = np.random.default_rng(0)
    a, b = aligned_block(3, dtype), aligned_block(3, dtype)
    a[:], b[:] = rng.normal(size=a.shape), rng.normal(size=b.shape)
    out = aligned_block(15, dtype)
    compute(a, b, out)
    expected = np.stack([a + b * 2, (a - b) / b, np.maximum(a, b), np.abs(a), np.where(a > 0, b, a)], axis=1)
    np.testing.assert_allclose(out.reshape(3, 5, -1), expected, rtol=1e-6)


def test_the_maximum_of_vectors_is_nan_if_any_is():
    @numba.njit
    def compute(a, out):
        store(out, 0, maximum(load(a, 0), load(a, 1)))
        store(out, 1, maximum(load(a, 1), load(a, 0)))

    a, out = aligned_block(2, np.float64), aligned_block(2, np.float64)
    a[0], a[1] = 1.0, np.nan
    compute(a, out)
    assert np.isnan(out).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_lanes_are_counted_and_replaced(dtype):
    @numba.njit
    def compute(a, b, out):
        store(out, 0, where_not_nan(load(a, 0), load(a, 0), load(b, 0)))
        return count_nan(load(a, 0))

    a, b, out = (aligned_block(1, dtype) for _ in range(3))
    a[0], b[0] = 1.0, 5.0
    a[0, [1, 4]], a[0, 2] = np.nan, np.inf
    assert compute(a, b, out) == 2
    np.testing.assert_array_equal(out, np.where(np.isnan(a), b, a))


def test_block_rows_lie_on_cache_lines():
    for dtype in (np.float32, np.float64):
        block = aligned_block(7, dtype)
        assert block.ctypes.data % 64 == 0
        assert block.shape == (7, lane_count(dtype))
        assert block.strides[0] == 64


@numba.njit
def all_neighbour_sums(graph, block, out):
    for node in range(len(block)):
        store(out, node, neighbour_sum(graph, block, node))


@given(problems())
def test_neighbour_sum_is_a_product_with_the_flow(problem):
    graph = prepare_graph(problem.graph, len(problem.features), directed=problem.directed)
    block = aligned_block(graph.n_nodes, np.float64)
    block[:] = np.random.default_rng(0).normal(size=block.shape)
    out = aligned_block(graph.n_nodes, np.float64)
    for kind in (CsrGraph, LargeCsrGraph):
        out[:] = np.nan
        all_neighbour_sums(kind(graph.indptr, graph.indices, graph.weights_as(np.float64)), block, out)
        np.testing.assert_allclose(out, problem.flow @ block, rtol=1e-12, atol=1e-12)


@numba.njit
def all_neighbour_means(graph, block, out):
    for node in range(len(block)):
        store(out, node, known_neighbour_mean(graph, block, node))


@given(problems())
def test_the_mean_over_neighbours_ignores_those_without_a_value(problem):
    graph = prepare_graph(problem.graph, len(problem.features), directed=problem.directed)
    rng = np.random.default_rng(0)
    block, out = aligned_block(graph.n_nodes, np.float64), aligned_block(graph.n_nodes, np.float64)
    block[:] = np.where(rng.random(block.shape) < 0.5, rng.normal(size=block.shape), np.nan)
    known = ~np.isnan(block)
    with np.errstate(invalid="ignore"):
        expected = problem.flow @ np.nan_to_num(block) / (problem.flow @ known.astype(float))
    for kind in (CsrGraph, LargeCsrGraph):
        all_neighbour_means(kind(graph.indptr, graph.indices, graph.weights_as(np.float64)), block, out)
        np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_neighbours", range(14))
@pytest.mark.parametrize("weighted", [False, True])
def test_every_neighbour_is_added_once_whatever_their_number(n_neighbours, weighted):
    """Four running sums and a rest: an edge could be left out or counted twice at the seam."""
    block, out = (aligned_block(n_neighbours + 1, np.float32) for _ in range(2))
    block[:], out[:] = 2.0 ** np.arange(n_neighbours + 1)[:, None], np.nan
    indptr = np.zeros(n_neighbours + 2, np.int64)
    indptr[1:] = n_neighbours
    weights = np.full(n_neighbours, 3.0, np.float32) if weighted else np.empty(0, np.float32)
    all_neighbour_sums(CsrGraph(indptr, np.arange(1, n_neighbours + 1, dtype=np.int32), weights), block, out)
    assert (out[0] == (2.0 ** (n_neighbours + 1) - 2) * (3 if weighted else 1)).all()
    assert (out[1:] == 0).all()


def test_a_large_block_is_mapped_so_that_its_memory_is_given_back():
    block = aligned_block(1 << 17, np.float32)
    assert block.ctypes.data % 64 == 0
    base = block
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def test_kernels_prefetch_when_blocks_do_not_fit_into_the_cache():
    small, large = (np.zeros(n + 1, np.int64) for n in (1000, 100_000))
    nothing = np.empty(0, np.int32), np.empty(0)
    assert type(make_csr_graph(small, *nothing)) is CsrGraph
    assert type(make_csr_graph(large, *nothing)) is LargeCsrGraph


@given(problems(), st.integers(1, 5), st.integers(1, 7))
def test_threads_of_a_team_get_all_rows_and_about_equal_edges(problem, group_size, size):
    indptr = prepare_graph(problem.graph, len(problem.features), directed=problem.directed).indptr
    rows = np.flatnonzero(~problem.known[:, 0]).astype(np.int32)
    shared = np.zeros(1, np.int64)
    team = [ThreadTeam(rank, size, shared, shared, shared) for rank in range(size)]
    parts = [member.share(indptr, rows, group_size) for member in team]
    groups = -(-len(rows) // group_size)
    assert [0, *(last for _, last in parts)] == [*(first for first, _ in parts), groups]
    cost = (np.diff(indptr) + 4)[rows]
    fair = (cost.sum() + np.diff(indptr)[problem.known[:, 0]].sum()) / size
    rows[:8], rows[-8:] = rows[:8][::-1].copy(), rows[-8:][::-1].copy()  # another order within windows
    shuffled = [member.share(indptr, rows, group_size) for member in team]
    assert [0, *(last for _, last in shuffled)] == [*(first for first, _ in shuffled), groups]
    for first, last in parts:
        assert cost[first * group_size : last * group_size].sum() <= fair + cost.max(initial=0) * group_size


@given(problems())
def test_channel_stats_count_range_and_sum_the_known_cells(problem):
    for values, mask in ((problem.masked, NO_MASK), (problem.features, problem.known)):
        n_channels = values.shape[1]
        count, total = np.zeros(n_channels, dtype=np.int64), np.zeros(n_channels)
        low, high = np.full(n_channels, np.inf, values.dtype), np.full(n_channels, -np.inf, values.dtype)
        keys = np.zeros(n_channels, dtype=np.uint64)
        for start in range(0, n_channels, 3):
            add_channel_stats(
                values, mask, start, min(start + 3, n_channels), ChannelStats(count, low, high, total, keys)
            )
        expected = reference.channel_stats(problem.features, problem.known)
        for ours, slow in zip((count, low, high, total), expected, strict=True):
            np.testing.assert_allclose(ours, slow, rtol=1e-12, atol=1e-12)
        same_key = keys[:, None] == keys[None]
        same_set = (problem.known[:, :, None] == problem.known[:, None, :]).all(axis=0)
        np.testing.assert_array_equal(same_key, same_set)


@given(problems(max_channels=150))
def test_hops_are_those_of_a_search_from_each_channel(problem):
    hops = count_hops(read_problem(problem.masked, problem.graph, directed=problem.directed))
    expected = reference_hops(problem)
    expected[expected == reference.UNREACHED] = UNREACHABLE
    np.testing.assert_array_equal(hops.expand(), expected)
    assert hops.unreachable_cells() == (expected == UNREACHABLE).sum()


@pytest.mark.parametrize("length", [254, 255, 256, 300, 70_000])
def test_hops_of_a_path_fit_whatever_its_length(length):
    path = np.stack([np.arange(length - 1), np.arange(1, length)])
    features = np.full((length, 2), np.nan)
    features[0] = 1.0
    features[-1, 1] = 1.0
    hops = count_hops(read_problem(features, path)).expand()
    steps = np.arange(length)
    np.testing.assert_array_equal(hops[:, 0], steps)
    np.testing.assert_array_equal(hops[:, 1], np.minimum(steps, steps[::-1]))


@given(problems(max_channels=150), st.booleans())
def test_relaxation_and_search_give_the_same_hops(problem, with_mask):
    graph = prepare_graph(problem.graph, len(problem.features), directed=problem.directed)
    channels = np.random.default_rng(0).permutation(problem.features.shape[1])
    values, mask = (problem.features, problem.known) if with_mask else (problem.masked, NO_MASK)
    sources = Sources(values, mask, channels)
    stop = np.zeros(1, np.uint8)
    shape = (len(values), len(channels))
    relaxed, searched = (np.empty(shape, np.uint8) for _ in range(2))
    counts = np.zeros((2, len(channels)), np.int64)
    for first in range(0, len(channels), 64):
        block = aligned_block(len(values), np.uint8)
        mark_sources(sources, first, block)
        assert relax(graph.indptr, graph.indices, block, stop)
        deepest = read_hops(block, first, relaxed, counts[0])
        assert deepest == search(*graph.outgoing, sources, first, searched, stop, counts[1])
    np.testing.assert_array_equal(relaxed, searched)
    np.testing.assert_array_equal(*counts)
    np.testing.assert_array_equal(relaxed == 0, problem.known[:, channels])


def test_sources_of_channels_in_any_order_are_marked():
    # broke once: channels whose last and first differ as if they were consecutive were read as if they were
    values = np.where(np.arange(4) < 2, 1.0, np.nan)[None, :]
    block = aligned_block(1, np.uint8)
    mark_sources(Sources(values, NO_MASK, np.array([0, 2, 1, 3])), 0, block)
    np.testing.assert_array_equal(block[0, :4] == 0, [True, False, True, False])


def test_relaxation_reports_hops_that_do_not_fit():
    values = np.where(np.arange(300) == 0, 1.0, np.nan)[:, None]
    sources = Sources(values, NO_MASK, np.zeros(1, np.int64))
    block, stop = aligned_block(300, np.uint8), np.zeros(1, np.uint8)
    forwards = prepare_graph(np.stack([np.arange(299), np.arange(1, 300)]))
    mark_sources(sources, 0, block)
    assert relax(forwards.indptr, forwards.indices, block, stop)
    n_unreached = np.zeros(1, np.int64)
    assert read_hops(block, 0, np.empty((300, 1), np.uint8), n_unreached) == -1
    assert n_unreached[0] == 0  # the search that follows counts them
    order = np.r_[0, np.arange(299, 0, -1)]
    backwards = prepare_graph(np.stack([order[:-1], order[1:]]))
    mark_sources(sources, 0, block)
    assert not relax(backwards.indptr, backwards.indices, block, stop)


def test_search_reports_hops_that_do_not_fit():
    path = prepare_graph(np.stack([np.arange(299), np.arange(1, 300)]))
    values = np.where(np.arange(300) == 0, 1.0, np.nan)[:, None]
    sources = Sources(values, NO_MASK, np.zeros(1, np.int64))
    stop, unreached = np.zeros(1, np.uint8), np.zeros(1, np.int64)
    assert search(*path.outgoing, sources, 0, np.empty((300, 1), np.uint8), stop, unreached) == -1
    assert search(*path.outgoing, sources, 0, np.empty((300, 1), np.uint16), stop, unreached) == 299


@given(problems())
def test_terms_of_neighbours_equal_the_reference(problem):
    graph = prepare_graph(problem.graph, len(problem.features), directed=problem.directed)
    rng = np.random.default_rng(0)
    values = rng.normal(size=problem.features.shape)
    usual_spread, slopes = rng.random(values.shape[1]) + 0.1, rng.normal(size=(2, values.shape[1]))
    csr_graph = CsrGraph(graph.indptr, graph.indices, graph.weights_as(np.float64))
    known, out, first = np.where(problem.known, values, np.nan), np.zeros(values.shape), len(values) // 3
    add_neighbour_terms(csr_graph, known, 0, usual_spread, slopes, out[:first])
    add_neighbour_terms(csr_graph, known, first, usual_spread, slopes, out[first:])
    expected = reference.neighbour_terms(problem.flow, values, problem.known, usual_spread, slopes)
    assert np.allclose(out, expected, rtol=1e-10, atol=1e-10)


@given(problems())
def test_neighbour_means_average_the_known_neighbours(problem):
    graph = prepare_graph(problem.graph, len(problem.features), directed=problem.directed)
    csr_graph = CsrGraph(graph.indptr, graph.indices, graph.weights_as(np.float64))
    expected = reference.neighbour_means(problem.flow, problem.features, problem.known)
    for values, mask in ((problem.masked, NO_MASK), (problem.features, problem.known)):
        out = problem.masked.copy()
        neighbour_means(csr_graph, values, mask, 0, len(out), out)
        np.testing.assert_allclose(out, expected, rtol=1e-6)


@given(problems())
def test_copying_known_cells_fills_the_rest(problem):
    fill = np.arange(problem.features.shape[1]).astype(problem.features.dtype)
    for values, mask in ((problem.masked, NO_MASK), (problem.features, problem.known)):
        out = np.empty_like(values)
        copy_known(values, mask, fill, 0, len(out), out)
        np.testing.assert_array_equal(out, np.where(problem.known, problem.features, fill))


@given(st.integers(0, 2**32 - 1))
def test_nodes_are_ordered_by_hops_and_only_free_ones(seed):
    hops = np.random.default_rng(seed).integers(0, 8, size=30).astype(np.uint8)
    free = np.flatnonzero((hops > 0) & (hops <= 5))
    np.testing.assert_array_equal(order_by_hops(hops, 5), free[np.argsort(hops[free], kind="stable")])


def test_random_problems_cover_what_they_claim():
    rng = np.random.default_rng(0)
    structural = random_problem(rng, kind="structural").known
    uniform = random_problem(rng, kind="uniform").known
    assert (structural == structural[:, :1]).all()
    assert not (uniform == uniform[:, :1]).all()


@given(st.integers(0, 2**32 - 1), st.integers(2, 40))
def test_leaf_elimination_leaves_the_nodes_between_sources(seed, n_nodes):
    rng = np.random.default_rng(seed)
    tree = np.array([[rng.integers(node), node] for node in range(1, n_nodes)]).T
    graph = prepare_graph(tree, n_nodes)
    csr_graph = CsrGraph(graph.indptr, graph.indices, graph.weights_as(np.float64))
    block, scales, free = (aligned_block(n_nodes, np.float64) for _ in range(3))
    free[:] = 1
    sources = rng.choice(n_nodes, size=2, replace=False)
    free[sources, rng.integers(8)] = 0  # known in one lane is enough to stay
    leaves, parents = np.empty((2, n_nodes), dtype=np.int32)
    scales[:], block[:] = 1, 0
    rows = np.arange(n_nodes, dtype=np.int32)
    remaining = np.empty(n_nodes, dtype=np.int32)
    count = eliminate_leaves(csr_graph, free, 8, remaining, leaves, parents, rows, scales)
    between = nodes_between(tree, n_nodes, *sources)
    assert set(leaves[:count].tolist()) == set(range(n_nodes)) - between
    block[list(between)] = rng.normal(size=(len(between), 1))
    assert rows[: n_nodes - count].tolist() == sorted(between)
    assert (scales[leaves[:count]] == 0).all()
    restore_leaves(leaves[:count], parents[:count], block, scales)
    for leaf, parent in zip(leaves[:count], parents[:count], strict=True):
        assert (block[leaf] == block[parent]).all()
    assert (scales == 1).all()


def nodes_between(tree, n_nodes, first, last):
    """The nodes on the way from one node of a tree to another."""
    parent = {int(child): int(up) for up, child in tree.T}

    def path_up(node):
        way = [int(node)]
        while way[-1] in parent:
            way.append(parent[way[-1]])
        return way

    one, other = path_up(first), path_up(last)
    fork = next(node for node in one if node in other)
    return set(one[: one.index(fork) + 1]) | set(other[: other.index(fork) + 1])


def test_threads_are_kept_for_each_calling_thread():
    def used(_):
        return threading.get_ident()

    first, second = ({*run_tasks([used] * 8)} for _ in range(2))
    assert len(first | second) <= thread_count()
    elsewhere: list[set[int]] = []
    caller = threading.Thread(target=lambda: elsewhere.append({*run_tasks([used] * 8)}))
    caller.start()
    caller.join()
    assert not elsewhere[0] & (first | second)


def test_threads_work_after_a_task_that_failed():
    def fail(_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_tasks([fail, lambda _: 1])
    assert run_tasks([lambda _: 1, lambda _: 2]) == [1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_gets_its_own_threads():
    assert run_tasks([lambda _: 1] * 4) == [1] * 4
    child = os.fork()
    if child == 0:
        os._exit(0 if run_tasks([lambda _: 1] * 4) == [1] * 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@given(problems(max_nodes=20))
def test_the_passes_of_error_fields_are_those_of_the_reference(problem):
    graph = prepare_graph(problem.graph, len(problem.features), directed=problem.directed)
    n_nodes, flow, dtype = graph.n_nodes, graph.matrix().toarray(), np.float64
    csr = make_csr_graph(graph.indptr, graph.indices, graph.weights_as(dtype))
    hops = count_hops(read_problem(problem.masked, graph, None))
    codes, reachable = hops.codes[:, 0], hops.is_reachable(hops.codes[:, 0])
    weights = np.zeros(n_nodes)
    powers = np.empty(0) if problem.directed else 0.5 ** np.array([-1.0, 0.0, 1.0])
    add_step_weights(csr, codes, hops.n_levels, powers, 0, n_nodes, weights)
    levels = np.where(reachable, codes, 0).astype(float)
    wanted = reference.step_weights(flow, levels, reachable, 0.5, directed=problem.directed)
    np.testing.assert_allclose(weights, wanted, rtol=1e-12)

    rng, rows = np.random.default_rng(n_nodes), np.arange(n_nodes, dtype=np.int32)
    current, previous, inverse, total, added = (aligned_block(n_nodes, dtype) for _ in range(5))
    for block in (current, previous, inverse, total):
        block[:] = rng.random(block.shape)
    added[:] = 0
    add_outgoing_sums(csr, rows, current, added)
    np.testing.assert_allclose(added, flow.T @ current, rtol=1e-12, atol=1e-12)
    before = total.copy()
    wanted = reference.chebyshev_step(flow + flow.T, current, previous, inverse, 0.3, 2.0)
    take_chebyshev_step(csr, rows, current, previous, inverse, added, np.array([0.3, 2.0, 0.7]), total)
    np.testing.assert_allclose(previous, wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(total, before + 0.7 * wanted, rtol=1e-9, atol=1e-9)
