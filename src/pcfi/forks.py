"""Make forks wait until no call of this library is inside the BLAS, whose threads do not survive a fork.

OpenBLAS stops its threads before a fork, and never returns if another thread is in a matrix product at that moment. A
call is busy from start to end, except inside kernels, which do not use the BLAS. A fork waits until no other thread is
busy, and threads that would become busy wait until the fork is done.
"""

import concurrent.futures.thread  # noqa: F401  its fork handler takes a lock that calls need, so it must be registered first
import logging  # noqa: F401  as well
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MAX_SECONDS = 60  # longest wait of a fork; a call may itself wait for the forking thread


class ForkGate:
    """The busy threads, and the thread that forks, if any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: set[int] = set()
        self._forking: int | None = None

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Context of a call: forks in other threads wait for its end, or for its next kernel."""
        is_outermost = self._enter()
        try:
            yield
        finally:
            if is_outermost:
                self._leave()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Context of a kernel: forks need not wait for it."""
        was_busy = self._leave()
        try:
            yield
        finally:
            if was_busy:
                self._enter()

    def _enter(self) -> bool:
        me = threading.get_ident()
        with self._changed:
            if me in self._busy:
                return False
            self._changed.wait_for(lambda: self._forking in (None, me))
            self._busy.add(me)
            return True

    def _leave(self) -> bool:
        me = threading.get_ident()
        with self._changed:
            was_busy = me in self._busy
            self._busy.discard(me)
            self._changed.notify_all()
            return was_busy

    def before_fork(self) -> None:
        """Wait until no other thread is busy."""
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: self._forking is None)
            self._forking = me
            self._changed.wait_for(lambda: not self._busy - {me}, MAX_SECONDS)

    def after_in_parent(self) -> None:
        """Let the other threads continue."""
        with self._changed:
            self._forking = None
            self._changed.notify_all()

    def after_in_child(self) -> None:
        """Forget threads that do not exist in the child."""
        me = threading.get_ident()
        self._changed, self._forking, self._busy = threading.Condition(), None, self._busy & {me}


GATE = ForkGate()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=GATE.before_fork, after_in_parent=GATE.after_in_parent, after_in_child=GATE.after_in_child
    )
