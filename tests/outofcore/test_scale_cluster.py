"""A cluster of real processes on loopback: the same result, whoever is killed, and clear errors."""

import os
import signal
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import pcfi
from local_cluster import Cluster
from pcfi import scale
from pcfi.outofcore.cluster import workers_of
from pcfi.outofcore.folder import WorkFolder
from pcfi.outofcore.runners import DaskRunner, add, tree
from random_problems import random_problem

PAPER = {"alpha": 0.5, "beta": 0.1, "objective": "representation"}
impute = partial(scale.impute, **PAPER)

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning"),
    pytest.mark.skipif(os.name == "nt", reason="kills with a signal"),
]


@pytest.fixture
def cluster(tmp_path):
    started = Cluster(tmp_path)
    try:
        for _ in range(2):
            started.add_worker("--no-nanny")
        with distributed.Client(scheduler_file=str(started.file), timeout="60s", set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            yield started, client
    finally:
        started.stop()


@pytest.fixture
def problem(tmp_path):
    made = random_problem(np.random.default_rng(3), n_nodes=9000, n_channels=90, degree=5, rate=0.2)
    np.save(tmp_path / "x.npy", made.masked)
    scale.build_graph(made.edge_index, tmp_path / "g", n_nodes=9000)
    return made


STAGES = ["survey", "hops", "sample", "fit", "split", "diffuse", "spread", "relate", "scale", "field", "write"]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_four_workers_may_lose_one_in_each_stage_of_values_intervals_and_draws(tmp_path, cluster):
    started, client = cluster
    rng = np.random.default_rng(0)
    field = np.sin(np.arange(3000) / 40)[:, None] * rng.normal(size=20) + 0.2 * rng.normal(size=(3000, 20))
    np.save(tmp_path / "x.npy", np.where(rng.random(field.shape) < 0.5, np.nan, field))
    edges = np.stack([np.arange(2999), np.arange(1, 3000)])
    scale.build_graph(np.concatenate([edges, rng.integers(3000, size=(2, 3000))], axis=1), tmp_path / "g", n_nodes=3000)
    files = (tmp_path / "x.npy", tmp_path / "g")
    alone = scale.impute(*files, tmp_path / "alone.npy", intervals=tmp_path / "alone.parquet", draws=2)
    for _ in range(2):
        started.add_worker("--no-nanny")
    client.wait_for_workers(4, timeout=60)
    for stage in STAGES:
        killed = []
        killer = threading.Thread(target=kill_worker_with_task, args=(started, client, stage, killed))
        killer.start()
        outputs = {"intervals": tmp_path / f"{stage}.parquet", "draws": 2}
        shared = scale.impute(*files, tmp_path / f"{stage}.npy", **outputs, client=client, memory="2GB")
        killer.join()
        assert killed, stage
        np.testing.assert_array_equal(shared.open(), alone.open())
        for path, drawn in zip(shared.draws, alone.draws, strict=True):
            np.testing.assert_array_equal(np.load(path), np.load(drawn))
        assert shared.open("intervals").to_table().equals(alone.open("intervals").to_table())
        started.add_worker("--no-nanny")
        client.wait_for_workers(4, timeout=300)
    assert not list(tmp_path.glob("*.work*"))


def kill_worker_with_task(started, client, stage, killed):
    """Kill the worker that has a task of this stage."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not killed:
        workers = client.scheduler_info()["workers"]
        for address, keys in client.processing().items():
            if address in workers and any(str(key).startswith(f"pcfi-{stage}-") for key in keys):
                killed.append(workers[address]["name"])
                started.workers[int(killed[0].removeprefix("worker-"))].send_signal(signal.SIGKILL)
                break


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_gets_the_same_bits_and_may_lose_workers_and_its_scheduler(tmp_path, cluster, problem):
    started, client = cluster
    files, solver = (tmp_path / "x.npy", tmp_path / "g"), pcfi.UntilSettled(rtol=1e-7)
    alone = impute(*files, tmp_path / "alone.npy", solver=solver)
    together = impute(*files, tmp_path / "together.npy", solver=solver, client=client)
    np.testing.assert_array_equal(together.open(), alone.open())
    expected = pcfi.impute(
        problem.masked, problem.edge_index, solver=solver, alpha=0.5, beta=0.1, objective="representation"
    )
    np.testing.assert_allclose(together.open(), expected.values, rtol=1e-6, atol=1e-6)
    assert (together.steps, together.status) == (alone.steps, alone.status)

    journal = tmp_path / "killed.npy.work" / "journal"
    seen = []

    def kill_when_diffusion_has_begun() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not seen:
            if any(journal.glob("diffuse-*")):
                started.workers[0].send_signal(signal.SIGKILL)
                seen.append(len(list(journal.glob("diffuse-*"))))
            time.sleep(0.001)

    killer = threading.Thread(target=kill_when_diffusion_has_begun)
    killer.start()
    killed = impute(*files, tmp_path / "killed.npy", solver=solver, client=client)
    killer.join()
    assert seen[0] < 12  # of 12 panels: it was killed in the middle
    np.testing.assert_array_equal(killed.open(), alone.open())
    assert len(client.scheduler_info()["workers"]) == 1

    journal = tmp_path / "lost.npy.work" / "journal"

    def kill_the_scheduler() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any(journal.glob("split-*")):
            time.sleep(0.001)
        started.scheduler.kill()

    killer = threading.Thread(target=kill_the_scheduler)
    killer.start()
    with pytest.raises(scale.ClusterError, match=r"the connection to the scheduler is lost. Finished tasks are kept"):
        impute(*files, tmp_path / "lost.npy", solver=solver, client=client)
    killer.join()
    again = impute(*files, tmp_path / "lost.npy", solver=solver)
    np.testing.assert_array_equal(again.open(), alone.open())


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_errors_of_tasks_and_workers_without_memory_are_clear_and_finished_tasks_are_kept(tmp_path, problem, request):
    # compiled here and kept on disk: a worker that compiles takes 100 MB more, and its nanny would kill it for that
    impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "compiled.npy")
    started = Cluster(tmp_path)
    request.addfinalizer(started.stop)
    started.add_worker("--memory-limit", "400MB")  # the nanny kills it beyond that
    big = 600_000
    features = np.full((big, 2), np.nan, dtype=np.float32)
    features[::3] = np.random.default_rng(0).normal(size=features[::3].shape)
    np.save(tmp_path / "big.npy", features)
    ring = np.stack([np.arange(big), (np.arange(big) + 1) % big])
    scale.build_graph(ring, tmp_path / "ring")
    wrong = problem.masked.copy()
    wrong[5, 5] = np.inf
    np.save(tmp_path / "wrong.npy", wrong)
    with distributed.Client(scheduler_file=str(started.file), timeout="60s", set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
        with pytest.raises(pcfi.FeatureError, match=r"features\[5, 5\] is inf"):
            impute(tmp_path / "wrong.npy", tmp_path / "g", tmp_path / "w.npy", client=client, memory="2GB")
        with pytest.raises(pcfi.TooLargeError, match=r"600,000 nodes .* memory is 0.3 GB"):
            impute(tmp_path / "big.npy", tmp_path / "ring", tmp_path / "y.npy", client=client)
        # a promise that the worker cannot keep
        with pytest.raises(scale.ClusterError, match=r"died repeatedly .*more memory.*Finished tasks are kept"):
            impute(tmp_path / "big.npy", tmp_path / "ring", tmp_path / "y.npy", client=client, memory="4GB")
        started.stop()
    assert list((tmp_path / "y.npy.work" / "journal").glob("survey-*"))
    stored = impute(tmp_path / "big.npy", tmp_path / "ring", tmp_path / "y.npy")
    np.testing.assert_allclose(
        stored.open(),
        pcfi.impute(features, ring, alpha=0.5, beta=0.1, objective="representation").values,
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_that_loses_its_last_worker_does_not_hang(tmp_path, problem, monkeypatch, request):
    from pcfi.outofcore import runners

    monkeypatch.setattr(runners, "MAX_SECONDS_WITHOUT_WORKERS", 1)
    monkeypatch.setattr(runners, "SECONDS_BETWEEN_LOOKS", 0.2)
    started = Cluster(tmp_path)
    request.addfinalizer(started.stop)
    started.add_worker("--no-nanny")
    journal = tmp_path / "y.npy.work" / "journal"

    def kill_the_worker() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any(journal.glob("survey-*")):
            time.sleep(0.001)
        started.workers[0].kill()

    killer = threading.Thread(target=kill_the_worker)
    with distributed.Client(scheduler_file=str(started.file), timeout="60s", set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
        killer.start()
        with pytest.raises(scale.ClusterError, match=r"no worker for 1 s.*Start workers again.*tasks are kept in"):
            impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy", client=client, memory="2GB")
    killer.join()
    again = impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy")
    alone = impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "alone.npy")
    np.testing.assert_array_equal(again.open(), alone.open())


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_workers_that_dask_has_paused_are_a_clear_error(tmp_path, problem, monkeypatch, request):
    # a worker that is paused begins no task, and nothing else says so: the call waited without end
    from pcfi.outofcore import runners

    monkeypatch.setattr(runners, "MAX_SECONDS_WITHOUT_WORKERS", 1)
    monkeypatch.setattr(runners, "SECONDS_BETWEEN_LOOKS", 0.2)
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE", "0.12")  # 120 MB: less than pcfi takes when imported
    started = Cluster(tmp_path)
    request.addfinalizer(started.stop)
    started.add_worker("--memory-limit", "1GB")
    with distributed.Client(scheduler_file=str(started.file), timeout="60s", set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
        with pytest.raises(scale.ClusterError, match=r"paused all workers .1 worker.*limit is 1.0 GB.*tasks are kept"):
            scale.impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy", client=client, memory="2GB")
    again = scale.impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy")
    alone = scale.impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "alone.npy")
    np.testing.assert_array_equal(again.open(), alone.open())


@pytest.mark.parametrize("status", ["running", "closed"])
def test_a_scheduler_that_is_lost_while_it_is_asked_is_a_clear_error(tmp_path, status):
    # the client learns later than the call that its scheduler is gone: the raw error of the connection came through
    class Client:
        def scheduler_info(self, **_):
            return {}

        def submit(self, *_, **__):
            if status == "running":
                raise distributed.comm.CommClosedError("in <TCP (closed)>: Connection reset by peer")
            raise distributed.client.ClosedClientError("Client is closed. Can't send update-graph message.")

    client, folder = Client(), WorkFolder(tmp_path / "work")
    client.status = status
    run = SimpleNamespace(folder=folder, plan=SimpleNamespace(token="t"))
    with pytest.raises(scale.ClusterError, match=r"connection to the scheduler is lost. Finished tasks are kept"):
        DaskRunner(run, client, progress=False).run("survey", 3)
    with pytest.raises(scale.ClusterError, match="connection to the scheduler is lost"):
        workers_of(client)


def test_a_cluster_that_is_not_there_is_a_clear_error(tmp_path, problem, monkeypatch):
    from pcfi.outofcore import cluster

    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT", "1s")
    with pytest.raises(scale.ClusterError, match=r"tcp://127.0.0.1:9' cannot be reached"):
        impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy", client="tcp://127.0.0.1:9")
    with pytest.raises(scale.ClusterError, match=r"must be a dask.distributed.Client"):
        impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy", client=7)
    started = Cluster(tmp_path)
    try:
        with (
            distributed.Client(scheduler_file=str(started.file), timeout="60s", set_as_default=False) as client,
            pytest.raises(scale.ClusterError, match="the cluster has no workers after 1s"),
        ):
            impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy", client=client)
    finally:
        started.stop()
    assert not (tmp_path / "y.npy.work").exists()


def test_a_tree_joins_every_leaf_once_in_order():
    for count in range(1, 40):
        assert tree(0, count, lambda k: [k], lambda left, right: left + right) == list(range(count))
    np.testing.assert_array_equal(add(np.ones(2), np.ones(2)), [2, 2])
