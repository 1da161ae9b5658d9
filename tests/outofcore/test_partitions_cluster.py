"""Partitions on a cluster of real processes: the same bits with any number of workers, and whoever is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

from local_cluster import Cluster
from pcfi import FixedSteps, scale
from pcfi.outofcore import plan
from random_problems import random_edges

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(os.name == "nt", reason="kills with a signal"),
]

N_NODES, N_CHANNELS = 18_000, 5
PAPER = {"alpha": 0.8, "beta": 0.1, "objective": "representation"}
STEPS = FixedSteps(30)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    values = rng.normal(size=(N_NODES, N_CHANNELS)).astype(np.float32)
    values[rng.random(values.shape) < 0.9] = np.nan
    np.save(folder / "x.npy", values)
    scale.build_graph(random_edges(rng, "random", N_NODES, 4), folder / "g", n_nodes=N_NODES)
    return folder / "x.npy", folder / "g"


@pytest.fixture
def cluster(tmp_path):
    started = Cluster(tmp_path)
    try:
        yield started
    finally:
        started.stop()


def connected(cluster, n_workers):
    client = distributed.Client(scheduler_file=str(cluster.file), timeout="60s", set_as_default=False)
    client.wait_for_workers(n_workers, timeout=60)
    return client


def test_one_two_and_four_workers_get_the_same_bits(tmp_path, files, cluster, monkeypatch):
    impute = partial(scale.impute, *files, **PAPER)
    alone = impute(tmp_path / "alone.npy", partitions=4)
    for n_workers in (1, 2, 4):
        while len(cluster.workers) < n_workers:
            cluster.add_worker("--no-nanny")
        choice = {"partitions": 3}
        if n_workers == 4:  # as if no worker could hold the graph: it is divided without being asked to
            monkeypatch.setattr(plan, "whole_graph_bytes", lambda *_: 1 << 60)
            choice = {}
        with connected(cluster, n_workers) as client:
            shared = impute(tmp_path / f"{n_workers}.npy", client=client, memory="2GB", **choice)
        assert shared.seconds["partition"] > 0
        np.testing.assert_array_equal(shared.open(), alone.open())
        assert (shared.steps, shared.residual) == (alone.steps, alone.residual)


def test_a_worker_may_be_killed_in_every_stage(tmp_path, files, cluster):
    impute = partial(scale.impute, *files, **PAPER, memory="2GB", partitions=4, solver=STEPS)
    expected = impute(tmp_path / "alone.npy").open()
    for _ in range(4):
        cluster.add_worker("--no-nanny")
    # hops begin when the last partition is made, and end when their parts are put together
    stages = {"hops": "journal/partition-000003.json", "diffuse": "checkpoint.json", "collect": "part-0-panel-0.raw"}
    with connected(cluster, 4) as client:
        for number, (stage, sign) in enumerate(stages.items()):
            path = tmp_path / f"{stage}.npy"
            killer = threading.Thread(
                target=kill_when, args=(path.with_name(f"{path.name}.work") / sign, cluster, number)
            )
            killer.start()
            found = impute(path, client=client)
            killer.join()
            np.testing.assert_array_equal(found.open(), expected)
        assert len(client.scheduler_info()["workers"]) == 1


def kill_when(sign, cluster, number):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not sign.exists():
        time.sleep(0.002)
    assert sign.exists()
    cluster.workers[number].send_signal(signal.SIGKILL)


CALLER = """
import sys
import pcfi

if __name__ == "__main__":
    pcfi.scale.impute({features!r}, {graph!r}, {result!r}, alpha=0.8, beta=0.1, objective="representation",
                      solver=pcfi.FixedSteps(30), partitions=4, memory="2GB", client=sys.argv[1])
"""


def test_a_caller_that_is_killed_goes_on_from_its_checkpoint(tmp_path, files, cluster):
    for _ in range(2):
        cluster.add_worker("--no-nanny")
    result, script = tmp_path / "y.npy", tmp_path / "caller.py"
    script.write_text(CALLER.format(features=str(files[0]), graph=str(files[1]), result=str(result)))
    with connected(cluster, 2) as client:
        caller = subprocess.Popen([sys.executable, str(script), client.scheduler.address])
        sign, deadline = tmp_path / "y.npy.work" / "checkpoint.json", time.monotonic() + 60
        while not sign.exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        caller.kill()
        caller.wait()
        assert sign.exists()
        impute = partial(scale.impute, *files, **PAPER, memory="2GB", solver=STEPS)
        again = impute(result, client=client, partitions=4)
    np.testing.assert_array_equal(again.open(), impute(tmp_path / "alone.npy", partitions=2).open())
    assert not sign.parent.exists()
