"""Experiments and their records -> tables and figures in files, and one self-contained HTML page."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pcfi.experiments.run import Record
from pcfi.experiments.runs.durations import format_duration
from pcfi.experiments.runs.store import RunStore
from pcfi.experiments.tables.comparison import resistance_table
from pcfi.experiments.tables.experiment import Experiment
from pcfi.experiments.tables.figures import figures
from pcfi.experiments.tables.text_tables import (
    SELECTED_PARAMETERS,
    TextTable,
    full_table,
    heatmap_tables,
    hops_tables,
    selected_parameters_table,
    wide_tables,
)
from pcfi.files.writing import atomic_file

_HOPS_MEASURES = {"hops-accuracy": "accuracy", "hops-cosine": "cosine"}


@dataclass(frozen=True)
class Section:
    """The results of an experiment: tables, PNG figures by name, and the table of all cells (`details`) if any."""

    name: str
    title: str
    tables: list[TextTable]
    details: TextTable | None
    figures: dict[str, bytes]

    @property
    def main(self) -> list[TextTable]:
        """The tables to print: each number once."""
        if self.details is None:
            return self.tables
        return [self.details, *(table for table in self.tables if table.title == SELECTED_PARAMETERS)]

    def data_url(self, figure: str) -> str:
        """Return a figure as a data URL."""
        return "data:image/png;base64," + base64.b64encode(self.figures[figure]).decode()


def section(experiment: Experiment, store: RunStore) -> Section:
    """Return the tables and figures of an experiment, from the records in the store."""
    details = None
    if experiment.name in _HOPS_MEASURES:
        tables = hops_tables(experiment, store, _HOPS_MEASURES[experiment.name])
    elif any(cell.grid_point for cell in experiment.cells):
        tables = heatmap_tables(experiment, store)
    else:
        tables, details = wide_tables(experiment, store), full_table(experiment, store)
    if experiment.name == "resistance":
        tables.append(resistance_table(experiment, store))
    if selected := selected_parameters_table(experiment, store):
        tables.append(selected)
    details = details if details and details.rows else None
    return Section(experiment.name, experiment.title, tables, details, figures(experiment, store))


def write(sections: Iterable[Section], store: RunStore, folder: Path) -> list[Path]:
    """Write the tables (.md, .tex, .html) and figures (.png) of each section, and `index.html` with all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = [one for one in sections if one.tables or one.details or one.figures]
    written = []
    for one in shown:
        tables = [*one.tables, *([one.details] if one.details else [])]
        texts = {
            "md": f"# {one.title}\n\n" + "\n".join(f"{table.title}\n\n{table.markdown()}" for table in tables),
            "tex": "\n".join(table.latex() for table in tables),
            "html": "\n".join(table.html() for table in tables),
        }
        written += [_write_file(folder / f"{one.name}.{suffix}", text.encode()) for suffix, text in texts.items()]
        written += [_write_file(folder / f"{name}.png", picture) for name, picture in one.figures.items()]
    return [*written, _write_file(folder / "index.html", html_page(shown, store).encode())]


def html_page(sections: Iterable[Section], store: RunStore) -> str:
    """Return one self-contained page with the figures inlined."""
    from jinja2 import Environment

    template = resources.files("pcfi.experiments.tables").joinpath("templates/page.html").read_text("utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(sections=list(sections), facts=_facts(store))


def _facts(store: RunStore) -> dict[str, str]:
    """Facts about the runs behind the page."""
    records: list[Record] = list(store)
    done = [record for record in records if record.done]
    latest = max(records, key=lambda record: record.date, default=None)
    facts = {
        "runs": f"{len(done):,} done, {len(records) - len(done):,} failed or out of memory",
        "time": format_duration(sum(record.seconds for record in records)) + " of computation in total",
    }
    if latest is not None:
        facts["last run"] = latest.date
        facts["versions"] = ", ".join(f"{name} {version}" for name, version in latest.versions.items())
    return facts


def _write_file(path: Path, data: bytes) -> Path:
    with atomic_file(str(path), force=True) as file:
        file.write(data)
    return path
