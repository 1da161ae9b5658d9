"""Progress of long work: a bar per stage in terminals and notebooks, or nothing at all."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], object]


def _ignore(_: int) -> None:
    return None


@contextmanager
def progress_bar(name: str, total: int, *, show: bool) -> Iterator[Advance]:
    """Yield a function that advances the bar by a number of patterns, channels or nodes, whatever `total` counts."""
    if not show:
        yield _ignore
        return
    from tqdm.auto import tqdm

    with tqdm(desc=name, total=total, leave=True) as bar:
        yield bar.update


@contextmanager
def compile_notice(*, show: bool) -> Iterator[None]:
    """Say so, once, when kernels have to be compiled first: it takes some seconds and happens once on a machine."""
    if not show:
        yield
        return
    from numba.core.event import Event, Listener, install_listener
    from tqdm.auto import tqdm

    class Notice(Listener):  # type: ignore[misc]
        said = False

        def on_start(self, _event: Event) -> None:
            if not self.said:
                tqdm.write("compiling kernels, once on this machine: some seconds", file=sys.stderr)
                self.said = True

        def on_end(self, _event: Event) -> None:
            pass

    with install_listener("numba:compile", Notice()):
        yield
