"""Every Python example in README and docs runs as written and prints what it says; links lead somewhere."""

import re

import pytest
from examples import PAGES, outputs


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_print_what_they_say(page):
    for said, printed in outputs(page):
        assert printed == said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
