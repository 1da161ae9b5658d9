"""`pcfi demo`: remove images of handwritten digits, fill them in, and write a picture, a report and files."""

import json
import textwrap
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command
from pcfi.cli.session import Session, open_session
from pcfi.errors import FileError
from pcfi.files.atomic_output import Publication
from pcfi.files.formats import Format
from pcfi.files.writing import write_table, write_text

PICTURE, REPORT = "demo.png", "demo.html"


@dataclass(frozen=True)
class DemoOptions:
    """What `pcfi demo` writes, and its seed."""

    out: Path = o.output_option("--out", None, "Folder for the picture and the report.", default=Path())
    write: Path | None = o.output_option(
        "--write", "DIR", "Also write the node and edge files to this folder, to try pcfi impute on them."
    )
    seed: int = o.running_option("--seed", "NUMBER", "Seed for the choice of removed images.", default=0)


def demo(options: DemoOptions, running: o.RunOptions) -> None:
    """Remove 90 % of a set of handwritten digits, fill them in, and compare the methods."""
    with open_session(**vars(running)) as session:
        from pcfi.demo import compare, describe, load_digits
        from pcfi.progress import compile_notice

        if not options.out.is_dir():
            raise FileError(f"the folder {options.out} does not exist: create it first")
        digits = load_digits(options.seed)
        session.show(textwrap.fill(describe(digits), 96) + "\n")
        with session.stage("fill"), compile_notice(show=not session.quiet):
            rows, results = compare(digits)
        if running.as_json:
            typer.echo(json.dumps({method: {"rmse": error, "seconds": spent} for method, error, spent in rows}))
        _show(session, rows, results["pcfi"])
        with Publication() as publication:
            evaluation = _evaluation(digits, rows, results)
            _write_report(session, digits, results["pcfi"], evaluation, options.out, publication)
            if options.write is not None:
                _write_files(digits, options.write, publication)
        _show_written(session, options)


def _show(session: Session, rows: Any, result: Any) -> None:
    from rich.table import Table

    table = Table()
    table.add_column("method")
    for name in ("RMSE on removed pixels", "time"):
        table.add_column(name, justify="right")
    best = min(error for _, error, _ in rows)
    for method, error, seconds in rows:
        style = "bold green" if error == best else ""
        table.add_row(method, f"{error:.3f}", f"{seconds * 1e3:.1f} ms", style=style)
    session.show(table)
    session.show(f"{result}\n")


def _evaluation(digits: Any, rows: Any, results: Any) -> Any:
    """Errors on the removed pixels, whose true values are known, as the facts of an evaluation."""
    from pcfi.report.evaluation_facts import method_errors
    from pcfi.report.facts import EvaluationFacts

    removed, hops = ~digits.known, results["pcfi"].cells.hops
    errors = {method: results[method].values - digits.images for method, _, _ in rows}
    methods = method_errors(errors, {method: seconds for method, _, seconds in rows}, removed, hops)
    return EvaluationFacts(int(removed.sum()), "90 % of the images", "shades of grey, from 0 to 16", methods)


def _write_report(
    session: Session, digits: Any, result: Any, evaluation: Any, folder: Path, publication: Publication
) -> None:
    import pcfi
    from pcfi.demo import channel_names, draw, node_name
    from pcfi.report.html_page import render_page
    from pcfi.report.imputation_facts import FilledChannels, RunDetails, collect_facts

    picture, page = folder / PICTURE, folder / REPORT
    with session.stage("picture"), publication.open(picture) as file:
        draw(digits, result, file)
    with session.stage("report"):
        graph = pcfi.prepare_graph(digits.edges)
        parameters = {name: o.DEFAULTS[name] for name in ("alpha", "beta", "solver", "unreachable")}
        details = RunDetails("Handwritten digits, filled", "pcfi demo", parameters, evaluation=evaluation)
        channels = FilledChannels.of_arrays(
            digits.features, result.values, names=channel_names(), node_name=partial(node_name, digits)
        )
        text = render_page(collect_facts(channels, result, graph, details))
        write_text(text, str(page), force=True, publication=publication)


def _write_files(digits: Any, folder: Path, publication: Publication) -> None:
    """Write the node and edge files."""
    from pcfi.demo import as_tables

    folder.mkdir(parents=True, exist_ok=True)
    for name, table in zip(("nodes", "edges"), as_tables(digits), strict=True):
        write_table(table, str(folder / f"{name}.csv"), Format("csv"), force=True, publication=publication)


def _show_written(session: Session, options: DemoOptions) -> None:
    """Print the paths of the files, and the command that fills the node file."""
    picture, page, folder = options.out / PICTURE, options.out / REPORT, options.write
    session.show(f"Wrote {picture}: original, known and filled images, and their confidence.")
    session.show(f"Wrote {page}: the report; open it in a browser.")
    if folder is None:
        session.show("\nTo try it on files: pcfi demo --write demo-files")
        return
    session.show(
        f"\nWrote {folder / 'nodes.csv'} and {folder / 'edges.csv'}. Fill them like your own files:\n\n"
        f"  pcfi impute {folder}/nodes.csv {folder}/edges.csv --exclude digit -o {folder}/filled.csv "
        f"--report {folder}/report.html\n"
    )


command = grouped_command(demo)
