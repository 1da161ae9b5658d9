"""The names a run may use, with the parameters they take and their defaults; runs are checked here.

Loads neither torch nor any data, so that the command line can list and check at once.
"""

import math
import re
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from pcfi.errors import ParameterError
from pcfi.experiments.paper import paper_parameters, paper_rates
from pcfi.experiments.runs import TASKS, Run
from pcfi.settings import Rule

DATASETS = ("Cora", "CiteSeer", "PubMed", "Photo", "Computers", "OGBN-Arxiv")
SYNTHETIC = re.compile(r"homophily-(?P<homophily>\d+(?:\.\d+)?)-scale-(?P<scale>\d+(?:\.\d+)?)")
MASKS = ("structural", "uniform", "block", "degree", "value", "class")
WHOLE_NODES = ("structural", "degree", "class")  # a node misses all of its channels or none


@dataclass(frozen=True)
class Parameter:
    """A parameter's default (None: see `default_parameters`) and what it may be."""

    default: Any
    rule: Rule


def _real(low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> Rule:
    def accepts(value: object) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        number = float(value)
        return (low < number if open_low else low <= number) and (number < high if open_high else number <= high)

    start = f"greater than {low:g}" if open_low else f"of at least {low:g}"
    end = "" if high == math.inf else f" and {'less than' if open_high else 'at most'} {high:g}"
    return Rule(f"a number {start}{end}", accepts)


def _count(low: int) -> Rule:
    return Rule(
        f"a whole number of at least {low}",
        lambda value: isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= low,
    )


def _choice(*choices: str) -> Rule:
    return Rule(f"one of {', '.join(map(repr, choices))}", lambda value: value in choices)


_FLAG = Rule("True or False", lambda value: isinstance(value, bool))
_ALPHA = _real(0, 1, open_low=True)
_POSITIVE = _real(0, math.inf, open_low=True, open_high=True)
_NOT_NEGATIVE = _real(0, math.inf, open_high=True)

# How the common networks are trained. None: depends on the data set, see `default_parameters`.
TRAINING: dict[str, dict[str, Parameter]] = {
    "classification": {
        "layers": Parameter(3, _count(2)),
        "hidden": Parameter(None, _count(1)),
        "jumping": Parameter(None, _FLAG),
        "dropout": Parameter(0.5, _real(0, 1, open_high=True)),
        "learning_rate": Parameter(0.005, _POSITIVE),
        "weight_decay": Parameter(0.0, _NOT_NEGATIVE),
        "epochs": Parameter(10_000, _count(1)),
        "patience": Parameter(200, _count(1)),
    },
    "links": {
        "hidden": Parameter(32, _count(1)),
        "latent": Parameter(16, _count(1)),
        "dropout": Parameter(0.0, _real(0, 1, open_high=True)),
        "learning_rate": Parameter(None, _POSITIVE),
        "weight_decay": Parameter(0.0, _NOT_NEGATIVE),
        "epochs": Parameter(200, _count(1)),
    },
}

_CENTER = {"center": Parameter(False, _FLAG)}
_DIFFUSION = {
    "solver": Parameter("fixed", _choice("fixed", "settled")),
    "rtol": Parameter(1e-4, _real(0, 1, open_low=True, open_high=True)),
    "max_steps": Parameter(1000, _count(1)),
    "self_loops": Parameter(None, _FLAG),
    **_CENTER,
}


@dataclass(frozen=True)
class System:
    """A system: how it is called in tables, the tasks it takes part in, where its code is, its own parameters.

    `training` holds its own defaults of the training parameters by task; `trains` is False for label propagation.
    """

    title: str
    code: str
    tasks: tuple[str, ...] = TASKS
    parameters: dict[str, Parameter] = field(default_factory=dict)
    training: dict[str, dict[str, Any]] = field(default_factory=dict)
    trains: bool = True


SYSTEMS: dict[str, System] = {
    "zero": System("Zero", "imputing:Zero", parameters=_CENTER),
    "mean": System("Channel mean", "imputing:Mean", parameters=_CENTER),
    "neighbors": System("Neighbour mean", "imputing:Neighbors", parameters=_CENTER),
    "lp": System(
        "Label propagation",
        "label_propagation:LabelPropagation",
        tasks=("classification",),
        parameters={"alpha": Parameter(None, _real(0, 1)), "steps": Parameter(50, _count(1))},
        trains=False,
    ),
    "srmgcnn": System(
        "sRMGCNN",
        "srmgcnn:SRMGCNN",
        parameters={
            "rank": Parameter(10, _count(1)),
            "gamma": Parameter(None, _NOT_NEGATIVE),
            "completion_steps": Parameter(5000, _count(1)),
            "tuning_steps": Parameter(50, _count(1)),
        },
    ),
    "gcnmf": System(
        "GCNMF",
        "gcnmf:GCNMF",
        parameters={"components": Parameter(5, _count(1))},
        training={"classification": {"layers": 2, "hidden": 16, "weight_decay": 0.01}},
    ),
    "pagnn": System("PaGNN", "pagnn:PaGNN", training={"classification": {"layers": 2}}),
    "fp": System("FP", "imputing:FP", parameters={"steps": Parameter(40, _count(1)), **_DIFFUSION}),
    "pcfi": System(
        "PCFI",
        "imputing:PCFI",
        parameters={
            "alpha": Parameter(None, _ALPHA),
            "beta": Parameter(None, _NOT_NEGATIVE),
            "standardize": Parameter(False, _FLAG),
            "steps": Parameter(100, _count(1)),
            **_DIFFUSION,
        },
    ),
    "full": System("Full features", "imputing:Full", parameters=_CENTER),
}


def parameters_of(run: Run) -> dict[str, Parameter]:
    """Every parameter that the run's system takes in the run's task."""
    system = SYSTEMS[run.system]
    return {**(TRAINING[run.task] if system.trains else {}), **system.parameters}


def default_parameters(run: Run) -> dict[str, Any]:
    """What each parameter is when the run does not say, with all that depends on the data set filled in.

    PCFI's alpha and beta are the paper's for this task, data set and kind of missing, at the nearest rate it lists;
    0.5 and 0.1 where it lists none.

    >>> default_parameters(Run("classification", "Cora", "structural", 0.995, "pcfi"))["alpha"]
    0.9
    """
    system = SYSTEMS[run.system]
    defaults = {name: parameter.default for name, parameter in parameters_of(run).items()}
    arxiv = run.dataset == "OGBN-Arxiv"
    # by validation: at 0.01, full features overfit on Cora and CiteSeer; on PubMed 0.001 has not learned enough
    slow = run.dataset in ("Photo", "Computers") or (run.system == "full" and run.dataset != "PubMed")
    known = {
        "hidden": 256 if arxiv else 64,
        "jumping": arxiv,
        "learning_rate": 0.001 if slow else 0.01,
        "self_loops": run.task == "classification",  # the split of the edges drops them
    }
    if run.system == "pcfi":
        known |= _nearest_paper_parameters(run)
    defaults |= {name: known[name] for name, value in defaults.items() if value is None and name in known}
    return defaults | system.training.get(run.task, {})


def _nearest_paper_parameters(run: Run) -> dict[str, float]:
    kind = "structural" if run.missing in WHOLE_NODES else "uniform"
    rates = paper_rates(run.task, run.dataset, kind)
    nearest = min(rates, key=lambda rate: abs(rate - run.rate), default=None)
    found = None if nearest is None else paper_parameters(run.task, run.dataset, kind, nearest)
    return found or {"alpha": 0.5, "beta": 0.1}


def settings_of(run: Run) -> dict[str, Any]:
    """The run's parameters, with the defaults for those that it does not give."""
    return default_parameters(run) | dict(run.parameters)


def validate(run: Run) -> None:
    """Refuse a run whose names, rate or parameters are not known or not allowed; loads no data.

    Raises
    ------
    ParameterError
        It lists what is allowed.
    """
    _known("task", run.task, TASKS)
    if not SYNTHETIC.fullmatch(str(run.dataset)):
        _known("dataset", run.dataset, DATASETS, " or homophily-<homophily>-scale-<scale>, as in homophily-0.3-scale-2")
    _known("missing", run.missing, MASKS)
    _known("system", run.system, tuple(SYSTEMS))
    if run.task not in SYSTEMS[run.system].tasks:
        able = ", ".join(name for name, system in SYSTEMS.items() if run.task in system.tasks)
        raise ParameterError(f"system {run.system!r} takes no part in task {run.task!r}: choose one of {able}")
    rate = _real(0, 1, open_high=True)
    if not rate.accepts(run.rate):
        raise ParameterError(f"rate must be {rate.allowed}, got {run.rate!r}")
    if not isinstance(run.seed, Integral) or isinstance(run.seed, bool) or run.seed < 0:
        raise ParameterError(f"seed must be a whole number of at least 0, got {run.seed!r}")
    allowed = parameters_of(run)
    for name, value in run.parameters:
        _known(f"a parameter of system {run.system!r} in task {run.task!r}", name, tuple(allowed))
        rule = allowed[name].rule
        if not rule.accepts(value):
            raise ParameterError(f"{name} must be {rule.allowed}, got {value!r}")


def _known(what: str, name: object, names: tuple[str, ...], more: str = "") -> None:
    if name not in names:
        raise ParameterError(f"{what} must be one of {', '.join(names)}{more}, got {name!r}")
