"""`RunStore`: the records of runs, one line of JSON each, in a file that only grows until it is compressed.

Several processes may append at once, and a process may be killed at any time: every append starts on a new line, is
written under a lock and flushed to disk. Readers skip and report a line that a killed process left incomplete.
Compressed records are in a second file of the same name with `.gz`.
"""

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pcfi.errors import FileError
from pcfi.experiments.run import Record, Run

if TYPE_CHECKING:
    from filelock import FileLock


class RunStore:
    """The best record of each run in a file: a record that is done before one that is not, then the latest.

    Parameters
    ----------
    path : path
        The file, created with the first record. It and its compressed companion are read on construction.

    Attributes
    ----------
    damaged_lines : list of str
        A sentence for each line that cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.compressed_path = self.path.with_name(f"{self.path.name}.gz")
        self.damaged_lines: list[str] = []
        self._records: dict[str, Record] = {}
        self._read()

    def __contains__(self, run: Run) -> bool:
        return run.key in self._records

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def get(self, run: Run) -> Record | None:
        """Return the record of a run, or None."""
        return self._records.get(run.key)

    def missing(self, runs: Iterable[Run], *, retry: bool = False) -> list[Run]:
        """Return the runs without a record; with `retry`, also those that are not done."""
        records = ((run, self.get(run)) for run in runs)
        return [run for run, record in records if record is None or (retry and not record.done)]

    def append(self, record: Record) -> None:
        """Write a record; it is on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock(), self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":  # a process was killed while writing a line
                    file.write(b"\n")
            file.write(record.to_line().encode())
            file.flush()
            os.fsync(file.fileno())
        self._keep(record)

    def compress(self) -> None:
        """Move the best record of each run to the compressed file; equal records give equal bytes."""
        from pcfi.files.writing import atomic_file

        with self._lock():
            self._read()  # includes records that other processes have appended
            if self.damaged_lines:
                raise FileError(f"repair or delete the damaged line first: {self.damaged_lines[0]}")
            if lines := sorted(record.to_line() for record in self):
                with atomic_file(str(self.compressed_path), force=True) as file:
                    file.write(gzip.compress("".join(lines).encode(), mtime=0))
                self.path.unlink(missing_ok=True)

    def _lock(self) -> "FileLock":
        from filelock import FileLock

        return FileLock(self.path.with_name(f".{self.path.name}.lock"))  # released if its process dies

    def _read(self) -> None:
        self.damaged_lines.clear()
        # the compressed file last: another process may move lines into it while this one reads
        for path in (self.path, self.compressed_path):
            with suppress(FileNotFoundError):
                self._parse(path, path.read_bytes())

    def _parse(self, path: Path, data: bytes) -> None:
        if path == self.compressed_path:
            try:
                data = gzip.decompress(data or b"empty")
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise FileError(f"{path} cannot be read ({error}): restore it, or delete it to start anew") from None
        for number, line in enumerate(data.splitlines(), start=1):
            if line.strip():
                try:
                    self._keep(Record.from_line(line.decode()))
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    reason, start = f"{type(error).__name__}: {error}", line[:60].decode(errors="replace")
                    self.damaged_lines.append(f"{path}, line {number} is damaged and was skipped ({reason}): {start!r}")

    def _keep(self, record: Record) -> None:
        previous = self._records.get(record.run.key)
        if previous is None or (record.done, record.date) >= (previous.done, previous.date):
            self._records[record.run.key] = record
