"""Names of data sets, masks and systems, the parameters of each system and their defaults; validation of runs.

Imports neither torch nor scipy, so that the command line can list names and check input at once.
"""

import math
import re
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from pcfi.errors import ParameterError
from pcfi.experiments.paper import paper_parameters, paper_rates
from pcfi.experiments.run import DRAWS, TASKS, Run
from pcfi.settings import Rule

DATASETS = ("Cora", "CiteSeer", "PubMed", "Photo", "Computers", "OGBN-Arxiv")
SYNTHETIC = re.compile(r"homophily-(?P<homophily>\d+(?:\.\d+)?)-scale-(?P<scale>\d+(?:\.\d+)?)")
MASKS = ("structural", "uniform", "block", "degree", "value", "class")
NODE_MASKS = ("structural", "degree", "class")  # a node misses all of its channels or none


@dataclass(frozen=True)
class Parameter:
    """Default of a parameter (None: see `default_parameters`) and the rule for its values."""

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
        f"an integer of at least {low}",
        lambda value: isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= low,
    )


def _choice(*choices: str) -> Rule:
    return Rule(f"one of {', '.join(map(repr, choices))}", lambda value: value in choices)


_FLAG = Rule("True or False", lambda value: isinstance(value, bool))
_ALPHA = _real(0, 1, open_low=True)
_POSITIVE = _real(0, math.inf, open_low=True, open_high=True)
_NOT_NEGATIVE = _real(0, math.inf, open_high=True)

# Training of the common networks. None: depends on the data set, see `default_parameters`.
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
        "negatives": Parameter(None, _count(1)),  # random pairs per training edge, in each epoch
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
class SystemSpec:
    """A system: its title in tables, its module in `systems`, the tasks it supports, its own parameters.

    `training` overrides defaults of the training parameters, by task; `trains` is False for label propagation.
    """

    title: str
    module: str
    tasks: tuple[str, ...] = TASKS
    parameters: dict[str, Parameter] = field(default_factory=dict)
    training: dict[str, dict[str, Any]] = field(default_factory=dict)
    trains: bool = True


SYSTEMS: dict[str, SystemSpec] = {
    "zero": SystemSpec("Zero", "imputers", parameters=_CENTER),
    "mean": SystemSpec("Channel mean", "imputers", parameters=_CENTER),
    "neighbors": SystemSpec("Neighbour mean", "imputers", parameters=_CENTER),
    "lp": SystemSpec(
        "Label propagation",
        "label_propagation",
        tasks=("classification",),
        parameters={"alpha": Parameter(None, _real(0, 1)), "steps": Parameter(50, _count(1))},
        trains=False,
    ),
    "srmgcnn": SystemSpec(
        "sRMGCNN",
        "srmgcnn",
        parameters={
            "rank": Parameter(10, _count(1)),
            "gamma": Parameter(None, _NOT_NEGATIVE),
            "rescale": Parameter(False, _FLAG),
            "completion_steps": Parameter(5000, _count(1)),
            "tuning_steps": Parameter(50, _count(1)),
        },
    ),
    "gcnmf": SystemSpec(
        "GCNMF",
        "gcnmf",
        parameters={"components": Parameter(5, _count(1)), "input_dropout": Parameter(True, _FLAG)},
        training={
            "classification": {"layers": 2, "hidden": 16, "weight_decay": 0.01, "patience": 100},
            "links": {"learning_rate": 0.005},
        },
    ),
    "pagnn": SystemSpec("PaGNN", "pagnn", training={"classification": {"layers": 2}}),
    "fp": SystemSpec("FP", "imputers", parameters={"steps": Parameter(40, _count(1)), **_DIFFUSION}),
    "pcfi": SystemSpec(
        "PCFI",
        "imputers",
        parameters={
            "alpha": Parameter(None, _ALPHA),
            "beta": Parameter(None, _NOT_NEGATIVE),
            "standardize": Parameter(False, _FLAG),
            "steps": Parameter(100, _count(1)),
            **_DIFFUSION,
        },
    ),
    "pcfi-auto": SystemSpec("PCFI, label-free default", "representations"),
    "pcfi-position": SystemSpec(
        "PCFI, label-free, with position", "representations", parameters={"position": Parameter(256, _count(1))}
    ),
    "full": SystemSpec("Full features", "imputers", parameters=_CENTER),
}


def parameters_of(run: Run) -> dict[str, Parameter]:
    """Return every parameter of the run's system in the run's task."""
    system = SYSTEMS[run.system]
    return {**(TRAINING[run.task] if system.trains else {}), **system.parameters}


def default_parameters(run: Run) -> dict[str, Any]:
    """Return the default of every parameter, for the run's data set.

    PCFI's alpha and beta are the paper's for this task, data set and mask, at the nearest rate that it lists; 0.5 and
    0.1 where it lists none.

    >>> default_parameters(Run("classification", "Cora", "structural", 0.995, "pcfi"))["alpha"]
    0.9
    """
    system = SYSTEMS[run.system]
    defaults = {name: parameter.default for name, parameter in parameters_of(run).items()}
    arxiv = run.dataset == "OGBN-Arxiv"
    # chosen on validation: full features overfit on Cora and CiteSeer with 0.01, and underfit on PubMed with 0.001
    slow = run.dataset in ("Photo", "Computers") or (run.system == "full" and run.dataset != "PubMed")
    by_dataset = {
        "hidden": 256 if arxiv else 64,
        "jumping": arxiv,
        "learning_rate": 0.001 if slow else 0.01,
        "self_loops": run.task == "classification",  # link prediction splits edges without self-loops
        "negatives": 2 if run.draw == "published" else 1,  # PyG's auto-encoder draws one for each direction of an edge
    }
    if run.system == "pcfi":
        by_dataset |= _nearest_paper_parameters(run)
    defaults |= {name: by_dataset[name] for name in by_dataset if name in defaults and defaults[name] is None}
    return defaults | system.training.get(run.task, {})


def _nearest_paper_parameters(run: Run) -> dict[str, float]:
    kind = "structural" if run.missing in NODE_MASKS else "uniform"
    rates = paper_rates(run.task, run.dataset, kind)
    nearest = min(rates, key=lambda rate: abs(rate - run.rate), default=None)
    parameters = None if nearest is None else paper_parameters(run.task, run.dataset, kind, nearest)
    return parameters or {"alpha": 0.5, "beta": 0.1}


def resolved_parameters(run: Run) -> dict[str, Any]:
    """Return the run's parameters, completed by the defaults."""
    return default_parameters(run) | dict(run.parameters)


def validate(run: Run) -> None:
    """Raise an error if a name, the rate or a parameter of a run is unknown or not allowed; loads no data.

    Raises
    ------
    ParameterError
        The message lists what is allowed.
    """
    _check_name("task", run.task, TASKS)
    if not SYNTHETIC.fullmatch(str(run.dataset)):
        _check_name(
            "dataset", run.dataset, DATASETS, " or homophily-<homophily>-scale-<scale>, as in homophily-0.3-scale-2"
        )
    _check_name("draw", run.draw, DRAWS)
    _check_name("missing", run.missing, MASKS)
    if run.draw == "published" and (run.missing not in MASKS[:2] or run.dataset not in DATASETS):
        raise ParameterError(
            f"published draws exist for {' and '.join(MASKS[:2])} masks of {', '.join(DATASETS)}, got {run.missing!r} "
            f"of {run.dataset!r}"
        )
    _check_name("system", run.system, tuple(SYSTEMS))
    if run.task not in SYSTEMS[run.system].tasks:
        supported = ", ".join(name for name, system in SYSTEMS.items() if run.task in system.tasks)
        raise ParameterError(f"system {run.system!r} does not support task {run.task!r}: choose one of {supported}")
    rate = _real(0, 1, open_high=True)
    if not rate.accepts(run.rate):
        raise ParameterError(f"rate must be {rate.allowed}, got {run.rate!r}")
    if not isinstance(run.seed, Integral) or isinstance(run.seed, bool) or run.seed < 0:
        raise ParameterError(f"seed must be an integer of at least 0, got {run.seed!r}")
    allowed = parameters_of(run)
    for name, value in run.parameters:
        _check_name(f"a parameter of system {run.system!r} in task {run.task!r}", name, tuple(allowed))
        rule = allowed[name].rule
        if not rule.accepts(value):
            raise ParameterError(f"{name} must be {rule.allowed}, got {value!r}")


def _check_name(what: str, name: object, names: tuple[str, ...], more: str = "") -> None:
    if name not in names:
        raise ParameterError(f"{what} must be one of {', '.join(names)}{more}, got {name!r}")
