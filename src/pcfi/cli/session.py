"""One run of a command: its messages, warnings, stage times, and clean termination."""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from pcfi.cli.arguments import in_options, plain_errors, printable
from pcfi.errors import ParameterError

TERMINATED = 143  # exit code after SIGTERM
MIN_SECONDS_TO_REPORT = 0.5  # shorter stages are not reported
FILE_WIDTH = 400  # line width if the output is not a terminal
STAGES_WITH_BARS = ("impute", "evaluate")  # stages that draw progress bars themselves


class Session:
    """Messages of a command: results go to stdout, progress and warnings to stderr.

    Attributes
    ----------
    quiet : bool
        Whether to print only warnings and answers.
    stages : dict
        Seconds of every finished stage.
    warnings : list of str
    """

    def __init__(self, *, quiet: bool, as_json: bool, data_to_stdout: bool) -> None:
        from rich.console import Console

        self.quiet = quiet or as_json
        self.stages: dict[str, float] = {}
        self.warnings: list[str] = []
        self.console = Console(stderr=True, highlight=False)
        self.output = self.console if data_to_stdout else Console(highlight=False)
        self._answers = not as_json
        if not self.output.is_terminal:
            self.output.width = FILE_WIDTH

    @property
    def progress(self) -> bool:
        """Whether to draw progress bars."""
        return bool(self.console.is_terminal) and not self.quiet

    def say(self, text: str) -> None:
        """Print a status line, unless the session is quiet."""
        if not self.quiet:
            self.console.print(printable(text), markup=False, soft_wrap=True)

    def show(self, result: Any) -> None:
        """Print a summary, a text or a rich object, unless the session is quiet."""
        if not self.quiet:
            self._print(result)

    def answer(self, result: Any) -> None:
        """Print the main output of the command, also with --quiet, but not with --json."""
        if self._answers:
            self._print(result)

    def _print(self, result: Any) -> None:
        is_text = isinstance(result, str)
        self.output.print(printable(result) if is_text else result, markup=False, soft_wrap=is_text)

    @property
    def bar(self) -> str:
        """Character to draw bars with: a block if the terminal supports it."""
        return "█" if self.output.encoding.lower().startswith("utf") else "#"

    def fits(self, renderable: Any) -> bool:
        """Whether a rich object is no wider than the terminal."""
        return self.output.measure(renderable).maximum <= self.output.width

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; show its name on a terminal, and its time afterwards if it was long."""
        start = time.perf_counter()
        if self.progress and name not in STAGES_WITH_BARS:
            with self.console.status(name):
                yield
        else:
            yield
        self.stages[name] = time.perf_counter() - start
        if self.stages[name] >= MIN_SECONDS_TO_REPORT:
            self.say(f"{name}: {self.stages[name]:.1f} s")

    def warn(self, message: Any, *_: Any, **__: Any) -> None:
        """Print a warning as one line, once."""
        text = in_options(message)
        if text not in self.warnings:
            self.warnings.append(text)
            typer.echo(f"pcfi: warning: {text}", err=True)


@contextmanager
def open_session(
    *,
    quiet: bool = False,
    as_json: bool = False,
    debug: bool = False,
    threads: int | None = None,
    data_to_stdout: bool = False,
) -> Iterator[Session]:
    """Run a command with a number of threads, one-line warnings and errors, and cleanup on termination."""
    with plain_errors(debug=debug), _terminable(), warnings.catch_warnings():
        _use_threads(threads)
        session = Session(quiet=quiet, as_json=as_json, data_to_stdout=data_to_stdout)
        warnings.simplefilter("default")
        warnings.showwarning = session.warn
        try:
            yield session
        except BrokenPipeError:
            # otherwise Python reports the error again when it closes stdout
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


@contextmanager
def _terminable() -> Iterator[None]:
    """Raise SystemExit on SIGTERM, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _use_threads(threads: int | None) -> None:
    if threads is None:
        return
    if threads < 1:
        raise ParameterError(f"--threads must be at least 1, got {threads}")
    import numba
    import pyarrow as pa

    most = int(numba.config.NUMBA_NUM_THREADS)
    numba.set_num_threads(min(threads, most))
    pa.set_cpu_count(threads)
