"""Results -> the tables and pictures in docs/reproduce.md, and README's table; the results are packed to be committed.

`python docs/reproduce.py`.
"""

from pathlib import Path

from pcfi.experiments.page import Section, section
from pcfi.experiments.plans import Selection, plan
from pcfi.experiments.store import Store

ROOT = Path(__file__).resolve().parents[1]
PAGE, README = ROOT / "docs" / "reproduce.md", ROOT / "README.md"
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


def placed(text: str, body: str) -> str:
    """The text with a body between its marks."""
    before, _, rest = text.partition(START)
    return f"{before}{START}\n{body}\n{END}{rest.partition(END)[2]}"


def headline(text: str, store: Store) -> str:
    """The text with the main rows of table 1 between its marks."""
    (table1,) = plan("table1", Selection(systems=("zero", "lp", "fp", "pcfi")))
    tables = section(table1, store).tables
    return placed(text, "\n".join(f"{table.title} at a rate of 0.995:\n\n{table.markdown()}" for table in tables))


def page(text: str, store: Store, pictures: Path) -> str:
    """The page with the results of the store between its marks."""
    sections = [section(one, store) for name in ("all", "search") for one in plan(name)]
    shown = [one for one in sections if one.tables or one.details or one.figures]
    body = "\n".join(told(one, pictures) for one in shown) or "Nothing was run yet.\n"
    return placed(text, body)


if __name__ == "__main__":
    results = Store(RESULTS)
    PAGE.write_text(page(PAGE.read_text(), results, PAGE.parent / "reproduced"))
    README.write_text(headline(README.read_text(), results))
    results.pack()
