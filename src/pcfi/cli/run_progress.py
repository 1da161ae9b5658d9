"""Progress of many runs: a bar with the time left on a terminal, a line per run elsewhere."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pcfi.experiments.estimates import Experience, spoken
from pcfi.experiments.paper import METRICS
from pcfi.experiments.runs import Run
from pcfi.experiments.store import Record

Told = Callable[[Record], None]


class Outlook:
    """What is left to do, and how long it will take by all that is known so far."""

    def __init__(self, runs: Sequence[Run], experience: Experience, jobs: int) -> None:
        self.total, self.jobs = len(runs), jobs
        self._left = {run.key: run for run in runs}
        self._experience = experience
        self._seen: list[float] = []

    def tell(self, record: Record) -> None:
        """Take note of a run that has ended."""
        self._left.pop(record.run.key, None)
        self._experience.add(record)
        self._seen.append(record.seconds)

    @property
    def done(self) -> int:
        """How many runs have ended."""
        return self.total - len(self._left)

    @property
    def seconds(self) -> float | None:
        """Time left; runs of which nothing is known count like the mean of this session. None: nothing to go by."""
        estimate = self._experience.estimate(list(self._left.values()))
        if estimate.unknown and not self._seen:
            return None
        unknown = estimate.unknown * sum(self._seen) / len(self._seen) if estimate.unknown else 0.0
        return (estimate.seconds + unknown) / self.jobs


def described(record: Record) -> str:
    """A run and how it ended, on one line."""
    run = record.run
    parameters = "".join(
        f" {name}={value:.4g}" if isinstance(value, float) else f" {name}={value}" for name, value in run.parameters
    )
    text = f"{run.task} {run.dataset} {run.missing} {run.rate:g} {run.system}{parameters} split {run.seed}"
    if not record.done:
        return f"{text}: {record.status}: {record.message}"
    numbers = ", ".join(f"{metric} {record.metrics[metric]:.2f}" for metric in METRICS[run.task])
    return f"{text}: {numbers} ({record.seconds:.1f} s)"


@contextmanager
def reporting(outlook: Outlook, console: Any, *, quiet: bool = False) -> Iterator[Told]:
    """Yield a function to be called with each record as it comes."""
    if quiet:
        yield outlook.tell
    elif console.is_terminal:
        with _bar(outlook, console) as tell:
            yield tell
    else:
        yield lambda record: _line(outlook, console, record)


def _line(outlook: Outlook, console: Any, record: Record) -> None:
    outlook.tell(record)
    left = outlook.seconds
    tail = f", {spoken(left)} left" if left and outlook.done < outlook.total else ""
    now = datetime.now().strftime("%H:%M:%S")
    console.out(f"{now} [{outlook.done}/{outlook.total}] {described(record)}{tail}", highlight=False)


@contextmanager
def _bar(outlook: Outlook, console: Any) -> Iterator[Told]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        """Counts down between results."""

        def render(self, task: Any) -> Text:
            ends = task.fields["ends"]
            if task.finished:
                return Text("done")
            return Text("time left unknown" if ends is None else f"{spoken(max(0, ends - time.monotonic()))} left")

    def ends() -> float | None:
        return None if outlook.seconds is None else time.monotonic() + outlook.seconds

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeLeft())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("runs", total=outlook.total, ends=ends())

        def tell(record: Record) -> None:
            outlook.tell(record)
            progress.console.out(described(record), highlight=False)
            progress.update(task, completed=outlook.done, ends=ends())

        yield tell
