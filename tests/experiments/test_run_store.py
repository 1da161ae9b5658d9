"""The store of records: nothing is lost to kills, to two writers at once, or to a damaged line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pcfi.errors import FileError
from pcfi.experiments.run import Record, Run
from pcfi.experiments.runs.store import RunStore

pytestmark = pytest.mark.slow

WRITER = """
import sys
from pcfi.experiments.run import Record, Run
from pcfi.experiments.runs.store import RunStore
store = RunStore(sys.argv[1])
print("ready", flush=True)
for seed in range(int(sys.argv[3])):
    run = Run("classification", sys.argv[2], "structural", 0.995, "pcfi", (("alpha", 0.5),), seed)
    store.append(Record(run, "done", {"accuracy": seed / 7}, {"text": "x" * 3000}))
    print(seed, flush=True)
"""


def record(seed=0, status="done", date="2026-01-01", **metrics):
    run = Run("classification", "Cora", "structural", 0.995, "pcfi", (("alpha", 0.9), ("beta", 1.0)), seed)
    return Record(run, status, metrics, date=date)


def writer(path, dataset, count):
    command = [sys.executable, "-c", WRITER, str(path), dataset, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_records_come_back_as_they_went_in(tmp_path):
    written = Record(
        record().run,
        "done",
        {"accuracy": 75.49 / 3},
        {"hops": [0, 1, 2]},
        seconds=1.5,
        peak_mb=250.0,
        threads=2,
        date="2026-01-01T00:00:00+00:00",
        versions={"numpy": "2.0"},
    )
    RunStore(tmp_path / "runs.jsonl").append(written)
    (read,) = RunStore(tmp_path / "runs.jsonl")
    assert read == written


def test_equal_runs_are_the_same_run_whatever_the_order_of_their_parameters(tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    store.append(record())
    swapped = Run("classification", "Cora", "structural", 0.995, "pcfi", (("beta", 1.0), ("alpha", 0.9)), 0)
    assert swapped in store
    assert swapped in RunStore(store.path)
    assert record(seed=1).run not in store


def test_done_wins_over_failed_and_late_over_early(tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    store.append(record(status="failed", date="2026-01-01"))
    assert store.get(record().run).status == "failed"
    store.append(record(accuracy=1.0, date="2026-01-02"))
    store.append(record(status="out of memory", date="2026-01-03"))
    assert store.get(record().run).metrics == {"accuracy": 1.0}
    store.append(record(accuracy=2.0, date="2026-01-04"))
    for read in (store, RunStore(store.path)):
        assert len(read) == 1
        assert read.get(record().run).metrics == {"accuracy": 2.0}


@pytest.mark.parametrize(
    "damage",
    [
        b'{"run": {"task": "classif',
        b"\xff\xfe\x00garbage",
        b"[1, 2]",
        b"null",
        b'{"run": {}, "status": "done"}',
        b'{"run": 3, "status": "done"}',
        record().to_line().replace("done", "dome").encode().strip(),
        record().to_line().replace('"metrics"', '"matrics"').encode().strip(),
    ],
)
def test_a_damaged_line_is_named_and_the_rest_is_kept(tmp_path, damage):
    path = tmp_path / "runs.jsonl"
    lines = [record(seed).to_line().encode() for seed in (1, 2, 3)]
    path.write_bytes(lines[0] + damage + b"\n" + b"".join(lines[1:]))
    store = RunStore(path)
    assert [kept.run.seed for kept in store] == [1, 2, 3]
    (message,) = store.damaged_lines
    assert f"{path}, line 2 is damaged" in message


def test_half_a_line_at_the_end_does_not_swallow_the_next_record(tmp_path):
    path = tmp_path / "runs.jsonl"
    whole = record(1).to_line()
    path.write_text(whole + record(2).to_line()[:40])
    RunStore(path).append(record(3))
    store = RunStore(path)
    assert [kept.run.seed for kept in store] == [1, 3]
    assert len(store.damaged_lines) == 1
    assert "line 2 is damaged" in store.damaged_lines[0]


def test_two_writers_lose_nothing(tmp_path):
    path = tmp_path / "runs.jsonl"
    writers = [writer(path, name, 60) for name in ("Cora", "CiteSeer")]
    for process in writers:
        process.communicate()
        assert process.returncode == 0
    store = RunStore(path)
    assert not store.damaged_lines
    assert len(store) == 120
    assert {(kept.run.dataset, kept.run.seed) for kept in store} == {
        (name, seed) for name in ("Cora", "CiteSeer") for seed in range(60)
    }


@pytest.mark.skipif(os.name == "nt", reason="kills with a POSIX signal")
@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05])
def test_kill_9_loses_no_record_that_was_written(tmp_path, delay):
    path = tmp_path / "runs.jsonl"
    process = writer(path, "Cora", 100_000)
    assert process.stdout.readline() == "ready\n"
    assert process.stdout.readline() == "0\n"
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    written = 1 + len(process.communicate()[0].splitlines())
    assert process.returncode == -signal.SIGKILL
    RunStore(path).append(record(999))
    store = RunStore(path)
    survived = {kept.run.seed for kept in store}
    assert set(range(written)) <= survived
    assert 999 in survived
    assert len(store.damaged_lines) <= 1


def test_a_store_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "folder").write_text("a file in the way")
    with pytest.raises(OSError):
        RunStore(Path(tmp_path / "folder" / "runs.jsonl")).append(record())


def test_compression_keeps_the_best_record_of_each_run_and_the_store_goes_on(tmp_path):
    path = tmp_path / "runs.jsonl"
    store = RunStore(path)
    for one in (record(1, "failed"), record(1, accuracy=1.0), record(0, accuracy=0.5)):
        store.append(one)
    RunStore(path).append(record(2, "failed"))  # by another process, unseen by the first
    store.compress()
    assert not path.exists()
    assert [(kept.run.seed, kept.status) for kept in RunStore(path)] == [(0, "done"), (1, "done"), (2, "failed")]
    first = store.compressed_path.read_bytes()
    store.append(record(2, accuracy=2.0, date="2026-01-02"))
    assert [kept.done for kept in RunStore(path)] == [True, True, True]
    assert store.compressed_path.read_bytes() == first
    store.compress()
    assert RunStore(path).get(record(2).run).metrics == {"accuracy": 2.0}


def test_equal_records_are_compressed_to_equal_bytes(tmp_path):
    for folder, order in (("a", (0, 1, 2)), ("b", (2, 0, 1))):
        store = RunStore(tmp_path / folder / "runs.jsonl")
        for seed in order:
            store.append(record(seed))
        store.compress()
    assert (tmp_path / "a" / "runs.jsonl.gz").read_bytes() == (tmp_path / "b" / "runs.jsonl.gz").read_bytes()


def test_a_store_with_damaged_lines_is_not_compressed(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(record(1).to_line() + "half a li\n")
    with pytest.raises(FileError, match="line 2 is damaged"):
        RunStore(path).compress()
    assert path.read_text().endswith("half a li\n")
    assert not RunStore(path).compressed_path.exists()


def test_a_damaged_archive_is_an_error_and_not_an_empty_store(tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    store.append(record(1))
    store.compress()
    whole = store.compressed_path.read_bytes()
    for broken in (whole[:-20], b"not compressed", b""):
        store.compressed_path.write_bytes(broken)
        with pytest.raises(FileError, match=r"runs\.jsonl\.gz cannot be read"):
            RunStore(store.path)
