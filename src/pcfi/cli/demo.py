"""`pcfi demo`: handwritten digits, removed and filled in: a table, a picture, a report, and files to go on with."""

import json
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import GroupedCommand
from pcfi.cli.session import Session, session
from pcfi.errors import FileError
from pcfi.files.formats import Format
from pcfi.files.writing import atomic_file, write_table, write_text

PICTURE, REPORT = "demo.png", "demo.html"


def demo(
    folder: Annotated[
        Path, typer.Option("--out", help="Folder for the picture and the report.", rich_help_panel=o.OUTPUT)
    ] = Path(),
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Leave the node and edge files here, to go on with.", rich_help_panel=o.OUTPUT
        ),
    ] = None,
    seed: o.Seed = 0,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Remove 90 % of the images of handwritten digits, and fill them in again."""
    with session(quiet=quiet, as_json=as_json, debug=debug, threads=threads) as told:
        from pcfi.demo import load_digits, story

        if not folder.is_dir():
            raise FileError(f"the folder {folder} does not exist: make it first")
        digits = load_digits(seed)
        told.show(textwrap.fill(story(digits), 96) + "\n")
        with told.stage("fill"):
            rows, results = _compare(told, digits)
        if as_json:
            typer.echo(json.dumps({method: {"rmse": error, "seconds": spent} for method, error, spent in rows}))
        _show(told, rows, results["pcfi"])
        _draw(told, digits, results["pcfi"], _judged(digits, rows, results), folder)
        if write is not None:
            _leave(told, digits, write)
        else:
            told.show("\nThe same on files: pcfi demo --write demo-files")


def _compare(told: Session, digits: Any) -> Any:
    from pcfi.demo import compare
    from pcfi.progress import compile_notice

    with compile_notice(show=not told.quiet):
        return compare(digits)


def _show(told: Session, rows: Any, result: Any) -> None:
    from rich.table import Table

    table = Table()
    table.add_column("method")
    for name in ("RMSE on removed pixels", "time"):
        table.add_column(name, justify="right")
    best = min(error for _, error, _ in rows)
    for method, error, seconds in rows:
        style = "bold green" if error == best else ""
        table.add_row(method, f"{error:.3f}", f"{seconds * 1e3:.1f} ms", style=style)
    told.show(table)
    told.show(f"{result}\n")


def _judged(digits: Any, rows: Any, results: Any) -> Any:
    """The errors on the removed pixels as an evaluation; here the truth is known."""
    from pcfi.report.evaluation_facts import judged
    from pcfi.report.facts import EvaluationFacts

    removed, hops = ~digits.known, results["pcfi"]._hops
    errors = {method: results[method].values - digits.images for method, _, _ in rows}
    methods = judged(errors, {method: seconds for method, _, seconds in rows}, removed, hops)
    return EvaluationFacts(int(removed.sum()), "90 % of the images", "shades of grey, from 0 to 16", methods)


def _draw(told: Session, digits: Any, result: Any, tested: Any, folder: Path) -> None:
    import pcfi
    from pcfi.demo import channel_names, draw, node_name
    from pcfi.report.html_page import paint
    from pcfi.report.imputation_facts import Circumstances, Filling, gather

    picture, page = folder / PICTURE, folder / REPORT
    with told.stage("picture"), atomic_file(str(picture), force=True) as file:
        draw(digits, result, file)
    with told.stage("report"):
        graph = pcfi.prepare_graph(digits.edges)
        parameters = {name: o.DEFAULTS[name] for name in ("alpha", "beta", "solver", "unreachable")}
        around = Circumstances("Handwritten digits, filled in", "pcfi demo", parameters, evaluation=tested)
        filling = Filling(channel_names(), digits.features, result.values, lambda node: node_name(digits, node))
        write_text(paint(gather(filling, result, graph, around)), str(page), force=True)
    told.show(f"Look at {picture}: original, what was left, what PCFI filled in, confidence.")
    told.show(f"Open {page} in a browser: the report.")


def _leave(told: Session, digits: Any, folder: Path) -> None:
    """Write the files, and say the command that does the same on them."""
    from pcfi.demo import as_tables

    folder.mkdir(parents=True, exist_ok=True)
    for name, table in zip(("nodes", "edges"), as_tables(digits), strict=True):
        write_table(table, str(folder / f"{name}.csv"), Format("csv"), force=True)
    told.show(
        f"\nWrote {folder / 'nodes.csv'} and {folder / 'edges.csv'}. The same on these files, and on yours:\n\n"
        f"  pcfi impute {folder}/nodes.csv {folder}/edges.csv --exclude digit -o {folder}/filled.csv "
        f"--report {folder}/report.html\n"
    )


command: tuple[Any, dict[str, Any]] = demo, {"cls": GroupedCommand}
