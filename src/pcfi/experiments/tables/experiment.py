"""`Experiment`: a table or figure of the paper as data -> its cells, and their runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pcfi.errors import ParameterError
from pcfi.experiments.catalog import DATASETS, MASKS, SYNTHETIC, SYSTEMS, default_parameters, parameters_of
from pcfi.experiments.paper import METRICS, PUBLISHED_SEEDS, RATE, SPLITS, PaperScore, paper_ablation, paper_value
from pcfi.experiments.run import DRAWS, TASKS, Run
from pcfi.experiments.tables.cells import Condition, TableCell
from pcfi.experiments.tables.grids import Grid, grid_points

_EXPLICIT_PARAMETERS = {"pcfi": ("alpha", "beta"), "fp": ("steps",)}  # in every run, even with their default values
_KEEP_KNOWN_CELLS = ("zero", "mean", "neighbors", "fp", "pcfi", "pcfi-auto")


@dataclass(frozen=True)
class Configuration:
    """A row of a table: a system with some parameters.

    Attributes
    ----------
    system, label : str
        The system, and its label in the table.
    parameters : dict
        Parameters that differ from the defaults.
    paper : str or None
        Name of the row in the paper's tables or ablations.
    grids : dict
        By task, a grid of parameters; the point with the best validation metric counts.
    cell_per_point : bool
        Whether each point of the grid is a cell of its own instead.
    """

    system: str
    label: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    paper: str | None = None
    grids: Mapping[str, Grid] = field(default_factory=dict)
    cell_per_point: bool = False

    def select(self, selection: "Selection") -> "Configuration":
        """Return the configuration with the parameters and the grid of a selection, as far as the system takes them."""
        grids = {task: self._selected_grid(task, grid, selection.grid or {}) for task, grid in self.grids.items()}
        return replace(self, parameters={**selection.parameters, **self.parameters}, grids=grids)

    def _selected_grid(self, task: str, grid: Grid, selected: Grid) -> Grid:
        if self.cell_per_point:  # a figure keeps its axes
            return {name: selected.get(name, values) for name, values in grid.items()}
        accepted = parameters_of(Run(task, "", "", 0.0, self.system))
        return {name: values for name, values in selected.items() if name in accepted} or grid

    def cells(self, condition: Condition, seeds: Iterable[int]) -> list[TableCell]:
        """Return the cell under a condition, or the cells if each point of the grid is one."""
        grid = self.grids.get(condition.task)
        points = grid_points(grid) if grid else [{}]
        candidates = [
            tuple(_canonical_run(condition, self.system, {**self.parameters, **point}, seed) for seed in seeds)
            for point in points
        ]
        if not self.cell_per_point:
            return [TableCell(condition, self.label, tuple(candidates), _paper_scores(condition, self.paper))]
        return [
            TableCell(condition, self.label, (runs,), grid_point=point)
            for runs, point in zip(candidates, points, strict=True)
        ]


@dataclass(frozen=True)
class Experiment:
    """A table or figure: configurations of systems, compared under some conditions, over some splits.

    `metrics` lists what to show instead of the metrics of the tasks.
    """

    name: str
    title: str
    conditions: tuple[Condition, ...]
    configurations: tuple[Configuration, ...]
    splits: int = SPLITS
    metrics: tuple[str, ...] | None = None

    def select(self, selection: "Selection") -> "Experiment":
        """Return the experiment with the choices of a selection in place of the paper's."""
        configurations = self.configurations
        if selection.systems is not None:
            configurations = tuple(
                configuration
                for system in selection.systems
                for configuration in [one for one in configurations if one.system == system]
                or default_configurations(system)
            )
        return replace(
            self,
            conditions=_select_conditions(self.conditions, selection),
            configurations=tuple(configuration.select(selection) for configuration in configurations),
            splits=selection.splits or self.splits,
        )

    @cached_property
    def cells(self) -> tuple[TableCell, ...]:
        """The cells, by condition and configuration."""
        return tuple(
            cell
            for condition in self.conditions
            for configuration in self.configurations
            if condition.task in SYSTEMS[configuration.system].tasks
            for cell in configuration.cells(
                condition, PUBLISHED_SEEDS[: self.splits] if condition.draw == "published" else range(self.splits)
            )
        )

    @property
    def runs(self) -> list[Run]:
        """Every run once, in the order of the cells."""
        return list({run.key: run for cell in self.cells for run in cell.runs}.values())


@dataclass(frozen=True)
class Selection:
    """Choices of the user in place of the paper's; None: as in the paper.

    `splits` is a number: seeds 0 to splits - 1, or the first of the published ones. `parameters` apply to every run
    that takes them. `grid` replaces the grids of a search; a figure keeps its axes.
    """

    datasets: tuple[str, ...] | None = None
    systems: tuple[str, ...] | None = None
    rates: tuple[float, ...] | None = None
    missing: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    splits: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    grid: Grid | None = None
    draw: str = "own"

    def __post_init__(self) -> None:
        for name in self.systems or ():
            check_name(name, SYSTEMS, "system")
        for name in self.missing or ():
            check_name(name, MASKS, "kind of missing")
        for name in self.tasks or ():
            check_name(name, TASKS, "task")
        for name in self.datasets or ():
            if not SYNTHETIC.fullmatch(name):
                check_name(name, DATASETS, "data set")
        check_name(self.draw, DRAWS, "draw")
        if self.splits is not None and self.splits < 1:
            raise ParameterError(f"splits must be at least 1, got {self.splits}")
        if self.draw == "published" and (self.splits or 1) > len(PUBLISHED_SEEDS):
            raise ParameterError(f"splits must be at most {len(PUBLISHED_SEEDS)} published ones, got {self.splits}")


def check_name(name: str, names: Iterable[str], kind: str) -> str:
    """Return the name if it is one of the names, else raise an error that lists them."""
    if name not in names:
        raise ParameterError(f"unknown {kind} {name!r}: choose from {', '.join(names)}")
    return name


def default_configurations(*systems: str) -> tuple[Configuration, ...]:
    """Return systems as in the paper's tables.

    FP and PaGNN twice, since the paper does not give their numbers of steps and layers; sRMGCNN as published and
    without its rescaling.
    """
    rows = {
        "fp": [Configuration("fp", f"FP, {steps} steps", {"steps": steps}, "fp") for steps in (40, 100)],
        "srmgcnn": [
            Configuration("srmgcnn", "sRMGCNN", {"rescale": True}, "srmgcnn"),
            Configuration("srmgcnn", "sRMGCNN without rescaling", paper="srmgcnn"),
        ],
        "pagnn": [Configuration("pagnn", f"PaGNN, {n} layers", {"layers": n}, "pagnn") for n in (2, 3)],
    }
    return tuple(
        configuration
        for system in systems
        for configuration in rows.get(system, [Configuration(system, SYSTEMS[system].title, paper=system)])
    )


def _select_conditions(conditions: Iterable[Condition], selection: Selection) -> tuple[Condition, ...]:
    """Replace data sets, masks and rates; keep the order by task, data set, mask and rate."""
    selected = dict.fromkeys(
        Condition(condition.task, dataset, missing, rate, selection.draw)
        for condition in conditions
        if condition.task in (selection.tasks or TASKS)
        for dataset in selection.datasets or (condition.dataset,)
        for missing in selection.missing or (condition.missing,)
        for rate in selection.rates or (condition.rate,)
    )
    ranks = [list(dict.fromkeys(values)) for values in zip(*selected, strict=True)]
    return tuple(
        sorted(
            selected, key=lambda condition: [rank.index(value) for rank, value in zip(ranks, condition, strict=True)]
        )
    )


def _canonical_run(condition: Condition, system: str, parameters: Mapping[str, Any], seed: int) -> Run:
    """Return a system's run, written in the same way wherever the computation is the same, so that it runs once."""
    if system == "lp":  # uses no features
        condition = condition._replace(missing="structural", rate=RATE)
    if system == "full" or (condition.rate == 0 and system in _KEEP_KNOWN_CELLS):  # nothing is missing
        system, condition = "full", condition._replace(missing="structural", rate=0.0)
    default_run = condition.run(system, {}, seed)
    defaults, accepted = default_parameters(default_run), parameters_of(default_run)
    explicit = {name: defaults[name] for name in _EXPLICIT_PARAMETERS.get(system, ())}
    values = {name: _like(defaults[name], value) for name, value in parameters.items() if name in accepted}
    changed = {name: value for name, value in values.items() if name in explicit or value != defaults[name]}
    return condition.run(system, explicit | changed, seed)


def _like(default: Any, value: Any) -> Any:
    """Return the value as a float if the default is one: 1 and 1.0 are equal, but differ in a run's key."""
    return float(value) if isinstance(default, float) and type(value) is int else value


def _paper_scores(condition: Condition, row: str | None) -> dict[str, PaperScore]:
    """Return the paper's scores in a row of a table or of an ablation, by metric."""
    scores = {}
    for metric in METRICS[condition.task] if row else ():
        score = paper_value(*condition[:4], row or "", metric)
        if score is None and condition.rate == RATE:
            score = (paper_ablation(condition.task, condition.dataset, condition.missing, metric) or {}).get(row or "")
        if score is not None:
            scores[metric] = score
    return scores
