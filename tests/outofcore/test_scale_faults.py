"""Runs that are refused, killed or out of space: what they leave behind, and what the next call makes of it."""

import errno
import os
from functools import partial

import numpy as np
import pytest

import pcfi
from pcfi import scale
from pcfi.files.paths import remove
from pcfi.outofcore import backend, opening, plan
from pcfi.outofcore.folder import WorkFolder
from pcfi.outofcore.runners import TASKS

PAPER = {"alpha": 0.5, "beta": 0.1, "objective": "representation"}
impute = partial(scale.impute, **PAPER)

pytestmark = pytest.mark.slow

N_NODES, N_CHANNELS = 60, 5


@pytest.fixture
def files(tmp_path):
    """The paths of features and of a graph folder: a ring, half of whose cells are missing."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random((N_NODES, N_CHANNELS)) < 0.5, rng.normal(size=(N_NODES, N_CHANNELS)), np.nan)
    np.save(tmp_path / "x.npy", values)
    scale.build_graph(np.stack([np.arange(N_NODES), (np.arange(N_NODES) + 1) % N_NODES]), tmp_path / "g")
    return tmp_path / "x.npy", tmp_path / "g"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_run_that_fails_as_it_begins_does_not_block_the_next(files, tmp_path, monkeypatch, error):
    def fails(_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises((KeyboardInterrupt, scale.StorageError)):
            impute(*files, tmp_path / "y.npy")
    assert list((tmp_path / "y.npy.work").iterdir()) == []
    impute(*files, tmp_path / "y.npy")


@pytest.mark.parametrize("left", [".job.json.0123abc.partial", "job.json"])
def test_what_a_kill_leaves_of_the_first_file_does_not_block_the_next_run(files, tmp_path, monkeypatch, left):
    write = WorkFolder.write

    def killed(self, name, facts):
        write(self, name, facts)
        (self.path / name).rename(self.path / left)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            impute(*files, tmp_path / "y.npy")
    assert [path.name for path in (tmp_path / "y.npy.work").iterdir()] == [left]
    assert WorkFolder(tmp_path / "y.npy.work").n_finished == 0
    impute(*files, tmp_path / "y.npy")
    assert not (tmp_path / "y.npy.work").exists()


def test_a_disk_that_is_too_small_is_refused_every_time(files, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(plan, "disk_bytes", lambda _: 1 << 60)
        for _ in range(2):
            with pytest.raises(scale.StorageError, match="make room, or choose another disk"):
                impute(*files, tmp_path / "y.npy")
            assert not (tmp_path / "y.npy.work").exists()
    impute(*files, tmp_path / "y.npy")


def test_a_budget_that_is_refused_before_any_task_leaves_nothing(files, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(opening, "check_budget", lambda *_: None)  # which does not know the graph yet
        with pytest.raises(pcfi.TooLargeError, match="solver=FixedSteps"):
            impute(*files, tmp_path / "y.npy", memory="1MB")
    assert not (tmp_path / "y.npy.work").exists()
    impute(*files, tmp_path / "y.npy", solver=pcfi.FixedSteps(3))


def test_a_budget_that_is_refused_later_says_what_to_do_with_the_work_folder(files, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(plan, "MAX_TREE_SUMS", 1 << 40)
        with pytest.raises(pcfi.TooLargeError, match=r"beta=0.*kept in .*y.npy.work.*remove that folder first"):
            impute(*files, tmp_path / "y.npy")
    remove(tmp_path / "y.npy.work")  # as it says
    impute(*files, tmp_path / "y.npy", beta=0)


def test_what_a_task_wrote_is_safe_on_disk_before_the_journal_says_so(files, tmp_path, monkeypatch):
    fsync, record, safe, seen = os.fsync, WorkFolder.record, set(), []

    def noted(descriptor):
        fsync(descriptor)
        safe.add(os.fstat(descriptor).st_ino)

    def checked(self, stage, index, facts):
        written = {"survey": ["known.raw"], "split": [path.name for path in self.path.glob("panel-*")]}.get(stage, [])
        assert all((self.path / name).stat().st_ino in safe for name in written)
        safe.clear()
        seen.extend(written)
        record(self, stage, index, facts)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(WorkFolder, "record", checked)
    impute(*files, tmp_path / "y.npy")
    assert seen == ["known.raw", "panel-0.raw"]


def test_memory_is_planned_for_the_largest_influence_matrix(tmp_path, monkeypatch):
    # 40 channels with 2 sources, 28 with 7, 12 with 3, and 3 that do not go through influence with 30 each
    rng = np.random.default_rng(0)
    values = np.full((N_NODES, 83), np.nan, dtype=np.float32)
    for first, last, n_sources in ((0, 40, 2), (40, 68, 7), (68, 80, 3), (80, 83, 30)):
        sources = rng.choice(N_NODES, n_sources, replace=False)
        values[sources, first:last] = rng.normal(size=(n_sources, last - first))
    np.save(tmp_path / "x.npy", values)
    ring = np.stack([np.arange(N_NODES), (np.arange(N_NODES) + 1) % N_NODES])
    scale.build_graph(ring, tmp_path / "g")
    sizes = []
    monkeypatch.setattr(backend, "check_layout", lambda run: sizes.append(plan.size_of(run, 1)))
    impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy")
    np.save(tmp_path / "x.npy", values[:, 80:])
    impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "z.npy")
    assert [size.n_influence for size in sizes] == [7, 0]


def test_a_call_that_lost_its_run_to_another_stops(files, tmp_path, monkeypatch):
    # as a worker does that goes on when its scheduler is gone and the run has been resumed elsewhere
    split = TASKS["split"]

    def taken_over(run, index):
        facts = run.folder.read("plan.json")
        run.folder.write("plan.json", {**facts, "token": "another"})
        return split(run, index)

    monkeypatch.setitem(TASKS, "split", taken_over)
    with pytest.raises(scale.ClusterError, match="another call"):
        impute(*files, tmp_path / "y.npy")


def test_a_work_folder_of_another_run_is_refused(files, tmp_path, monkeypatch):
    def fails(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "record", fails)
        with pytest.raises(KeyboardInterrupt):
            impute(*files, tmp_path / "y.npy")
    with pytest.raises(pcfi.ParameterError, match=r"belongs to another run \(other settings\)"):
        impute(*files, tmp_path / "y.npy", alpha=0.7)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(pcfi.ParameterError, match="neither empty nor a work folder"):
        impute(*files, tmp_path / "z.npy", work=tmp_path / "mine")
