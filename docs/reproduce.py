"""Write the results in docs/reproduce.md from the stored runs, and compress the store.

`python docs/reproduce.py`.
"""

from dataclasses import replace
from pathlib import Path

from pcfi.experiments.runs.store import RunStore
from pcfi.experiments.tables.comparison import CellPair, comparison_table, paired_table, system_pairs
from pcfi.experiments.tables.experiment import Selection
from pcfi.experiments.tables.page import Section, section
from pcfi.experiments.tables.paper_experiments import find_experiments
from pcfi.experiments.tables.text_tables import WIDE_CELLS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproduce.md"
RESULTS = ROOT / "experiments" / "results" / "runs.jsonl"
START, END = "<!-- results -->\n", "<!-- /results -->"
SUMMARY_START, SUMMARY_END = "<!-- summary -->\n", "<!-- /summary -->"
DRAWS_START, DRAWS_END = "<!-- draws -->\n", "<!-- /draws -->"


def markdown(one: Section, pictures: Path) -> str:
    """Return a section in Markdown, and write its pictures to the folder."""
    parts = [f"### {one.title}\n"]
    for name, picture in one.figures.items():
        pictures.mkdir(parents=True, exist_ok=True)
        (pictures / f"{name}.png").write_bytes(picture)
        parts.append(f"![{one.title}]({pictures.name}/{name}.png)\n")
    for table in one.tables:
        with_paper = one.details and table.head[0] == "system"
        parts.append(f"{table.title}{f', {WIDE_CELLS}' if with_paper else ''}:\n\n{table.markdown()}")
    if one.details:
        parts.append(f"<details><summary>All cells</summary>\n\n{one.details.markdown()}\n</details>\n")
    return "\n".join(parts)


def replace_between(text: str, start: str, end: str, body: str) -> str:
    """Return the text with a new body between two marks; unchanged without them."""
    before, mark, rest = text.partition(start)
    return f"{before}{start}\n{body}\n{end}{rest.partition(end)[2]}" if mark else text


def pairs(name: str, system: str, label: str) -> list[CellPair]:
    """Return the cells of a system in a table, on our own and on the published draws."""
    own, published = (
        find_experiments(name, Selection(systems=(system,), draw=draw))[0] for draw in ("own", "published")
    )
    return list(system_pairs(own, published, label))


def summary(store: RunStore) -> str:
    """Return the first table of the page: PCFI, accuracy and AUC."""
    table = comparison_table("PCFI", [*pairs("table1", "pcfi", "PCFI"), *pairs("table2", "pcfi", "PCFI")], store)
    return replace(table, rows=tuple(row for row in table.rows if row[2] != "AP")).markdown()


def draws(store: RunStore) -> str:
    """Return the tables of all systems with published draws, and of paired differences."""
    pcfi = [*pairs("table1", "pcfi", "PCFI"), *pairs("table2", "pcfi", "PCFI")]
    fp = [*pairs("table1", "fp", "FP, 40 steps"), *pairs("table2", "fp", "FP, 40 steps")]
    tables = [
        comparison_table("PCFI", pcfi, store),
        comparison_table("FP, 40 steps", fp, store),
        comparison_table("Zero filling", pairs("table1", "zero", "Zero"), store),
        paired_table("PCFI minus FP with 40 steps, on the same splits", zip(pcfi, fp, strict=True), store),
    ]
    return "\n".join(f"{table.title}:\n\n{table.markdown()}" for table in tables)


def page(text: str, store: RunStore, pictures: Path) -> str:
    """Return the page with the results of the store between its marks."""
    sections = [section(one, store) for name in ("all", "search") for one in find_experiments(name)]
    shown = [one for one in sections if one.tables or one.details or one.figures]
    body = "\n".join(markdown(one, pictures) for one in shown) or "No results yet.\n"
    text = replace_between(text, SUMMARY_START, SUMMARY_END, summary(store))
    text = replace_between(text, DRAWS_START, DRAWS_END, draws(store))
    return replace_between(text, START, END, body)


if __name__ == "__main__":
    results = RunStore(RESULTS)
    PAGE.write_text(page(PAGE.read_text(), results, PAGE.parent / "reproduced"))
    results.compress()
