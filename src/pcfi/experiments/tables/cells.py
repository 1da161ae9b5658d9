"""`TableCell`: the runs behind one number of a table, and the score that their records give."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pcfi.experiments.paper import METRICS, PaperScore, Score
from pcfi.experiments.run import Record, Run
from pcfi.experiments.runs.store import RunStore


class Condition(NamedTuple):
    """The condition under which systems are compared: a task, a data set, and how much of it is missing."""

    task: str
    dataset: str
    missing: str
    rate: float
    draw: str = "own"

    def run(self, system: str, parameters: Mapping[str, Any], seed: int) -> Run:
        """Return a run of a system under this condition."""
        task, dataset, missing, rate, draw = self
        return Run(task, dataset, missing, rate, system, tuple(sorted(parameters.items())), seed, draw)

    def __str__(self) -> str:
        draws = ", published draws" if self.draw == "published" else ""
        return f"{self.dataset}, {self.missing} missing, {self.rate:g}{draws}"


@dataclass(frozen=True)
class TableCell:
    """One number of a table: a system under a condition, over some splits.

    Attributes
    ----------
    condition : Condition
        Task, data set, mask and missing rate.
    label : str
        The system, and its configuration if there are several.
    candidates : tuple of tuple of Run
        For each candidate point of a grid, the runs over the splits. The best on validation counts.
    paper : dict
        The paper's score, by metric.
    grid_point : dict
        Coordinates in a figure, such as alpha and beta.
    """

    condition: Condition
    label: str
    candidates: tuple[tuple[Run, ...], ...]
    paper: Mapping[str, PaperScore] = field(default_factory=dict)
    grid_point: Mapping[str, float] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        """All runs behind the cell."""
        return [run for splits in self.candidates for run in splits]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the cell's task."""
        return METRICS[self.condition.task]

    def records(self, store: RunStore) -> list[Record]:
        """Return the records of the best candidate, done or not; none while a candidate has not been tried.

        Candidates are compared by their mean validation metric over the splits that all of them have done.
        """
        candidates = [[record for run in splits if (record := store.get(run))] for splits in self.candidates]
        if len(candidates) == 1:
            return candidates[0]
        metric = f"validation_{self.metrics[0]}"
        validation = [{one.run.seed: one.metrics[metric] for one in records if one.done} for records in candidates]
        seeds = set.intersection(*map(set, validation))
        if not seeds:
            return []
        means = [math.fsum(scores[seed] for seed in seeds) / len(seeds) for scores in validation]
        best = max(range(len(candidates)), key=means.__getitem__)
        return [record for record in candidates[best] if record.run.seed in seeds]

    def unfinished_search(self, store: RunStore) -> str:
        """Return "n of m tried" if some candidates have results but too few to choose one, else an empty text."""
        tried = [any((one := store.get(run)) and one.done for run in splits) for splits in self.candidates]
        return f"{sum(tried)} of {len(tried)} tried" if any(tried) and not self.records(store) else ""

    def score(self, store: RunStore, metric: str) -> Score | None:
        """Return the score of the best candidate, or None if nothing is done."""
        return mean_score(self.records(store), metric)


def mean_score(records: Iterable[Record], metric: str) -> Score | None:
    """Return the score over the records that are done and have the metric, or None if there are none."""
    return score_of([record.metrics[metric] for record in records if record.done and metric in record.metrics])


def score_of(values: Sequence[float]) -> Score | None:
    """Return mean and sample standard deviation of the values of some splits, or None if there are none."""
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Score(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Score(mean, math.sqrt(variance), len(values))


def count_failures(records: Iterable[Record]) -> str:
    """Describe how many records are not done, as in "2 failed, 1 out of memory"; empty if all are done."""
    statuses = [record.status for record in records if not record.done]
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
