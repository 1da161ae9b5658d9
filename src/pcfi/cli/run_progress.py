"""Progress of many runs: a bar with the remaining time on a terminal, otherwise one line per run."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pcfi.experiments.paper import METRICS
from pcfi.experiments.run import Record, Run
from pcfi.experiments.runs.durations import RunDurations, format_duration

Report = Callable[[Record], None]


class RunProgress:
    """The remaining runs, and their expected time."""

    def __init__(self, runs: Sequence[Run], durations: RunDurations, jobs: int) -> None:
        self.total, self.jobs = len(runs), jobs
        self._runs_left = {run.key: run for run in runs}
        self._durations = durations
        self._seconds: list[float] = []

    def add(self, record: Record) -> None:
        """Record a finished run."""
        self._runs_left.pop(record.run.key, None)
        self._durations.add(record)
        self._seconds.append(record.seconds)

    @property
    def done(self) -> int:
        """Number of finished runs."""
        return self.total - len(self._runs_left)

    @property
    def seconds(self) -> float | None:
        """Expected remaining seconds, with the mean of this session for runs without an estimate; None if unknown."""
        seconds, n_unknown = self._durations.total(self._runs_left.values())
        if n_unknown and not self._seconds:
            return None
        unknown = n_unknown * sum(self._seconds) / len(self._seconds) if n_unknown else 0.0
        return (seconds + unknown) / self.jobs


def describe(record: Record) -> str:
    """Describe a run and its result in one line."""
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
def reporting(progress: RunProgress, console: Any, *, quiet: bool = False) -> Iterator[Report]:
    """Yield a function that reports a record."""
    if quiet:
        yield progress.add
    elif console.is_terminal:
        with _bar(progress, console) as report:
            yield report
    else:
        yield lambda record: _line(progress, console, record)


def _line(progress: RunProgress, console: Any, record: Record) -> None:
    progress.add(record)
    left = progress.seconds
    tail = f", {format_duration(left)} left" if left and progress.done < progress.total else ""
    now = datetime.now().strftime("%H:%M:%S")
    console.out(f"{now} [{progress.done}/{progress.total}] {describe(record)}{tail}", highlight=False)


@contextmanager
def _bar(progress: RunProgress, console: Any) -> Iterator[Report]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        """Expected remaining time, counted down between results."""

        def render(self, task: Any) -> Text:
            ends = task.fields["ends"]
            if task.finished:
                return Text("done")
            return Text(
                "time left unknown" if ends is None else f"{format_duration(max(0, ends - time.monotonic()))} left"
            )

    def ends() -> float | None:
        return None if progress.seconds is None else time.monotonic() + progress.seconds

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeLeft())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("runs", total=progress.total, ends=ends())

        def report(record: Record) -> None:
            progress.add(record)
            bar.console.out(describe(record), highlight=False)
            bar.update(task, completed=progress.done, ends=ends())

        yield report
