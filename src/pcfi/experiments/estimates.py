"""How long runs will take, judged by the records of earlier ones."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pcfi.experiments.runs import Run
from pcfi.experiments.store import Record

# From the closest resemblance to the loosest; the first that has an earlier record decides.
_RESEMBLANCES: tuple[Callable[[Run], tuple[Any, ...]], ...] = (
    lambda run: (run.task, run.system, run.dataset, run.missing, run.rate, repr(run.parameters)),
    lambda run: (run.task, run.system, run.dataset, run.missing),
    lambda run: (run.task, run.system, run.dataset),
)


@dataclass(frozen=True)
class Estimate:
    """Time that some runs will take one after the other, and how many of them nothing is known about."""

    seconds: float
    unknown: int

    def sentence(self, jobs: int) -> str:
        """The estimate in words, for a number of runs at a time."""
        unknown = f"unknown for {self.unknown:,} (no earlier run of the system on the data set)"
        if not self.seconds:
            return unknown if self.unknown else "nothing to do"
        known = f"about {spoken(self.seconds / jobs)}"
        return f"{known}, and {unknown}" if self.unknown else known


class Experience:
    """Times of the runs so far, by how much they resemble a new one."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._seconds: tuple[defaultdict[Any, list[float]], ...] = tuple(defaultdict(list) for _ in _RESEMBLANCES)
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Learn from a record, however the run ended."""
        for resemblance, seconds in zip(_RESEMBLANCES, self._seconds, strict=True):
            seconds[resemblance(record.run)].append(record.seconds)

    def seconds(self, run: Run) -> float | None:
        """The median time of the runs that resemble this one most, or None."""
        for resemblance, seconds in zip(_RESEMBLANCES, self._seconds, strict=True):
            if earlier := seconds.get(resemblance(run)):
                return median(earlier)
        return None

    def estimate(self, runs: Sequence[Run]) -> Estimate:
        """Time of some runs."""
        times = [self.seconds(run) for run in runs]
        return Estimate(sum(time for time in times if time is not None), times.count(None))


def spoken(seconds: float) -> str:
    """A time in words: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
