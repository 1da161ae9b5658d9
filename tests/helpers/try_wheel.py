"""Install the built wheel into a new environment, away from the repository, and use it as a stranger would.

    python -m build && python tests/helpers/try_wheel.py dist [--constraint constraints.txt] [--sdist]

Runs the Python code and the commands of README.md, and `pcfi demo`. `--sdist` also unpacks the sdist and runs quick
tests there, with the packages of this Python.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
PROOF = "import pcfi, pathlib; print(pcfi.__version__, pathlib.Path(pcfi.__file__).parent)"


def run(command: list[str], folder: Path) -> str:
    """Run a command in the folder, without variables that point to the repository; print and return its output."""
    print(f"$ {shlex.join(command)}", flush=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PCFI_"))}
    environment["NUMBA_CACHE_DIR"] = str(folder / "kernels")
    done = subprocess.run(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, check=True)
    print(done.stdout, flush=True)
    return done.stdout


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime)


def install(wheel: Path, folder: Path, constraint: str | None) -> Path:
    """Install the wheel with the extra of the demo; return the folder of the programs."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    limits = ["--constraint", str(Path(constraint).resolve())] if constraint else []
    run([str(programs / "python"), "-m", "pip", "install", "--quiet", f"{wheel}[demo]", *limits], folder)
    return programs


def try_readme(programs: Path, folder: Path) -> None:
    blocks = FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    code = "\n".join(text for language, text in blocks if language == "python")
    (folder / "readme.py").write_text(code, encoding="utf-8")
    assert run([str(programs / "python"), "readme.py"], folder).strip(), "README's code prints nothing"
    for line in "".join(text for language, text in blocks if language == "sh").splitlines():
        program, *arguments = shlex.split(line, comments=True) or [""]
        if program == "pcfi":
            run([str(programs / "pcfi"), *arguments], folder)


def try_sdist(sdist: Path, folder: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.glob("pcfi-*/")
    tests = ["tests/pipeline/test_golden.py", "tests/kernels", "tests/stages", "tests/packaging", "tests/datasets"]
    run([sys.executable, "-m", "pytest", "-m", "not slow", "--hypothesis-profile=few", *tests], unpacked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path)
    parser.add_argument("--constraint")
    parser.add_argument("--sdist", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        programs = install(newest(arguments.dist.resolve(), "*.whl"), folder, arguments.constraint)
        assert str(folder) in run([str(programs / "python"), "-c", PROOF], folder), "another pcfi was imported"
        try_readme(programs, folder)
        run([str(programs / "pcfi"), "demo"], folder)
        assert (folder / "demo.png").stat().st_size > 10_000
        if arguments.sdist:
            try_sdist(newest(arguments.dist.resolve(), "*.tar.gz"), folder)


if __name__ == "__main__":
    main()
