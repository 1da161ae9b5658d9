"""Cells of tables: the runs behind one number, what the paper printed there, and what ours come to."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pcfi.experiments.paper import METRICS, Printed
from pcfi.experiments.runs import Run
from pcfi.experiments.store import Record, Store


class Condition(NamedTuple):
    """Where systems are compared: a task on a data set of which a share is missing."""

    task: str
    dataset: str
    missing: str
    rate: float

    def run(self, system: str, parameters: Mapping[str, Any], seed: int) -> Run:
        """A system's run in this condition."""
        return Run(self.task, self.dataset, self.missing, self.rate, system, tuple(sorted(parameters.items())), seed)

    def __str__(self) -> str:
        return f"{self.dataset}, {self.missing} missing, {self.rate:g}"


@dataclass(frozen=True)
class Cell:
    """One number of a table: a system in a condition, over some splits.

    Attributes
    ----------
    condition : Condition
        Where.
    label : str
        Who: the system, and how it is set where that matters.
    candidates : tuple of tuple of Run
        The runs over the splits, for each choice of parameters; where there are several choices, validation decides.
    paper : dict
        What the paper printed, by metric.
    axis : dict
        Coordinates for figures, such as alpha and beta.
    """

    condition: Condition
    label: str
    candidates: tuple[tuple[Run, ...], ...]
    paper: Mapping[str, Printed] = field(default_factory=dict)
    axis: Mapping[str, float] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        """All runs behind the cell."""
        return [run for splits in self.candidates for run in splits]

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is measured in the cell's task."""
        return METRICS[self.condition.task]


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation (of a sample, hence None for a single split) over the splits that are done."""

    mean: float
    std: float | None
    splits: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Summary | None":
        """Summary of some numbers; None if there are none."""
        numbers = list(values)
        if not numbers:
            return None
        mean = math.fsum(numbers) / len(numbers)
        if len(numbers) == 1:
            return cls(mean, None, 1)
        spread = math.fsum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)
        return cls(mean, math.sqrt(spread), len(numbers))


def chosen(cell: Cell, store: Store) -> list[Record]:
    """The cell's records, done or not; where there are several choices of parameters, those best on validation.

    Choices are compared by their mean over the splits that all of them have done, so that none gains by what it missed.
    """
    found = [[record for run in splits if (record := store.get(run))] for splits in cell.candidates]
    found = [records for records in found if records]
    if len(found) <= 1:
        return found[0] if found else []
    done = [{record.run.seed: validation(record) for record in records if record.done} for records in found]
    common = set.intersection(*(set(scores) for scores in done))
    if not common:
        return []
    means = [math.fsum(scores[seed] for seed in common) / len(common) for scores in done]
    best = max(range(len(found)), key=means.__getitem__)
    return [record for record in found[best] if record.run.seed in common]


def validation(record: Record) -> float:
    """What choices of parameters are compared by."""
    return record.metrics[f"validation_{METRICS[record.run.task][0]}"]


def summary(records: Iterable[Record], metric: str) -> Summary | None:
    """Summary of a metric over the records that are done and have it."""
    return Summary.of(record.metrics[metric] for record in records if record.done and metric in record.metrics)


def trouble(records: Iterable[Record]) -> str:
    """How the records that are not done ended, in words; empty if all are done."""
    statuses = [record.status for record in records if not record.done]
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
