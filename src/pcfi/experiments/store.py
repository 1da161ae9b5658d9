"""Results of runs, one line of JSON each, in a file that grows until it is packed.

Two processes may append at once, and a process may be killed at any time: a line is written in one piece, under a lock,
and flushed to the disk; what a kill leaves of a line is fenced off by the next writer and reported by every reader, and
costs no other line. Packed lines stand beside the file, compressed, in one of the same name with `.gz`.
"""

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pcfi.errors import FileError
from pcfi.experiments.runs import Run

if TYPE_CHECKING:
    from filelock import FileLock

Status = Literal["done", "failed", "out of memory"]
STATUSES: tuple[Status, ...] = ("done", "failed", "out of memory")


@dataclass(frozen=True)
class Record:
    """What happened to a run.

    Attributes
    ----------
    run : Run
        What was asked for.
    status : {"done", "failed", "out of memory"}
        How it ended; `message` says why where it is not done.
    metrics, details : dict
        What came out, as in `Outcome`; empty where it is not done.
    seconds, peak_mb : float
        Time of the run, and the most memory that its process held meanwhile.
    threads : int
        How many threads it was given.
    date : str
        When it ended, in UTC, as in ISO 8601.
    versions : dict
        Of pcfi, Python and the packages that the numbers depend on.
    """

    run: Run
    status: Status
    metrics: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    seconds: float = 0.0
    peak_mb: float = 0.0
    threads: int = 1
    date: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether the run came to its end."""
        return self.status == "done"

    def to_line(self) -> str:
        """The record as one line of JSON."""
        facts = asdict(self) | {"run": json.loads(self.run.key)}
        return json.dumps(facts, separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Record":
        """Read a record; any error means that the line is damaged."""
        facts = json.loads(line)
        asked = facts.pop("run")
        run = Run(**asked | {"parameters": tuple(sorted(asked["parameters"].items()))})
        if facts["status"] not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {facts['status']!r}")
        return cls(run=run, **facts)


@dataclass(frozen=True)
class Damage:
    """A line of the store that cannot be read."""

    path: Path
    line: int
    reason: str
    start: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line} is damaged and was skipped ({self.reason}): {self.start!r}"


class Store:
    """The results in a file, the best record of each run first in line.

    Where a run was recorded more than once, a record that is done wins, then the latest.

    Parameters
    ----------
    path : path
        The file; it is made with the first record. It is read when the store is made, after what is packed beside it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.packed = self.path.with_name(f"{self.path.name}.gz")
        self.damages: list[Damage] = []
        self._records: dict[str, Record] = {}
        self._read()

    def __contains__(self, run: Run) -> bool:
        return run.key in self._records

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def get(self, run: Run) -> Record | None:
        """The record of a run, or None."""
        return self._records.get(run.key)

    def append(self, record: Record) -> None:
        """Write a record to the file; when this returns, it is on the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked(), self.path.open("ab+", buffering=0) as file:
            line = record.to_line().encode()
            _write(file.fileno(), line if _ends_cleanly(file.fileno()) else b"\n" + line)
            os.fsync(file.fileno())
        self._keep(record)

    def pack(self) -> None:
        """Move the best record of each run to the compressed file; equal records give equal bytes."""
        from pcfi.files.writing import atomic_file

        with self._locked():
            self._read()  # what others have written meanwhile
            if self.damages:
                raise FileError(f"nothing is packed before this is mended: {self.damages[0]}")
            lines = sorted(record.to_line() for record in self)
            if not lines:
                return
            with atomic_file(str(self.packed), force=True) as file:
                file.write(gzip.compress("".join(lines).encode(), mtime=0))
            self.path.unlink(missing_ok=True)

    def _locked(self) -> "FileLock":
        from filelock import FileLock

        return FileLock(self.path.with_name(f".{self.path.name}.lock"))  # goes with the process that holds it

    def _read(self) -> None:
        """The packed file last: to it goes what another process packs meanwhile."""
        self.damages.clear()
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            self._take(self.path, file)
        with suppress(FileNotFoundError):
            self._take(self.packed, self._unpacked())

    def _unpacked(self) -> list[bytes]:
        data = self.packed.read_bytes()
        try:
            return gzip.decompress(data or b"empty").splitlines()
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise FileError(f"{self.packed} cannot be read ({error}): restore it, or delete it to start anew") from None

    def _take(self, path: Path, lines: Iterable[bytes]) -> None:
        for number, raw in enumerate(lines, start=1):
            if not raw.strip():
                continue
            try:
                self._keep(Record.from_line(raw.decode()))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                reason = f"{type(error).__name__}: {error}"
                self.damages.append(Damage(path, number, reason, raw[:60].decode(errors="replace")))

    def _keep(self, record: Record) -> None:
        before = self._records.get(record.run.key)
        if before is None or (record.done, record.date) >= (before.done, before.date):
            self._records[record.run.key] = record


def _ends_cleanly(descriptor: int) -> bool:
    """Whether the file is empty or ends with a line break; a writer that was killed may have left half a line."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    if size == 0:
        return True
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) == b"\n"


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
