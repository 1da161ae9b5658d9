"""What each table and figure of the paper consists of: a name and a selection -> cells, and their runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from pcfi.errors import ParameterError
from pcfi.experiments.catalog import DATASETS, MASKS, SYNTHETIC, SYSTEMS, default_parameters, parameters_of, validate
from pcfi.experiments.cells import Cell, Condition
from pcfi.experiments.outlines import OUTLINES, Outline, Part, Variant
from pcfi.experiments.paper import METRICS, RATE, Printed, paper_ablation, paper_value
from pcfi.experiments.runs import TASKS, Run
from pcfi.experiments.search import Grid, points

PLANS = (*OUTLINES, "all")
_SAID = {"pcfi": ("alpha", "beta"), "fp": ("steps",)}  # in the run even where they are the defaults
_KEEP_WHAT_IS_KNOWN = ("zero", "mean", "neighbors", "fp", "pcfi")


@dataclass(frozen=True)
class Selection:
    """What to run in place of what the paper ran; None means as in the paper.

    `splits` is a number: seeds 0 to splits - 1. `fixed` holds parameters for every run that takes them. `grid` replaces
    the grid of cells that have one; a figure keeps its axes.
    """

    datasets: tuple[str, ...] | None = None
    systems: tuple[str, ...] | None = None
    rates: tuple[float, ...] | None = None
    missing: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    splits: int | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    grid: Grid | None = None

    def __post_init__(self) -> None:
        for name in self.systems or ():
            known(name, SYSTEMS, "system")
        for name in self.missing or ():
            known(name, MASKS, "kind of missing")
        for name in self.tasks or ():
            known(name, TASKS, "task")
        for name in self.datasets or ():
            if not SYNTHETIC.fullmatch(name):
                known(name, DATASETS, "data set")
        if self.splits is not None and self.splits < 1:
            raise ParameterError(f"splits must be at least 1, got {self.splits}")


@dataclass(frozen=True)
class Plan:
    """The cells of a table or figure; `metrics` where other numbers than the tasks' own are its point."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    metrics: tuple[str, ...] | None = None

    @property
    def runs(self) -> list[Run]:
        """Every run once, in the order of the cells."""
        return list({run.key: run for cell in self.cells for run in cell.runs}.values())


def plan(name: str, selection: Selection | None = None) -> list[Plan]:
    """The plans behind a name: one, or every one of the paper's for "all".

    Raises
    ------
    ParameterError
        A name or a number is not allowed, or nothing is left to run.
    """
    selection = selection or Selection()
    names = [outline for outline in OUTLINES if outline != "search"] if name == "all" else [known(name, PLANS, "plan")]
    plans = [
        Plan(name, OUTLINES[name].title, _cells(OUTLINES[name], selection), OUTLINES[name].metrics) for name in names
    ]
    runs = [run for plan in plans for run in plan.runs]
    if not runs:
        raise ParameterError(f"nothing to run: none of the systems takes part in the task of {name!r}")
    for run in runs:
        validate(run)
    return [plan for plan in plans if plan.cells]


def known(name: str, names: Iterable[str], what: str) -> str:
    """The name itself if it is one of the names; else an error that lists them."""
    if name not in names:
        raise ParameterError(f"unknown {what} {name!r}: choose from {', '.join(names)}")
    return name


def _cells(outline: Outline, selection: Selection) -> tuple[Cell, ...]:
    parts = [part for part in outline.parts if part.task in (selection.tasks or TASKS)]
    return tuple(
        cell
        for part in (_selected(part, selection) for part in parts)
        for dataset, missing, rate, variant in product(part.datasets, part.missing, part.rates, part.variants)
        for cell in _row(Condition(part.task, dataset, missing, rate), variant, range(part.splits), selection)
    )


def _selected(part: Part, selection: Selection) -> Part:
    """The part with what the selection says in place of what the paper did."""
    variants = part.variants
    if selection.systems is not None:
        variants = tuple(row for system in selection.systems for row in part.rows(system))
    return replace(
        part,
        datasets=selection.datasets or part.datasets,
        missing=selection.missing or part.missing,
        rates=selection.rates or part.rates,
        splits=selection.splits or part.splits,
        variants=tuple(variant for variant in variants if part.task in SYSTEMS[variant.system].tasks),
    )


def _row(condition: Condition, variant: Variant, seeds: Iterable[int], selection: Selection) -> list[Cell]:
    """The cell of a variant, or its cells where its grid is spread."""
    grid = variant.grid and (selection.grid or variant.grid)
    if variant.grid and variant.spread:  # a figure keeps its axes
        grid = {name: (selection.grid or {}).get(name, values) for name, values in variant.grid.items()}
    choices = points(grid) if grid else [{}]
    candidates = [
        tuple(
            _run(condition, variant.system, {**variant.parameters, **choice}, seed, selection.fixed) for seed in seeds
        )
        for choice in choices
    ]
    if not variant.spread:
        return [Cell(condition, variant.label, tuple(candidates), _printed(condition, variant.paper))]
    return [
        Cell(condition, variant.label, (runs,), axis=point) for runs, point in zip(candidates, choices, strict=True)
    ]


def _run(condition: Condition, system: str, parameters: Mapping[str, Any], seed: int, fixed: Mapping[str, Any]) -> Run:
    """A system's run; equal work is asked for in equal words, so that tables and figures share it."""
    if system == "lp":  # sees no features
        condition = condition._replace(missing="structural", rate=RATE)
    if system == "full" or (condition.rate == 0 and system in _KEEP_WHAT_IS_KNOWN):  # nothing is missing
        system, condition = "full", condition._replace(missing="structural", rate=0.0)
    blank = condition.run(system, {}, seed)
    defaults, takes = default_parameters(blank), parameters_of(blank)
    said = {name: defaults[name] for name in _SAID.get(system, ())}
    given = {name: _like(defaults[name], value) for name, value in {**fixed, **parameters}.items() if name in takes}
    return condition.run(system, said | given, seed)


def _like(default: Any, value: Any) -> Any:
    """The value as a float where the default is one: 1 and 1.0 are the same choice, but not the same text."""
    return float(value) if isinstance(default, float) and type(value) is int else value


def _printed(condition: Condition, name: str | None) -> dict[str, Printed]:
    """What the paper printed for a row of a table or of an ablation, by metric."""
    if name is None:
        return {}
    found = {}
    for metric in METRICS[condition.task]:
        value = paper_value(*condition, name, metric)
        if value is None and condition.rate == RATE:
            value = (paper_ablation(condition.task, condition.dataset, condition.missing, metric) or {}).get(name)
        if value is not None:
            found[metric] = value
    return found
