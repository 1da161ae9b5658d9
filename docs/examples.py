"""The Python examples of README and docs: run them, and write what they print into the page. `python docs/examples.py`.

Blocks of one page share their names; a `text` block right after a `python` block is its output.
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
    """What each `text` block that follows a `python` block says, and what the code prints."""
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = FENCE.findall(page.read_text())
    found = []
    for position, (language, code) in enumerate(blocks):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page.name}, block {position}", "exec"), names)
        after = blocks[position + 1] if position + 1 < len(blocks) else ("", "")
        if after[0] == "text":
            found.append((after[1], printed.getvalue().rstrip() + "\n"))
    return found


def with_outputs(page: Path) -> str:
    """The page with what its code prints in the blocks for it."""
    text, done = page.read_text(), 0
    for said, printed in outputs(page):
        start = text.index(f"```text\n{said}```", done)
        done = start + len(f"```text\n{printed}```")
        text = text[:start] + f"```text\n{printed}```" + text[start + len(f"```text\n{said}```") :]
    return text


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]) if sys.argv[1:] else PAGES:
        page.write_text(with_outputs(page))
