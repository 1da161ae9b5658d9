"""Plans and their records -> sections of tables and figures -> files, and one self-contained HTML page."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pcfi.experiments.estimates import spoken
from pcfi.experiments.figures import figures
from pcfi.experiments.plans import Plan
from pcfi.experiments.store import Record, Store
from pcfi.experiments.tables import (
    CHOICES,
    Table,
    choices_table,
    full_table,
    heatmap_tables,
    hops_tables,
    wide_tables,
)
from pcfi.files.writing import atomic_file

_HOPS = {"hops-accuracy": "accuracy", "hops-cosine": "cosine"}


@dataclass(frozen=True)
class Section:
    """What a plan came to: tables to read first, the table of all cells if it says more, and figures (PNG) by name."""

    name: str
    title: str
    tables: list[Table]
    details: Table | None
    figures: dict[str, bytes]

    @property
    def main(self) -> list[Table]:
        """The tables that say it all, each number once."""
        return self.tables if self.details is None else [self.details, *(t for t in self.tables if t.title == CHOICES)]

    def data_address(self, figure: str) -> str:
        """A figure as an address that holds it."""
        return "data:image/png;base64," + base64.b64encode(self.figures[figure]).decode()


def section(plan: Plan, store: Store) -> Section:
    """Tables and figures of a plan, of what the store holds so far."""
    details = None
    if plan.name in _HOPS:
        tables = hops_tables(plan, store, _HOPS[plan.name])
    elif any(cell.axis for cell in plan.cells):
        tables = heatmap_tables(plan, store)
    else:
        tables, details = wide_tables(plan, store), full_table(plan, store)
    if choices := choices_table(plan, store):
        tables.append(choices)
    return Section(plan.name, plan.title, tables, details if details and details.rows else None, figures(plan, store))


def write(sections: Iterable[Section], store: Store, folder: Path) -> list[Path]:
    """Write each section's tables (.md, .tex, .html) and figures (.png), and `index.html`, which holds them all."""
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
        written += [_put(folder / f"{one.name}.{suffix}", text.encode()) for suffix, text in texts.items()]
        written += [_put(folder / f"{name}.png", picture) for name, picture in one.figures.items()]
    return [*written, _put(folder / "index.html", html_page(shown, store).encode())]


def html_page(sections: Iterable[Section], store: Store) -> str:
    """One page that needs nothing else: figures are inlined."""
    from jinja2 import Environment

    template = resources.files("pcfi.experiments").joinpath("templates/page.html").read_text("utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(sections=list(sections), facts=_facts(store))


def _facts(store: Store) -> dict[str, str]:
    """What the page says about the runs behind it."""
    records: list[Record] = list(store)
    done = [record for record in records if record.done]
    latest = max(records, key=lambda record: record.date, default=None)
    facts = {
        "runs": f"{len(done):,} done, {len(records) - len(done):,} not",
        "time": spoken(sum(record.seconds for record in records)) + " of computing in all",
    }
    if latest is not None:
        facts["last run"] = latest.date
        facts["versions"] = ", ".join(f"{name} {version}" for name, version in latest.versions.items())
    return facts


def _put(path: Path, data: bytes) -> Path:
    with atomic_file(str(path), force=True) as file:
        file.write(data)
    return path
