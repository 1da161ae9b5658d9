"""Run the Python examples of README and docs, and write their output into the pages. `python docs/examples.py`.

Blocks of one page share variables; a `text` block right after a `python` block is its output.
"""

import contextlib
import io
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def outputs(page: Path) -> list[tuple[str, str]]:
    """The text of each `text` block that follows a `python` block, and what the code prints."""
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = FENCE.findall(page.read_text())
    pairs = []
    for position, (language, code) in enumerate(blocks):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page.name}, block {position}", "exec"), names)
        after = blocks[position + 1] if position + 1 < len(blocks) else ("", "")
        if after[0] == "text":
            pairs.append((after[1], printed.getvalue().rstrip() + "\n"))
    return pairs


def with_outputs(page: Path) -> str:
    """The page with the current output of its code."""
    text, done = page.read_text(), 0
    for said, printed in outputs(page):
        start = text.index(f"```text\n{said}```", done)
        done = start + len(f"```text\n{printed}```")
        text = text[:start] + f"```text\n{printed}```" + text[start + len(f"```text\n{said}```") :]
    return text


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]) if sys.argv[1:] else PAGES:
        page.write_text(with_outputs(page))
