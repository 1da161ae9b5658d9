"""Plans and their records -> sections of tables and figures -> files, and one self-contained HTML page."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

from pcfi.experiments.estimates import spoken
from pcfi.experiments.figures import figures, save
from pcfi.experiments.plans import Plan
from pcfi.experiments.store import Record, Store
from pcfi.experiments.tables import Table, choices_table, full_table, hops_tables, wide_tables

_HOPS = {"hops-accuracy": "accuracy", "hops-cosine": "cosine"}


@dataclass(frozen=True, eq=False)
class Section:
    """What a plan came to: tables to read first, the table of all cells, and figures by name."""

    name: str
    title: str
    tables: list[Table]
    details: Table | None
    figures: dict[str, Any]


def section(plan: Plan, store: Store) -> Section:
    """Tables and figures of a plan, of what the store holds so far."""
    if plan.name in _HOPS:
        tables = hops_tables(plan, store, _HOPS[plan.name])
    elif any(cell.axis for cell in plan.cells):
        tables = []
    else:
        tables = wide_tables(plan, store)
    if choices := choices_table(plan, store):
        tables.append(choices)
    details = full_table(plan, store)
    return Section(plan.name, plan.title, tables, details if details.rows else None, figures(plan, store))


def write(plans: Iterable[Plan], store: Store, folder: Path) -> list[Path]:
    """Write each plan's tables (.md, .tex, .html) and figures (.png), and `index.html`, which holds them all."""
    folder.mkdir(parents=True, exist_ok=True)
    written, sections = [], []
    for one in (section(plan, store) for plan in plans):
        tables = [*one.tables, *([one.details] if one.details else [])]
        texts = {
            "md": f"# {one.title}\n\n" + "\n".join(f"{table.title}\n\n{table.markdown()}" for table in tables),
            "tex": "\n".join(table.latex() for table in tables),
            "html": "\n".join(table.html() for table in tables),
        }
        if tables:
            written += [_put(folder / f"{one.name}.{suffix}", text) for suffix, text in texts.items()]
        pictures = {}
        for name, figure in one.figures.items():
            pictures[name] = _inlined(figure)
            save(figure, folder / f"{name}.png")
            written.append(folder / f"{name}.png")
        sections.append((one, pictures))
    return [*written, _put(folder / "index.html", html_page(sections, store))]


def html_page(sections: Iterable[tuple[Section, dict[str, str]]], store: Store) -> str:
    """One page that needs nothing else: sections with their pictures as data addresses."""
    from jinja2 import Environment

    template = resources.files("pcfi.experiments").joinpath("templates/page.html").read_text("utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    shown = [(one, pictures) for one, pictures in sections if one.tables or one.details or pictures]
    return environment.from_string(template).render(sections=shown, facts=_facts(store))


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


def _inlined(figure: Any) -> str:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _put(path: Path, text: str) -> Path:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return path
