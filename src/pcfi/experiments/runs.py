"""One run of an experiment, as a value: what is asked for (`Run`), and what came out (`Outcome`)."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

TASKS = ("classification", "links")


@dataclass(frozen=True)
class Run:
    """Everything that decides the outcome of one run; equal runs give equal bits.

    Attributes
    ----------
    task : {"classification", "links"}
        Node classification with a GCN, or link prediction with a graph auto-encoder.
    dataset : str
        Name of a data set, as in `pcfi.experiments.datasets`.
    missing : str
        Kind of the missing mask, as in `pcfi.experiments.masks`.
    rate : float
        Share of cells that are missing.
    system : str
        What fills or copes with the missing cells, as in `pcfi.experiments.systems`.
    parameters : tuple of (name, value), sorted by name
        What differs from the system's and the task's defaults.
    seed : int
        Decides the split, the mask, the initial weights and everything else that is random.
    """

    task: str
    dataset: str
    missing: str
    rate: float
    system: str
    parameters: tuple[tuple[str, Any], ...] = ()
    seed: int = 0

    @property
    def key(self) -> str:
        """The run as one line of JSON, equal for equal runs."""
        return json.dumps({**asdict(self), "parameters": dict(sorted(self.parameters))}, sort_keys=True)


@dataclass(frozen=True)
class Outcome:
    """What a run measured: numbers by name, such as accuracy, auc, ap (in percent) and seconds by part.

    `details` holds what tables do not show but figures need (accuracy by hops, say), as plain JSON.
    """

    metrics: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)
