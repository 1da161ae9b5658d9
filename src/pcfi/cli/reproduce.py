"""`pcfi reproduce`: run the paper's tables and figures, resume, and show ours next to the paper's."""

import signal
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcfi.cli.arguments import FAILED, INTERRUPTED, ListCommand, literal, pairs, plain_errors
from pcfi.experiments.catalog import DATASETS, MASKS, SYSTEMS
from pcfi.experiments.outlines import OUTLINES
from pcfi.experiments.plans import PLANS, Plan, Selection, plan
from pcfi.experiments.runs import TASKS, Run
from pcfi.experiments.store import Store

if TYPE_CHECKING:
    from pcfi.experiments.runner import Resources


STORE = Path("results/runs.jsonl")


@dataclass(frozen=True)
class _Work:
    """What was asked for, and with what means."""

    plans: list[Plan]
    runs: list[Run]
    store: Store
    resources: "Resources"


HELP = "\n\n".join(
    [
        "Run any table or figure of the paper, and show ours next to the paper's.",
        "Results are kept run by run: stop with Ctrl-C whenever you like; the same command goes on where it stopped.",
        "\b\n" + "\n".join(f"{name:<15}{one.title}" for name, one in OUTLINES.items()),
    ]
)


def _list(what: str, names: Iterable[str] = (), metavar: str = "NAME ...") -> Any:
    """An option that takes several values."""
    return typer.Option(help=f"{what}: {', '.join(names)}." if names else f"{what}.", metavar=metavar)


def reproduce(
    what: Annotated[
        str, typer.Argument(help="One of the names above, or all.", metavar="WHAT", autocompletion=lambda: list(PLANS))
    ],
    datasets: Annotated[list[str] | None, _list("Data sets", (*DATASETS, "homophily-H-scale-S"))] = None,
    systems: Annotated[list[str] | None, _list("Systems", SYSTEMS)] = None,
    rates: Annotated[list[float] | None, _list("Missing rates", metavar="RATE ...")] = None,
    missing: Annotated[list[str] | None, _list("Kinds of missing", MASKS)] = None,
    tasks: Annotated[list[str] | None, _list("Tasks", TASKS)] = None,
    splits: Annotated[int | None, typer.Option(help="Number of splits: seeds 0 to SPLITS - 1.")] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", help="Parameter of every run that takes it, as in epochs=50.", metavar="NAME=VALUE ..."),
    ] = None,
    grid: Annotated[
        list[str] | None, _list("Values that search and heatmap try, as in alpha=0.1,0.5", metavar="NAME=VALUES ...")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time. Default: as many as cores / threads.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of each run.")] = 1,
    memory: Annotated[
        float | None, typer.Option(help="GB that a run may hold. Default: 90 % of what is free, shared.")
    ] = None,
    store: Annotated[Path, typer.Option(help="File of results; what it has is not run again.")] = STORE,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and the page.")] = STORE.parent,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run and roughly how long.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing: tables of what the store has.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Run again what failed or ran out of memory.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    """Run any table or figure of the paper, and show ours next to the paper's."""
    from pcfi.experiments.runner import Resources, remaining

    with plain_errors(debug=debug):
        means = Resources.of_this_machine(jobs, threads, None if memory is None else 1024 * memory)
        selection = Selection(
            datasets=_tuple(datasets),
            systems=_tuple(systems),
            rates=_tuple(rates),
            missing=_tuple(missing),
            tasks=_tuple(tasks),
            splits=splits,
            fixed={name: literal(value) for name, value in pairs(fixed or [], "--set").items()},
            grid={name: list(map(literal, value.split(","))) for name, value in pairs(grid or [], "--grid").items()}
            or None,
        )
        plans = plan(what, selection)
        results = Store(store)
        for damage in results.damages:
            typer.echo(f"pcfi: {damage}", err=True)
        runs = remaining({run.key: run for one in plans for run in one.runs}.values(), results, retry=retry)
        work = _Work(plans, runs, results, means)
        if dry_run:
            _foretell(work)
            return
        failed = 0 if no_run else _run(work, quiet=quiet)
        _show(work, out)
    if failed:
        typer.echo(f"pcfi: {failed} runs failed; --retry runs them again", err=True)
        raise typer.Exit(FAILED)


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return tuple(values) if values else None


def _foretell(work: _Work) -> None:
    """Print what would run and how long it would take, judged by earlier runs."""
    from pcfi.experiments.estimates import Experience

    experience, left, jobs = Experience(work.store), {run.key for run in work.runs}, work.resources.jobs
    for one in work.plans:
        missing = [run for run in one.runs if run.key in left]
        estimate = experience.estimate(missing).sentence(jobs)
        typer.echo(f"{one.name}: {len(one.runs):,} runs, {len(missing):,} of them still to do: {estimate}")
        groups: dict[tuple[str, str, str], list[Run]] = {}
        for run in missing:
            groups.setdefault((run.task, run.dataset, run.system), []).append(run)
        for (task, dataset, system), group in groups.items():
            estimate = experience.estimate(group).sentence(jobs)
            typer.echo(f"  {task} {dataset} {system}: {len(group):,} runs, {estimate}")
    total = experience.estimate(work.runs).sentence(jobs)
    typer.echo(f"In all {len(work.runs):,} runs with {jobs} at a time: {total}")


def _run(work: _Work, *, quiet: bool) -> int:
    """Work on the runs that are left, recording each; return how many failed."""
    if not work.runs:
        return 0
    from rich.console import Console

    from pcfi.cli.run_progress import Outlook, reporting
    from pcfi.experiments.estimates import Experience
    from pcfi.experiments.execution import execute
    from pcfi.experiments.preparing import fetch_datasets, require_packages, warm_up
    from pcfi.experiments.runner import run_all

    require_packages()
    fetch_datasets(work.runs)
    outlook = Outlook(work.runs, Experience(work.store), work.resources.jobs)
    failed = 0
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops as cleanly as Ctrl-C does
    try:
        with (
            reporting(outlook, Console(stderr=True), quiet=quiet) as tell,
            closing(run_all(work.runs, execute, work.resources, warm_up)) as records,
        ):
            for record in records:
                work.store.append(record)
                tell(record)
                failed += record.status == "failed"
    except KeyboardInterrupt:
        done = f"{outlook.done} of {outlook.total} runs are done and kept in {work.store.path}"
        typer.echo(f"pcfi: stopped; {done}; the same command goes on from here", err=True)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    return failed


def _show(work: _Work, out: Path) -> None:
    """Print the tables, write the files."""
    from rich.console import Console

    from pcfi.cli.terminal_tables import print_table
    from pcfi.experiments.page import section, write

    console, sections = Console(), [section(one, work.store) for one in work.plans]
    for one in sections:
        for table in one.main:
            print_table(table, console)
    paths = write(sections, work.store, out)
    typer.echo(f"Tables and figures: {paths[-1]} and {len(paths) - 1} files beside it", err=True)


command = reproduce, {"cls": ListCommand, "help": HELP}
