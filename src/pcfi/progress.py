"""Progress of long work: a bar per stage in terminals and notebooks, or nothing at all."""

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
