"""Forks while another thread fills a table: they wait for the linear algebra, and neither process hangs."""

import os
import subprocess
import sys
import threading
import time

import pytest

from pcfi.forks import ForkGate

CODE = """
import os, threading, time
import numpy as np
import pcfi

rng = np.random.default_rng(0)
ring = np.stack([np.arange(1500), (np.arange(1500) + 1) % 1500])
table = np.where(rng.random((1500, 120)) < 0.5, rng.normal(size=(1500, 120)), np.nan)
small, small_ring = table[:100, :5].copy(), ring[:, :99]
expected = pcfi.impute(small, small_ring).values
stop = threading.Event()

def work():
    while not stop.is_set():
        pcfi.impute(table, ring)

thread = threading.Thread(target=work)
thread.start()
for _ in range(12):
    time.sleep(rng.uniform(0, 0.1))
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(pcfi.impute(small, small_ring).values, expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
thread.join()
print("ended")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
def test_a_fork_while_another_thread_is_inside_impute_does_not_hang():
    # the fork never returned: OpenBLAS ended its threads in the middle of a matrix product
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, timeout=240)
    assert done.stdout == "ended\n", done.stderr


def test_a_fork_waits_for_busy_threads_but_not_for_kernels_nor_for_itself():
    gate, events, in_kernel, leave_kernel = ForkGate(), [], threading.Event(), threading.Event()

    def call():
        with gate.busy(), gate.busy():
            time.sleep(0.05)
            events.append("kernel")
            with gate.resting():
                in_kernel.set()
                leave_kernel.wait()
            events.append("after kernel")

    thread = threading.Thread(target=call)
    with gate.busy():
        thread.start()
        gate.before_fork()
        assert events == ["kernel"]
        leave_kernel.set()
        time.sleep(0.05)
        assert events == ["kernel"]  # it would be in the linear algebra again: it waits for the fork
        gate.after_in_parent()
        thread.join()
    assert events == ["kernel", "after kernel"]


def test_a_fork_does_not_wait_without_end_and_the_child_forgets_other_threads(monkeypatch):
    monkeypatch.setattr("pcfi.forks.MAX_SECONDS", 0.05)
    gate, end, entered = ForkGate(), threading.Event(), threading.Event()

    def call():
        with gate.busy():
            entered.set()
            end.wait()

    thread = threading.Thread(target=call)
    thread.start()
    entered.wait()
    gate.before_fork()
    gate.after_in_child()
    gate.before_fork()  # nobody is busy in the child
    gate.after_in_parent()
    end.set()
    thread.join()
