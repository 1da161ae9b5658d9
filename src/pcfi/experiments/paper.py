"""What the paper printed, by name: results, parameters of PCFI, sizes of the data sets (facts in `paper.json`)."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from pcfi.errors import ParameterError

METRICS = {"classification": ("accuracy",), "links": ("auc", "ap")}
ABLATION = ("fp", "row-stochastic", "confidence", "sharing")
RATE = 0.995


@dataclass(frozen=True)
class Printed:
    """A cell of one of the paper's tables, in percent; `mean` and `std` are None where it says "out of memory"."""

    mean: float | None
    std: float | None

    @property
    def out_of_memory(self) -> bool:
        """Whether the paper printed that the system ran out of memory."""
        return self.mean is None


class Size(NamedTuple):
    """Size of the largest connected component of a data set."""

    nodes: int
    edges: int
    channels: int
    classes: int


@cache
def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(resources.files("pcfi.experiments").joinpath("paper.json").read_text("utf-8"))
    return facts


def paper_value(task: str, dataset: str, missing: str, rate: float, system: str, metric: str) -> Printed | None:
    """What the paper printed for a cell, or None where it printed nothing.

    Label propagation sees no features, and "full" misses none: their value holds for every `missing` and `rate`.

    >>> paper_value("classification", "Cora", "structural", 0.995, "fp", "accuracy")
    Printed(mean=72.84, std=2.85)
    >>> paper_value("links", "PubMed", "uniform", 0.995, "srmgcnn", "auc").out_of_memory
    True
    """
    place = _metric_place(task, metric)
    if system == "lp":
        missing, rate = "structural", RATE
    if system == "full":
        missing, rate = "none", RATE
    facts = _facts()[task]
    if task == "classification":
        cell = facts.get(missing, {}).get(dataset, {}).get(f"{rate:g}", {}).get(system)
        return None if cell is None else _printed([cell] if cell != "out of memory" else cell, place)
    cell = facts.get(dataset, {}).get(missing, {}).get(system) if rate == RATE else None
    return None if cell is None else _printed(cell, place)


def paper_ablation(task: str, dataset: str, missing: str, metric: str) -> dict[str, Printed] | None:
    """The paper's ablation, by the names in `ABLATION`, or None where it has none.

    >>> paper_ablation("classification", "CiteSeer", "structural", "accuracy")["row-stochastic"]
    Printed(mean=64.8, std=2.6)
    """
    place = _metric_place(task, metric)
    for entry in _facts()["ablation"]:
        if (entry["task"], entry["dataset"], entry["missing"]) == (task, dataset, missing):
            return {name: _printed(row, place) for name, row in zip(ABLATION, entry["rows"], strict=True)}
    return None


def paper_ablations() -> list[tuple[str, str, str]]:
    """Task, data set and kind of missing of each ablation in the paper."""
    return [(entry["task"], entry["dataset"], entry["missing"]) for entry in _facts()["ablation"]]


def paper_parameters(task: str, dataset: str, missing: str, rate: float) -> dict[str, float] | None:
    """Alpha and beta of PCFI as the paper lists them, or None where it lists none.

    >>> paper_parameters("classification", "CiteSeer", "structural", 0.9)
    {'alpha': 0.6, 'beta': 0.31622776601683794}
    """
    pair = _facts()["parameters"].get(task, {}).get(dataset, {}).get(missing, {}).get(f"{rate:g}")
    return None if pair is None else {"alpha": pair[0], "beta": 10.0 ** pair[1]}


def paper_rates(task: str, dataset: str, missing: str) -> list[float]:
    """The missing rates for which the paper lists alpha and beta, largest first."""
    return sorted(map(float, _facts()["parameters"].get(task, {}).get(dataset, {}).get(missing, {})), reverse=True)


def paper_size(dataset: str) -> Size | None:
    """Size of a data set's largest connected component as the paper lists it.

    >>> paper_size("Cora")
    Size(nodes=2485, edges=5069, channels=1433, classes=7)
    """
    size = _facts()["datasets"].get(dataset)
    return None if size is None else Size(*size)


def _metric_place(task: str, metric: str) -> int:
    if task not in METRICS:
        raise ParameterError(f"task must be one of {', '.join(map(repr, METRICS))}, got {task!r}")
    if metric not in METRICS[task]:
        known = ", ".join(map(repr, METRICS[task]))
        raise ParameterError(f"the metric of task {task!r} must be one of {known}, got {metric!r}")
    return METRICS[task].index(metric)


def _printed(cell: Any, place: int) -> Printed:
    return Printed(None, None) if cell == "out of memory" else Printed(*cell[place])
