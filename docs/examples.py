"""The Python examples of README and docs: run them, and write what they print into the page. `python docs/examples.py`.

Blocks of one page share their names; a `text` block right after a `python` block is its output.
"""

import contextlib
import io
import re
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


if __name__ == "__main__":
    for page in PAGES:
        text = page.read_text()
        for said, printed in outputs(page):
            text = text.replace(f"```text\n{said}```", f"```text\n{printed}```")
        page.write_text(text)
