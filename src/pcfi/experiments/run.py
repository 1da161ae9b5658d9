"""`Run`, one system on one data set with one random seed, and `Record`, its stored result."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

TASKS = ("classification", "links")
DRAWS = ("own", "published")
Status = Literal["done", "failed", "out of memory"]
STATUSES: tuple[Status, ...] = ("done", "failed", "out of memory")


@dataclass(frozen=True)
class Run:
    """Everything that determines the result of one run; equal runs give bitwise equal results.

    Attributes
    ----------
    task : {"classification", "links"}
        Node classification with a GCN, or link prediction with a graph auto-encoder.
    dataset : str
        Name of a data set, as in `pcfi.experiments.catalog`.
    missing : str
        Kind of missing mask, as in `pcfi.experiments.data.masks`.
    rate : float
        Share of missing cells.
    system : str
        Name of the system that handles the missing cells, as in `pcfi.experiments.catalog`.
    parameters : tuple of (name, value), sorted by name
        Parameters that differ from the defaults of the system and the task.
    seed : int
        Determines the split, the mask, the initial weights and every other random choice.
    draw : {"own", "published"}
        How the seed becomes split, mask and initial weights: as here, or as in the code of the paper's authors.
    """

    task: str
    dataset: str
    missing: str
    rate: float
    system: str
    parameters: tuple[tuple[str, Any], ...] = ()
    seed: int = 0
    draw: str = "own"

    @property
    def key(self) -> str:
        """The run as one line of JSON, equal for equal runs; "own" draws are not mentioned."""
        fields = {**asdict(self), "parameters": dict(sorted(self.parameters))}
        if self.draw == "own":
            del fields["draw"]
        return json.dumps(fields, sort_keys=True)


@dataclass(frozen=True)
class Record:
    """The result of a run.

    Attributes
    ----------
    run : Run
        The run.
    status : {"done", "failed", "out of memory"}
        How the run ended; `message` gives the reason if it is not done, and the warnings if it is.
    metrics : dict
        Accuracy, AUC, AP and their validation counterparts in percent, seconds by part, number of epochs.
    details : dict
        What figures need and tables do not show, such as accuracy by hops, as plain JSON.
    seconds, peak_mb : float
        Wall time of the run, and peak memory of its process.
    threads : int
        Number of threads of its process.
    date : str
        End of the run in UTC, in ISO 8601.
    versions : dict
        Versions of Python, pcfi and the packages that affect the numbers.
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
        """Whether the run has completed."""
        return self.status == "done"

    def to_line(self) -> str:
        """The record as one line of JSON."""
        return json.dumps(asdict(self) | {"run": json.loads(self.run.key)}, separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Record":
        """Parse a line of JSON; raises some built-in error if the line is damaged."""
        fields = json.loads(line)
        run = fields.pop("run")
        if fields["status"] not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {fields['status']!r}")
        return cls(run=Run(**run | {"parameters": tuple(sorted(run["parameters"].items()))}), **fields)
