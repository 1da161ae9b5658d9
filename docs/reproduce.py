"""Committed results -> the tables and pictures in docs/reproduce.md. `python docs/reproduce.py`."""

from pathlib import Path

from pcfi.experiments.page import Section, section
from pcfi.experiments.plans import plan
from pcfi.experiments.store import Store

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproduce.md"
RESULTS = ROOT / "experiments" / "results" / "runs.jsonl"
START, END = "<!-- results -->\n", "<!-- /results -->"


def told(one: Section, pictures: Path) -> str:
    """A section in Markdown; its pictures are written to the folder."""
    parts = [f"### {one.title}\n"]
    for name, picture in one.figures.items():
        pictures.mkdir(parents=True, exist_ok=True)
        (pictures / f"{name}.png").write_bytes(picture)
        parts.append(f"![{one.title}]({pictures.name}/{name}.png)\n")
    parts += [f"{table.title}, ours (paper's):\n\n{table.markdown()}" for table in one.tables if one.details]
    parts += [f"{table.title}:\n\n{table.markdown()}" for table in one.tables if not one.details]
    if one.details:
        parts.append(f"<details><summary>All cells</summary>\n\n{one.details.markdown()}\n</details>\n")
    return "\n".join(parts)


def page(text: str, store: Store, pictures: Path) -> str:
    """The page with the results of the store between its marks."""
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    sections = [section(one, store) for name in ("all", "search") for one in plan(name)]
    shown = [one for one in sections if one.tables or one.details or one.figures]
    body = "\n".join(told(one, pictures) for one in shown) or "Nothing was run yet.\n"
    return f"{before}{START}\n{body}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), Store(RESULTS), PAGE.parent / "reproduced"))
