"""Every example in README and docs runs as written, and prints what it says; links lead somewhere."""

import re
import shlex
import shutil

import numpy as np
import pytest
from examples import FENCE, PAGES, ROOT, outputs
from typer.testing import CliRunner

from pcfi.cli.app import COMMANDS, app

pytestmark = pytest.mark.slow

NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]\d+)?")  # whose last digits another processor may see otherwise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_print_what_they_say(page):
    for said, printed in outputs(page):
        assert NUMBER.sub("#", " ".join(printed.split())) == NUMBER.sub("#", " ".join(said.split()))
        shown, stated = (np.array(NUMBER.findall(text), dtype=float) for text in (printed, said))
        np.testing.assert_allclose(shown, stated, rtol=0.02, atol=2e-3)


def anchors(page):
    """Anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(FENCE, "", page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
        if not target.startswith("http"):
            path = page.parent / target if target else page
            assert path.exists(), target
            assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


@pytest.fixture(scope="module")
def demo_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    assert CliRunner().invoke(app, ["demo", "--out", str(folder), "--write", str(folder / "demo-files")]).exit_code == 0
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "commands"], ids=lambda page: page.name)
def test_commands_run_as_written(page, demo_files, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(demo_files / "demo-files", tmp_path / "demo-files")
    commands = [
        line for language, code in FENCE.findall(page.read_text()) if language == "sh" for line in code.splitlines()
    ]
    commands = [command for command in commands if not command.startswith("#")]
    assert commands
    for command in commands:
        program, *arguments = shlex.split(command)
        done = CliRunner().invoke(app, arguments)
        assert (program, done.exit_code) == ("pcfi", 0), f"{command}: {done.stderr}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_page(name):
    assert any(page.stem == name for page in PAGES)


def test_the_tests_that_the_page_on_reliability_names_exist():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "reliability.md").read_text()))
    files = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    defined = {name for text in files for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert len(named) > 40
    assert named <= defined, named - defined


def test_terms_of_the_glossary_have_their_definitions_below_them():
    """Definitions on the line of their term broke the build of the site."""
    body = (ROOT / "docs" / "glossary.md").read_text().split("```{glossary}\n")[1].split("```")[0]
    for entry in body.strip().split("\n\n"):
        term, definition = entry.split("\n", 1)
        assert len(term) < 30
        assert definition.startswith("  ")
