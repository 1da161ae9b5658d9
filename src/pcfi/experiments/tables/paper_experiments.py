"""The paper's tables and figures: which systems are compared, under which conditions, over how many splits."""

from collections.abc import Iterable
from itertools import product

from pcfi.errors import ParameterError
from pcfi.experiments.catalog import SYSTEMS, validate
from pcfi.experiments.paper import RATE, paper_ablations
from pcfi.experiments.run import TASKS
from pcfi.experiments.tables.cells import Condition
from pcfi.experiments.tables.experiment import (
    Configuration,
    Experiment,
    Selection,
    check_name,
    default_configurations,
)
from pcfi.experiments.tables.grids import Grid, paper_grid

DATASETS = ("Cora", "CiteSeer", "PubMed", "Photo", "Computers")
MASKS = ("structural", "uniform")
RATES = (0.0, 0.5, 0.9, RATE)
SYNTHETIC_GRAPHS = tuple(
    f"homophily-{homophily:g}-scale-{scale:g}" for homophily in (0.3, 0.5) for scale in (0.01, 0.03, 0.1, 0.3, 1)
)
RATES_ROWS = ("Zero", "Label propagation", "PaGNN, 2 layers", "FP, 40 steps", "FP, 100 steps", "PCFI")
HOMOPHILY_GRID = {"alpha": (0.1, 0.3, 0.5, 0.7, 0.9), "beta": (1e-4, 1e-2, 1.0)}


def find_experiments(name: str, selection: Selection | None = None) -> list[Experiment]:
    """Return the experiment of a name, or every one except the search for "all", with the choices of a selection.

    Raises
    ------
    ParameterError
        A name or a number is not allowed, or there is nothing to run.
    """
    if name == "all":
        experiments = [experiment for experiment in EXPERIMENTS.values() if experiment.name != "search"]
    else:
        experiments = [EXPERIMENTS[check_name(name, (*EXPERIMENTS, "all"), "experiment")]]
    experiments = [experiment.select(selection or Selection()) for experiment in experiments]
    experiments = [experiment for experiment in experiments if experiment.cells]
    if not experiments:
        raise ParameterError(f"nothing to run: none of the systems supports the task of {name!r}")
    for experiment in experiments:
        for run in experiment.runs:
            validate(run)
    return experiments


def _conditions(
    task: str, datasets: Iterable[str] = DATASETS, masks: Iterable[str] = MASKS, rates: Iterable[float] = (RATE,)
) -> tuple[Condition, ...]:
    return tuple(Condition(task, *condition) for condition in product(datasets, masks, rates))


def _paper_grids(system: str) -> dict[str, Grid]:
    return {task: paper_grid(system, task) for task in TASKS}


_PAPERS = default_configurations("zero", "lp", "srmgcnn", "gcnmf", "pagnn", "fp", "pcfi")
_TABLE1 = (*_PAPERS, *default_configurations("pcfi-auto", "pcfi-position"))
_FP = (
    *default_configurations("fp"),
    Configuration("fp", "FP, steady state", {"solver": "settled"}, "fp"),
)
_PCFI = Configuration("pcfi", "PCFI", paper="pcfi")
_WITHOUT_STAGE_2 = Configuration("pcfi", "PCFI without stage 2", {"beta": 0.0}, "confidence")
_ABLATION = (
    *_FP,
    Configuration("pcfi", "row-stochastic", {"alpha": 1.0, "beta": 0.0}, "row-stochastic"),
    Configuration("pcfi", "+ confidence", {"beta": 0.0}, "confidence"),
    Configuration("pcfi", "+ propagation between channels (PCFI)", paper="pcfi"),
)
_STEADY_STATE = {"solver": "settled", "alpha": 0.9, "beta": 0.0}
_SOLVERS = (
    Configuration("pcfi", "100 steps, alpha and beta of the paper", paper="pcfi"),
    Configuration("pcfi", "steady state, alpha and beta of the paper", {"solver": "settled"}, "pcfi"),
    Configuration("pcfi", "steady state, alpha 0.9, beta 0", _STEADY_STATE),
    Configuration(
        "pcfi", "steady state, alpha 0.9, beta 0, channel means subtracted", {**_STEADY_STATE, "center": True}
    ),
    Configuration("pcfi", "steady state, alpha 1, beta 0", {**_STEADY_STATE, "alpha": 1.0}),
)
_BY_HOPS = _conditions("classification", ("Cora", "CiteSeer"), ("structural",))

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("table1", "Table 1: node classification accuracy (%)", _conditions("classification"), _TABLE1),
        Experiment(
            "table2",
            "Table 2: link prediction, AUC and AP (%)",
            _conditions("links"),
            default_configurations("full", "srmgcnn", "gcnmf", "fp", "pcfi", "pcfi-auto", "pcfi-position"),
        ),
        Experiment(
            "ablation",
            "Ablation: contribution of each component of PCFI (%)",
            tuple(Condition(task, dataset, mask, RATE) for task, dataset, mask in paper_ablations()),
            _ABLATION,
        ),
        Experiment(
            "solver",
            "100 steps against the steady state: accuracy (%)",
            _conditions("classification"),
            _SOLVERS,
            splits=5,
        ),
        Experiment(
            "rates",
            "Node classification accuracy (%) by missing rate",
            _conditions("classification", rates=RATES),
            tuple(row for row in _TABLE1 if row.label in RATES_ROWS),
        ),
        Experiment(
            "resistance",
            "Resistance of PCFI to missing features: accuracy (%)",
            _conditions("classification", rates=RATES),
            (_PCFI,),
        ),
        Experiment(
            "hops-accuracy",
            "Accuracy (%) by hops to the nearest source",
            _BY_HOPS,
            (_PCFI, _WITHOUT_STAGE_2, *_FP, *default_configurations("srmgcnn")),
        ),
        Experiment(
            "hops-cosine",
            "Cosine similarity of original and filled features by hops",
            _BY_HOPS,
            (_PCFI, _WITHOUT_STAGE_2, *_FP),
        ),
        Experiment(
            "heatmap",
            "PCFI by alpha and beta (%)",
            (
                Condition("classification", "CiteSeer", "structural", RATE),
                Condition("links", "Cora", "structural", RATE),
            ),
            (Configuration("pcfi", "PCFI", grids=_paper_grids("pcfi"), cell_per_point=True),),
        ),
        Experiment(
            "homophily",
            "Accuracy (%) by homophily, on synthetic graphs",
            _conditions("classification", SYNTHETIC_GRAPHS, ("structural",)),
            (*_FP, Configuration("pcfi", "PCFI", grids={"classification": HOMOPHILY_GRID})),
        ),
        Experiment(
            "cost",
            "Time per split: imputation and training (s)",
            _conditions("classification", ("Cora",), ("structural",)),
            _PAPERS,
            splits=3,
            metrics=("imputing_seconds", "training_seconds"),
        ),
        Experiment(
            "search",
            "Parameters by grid search on validation (%)",
            tuple(condition for task in TASKS for condition in _conditions(task)),
            tuple(
                Configuration(name, system.title, paper=name, grids=_paper_grids(name))
                for name, system in SYSTEMS.items()
            ),
            splits=1,
        ),
    )
}
