"""The work folder of a run: what the run is, which of its tasks are finished, and the arrays between the stages.

A task is finished when its entry is in the journal, and the entry is written after the task's data. Entries appear at
once or not at all, whoever is killed when; tasks can be done again at any time.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import ParameterError
from pcfi.files.atomic_output import atomic_output
from pcfi.files.paths import remove, reserve
from pcfi.outofcore import file_names

FORMAT = 3  # of the files in a work folder


class WorkFolder:
    """A folder that all workers of a run see under the same path."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._is_mine = not self.has(file_names.JOB)

    @property
    def graph(self) -> Path:
        """Where the graph of this run is if it came as an edge file."""
        return self.path.with_name(f"{self.path.name}.graph")

    @property
    def nodes(self) -> Path:
        """Where the node table of this run is if it had to be converted."""
        return self.path.with_name(f"{self.path.name}.nodes.parquet")

    def begin(self, job: dict[str, Any]) -> None:
        """Write down what the run is, or find that it has begun already."""
        job = json.loads(json.dumps({"format": FORMAT, **job}))
        self.path.mkdir(parents=True, exist_ok=True)
        if self.has(file_names.JOB):
            before = self.job()
            different = sorted(name for name in {*job, *before} if job.get(name) != before.get(name))
            if different:
                raise ParameterError(
                    f"the work folder {str(self.path)!r} belongs to another run (other {', '.join(different)})",
                    remedy="pass the same input to continue that run, or remove the folder, or choose another with "
                    "{work}",
                )
            self._is_mine = True
        else:
            self.write(file_names.JOB, job)  # before anything else: without it the folder is nobody's
        (self.path / file_names.JOURNAL).mkdir(exist_ok=True)

    def job(self) -> dict[str, Any]:
        """What the run is."""
        return dict(self.read(file_names.JOB))

    def write(self, name: str, facts: Any) -> None:
        """Write facts as JSON, at once."""
        text = json.dumps(facts, indent=1)
        with atomic_output(self.path / name) as file:
            file.write(text.encode())

    def read(self, name: str) -> Any:
        """Facts from JSON."""
        return json.loads((self.path / name).read_text())

    def retire(self) -> None:
        """Remove the folder; from the first moment on nobody can take it for a run that stopped."""
        remove(self._retired)  # of a run that was killed while it tidied up
        self.path.rename(self._retired)
        remove(self._retired)
        remove(self.graph)
        remove(self.nodes)

    def abandon(self) -> None:
        """Remove what this run has left, but never another run; what a worker may still be writing to stays."""
        with suppress(OSError):
            if self._is_mine and self.path.exists():
                self.retire()
            elif self._is_mine:
                remove(self.graph)
                remove(self.nodes)

    @property
    def _retired(self) -> Path:
        return self.path.with_name(f"{self.path.name}.retired")

    @property
    def n_finished(self) -> int:
        """Tasks in the journal."""
        return sum(1 for _ in (self.path / file_names.JOURNAL).glob("*.json"))

    def record(self, stage: str, index: int, facts: dict[str, Any]) -> None:
        """Put a task into the journal."""
        # not forced to disk, which stalls all workers: an entry that is lost with the machine is a task done again
        with atomic_output(self.path / file_names.JOURNAL / f"{stage}-{index:06d}.json", durable=False) as file:
            file.write(json.dumps(facts).encode())

    def finished(self, stage: str) -> dict[int, dict[str, Any]]:
        """The tasks of a stage that are in the journal, with the facts they left."""
        texts = {entry: entry.read_text() for entry in sorted((self.path / file_names.JOURNAL).glob(f"{stage}-*.json"))}
        # an entry without text is what a machine leaves that went down
        return {
            int(entry.stem.rpartition("-")[2]): json.loads(text) for entry, text in texts.items() if text.strip("\0")
        }

    def save(self, name: str, array: Array) -> None:
        """Save a small array, at once."""
        with atomic_output(self.path / name) as file:
            np.save(file, array, allow_pickle=False)

    def load(self, name: str) -> Array:
        """A small array."""
        array: Array = np.load(self.path / name, allow_pickle=False)
        return array

    def has(self, name: str) -> bool:
        """Whether something of that name is there."""
        return (self.path / name).exists()

    def create(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        """Reserve the disk for a large array."""
        with (self.path / name).open("ab") as file:
            reserve(file.fileno(), int(np.prod(shape)) * np.dtype(dtype).itemsize)

    def map(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """A large array, mapped: what is written to it ends up in the file."""
        if 0 in shape:
            return np.empty(shape, dtype=dtype)
        # an ndarray, not a memmap, whose slices are slow; it keeps the map alive
        return np.asarray(np.memmap(self.path / name, dtype=dtype, mode="r+", shape=shape))

    def write_rows(self, name: str, first: int, rows: Array) -> None:
        """Write rows into a large array without mapping it; `sync` makes them safe."""
        with (self.path / name).open("r+b") as file:
            file.seek(first * rows.shape[1] * rows.itemsize)
            file.write(rows.data)

    def write_columns(self, name: str, first: int, columns: Array, length: int) -> None:
        """Write columns from `first` on into a large array whose rows are `length` long; `sync` makes them safe."""
        with (self.path / name).open("r+b") as file:
            for row, part in enumerate(columns):
                file.seek((row * length + first) * columns.itemsize)
                file.write(part.data)

    def sync(self, *names: str) -> None:
        """Wait until what was written into large arrays is safe on disk."""
        for name in names:
            with (self.path / name).open("r+b") as file:
                os.fsync(file.fileno())

    def write_array(self, name: str, array: Array) -> None:
        """Write a large array, at once."""
        with atomic_output(self.path / name) as file:
            file.write(array.data)

    def read_rows(self, name: str, first: int, last: int, width: int, dtype: npt.DTypeLike) -> Array:
        """Rows of a large array, without mapping it."""
        row = width * np.dtype(dtype).itemsize
        found = np.fromfile(self.path / name, dtype=dtype, count=(last - first) * width, offset=first * row)
        return found.reshape(last - first, width)


def flush(mapped: Array) -> None:
    """Wait until what was written to a mapped array is safe on disk."""
    base: Any = mapped
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    if base is not None:
        base.flush()
