"""What the paper printed: results, parameters of PCFI, sizes of the data sets (from `paper.json`)."""

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

from pcfi.errors import ParameterError

METRICS = {"classification": ("accuracy",), "links": ("auc", "ap")}
ABLATION = ("fp", "row-stochastic", "confidence", "channel propagation")
RATE = 0.995  # missing rate of the main tables
SPLITS = 10
# seeds of the authors' ten splits, from their code
PUBLISHED_SEEDS = (
    4258031807,
    3829679737,
    3706579387,
    789594926,
    3628091752,
    54121625,
    825346923,
    646393804,
    1579300575,
    2882726575,
)


@dataclass(frozen=True)
class Score:
    """Mean of a metric and its standard deviation (None for a single split) over a number of splits.

    Ours is the sample standard deviation, the paper's that of a population (`numpy.std`).
    """

    mean: float
    std: float | None
    splits: int

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean; None for a single split."""
        return None if self.std is None else self.std / math.sqrt(self.splits)


@dataclass(frozen=True)
class PrintedScore(Score):
    """A score of the paper."""

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean, from a population standard deviation."""
        return None if self.std is None else self.std / math.sqrt(self.splits - 1)


PaperScore = PrintedScore | Literal["out of memory"]


def z_score(ours: Score | None, paper: PaperScore | None) -> float | None:
    """Return the difference of two means in standard errors, or None without two standard errors.

    >>> round(z_score(Score(75.0, 3.0, 9), PrintedScore(77.0, 2.4, 10)), 2)
    -1.56
    """
    errors = [score.standard_error for score in (ours, paper) if isinstance(score, Score)]
    if ours is None or not isinstance(paper, Score) or None in errors:
        return None
    return (ours.mean - paper.mean) / math.hypot(*(error or 0.0 for error in errors))


class DatasetSize(NamedTuple):
    """Size of the largest connected component of a data set."""

    nodes: int
    edges: int
    channels: int
    classes: int


@cache
def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(resources.files("pcfi.experiments").joinpath("paper.json").read_text("utf-8"))
    return facts


def paper_value(task: str, dataset: str, missing: str, rate: float, system: str, metric: str) -> PaperScore | None:
    """Return the score in a cell of the paper's tables, or None if there is none.

    Label propagation uses no features, and "full" misses none: their score holds for every `missing` and `rate`.

    >>> paper_value("classification", "Cora", "structural", 0.995, "fp", "accuracy")
    PrintedScore(mean=72.84, std=2.85, splits=10)
    >>> paper_value("links", "PubMed", "uniform", 0.995, "srmgcnn", "auc")
    'out of memory'
    """
    position = _metric_position(task, metric)
    if system == "lp":
        missing, rate = "structural", RATE
    if system == "full":
        missing, rate = "none", RATE
    facts = _facts()[task]
    if task == "classification":
        cell = facts.get(missing, {}).get(dataset, {}).get(f"{rate:g}", {}).get(system)
        return None if cell is None else _score([cell] if cell != "out of memory" else cell, position)
    cell = facts.get(dataset, {}).get(missing, {}).get(system) if rate == RATE else None
    return None if cell is None else _score(cell, position)


def paper_ablation(task: str, dataset: str, missing: str, metric: str) -> dict[str, PaperScore] | None:
    """Return the paper's ablation by the names in `ABLATION`, or None if there is none.

    >>> paper_ablation("classification", "CiteSeer", "structural", "accuracy")["row-stochastic"]
    PrintedScore(mean=64.8, std=2.6, splits=10)
    """
    position = _metric_position(task, metric)
    for entry in _facts()["ablation"]:
        if (entry["task"], entry["dataset"], entry["missing"]) == (task, dataset, missing):
            return {name: _score(row, position) for name, row in zip(ABLATION, entry["rows"], strict=True)}
    return None


def paper_ablations() -> list[tuple[str, str, str]]:
    """Return task, data set and mask of each ablation in the paper."""
    return [(entry["task"], entry["dataset"], entry["missing"]) for entry in _facts()["ablation"]]


def paper_parameters(task: str, dataset: str, missing: str, rate: float) -> dict[str, float] | None:
    """Return the paper's alpha and beta of PCFI, or None if it lists none.

    >>> paper_parameters("classification", "CiteSeer", "structural", 0.9)
    {'alpha': 0.6, 'beta': 0.31622776601683794}
    """
    pair = _facts()["parameters"].get(task, {}).get(dataset, {}).get(missing, {}).get(f"{rate:g}")
    return None if pair is None else {"alpha": pair[0], "beta": 10.0 ** pair[1]}


def paper_rates(task: str, dataset: str, missing: str) -> list[float]:
    """Return the missing rates for which the paper lists alpha and beta, largest first."""
    return sorted(map(float, _facts()["parameters"].get(task, {}).get(dataset, {}).get(missing, {})), reverse=True)


def paper_size(dataset: str) -> DatasetSize | None:
    """Return the size of a data set's largest connected component, as the paper lists it.

    >>> paper_size("Cora")
    DatasetSize(nodes=2485, edges=5069, channels=1433, classes=7)
    """
    size = _facts()["datasets"].get(dataset)
    return None if size is None else DatasetSize(*size)


def _metric_position(task: str, metric: str) -> int:
    if task not in METRICS:
        raise ParameterError(f"task must be one of {', '.join(map(repr, METRICS))}, got {task!r}")
    if metric not in METRICS[task]:
        known = ", ".join(map(repr, METRICS[task]))
        raise ParameterError(f"the metric of task {task!r} must be one of {known}, got {metric!r}")
    return METRICS[task].index(metric)


def _score(cell: Any, position: int) -> PaperScore:
    return "out of memory" if cell == "out of memory" else PrintedScore(cell[position][0], cell[position][1], SPLITS)
