"""Expected durations of runs, from the records of similar ones."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from pcfi.experiments.run import Record, Run

# From the most to the least similar; the first group with an earlier record gives the duration.
_SIMILARITY_KEYS: tuple[Callable[[Run], tuple[Any, ...]], ...] = (
    lambda run: (run.task, run.system, run.dataset, run.missing, run.rate, repr(run.parameters)),
    lambda run: (run.task, run.system, run.dataset, run.missing),
    lambda run: (run.task, run.system, run.dataset),
)


class RunDurations:
    """Durations of earlier runs, grouped by similarity."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._seconds: tuple[defaultdict[Any, list[float]], ...] = tuple(defaultdict(list) for _ in _SIMILARITY_KEYS)
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Take a record into account, however the run ended."""
        for key, seconds in zip(_SIMILARITY_KEYS, self._seconds, strict=True):
            seconds[key(record.run)].append(record.seconds)

    def expected(self, run: Run) -> float | None:
        """Return the median duration of the most similar runs in seconds, or None if there are none."""
        for key, seconds in zip(_SIMILARITY_KEYS, self._seconds, strict=True):
            if similar := seconds.get(key(run)):
                return median(similar)
        return None

    def total(self, runs: Iterable[Run]) -> tuple[float, int]:
        """Return the expected seconds of some runs, one after another, and how many have no estimate."""
        times = [self.expected(run) for run in runs]
        return sum(time for time in times if time is not None), times.count(None)

    def estimate(self, runs: Iterable[Run], jobs: int) -> str:
        """Describe the expected duration of some runs with `jobs` runs at a time."""
        seconds, n_unknown = self.total(runs)
        unknown = f"unknown for {n_unknown:,} (no earlier run of the system on the data set)"
        if not seconds:
            return unknown if n_unknown else "nothing to do"
        known = f"about {format_duration(seconds / jobs)}"
        return f"{known}, and {unknown}" if n_unknown else known


def format_duration(seconds: float) -> str:
    """Format a duration, as in "40 s", "12 min", "3 h 20 min"."""
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
