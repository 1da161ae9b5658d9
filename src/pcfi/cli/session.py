"""One run of a command: what it says and where, how long its stages take, its warnings, and how it ends."""

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

from pcfi.cli.arguments import plain_errors
from pcfi.errors import ParameterError

TERMINATED = 143
WORTH_A_LINE = 0.5  # seconds
WIDE = 400  # characters


class Session:
    """What a command says: results on stdout, progress and warnings on stderr."""

    def __init__(self, *, quiet: bool, to_stderr: bool, answers: bool) -> None:
        from rich.console import Console

        self.quiet = quiet
        self.answers = answers
        self.stages: dict[str, float] = {}
        self.warnings: list[str] = []
        self.console = Console(stderr=True, highlight=False)
        self.output = self.console if to_stderr else Console(highlight=False)
        if not self.output.is_terminal:
            self.output.width = WIDE  # a file has no edge

    @property
    def progress(self) -> bool:
        """Whether bars can be drawn."""
        return bool(self.console.is_terminal) and not self.quiet

    def say(self, text: str) -> None:
        """A line about what is going on."""
        if not self.quiet:
            self.console.print(text, markup=False, soft_wrap=True)

    def show(self, result: Any) -> None:
        """A result: a text or something that rich can draw."""
        if not self.quiet:
            self.output.print(result, markup=False, soft_wrap=isinstance(result, str))

    def answer(self, result: Any) -> None:
        """What was asked for: shown by a quiet session, too, but not by one that says it in JSON."""
        if self.answers:
            self.output.print(result, markup=False, soft_wrap=isinstance(result, str))

    def fits(self, drawn: Any) -> bool:
        """Whether something that rich can draw fits the width of the screen."""
        return self.output.measure(drawn).maximum <= self.output.width

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Take the time of a stage; show its name meanwhile on a terminal, and afterwards if it took long."""
        start = time.perf_counter()
        if self.progress and name not in OWN_BARS:
            with self.console.status(name):
                yield
        else:
            yield
        self.stages[name] = time.perf_counter() - start
        if self.stages[name] >= WORTH_A_LINE:
            self.say(f"{name}: {self.stages[name]:.1f} s")

    def warn(self, message: Any, *_: Any, **__: Any) -> None:
        """Say a warning in one line, once."""
        text = " ".join(str(message).split())
        if text not in self.warnings:
            self.warnings.append(text)
            typer.echo(f"pcfi: warning: {text}", err=True)


OWN_BARS = ("impute", "evaluate")  # stages that draw progress bars of their own


@contextmanager
def session(
    *,
    quiet: bool = False,
    as_json: bool = False,
    debug: bool = False,
    threads: int | None = None,
    data_out: bool = False,
) -> Iterator[Session]:
    """A run: threads set, warnings and errors as single lines, a termination that cleans up."""
    with plain_errors(debug=debug), _terminable(), warnings.catch_warnings():
        _use_threads(threads)
        current = Session(quiet=quiet or as_json, to_stderr=data_out, answers=not as_json)
        warnings.simplefilter("default")
        warnings.showwarning = current.warn
        try:
            yield current
        except BrokenPipeError:
            # Python would complain again when it closes stdout
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


@contextmanager
def _terminable() -> Iterator[None]:
    """A polite kill unwinds the stack, so that no temporary file is left."""
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
