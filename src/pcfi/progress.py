"""Progress bars, one per stage, in terminals and notebooks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], object]


def _ignore(_: int) -> None:
    return None


@contextmanager
def progress_bar(name: str, total: int, *, show: bool) -> Iterator[Advance]:
    """Yield a function that advances the bar by a number of units, the units of `total`."""
    if not show:
        yield _ignore
        return
    from tqdm.auto import tqdm

    with tqdm(desc=name, total=total, leave=True) as bar:
        yield bar.update


@contextmanager
def compile_notice(*, show: bool) -> Iterator[None]:
    """Print a message when kernels are compiled, which takes seconds and happens once per machine."""
    if not show:
        yield
        return
    from numba.core.event import Event, Listener, install_listener
    from tqdm.auto import tqdm

    class CompileListener(Listener):  # type: ignore[misc]
        notified = False

        def on_start(self, _event: Event) -> None:
            if not self.notified:
                tqdm.write("compiling kernels (once per machine, takes some seconds)", file=sys.stderr)
                self.notified = True

        def on_end(self, _event: Event) -> None:
            pass

    with install_listener("numba:compile", CompileListener()):
        yield
