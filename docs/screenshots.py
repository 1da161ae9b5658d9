"""Screenshots of the terminal and the report, for README and docs. Run `python docs/screenshots.py`; needs Chromium."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).parent / "pictures"
WIDTH = 104
COMMAND = "pcfi demo --write demo-files"


def run_demo(folder: Path) -> str:
    """What the demo prints on a terminal, with its colours; the first run compiles, so it is the second."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    command = [sys.executable, "-m", "pcfi.cli", *COMMAND.split()[1:]]
    for _ in range(2):
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def draw_terminal(printed: str, target: Path) -> None:
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text.assemble(("$ ", "green"), COMMAND))
        console.print(Text.from_ansi(printed))
    target.write_text(console.export_svg(title="pcfi"), encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        draw_terminal(run_demo(folder), folder / "terminal.svg")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', (folder / "terminal.svg").read_text(encoding="utf-8"))
        tab = browser.new_page(viewport={"width": round(float(size[1])), "height": round(float(size[2]))})
        tab.goto((folder / "terminal.svg").as_uri())
        tab.screenshot(path=PICTURES / "terminal.png")
        for target, width, height, scheme in (("report", 1200, 1500, "light"), ("report-phone", 390, 1150, "dark")):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab = context.new_page()
            tab.goto((folder / "demo.html").as_uri())
            tab.wait_for_selector("html[data-charts=drawn]")
            if target == "report":  # 64 bars would fill the picture
                tab.evaluate("document.querySelector('#title-missing').closest('section').remove()")
            tab.screenshot(path=PICTURES / f"{target}.png")
        browser.close()


if __name__ == "__main__":
    main()
