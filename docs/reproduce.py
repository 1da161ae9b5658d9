"""Write the results in docs/reproduce.md and README.md from the stored runs, and compress the store.

`python docs/reproduce.py`.
"""

from pathlib import Path

from pcfi.experiments.runs.store import RunStore
from pcfi.experiments.tables.experiment import Selection
from pcfi.experiments.tables.page import Section, section
from pcfi.experiments.tables.paper_experiments import find_experiments
from pcfi.experiments.tables.text_tables import SELECTED_PARAMETERS

ROOT = Path(__file__).resolve().parents[1]
PAGE, README = ROOT / "docs" / "reproduce.md", ROOT / "README.md"
RESULTS = ROOT / "experiments" / "results" / "runs.jsonl"
START, END = "<!-- results -->\n", "<!-- /results -->"


def markdown(one: Section, pictures: Path) -> str:
    """Return a section in Markdown, and write its pictures to the folder."""
    parts = [f"### {one.title}\n"]
    for name, picture in one.figures.items():
        pictures.mkdir(parents=True, exist_ok=True)
        (pictures / f"{name}.png").write_bytes(picture)
        parts.append(f"![{one.title}]({pictures.name}/{name}.png)\n")
    for table in one.tables:
        with_paper = one.details and table.title != SELECTED_PARAMETERS
        parts.append(f"{table.title}{', ours (paper)' if with_paper else ''}:\n\n{table.markdown()}")
    if one.details:
        parts.append(f"<details><summary>All cells</summary>\n\n{one.details.markdown()}\n</details>\n")
    return "\n".join(parts)


def replace_results(text: str, body: str) -> str:
    """Return the text with a new body between its marks."""
    before, _, rest = text.partition(START)
    return f"{before}{START}\n{body}\n{END}{rest.partition(END)[2]}"


def readme(text: str, store: RunStore) -> str:
    """Return the text with the main rows of table 1 between its marks."""
    (table1,) = find_experiments("table1", Selection(systems=("zero", "lp", "fp", "pcfi")))
    tables = section(table1, store).tables
    return replace_results(
        text, "\n".join(f"{table.title} at a rate of 0.995:\n\n{table.markdown()}" for table in tables)
    )


def page(text: str, store: RunStore, pictures: Path) -> str:
    """Return the page with the results of the store between its marks."""
    sections = [section(one, store) for name in ("all", "search") for one in find_experiments(name)]
    shown = [one for one in sections if one.tables or one.details or one.figures]
    body = "\n".join(markdown(one, pictures) for one in shown) or "No results yet.\n"
    return replace_results(text, body)


if __name__ == "__main__":
    results = RunStore(RESULTS)
    PAGE.write_text(page(PAGE.read_text(), results, PAGE.parent / "reproduced"))
    README.write_text(readme(README.read_text(), results))
    results.compress()
