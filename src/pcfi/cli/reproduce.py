"""`pcfi reproduce`: run the experiments of the paper, and show our results next to the paper's."""

import signal
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcfi.cli import INTERRUPTED
from pcfi.cli.arguments import FAILED, ListCommand, literal, pairs, plain_errors
from pcfi.experiments.catalog import DATASETS, MASKS, SYSTEMS
from pcfi.experiments.run import TASKS, Run
from pcfi.experiments.runs.store import RunStore
from pcfi.experiments.tables.experiment import Experiment, Selection
from pcfi.experiments.tables.paper_experiments import EXPERIMENTS, find_experiments
from pcfi.experiments.tables.text_tables import TextTable

if TYPE_CHECKING:
    from pcfi.experiments.runs.pool import Resources


STORE = Path("results/runs.jsonl")


@dataclass(frozen=True)
class _SelectedRuns:
    """The selected experiments, their runs that are not in the store yet, and the resources to run them with."""

    experiments: list[Experiment]
    runs: list[Run]
    store: RunStore
    resources: "Resources"


HELP = "\n\n".join(
    [
        "Reproduce a table or figure of the paper, and show our results next to the paper's.",
        "Each result is stored immediately: you can stop with Ctrl-C at any time, and the same command resumes.",
        "\b\n" + "\n".join(f"{name:<15}{experiment.title}" for name, experiment in EXPERIMENTS.items()),
    ]
)


def _list(what: str, names: Iterable[str] = (), metavar: str = "NAME ...") -> Any:
    """An option that takes several values."""
    return typer.Option(help=f"{what}: {', '.join(names)}." if names else f"{what}.", metavar=metavar)


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="One of the names above, or all.", metavar="WHAT", autocompletion=lambda: [*EXPERIMENTS, "all"]
        ),
    ],
    datasets: Annotated[list[str] | None, _list("Data sets", (*DATASETS, "homophily-H-scale-S"))] = None,
    systems: Annotated[list[str] | None, _list("Systems", SYSTEMS)] = None,
    rates: Annotated[list[float] | None, _list("Missing rates", metavar="RATE ...")] = None,
    missing: Annotated[list[str] | None, _list("Kinds of missing mask", MASKS)] = None,
    tasks: Annotated[list[str] | None, _list("Tasks", TASKS)] = None,
    splits: Annotated[int | None, typer.Option(help="Number of splits: seeds 0 to SPLITS - 1.")] = None,
    draw: Annotated[
        str, typer.Option(help="Splits and masks: own, or published for those of the paper's authors.", metavar="NAME")
    ] = "own",
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", help="Parameter of every run that takes it, e.g. epochs=50.", metavar="NAME=VALUE ..."),
    ] = None,
    grid: Annotated[
        list[str] | None, _list("Grid of search and heatmap, e.g. alpha=0.1,0.5", metavar="NAME=VALUES ...")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Number of parallel runs. Default: cores / threads.")] = None,
    threads: Annotated[int, typer.Option(help="Threads per run.")] = 1,
    memory: Annotated[
        float | None, typer.Option(help="Memory limit of a run in GB. Default: 90 % of free memory / jobs.")
    ] = None,
    store: Annotated[Path, typer.Option(help="File of results; runs that it contains are not repeated.")] = STORE,
    out: Annotated[Path, typer.Option(help="Output folder for tables, figures and the page.")] = STORE.parent,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run and the expected time, and exit.")
    ] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Show stored results without running anything.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat runs that failed or ran out of memory.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Reproduce a table or figure of the paper, and show our results next to the paper's."""
    from pcfi.experiments.runs.pool import Resources

    with plain_errors(debug=debug):
        resources = Resources.of_this_machine(jobs, threads, None if memory is None else 1024 * memory)
        selection = Selection(
            datasets=_tuple(datasets),
            systems=_tuple(systems),
            rates=_tuple(rates),
            missing=_tuple(missing),
            tasks=_tuple(tasks),
            splits=splits,
            draw=draw,
            parameters={name: literal(value) for name, value in pairs(fixed or [], "--set").items()},
            grid={name: list(map(literal, value.split(","))) for name, value in pairs(grid or [], "--grid").items()}
            or None,
        )
        request = _select(find_experiments(what, selection), store, resources, retry=retry)
        if dry_run:
            _print_expected_time(request)
            return
        n_failed = 0 if no_run else _run(request, quiet=quiet)
        _show(request, out)
    if n_failed:
        typer.echo(f"pcfi: {n_failed} runs failed; repeat them with --retry", err=True)
        raise typer.Exit(FAILED)


def _select(experiments: list[Experiment], path: Path, resources: "Resources", *, retry: bool) -> _SelectedRuns:
    """The runs of the experiments that are not in the store at `path`; prints which of its lines are damaged."""
    store = RunStore(path)
    for line in store.damaged_lines:
        typer.echo(f"pcfi: {line}", err=True)
    unique_runs = {run.key: run for experiment in experiments for run in experiment.runs}
    return _SelectedRuns(experiments, store.missing(unique_runs.values(), retry=retry), store, resources)


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return tuple(values) if values else None


def _print_expected_time(request: _SelectedRuns) -> None:
    """Print what would run and the expected time, from the durations of earlier runs."""
    from pcfi.experiments.runs.durations import RunDurations

    durations, missing, jobs = RunDurations(request.store), {run.key for run in request.runs}, request.resources.jobs
    for experiment in request.experiments:
        runs = [run for run in experiment.runs if run.key in missing]
        counts = f"{len(experiment.runs):,} runs, {len(runs):,} of them to do"
        typer.echo(f"{experiment.name}: {counts}: {durations.estimate(runs, jobs)}")
        groups: dict[tuple[str, str, str], list[Run]] = {}
        for run in runs:
            groups.setdefault((run.task, run.dataset, run.system), []).append(run)
        for (task, dataset, system), group in groups.items():
            typer.echo(f"  {task} {dataset} {system}: {len(group):,} runs, {durations.estimate(group, jobs)}")
    total = durations.estimate(request.runs, jobs)
    typer.echo(f"Total: {len(request.runs):,} runs, {jobs} at a time: {total}")


def _run(request: _SelectedRuns, *, quiet: bool) -> int:
    """Execute the missing runs and store their records; return how many failed."""
    if not request.runs:
        return 0
    from rich.console import Console

    from pcfi.cli.run_progress import RunProgress, reporting
    from pcfi.experiments.runs.durations import RunDurations
    from pcfi.experiments.runs.execution import execute
    from pcfi.experiments.runs.pool import run_all
    from pcfi.experiments.runs.preparation import fetch_datasets, require_packages, warm_up

    require_packages()
    fetch_datasets(request.runs)
    progress = RunProgress(request.runs, RunDurations(request.store), request.resources.jobs)
    n_failed = 0
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops as cleanly as Ctrl-C
    try:
        with (
            reporting(progress, Console(stderr=True), quiet=quiet) as report,
            closing(run_all(request.runs, execute, request.resources, warm_up)) as records,
        ):
            for record in records:
                request.store.append(record)
                report(record)
                n_failed += record.status == "failed"
    except KeyboardInterrupt:
        done = f"{progress.done} of {progress.total} runs are done and stored in {request.store.path}"
        typer.echo(f"pcfi: stopped; {done}; the same command resumes", err=True)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, previous)
    return n_failed


def _show(request: _SelectedRuns, out: Path) -> None:
    """Print the tables and write the files."""
    from rich.console import Console

    from pcfi.experiments.tables.page import section, write

    console, sections = Console(), [section(experiment, request.store) for experiment in request.experiments]
    for one in sections:
        for table in one.main:
            _print_table(table, console)
    paths = write(sections, request.store, out)
    typer.echo(f"Tables and figures: {paths[-1]} and {len(paths) - 1} files beside it", err=True)


def _print_table(table: TextTable, console: Any) -> None:
    """Print a table; as Markdown if the output is not a terminal."""
    if not console.is_terminal:
        console.out(f"\n{table.title}\n\n{table.markdown()}", highlight=False, end="")
        return
    from rich.table import Table
    from rich.text import Text

    rendered = Table(title=table.title, title_justify="left")
    for column, name in enumerate(table.head):
        rendered.add_column(name, justify="left" if column < table.text_columns else "right")
    for row in table.rows:
        rendered.add_row(*map(Text, row))
    console.print(rendered)


command = reproduce, {"cls": ListCommand, "help": HELP}
