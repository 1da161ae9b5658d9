"""The store of results: nothing is lost to kills, to two writers at once, or to a damaged line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pcfi.errors import FileError
from pcfi.experiments.run import Run
from pcfi.experiments.runs.store import Record, Store

WRITER = """
import sys
from pcfi.experiments.run import Run
from pcfi.experiments.runs.store import Record, Store
store = Store(sys.argv[1])
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
    Store(tmp_path / "runs.jsonl").append(written)
    (read,) = Store(tmp_path / "runs.jsonl")
    assert read == written


def test_equal_runs_are_the_same_run_whatever_the_order_of_their_parameters(tmp_path):
    store = Store(tmp_path / "runs.jsonl")
    store.append(record())
    swapped = Run("classification", "Cora", "structural", 0.995, "pcfi", (("beta", 1.0), ("alpha", 0.9)), 0)
    assert swapped in store
    assert swapped in Store(store.path)
    assert record(seed=1).run not in store


def test_done_wins_over_failed_and_late_over_early(tmp_path):
    store = Store(tmp_path / "runs.jsonl")
    store.append(record(status="failed", date="2026-01-01"))
    assert store.get(record().run).status == "failed"
    store.append(record(accuracy=1.0, date="2026-01-02"))
    store.append(record(status="out of memory", date="2026-01-03"))
    assert store.get(record().run).metrics == {"accuracy": 1.0}
    store.append(record(accuracy=2.0, date="2026-01-04"))
    for read in (store, Store(store.path)):
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
    store = Store(path)
    assert [kept.run.seed for kept in store] == [1, 2, 3]
    (found,) = store.damages
    assert found.line == 2
    assert "line 2 is damaged" in str(found)


def test_half_a_line_at_the_end_does_not_swallow_the_next_record(tmp_path):
    path = tmp_path / "runs.jsonl"
    whole = record(1).to_line()
    path.write_text(whole + record(2).to_line()[:40])
    Store(path).append(record(3))
    store = Store(path)
    assert [kept.run.seed for kept in store] == [1, 3]
    assert [damage.line for damage in store.damages] == [2]


def test_two_writers_lose_nothing(tmp_path):
    path = tmp_path / "runs.jsonl"
    writers = [writer(path, name, 60) for name in ("Cora", "CiteSeer")]
    for process in writers:
        process.communicate()
        assert process.returncode == 0
    store = Store(path)
    assert not store.damages
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
    told = 1 + len(process.communicate()[0].splitlines())
    assert process.returncode == -signal.SIGKILL
    Store(path).append(record(999))
    store = Store(path)
    survived = {kept.run.seed for kept in store}
    assert set(range(told)) <= survived
    assert 999 in survived
    assert len(store.damages) <= 1


def test_a_store_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "folder").write_text("a file in the way")
    with pytest.raises(OSError):
        Store(Path(tmp_path / "folder" / "runs.jsonl")).append(record())


def test_packing_keeps_the_best_record_of_each_run_and_the_store_goes_on(tmp_path):
    path = tmp_path / "runs.jsonl"
    store = Store(path)
    for one in (record(1, "failed"), record(1, accuracy=1.0), record(0, accuracy=0.5)):
        store.append(one)
    Store(path).append(record(2, "failed"))  # by another process, unseen by the first
    store.pack()
    assert not path.exists()
    assert [(kept.run.seed, kept.status) for kept in Store(path)] == [(0, "done"), (1, "done"), (2, "failed")]
    first = store.packed.read_bytes()
    store.append(record(2, accuracy=2.0, date="2026-01-02"))
    assert [kept.done for kept in Store(path)] == [True, True, True]
    assert store.packed.read_bytes() == first
    store.pack()
    assert Store(path).get(record(2).run).metrics == {"accuracy": 2.0}


def test_equal_records_are_packed_to_equal_bytes(tmp_path):
    for folder, order in (("a", (0, 1, 2)), ("b", (2, 0, 1))):
        store = Store(tmp_path / folder / "runs.jsonl")
        for seed in order:
            store.append(record(seed))
        store.pack()
    assert (tmp_path / "a" / "runs.jsonl.gz").read_bytes() == (tmp_path / "b" / "runs.jsonl.gz").read_bytes()


def test_damaged_lines_are_not_packed_away(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(record(1).to_line() + "half a li\n")
    with pytest.raises(FileError, match="line 2 is damaged"):
        Store(path).pack()
    assert path.read_text().endswith("half a li\n")
    assert not Store(path).packed.exists()


def test_a_damaged_archive_is_an_error_and_not_an_empty_store(tmp_path):
    store = Store(tmp_path / "runs.jsonl")
    store.append(record(1))
    store.pack()
    whole = store.packed.read_bytes()
    for broken in (whole[:-20], b"not compressed", b""):
        store.packed.write_bytes(broken)
        with pytest.raises(FileError, match=r"runs\.jsonl\.gz cannot be read"):
            Store(store.path)
