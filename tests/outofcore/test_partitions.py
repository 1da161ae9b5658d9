"""Graphs divided into partitions: the numbers of a graph in one piece, whatever the number of partitions."""

from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import pcfi
from pcfi import scale
from pcfi._kernels import reference
from pcfi.outofcore import plan
from pcfi.outofcore.feature_stores import open_features
from pcfi.outofcore.partitioned import checkpoints, layout, part_tasks, solver
from pcfi.settings import Settings
from random_problems import random_edges

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")]

PAPER = {"alpha": 0.8, "beta": 0.1, "objective": "representation"}
SMALL_GROUPS = 128  # rows, so that small graphs have several partitions


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    monkeypatch.setattr(layout, "GROUP_ROWS", SMALL_GROUPS)


def chain_graph(n_nodes: int) -> np.ndarray:
    """A ring with long tails, whose nodes are numbered at random: tails cross partitions many times."""
    rng = np.random.default_rng(5)
    ring = n_nodes // 3
    nodes = np.arange(n_nodes)
    ends = np.where(nodes < ring, (nodes + 1) % ring, np.where(nodes % 20 == 0, nodes % ring, nodes - 1))
    return rng.permutation(n_nodes)[np.stack([nodes, ends])]


def components(n_nodes: int) -> np.ndarray:
    """Many components of different sizes, and isolated nodes."""
    rng = np.random.default_rng(6)
    first = rng.integers(0, n_nodes, size=n_nodes)
    return np.stack([first, np.minimum(first + rng.integers(1, 3, size=n_nodes), first // 40 * 40 + 30)])


def problem(name: str, dtype=np.float32):
    """Features and edges (with weights), by the name of a case."""
    rng = np.random.default_rng(3)
    n_nodes, n_channels = 1100, 18
    edges, weights = {
        "random": lambda: (random_edges(rng, "random", n_nodes, 4), None),
        "weighted": lambda: (random_edges(rng, "random", n_nodes, 4), True),
        "tails": lambda: (chain_graph(n_nodes), None),
        "components": lambda: (components(n_nodes), None),
    }[name]()
    values = rng.normal(size=(n_nodes, n_channels)).astype(dtype)
    values[rng.random(values.shape) < 0.8] = np.nan
    values[rng.random(n_nodes) < 0.7] = np.nan  # whole rows: leaves of trees can only be eliminated if nothing is known
    return values, edges, None if weights is None else rng.random(edges.shape[1]) + 0.1


@pytest.fixture
def files(tmp_path):
    def write(name: str, dtype=np.float32, **options):
        values, edges, weights = problem(name, dtype)
        np.save(tmp_path / "x.npy", values)
        scale.build_graph(edges, tmp_path / "g", n_nodes=len(values), weight=weights, overwrite=True, **options)
        return partial(scale.impute, tmp_path / "x.npy", tmp_path / "g", overwrite=True)

    return write


CASES = {
    "random": {},
    "weighted": {},
    "tails": {"alpha": 0.9},
    "components": {"unreachable": "zero"},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_partitions_give_the_numbers_of_a_graph_in_one_piece(files, tmp_path, name, dtype):
    impute = files(name, dtype)
    settings = PAPER | CASES[name]
    whole = impute(tmp_path / "whole.npy", hops=tmp_path / "h1.npy", partitions=1, **settings)
    parts = impute(tmp_path / "parts.npy", hops=tmp_path / "h5.npy", partitions=5, **settings)
    expected = whole.open()
    # the same iterations, so that only sums are rounded differently: far closer than the solver's rtol of 1e-4
    limit = (1e-6 if dtype is np.float32 else 1e-14) * np.ptp(expected)
    np.testing.assert_allclose(parts.open(), expected, rtol=0, atol=limit)
    np.testing.assert_array_equal(parts.open("hops"), whole.open("hops"))
    assert (parts.steps, parts.status) == (whole.steps, whole.status)
    assert parts.steps > 4
    fewer = impute(tmp_path / "fewer.npy", partitions=2, **settings)
    np.testing.assert_array_equal(fewer.open(), parts.open())


@pytest.mark.parametrize(
    ("directed", "settings"),
    [
        (False, PAPER | {"solver": pcfi.FixedSteps(7)}),
        (True, PAPER | {"solver": pcfi.FixedSteps(12)}),
        (False, {"method": "fp", "alpha": 0.5, "beta": 0}),
        (False, {"method": "fp", "alpha": 0.5, "beta": 0, "solver": pcfi.FixedSteps(20), "self_loops": False}),
    ],
)
def test_fixed_steps_directed_graphs_and_feature_propagation_are_the_same_in_partitions(
    files, tmp_path, directed, settings
):
    impute = files("weighted", directed=directed)
    expected = impute(tmp_path / "whole.npy", partitions=1, **settings).open()
    found = [impute(tmp_path / f"{count}.npy", partitions=count, **settings).open() for count in (3, 6)]
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-6 * np.ptp(expected))
    np.testing.assert_array_equal(*found)


def test_values_and_intervals_are_the_same_in_partitions(files, tmp_path):
    impute = files("random")
    whole = impute(tmp_path / "whole.npy", intervals=tmp_path / "i1.parquet", partitions=1)
    parts = impute(tmp_path / "parts.npy", intervals=tmp_path / "i4.parquet", partitions=4)
    spread = np.ptp(whole.open())
    np.testing.assert_allclose(parts.open(), whole.open(), rtol=0, atol=1e-6 * spread)
    expected, found = (pq.read_table(tmp_path / f"i{k}.parquet").to_pandas().to_numpy() for k in (1, 4))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * spread)
    assert parts.columns == whole.columns


@pytest.mark.parametrize("steps_to_take", [pcfi.UntilSettled(rtol=1e-9), pcfi.FixedSteps(25)])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_run_that_is_stopped_goes_on_from_its_checkpoint(files, tmp_path, monkeypatch, steps_to_take, damaged):
    impute = partial(files("random", np.float64), **PAPER | {"solver": steps_to_take})
    expected = impute(tmp_path / "whole.npy", partitions=3).open()
    save, load, steps = checkpoints.save, checkpoints.progress_of, []

    def stopped(run, parts, panels, progress, blocks):
        slot = save(run, parts, panels, progress, blocks)
        if progress.steps == 20:
            raise KeyboardInterrupt
        return slot

    def noted(*arguments):
        progress = load(*arguments)
        steps.append(progress.steps)
        return progress

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            impute(tmp_path / "y.npy", partitions=3)
    work = tmp_path / "y.npy.work"
    if damaged:
        with (work / "checkpoint-1-1.raw").open("r+b") as file:
            file.write(b"damaged")
    monkeypatch.setattr(checkpoints, "progress_of", noted)
    again = impute(tmp_path / "y.npy", partitions=3)
    assert steps == ([] if damaged else [20])
    np.testing.assert_array_equal(again.open(), expected)
    assert not work.exists()


@pytest.mark.parametrize("stage", ["first_hops", "collect_hops", "close_panels", "collect_panels", "spread_part"])
def test_a_run_that_is_stopped_in_any_stage_goes_on_to_the_same_bits(files, tmp_path, monkeypatch, stage):
    impute = partial(files("random"), partitions=3, alpha=0.8, beta=0.1)
    expected = impute(tmp_path / "whole.npy", intervals=tmp_path / "i0.parquet").open()
    function, calls = getattr(part_tasks, stage), []

    def stopped(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return function(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(part_tasks, stage, stopped)
        with pytest.raises(KeyboardInterrupt):
            impute(tmp_path / "y.npy", intervals=tmp_path / "i1.parquet")
    again = impute(tmp_path / "y.npy", intervals=tmp_path / "i1.parquet")
    np.testing.assert_array_equal(again.open(), expected)
    before, after = (pq.read_table(tmp_path / f"i{k}.parquet") for k in (0, 1))
    assert after.equals(before)


def test_leaves_are_eliminated_across_partitions(files, tmp_path, monkeypatch):
    seen = []
    restore = solver.BatchSolver._restore

    def noted(self, blocks):
        seen.extend(self._n_rounds)
        return restore(self, blocks)

    monkeypatch.setattr(solver.BatchSolver, "_restore", noted)
    files("tails")(tmp_path / "y.npy", partitions=4, **PAPER)
    assert max(seen) >= 3


def test_few_sources_of_many_channels_agree_within_the_tolerance_of_the_solver(tmp_path):
    # in one piece they go through an influence matrix, in partitions through blocks of channels
    values = np.full((600, 40), np.nan)
    values[[3, 77, 500]] = np.random.default_rng(0).normal(size=(3, 40))
    np.save(tmp_path / "x.npy", values)
    ring = np.stack([np.arange(600), (np.arange(600) + 1) % 600])
    scale.build_graph(
        np.concatenate([ring, random_edges(np.random.default_rng(1), "random", 600, 3)], 1), tmp_path / "g"
    )
    impute = partial(scale.impute, tmp_path / "x.npy", tmp_path / "g", **PAPER | {"solver": pcfi.UntilSettled(1e-9)})
    expected = impute(tmp_path / "whole.npy", partitions=1).open()
    found = impute(tmp_path / "parts.npy", partitions=3).open()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.ptp(expected))


def test_the_blocks_of_a_batch_do_not_change_each_other(files, tmp_path, monkeypatch):
    from pcfi.outofcore.partitioned.backend import PartitionedBackend

    impute = partial(files("tails"), **PAPER)
    together = impute(tmp_path / "together.npy", partitions=3).open()
    monkeypatch.setattr(PartitionedBackend, "_panels_at_a_time", lambda _: 1)
    np.testing.assert_array_equal(impute(tmp_path / "one.npy", partitions=3).open(), together)


def test_what_cannot_be_divided_is_refused(files, tmp_path):
    impute = files("random", directed=True)
    with pytest.raises(pcfi.ParameterError, match=r"directed graphs.*FixedSteps.*partitions=1"):
        impute(tmp_path / "y.npy", partitions=2, **PAPER)
    values = np.full((1000, 2), np.nan, dtype=np.float32)
    values[:2] = [[1, 2], [3, 5]]
    np.save(tmp_path / "deep.npy", values)
    scale.build_graph(np.stack([np.arange(999), np.arange(1, 1000)]), tmp_path / "path")
    with pytest.raises(pcfi.ParameterError, match=r"more than 253 hops.*partitions=1"):
        scale.impute(tmp_path / "deep.npy", tmp_path / "path", tmp_path / "z.npy", partitions=2, **PAPER)
    for wrong in (0, -3, 2.5, "many", True, None):
        with pytest.raises(pcfi.ParameterError, match="partitions"):
            impute(tmp_path / "y.npy", partitions=wrong, **PAPER)


class Workers:
    """A client of a cluster, as far as planning asks it."""

    def __init__(self, count: int, limit: int) -> None:
        self._facts = {f"tcp://{k}": {"nthreads": 2, "memory_limit": limit} for k in range(count)}

    def scheduler_info(self, **_):
        return {"workers": self._facts}


def test_a_graph_is_divided_if_a_worker_cannot_hold_it(files, tmp_path):
    files("random")
    store, graph = open_features(tmp_path / "x.npy", "features"), scale.open_graph(tmp_path / "g")
    settings = Settings(alpha=0.5, beta=0.1, objective="representation")
    count = partial(plan.partition_count, store, graph, settings)
    assert count(None, Workers(3, 4 * 10**9)) == 1
    assert count(plan.WORKER_BYTES, Workers(3, 4 * 10**9)) == 6
    assert count(plan.WORKER_BYTES, None) == 1


def test_workers_that_are_too_few_are_told_so_before_any_work(files, tmp_path):
    impute = files("random")
    with pytest.raises(pcfi.TooLargeError, match="1,100 nodes need about"):
        impute(tmp_path / "y.npy", partitions=2, memory="1MB", **PAPER)
    assert not (tmp_path / "y.npy.work").exists()


@pytest.mark.parametrize("name", ["random", "components", "tails"])
def test_a_breadth_first_order_is_that_of_the_reference(name):
    _, edges, _ = problem(name)
    graph = pcfi.prepare_graph(edges, 1100)
    order = layout.breadth_first_order(graph)
    np.testing.assert_array_equal(order, reference.breadth_first_order(graph.matrix().toarray()))


def test_a_grid_that_is_numbered_at_random_is_put_in_order(tmp_path):
    side, rng = 40, np.random.default_rng(0)
    line = sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(side, side))
    grid = sparse.kronsum(line, line).tocoo()
    numbers = rng.permutation(side * side)
    scale.build_graph(numbers[np.stack([grid.row, grid.col])], tmp_path / "g")
    np.save(tmp_path / "x.npy", np.where(rng.random((side * side, 1)) < 0.5, 1.0, np.nan))
    seen = []
    order = layout.order_nodes

    def noted(run, index):
        seen.append(order(run, index)["crossing"])
        return order(run, index)

    from pcfi.outofcore import runners

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(runners.TASKS, "order", noted)
        scale.impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy", partitions=4, **PAPER)
    assert seen[0]["breadth-first"] < seen[0]["as numbered"] / 1.5


def test_parts_are_removed_when_they_are_put_together(files, tmp_path, monkeypatch):
    impute, left = files("random"), []
    collect = part_tasks.collect_panels

    def counted(where, panels, index):
        left.append(len(list((tmp_path / "y.npy.work").glob("part-*hops*"))))
        return collect(where, panels, index)

    monkeypatch.setattr(part_tasks, "collect_panels", counted)
    impute(tmp_path / "y.npy", partitions=2, **PAPER)
    assert left
    assert set(left) == {0}
