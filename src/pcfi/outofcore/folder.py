"""The work folder of a run: its description, the journal of its finished tasks, and the arrays between the stages.

A task is finished when its entry is in the journal; the entry is written after the data of the task. Entries are
written atomically, whichever process is killed. Tasks can be repeated at any time. Entries and small files carry their
checksum, and entries those of the large files that their task wrote: `integrity` compares them when a run is resumed.
"""

import io
import json
import os
import warnings
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import ParameterError, PcfiWarning, StorageError
from pcfi.files.atomic_output import atomic_output
from pcfi.files.checksums import TRAILER, checksum, has_trailer, with_checksum, without_checksum
from pcfi.files.paths import remove, reserve
from pcfi.outofcore import file_names

FORMAT = 5  # of the files in a work folder


class WorkFolder:
    """A folder that all workers of a run see under the same path."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._is_mine = not self.has(file_names.JOB)

    @property
    def graph(self) -> Path:
        """Folder of the graph that was built from an edge file for this run."""
        return self.path.with_name(f"{self.path.name}.graph")

    @property
    def nodes(self) -> Path:
        """Path of the converted node table, if it had to be converted."""
        return self.path.with_name(f"{self.path.name}.nodes.parquet")

    @property
    def results(self) -> Path:
        """Folder of results that are written in another form when they are complete."""
        return self.path.with_name(f"{self.path.name}.results")

    def begin(self, job: dict[str, Any]) -> None:
        """Write the description of a new run, or check that it is that of the run to be resumed."""
        job = json.loads(json.dumps({"format": FORMAT, **job}))
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.has(file_names.JOB):
            before = self.job()
            names = {*job, *before} - {"has_names"}  # a run may be begun in Python and resumed on the command line
            different = sorted(name for name in names if job.get(name) != before.get(name))
            if different:
                raise ParameterError(
                    f"the work folder {str(self.path)!r} belongs to another run (other {', '.join(different)})",
                    remedy="pass the same input to continue that run, or remove the folder, or choose another with "
                    "{work}",
                )
            self._is_mine = True
        else:
            self.write(file_names.JOB, job)  # first: it marks the folder as a work folder
        (self.path / file_names.JOURNAL).mkdir(exist_ok=True)

    def job(self) -> dict[str, Any]:
        """The description of the run."""
        return dict(self.read(file_names.JOB))

    def write(self, name: str, facts: Any) -> None:
        """Write facts as JSON, atomically."""
        with atomic_output(self.path / name) as file:
            file.write(with_checksum(json.dumps(facts, indent=1)))

    def read(self, name: str) -> Any:
        """Read facts from JSON."""
        text = without_checksum((self.path / name).read_bytes())
        if text is None:
            raise StorageError(
                f"{str(self.path / name)!r} is damaged, so the run cannot be resumed: remove the folder "
                f"{str(self.path)!r}, and run it again from the start"
            )
        return json.loads(text)

    def is_intact(self, name: str) -> bool:
        """Whether a file of facts or a small array is as it was written."""
        path = self.path / name
        return without_checksum(path.read_bytes()) is not None if path.suffix == ".json" else has_trailer(path)

    def retire(self) -> None:
        """Remove the files of a finished run; files still in use cause only a warning."""
        try:
            self._remove()
        except PermissionError as error:
            warnings.warn(
                f"the work folder {str(self.path)!r} is still in use, and is left there: remove it ({error})",
                PcfiWarning,
                stacklevel=4,
            )

    def _remove(self) -> None:
        """Remove graph, table and folder; the folder is renamed first, so that one partly removed is never resumed."""
        remove(self.graph)  # first: a run that is killed here is resumed, makes them again and removes them
        remove(self.nodes)
        remove(self.results)
        remove(self._retired)  # left by a run that was killed while it removed its folder
        self.path.rename(self._retired)
        remove(self._retired)

    def abandon(self) -> None:
        """Remove the files of this run, but never those of another run; files that a worker still writes stay."""
        with suppress(OSError):
            if self._is_mine and self.path.exists():
                self._remove()
            elif self._is_mine:
                remove(self.graph)
                remove(self.nodes)
                remove(self.results)

    @property
    def _retired(self) -> Path:
        return self.path.with_name(f"{self.path.name}.retired")

    @property
    def n_finished(self) -> int:
        """Number of tasks in the journal."""
        return sum(1 for _ in (self.path / file_names.JOURNAL).glob("*.json"))

    def record(self, stage: str, index: int, facts: dict[str, Any]) -> None:
        """Add a task to the journal."""
        # not flushed to disk, which would stall all workers: a task whose entry is lost in a crash is repeated
        with atomic_output(self.path / file_names.JOURNAL / f"{stage}-{index:06d}.json", durable=False) as file:
            file.write(with_checksum(json.dumps(facts)))

    def finished(self, stage: str) -> dict[int, dict[str, Any]]:
        """The finished tasks of a stage, with the facts in their journal entries."""
        entries = sorted((self.path / file_names.JOURNAL).glob(f"{stage}-*.json"))
        texts = {entry: without_checksum(entry.read_bytes()) for entry in entries}
        # an entry may be empty after a crash of the machine
        return {int(entry.stem.rpartition("-")[2]): json.loads(text) for entry, text in texts.items() if text}

    def forget(self, stage: str, index: int) -> None:
        """Remove a task from the journal, so that it is done again."""
        (self.path / file_names.JOURNAL / f"{stage}-{index:06d}.json").unlink(missing_ok=True)

    def part_checksum(self, name: str, first: int, length: int, stride: int = 0, count: int = 1) -> list[Any]:
        """`count` parts of a large file, `stride` bytes apart, with their checksum: what an entry holds about them."""
        value = 0
        for part in range(count):
            value = checksum(self.path / name, first + part * stride, length, value)
        return [name, first, length, stride, count, value]

    def is_same(self, part: list[Any]) -> bool:
        """Whether a part of a large file still has the checksum that `part_checksum` found."""
        return (self.path / part[0]).exists() and self.part_checksum(*part[:5]) == part

    def save(self, name: str, array: Array) -> None:
        """Save a small array, atomically."""
        content = io.BytesIO()
        np.save(content, array, allow_pickle=False)
        with atomic_output(self.path / name) as file:
            file.write(content.getbuffer())
            file.write(zlib.crc32(content.getbuffer()).to_bytes(TRAILER, "little"))

    def load(self, name: str) -> Array:
        """Load a small array."""
        array: Array = np.load(self.path / name, allow_pickle=False)
        return array

    def has(self, name: str) -> bool:
        """Whether a file of that name exists."""
        return (self.path / name).exists()

    def mark(self, name: str) -> None:
        """Create an empty file."""
        (self.path / name).touch()

    def create(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        """Reserve disk space for a large array."""
        with (self.path / name).open("ab") as file:
            reserve(file.fileno(), int(np.prod(shape)) * np.dtype(dtype).itemsize)

    def map(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Map a large array; writing to it changes the file."""
        if 0 in shape:
            return np.empty(shape, dtype=dtype)
        # an ndarray, not a memmap, whose slices are slow; it keeps the map alive
        return np.asarray(np.memmap(self.path / name, dtype=dtype, mode="r+", shape=shape))

    def write_rows(self, name: str, first: int, rows: Array) -> None:
        """Write rows into a large array without mapping it; `sync` flushes them to disk."""
        with (self.path / name).open("r+b") as file:
            file.seek(first * rows.shape[1] * rows.itemsize)
            file.write(rows.data)

    def write_columns(self, name: str, first: int, columns: Array, length: int) -> None:
        """Write columns from `first` on into a large array with rows of `length`; `sync` flushes them to disk."""
        with (self.path / name).open("r+b") as file:
            for row, part in enumerate(columns):
                file.seek((row * length + first) * columns.itemsize)
                file.write(part.data)

    def sync(self, *names: str) -> None:
        """Flush large arrays to disk."""
        for name in names:
            with (self.path / name).open("r+b") as file:
                os.fsync(file.fileno())

    def write_array(self, name: str, array: Array) -> None:
        """Write a large array, atomically."""
        with atomic_output(self.path / name) as file:
            file.write(array.data)

    def read_rows(self, name: str, first: int, last: int, width: int, dtype: npt.DTypeLike) -> Array:
        """Read rows of a large array without mapping it."""
        row = width * np.dtype(dtype).itemsize
        values = np.fromfile(self.path / name, dtype=dtype, count=(last - first) * width, offset=first * row)
        return values.reshape(last - first, width)


def flush(mapped: Array) -> None:
    """Flush a mapped array to disk."""
    base: Any = mapped
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    if base is not None:
        base.flush()
