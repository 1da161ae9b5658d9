"""The paper's tables and figures as data: which systems, on what, over how many splits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pcfi.experiments.catalog import SYSTEMS
from pcfi.experiments.paper import RATE, paper_ablations
from pcfi.experiments.search import Grid, paper_grid

FIVE = ("Cora", "CiteSeer", "PubMed", "Photo", "Computers")
KINDS = ("structural", "uniform")
RATES = (0.0, 0.5, 0.9, RATE)
SYNTHETIC_GRAPHS = tuple(
    f"homophily-{homophily:g}-scale-{scale:g}" for homophily in (0.3, 0.5) for scale in (0.01, 0.03, 0.1, 0.3, 1)
)
HOMOPHILY_GRID = {"alpha": (0.1, 0.3, 0.5, 0.7, 0.9), "beta": (1e-4, 1e-2, 1.0)}


@dataclass(frozen=True)
class Variant:
    """A row: a system, its label, and what differs from its defaults.

    `paper` names the row in the paper's tables or ablations. `grid`, if any, is what validation chooses from; where it
    is `spread`, every point of the grid is a row of its own.
    """

    system: str
    label: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    paper: str | None = None
    grid: Grid | None = None
    spread: bool = False


@dataclass(frozen=True)
class Part:
    """Settings that are a product of lists, and the variants compared in each."""

    task: str
    datasets: tuple[str, ...]
    variants: tuple[Variant, ...]
    missing: tuple[str, ...] = KINDS
    rates: tuple[float, ...] = (RATE,)
    splits: int = 10

    def rows(self, system: str) -> tuple[Variant, ...]:
        """The rows of a system; one with its defaults where the paper has none."""
        return tuple(variant for variant in self.variants if variant.system == system) or standard(system)


@dataclass(frozen=True)
class Outline:
    """A table or figure; `metrics` where other numbers than the tasks' own are its point."""

    title: str
    parts: tuple[Part, ...]
    metrics: tuple[str, ...] | None = None


def standard(*systems: str) -> tuple[Variant, ...]:
    """The rows of systems as the paper's tables have them; Feature Propagation twice, as it does not say how long."""
    rows = {"fp": tuple(Variant("fp", f"FP, {steps} steps", {"steps": steps}, "fp") for steps in (40, 100))}
    return tuple(
        variant
        for system in systems
        for variant in rows.get(system, (Variant(system, SYSTEMS[system].title, paper=system),))
    )


def _searched(task: str) -> tuple[Variant, ...]:
    able = [name for name, system in SYSTEMS.items() if task in system.tasks]
    return tuple(Variant(name, SYSTEMS[name].title, paper=name, grid=paper_grid(name, task)) for name in able)


def _heatmap(task: str) -> tuple[Variant, ...]:
    return (Variant("pcfi", "PCFI", grid=paper_grid("pcfi", task), spread=True),)


_TABLE1 = ("zero", "lp", "srmgcnn", "gcnmf", "pagnn", "fp", "pcfi")
_FP = Variant("fp", "FP", {"steps": 100}, "fp")
_PCFI = Variant("pcfi", "PCFI", paper="pcfi")
_UNSHARED = Variant("pcfi", "PCFI without sharing", {"beta": 0.0}, "confidence")
_ABLATION = (
    _FP,
    Variant("pcfi", "row-stochastic", {"alpha": 1.0, "beta": 0.0}, "row-stochastic"),
    Variant("pcfi", "+ confidence", {"beta": 0.0}, "confidence"),
    Variant("pcfi", "+ sharing between channels (PCFI)", paper="pcfi"),
)
_SETTLED = {"solver": "settled", "alpha": 0.9, "beta": 0.0}
_SOLVERS = (
    Variant("pcfi", "100 steps, alpha and beta of the paper", paper="pcfi"),
    Variant("pcfi", "settled, alpha and beta of the paper", {"solver": "settled"}, "pcfi"),
    Variant("pcfi", "settled, alpha 0.9, beta 0", _SETTLED),
    Variant("pcfi", "settled, alpha 0.9, beta 0, channel means subtracted", {**_SETTLED, "center": True}),
    Variant("pcfi", "settled, alpha 1, beta 0", {**_SETTLED, "alpha": 1.0}),
)
_HOPS = Part("classification", ("Cora", "CiteSeer"), (_PCFI, _UNSHARED, _FP), ("structural",), splits=5)

OUTLINES: dict[str, Outline] = {
    "table1": Outline(
        "Table 1: node classification accuracy (%)",
        (Part("classification", FIVE, standard(*_TABLE1)),),
    ),
    "table2": Outline(
        "Table 2: link prediction, AUC and AP (%)",
        (Part("links", FIVE, standard("full", "srmgcnn", "gcnmf", "fp", "pcfi")),),
    ),
    "ablation": Outline(
        "Ablation: what each component of PCFI adds (%)",
        tuple(Part(task, (dataset,), _ABLATION, (missing,)) for task, dataset, missing in paper_ablations()),
    ),
    "solver": Outline(
        "100 steps against the steady state: accuracy (%)",
        (Part("classification", FIVE, _SOLVERS, splits=5),),
    ),
    "rates": Outline(
        "Node classification accuracy (%) by missing rate",
        (Part("classification", FIVE, standard("zero", "lp", "pagnn", "fp", "pcfi"), rates=RATES),),
    ),
    "resistance": Outline(
        "Resistance of PCFI to missing features: accuracy (%)",
        (Part("classification", FIVE, (_PCFI,), rates=RATES),),
    ),
    "hops-accuracy": Outline(
        "Accuracy (%) by hops to the nearest source",
        (
            Part(
                _HOPS.task, _HOPS.datasets, (*_HOPS.variants, *standard("srmgcnn")), _HOPS.missing, splits=_HOPS.splits
            ),
        ),
    ),
    "hops-cosine": Outline("Cosine of original and filled features by hops", (_HOPS,)),
    "heatmap": Outline(
        "PCFI by alpha and beta (%)",
        (
            Part("classification", ("CiteSeer",), _heatmap("classification"), ("structural",), splits=2),
            Part("links", ("Cora",), _heatmap("links"), ("structural",), splits=2),
        ),
    ),
    "homophily": Outline(
        "Accuracy (%) by homophily, on synthetic graphs",
        (
            Part(
                "classification",
                SYNTHETIC_GRAPHS,
                (_FP, Variant("pcfi", "PCFI", grid=HOMOPHILY_GRID)),
                ("structural",),
                splits=5,
            ),
        ),
    ),
    "cost": Outline(
        "Time per split: imputation and training (s)",
        (Part("classification", ("Cora",), standard(*_TABLE1), ("structural",), splits=3),),
        metrics=("imputing_seconds", "training_seconds"),
    ),
    "search": Outline(
        "Parameters by grid search on validation (%)",
        tuple(Part(task, FIVE, _searched(task), splits=1) for task in ("classification", "links")),
    ),
}
