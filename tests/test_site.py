"""What `make docs` needs, checked quickly: every page is in a table of contents, and the gallery can be built."""

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))
TOCTREE = re.compile(r"^```{toctree}\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def entries():
    """Pages that tables of contents name, by their path from `docs`."""
    for page in DOCS.rglob("*.md"):
        for block in TOCTREE.findall(page.read_text(encoding="utf-8")):
            for line in block.splitlines():
                if line and not line.startswith(":"):
                    yield (page.parent.relative_to(DOCS) / line).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if page != "index"])
def test_every_page_is_in_a_table_of_contents(page):
    assert any(fnmatch(page, entry) for entry in entries())


@pytest.mark.parametrize("entry", sorted(set(entries())))
def test_every_entry_of_a_table_of_contents_exists(entry):
    assert entry == "gallery/index" or any(fnmatch(page, entry) for page in PAGES)


@pytest.mark.parametrize("script", sorted((DOCS / "gallery_scripts").glob("*.py")), ids=lambda path: path.name)
def test_gallery_scripts_have_a_title_and_a_figure(script):
    text = script.read_text(encoding="utf-8")
    title, line, *_ = ast.get_docstring(ast.parse(text)).splitlines()
    assert len(line) >= len(title)
    assert set(line) == {"="}
    assert "plt.subplots" in text
