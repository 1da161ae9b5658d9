"""A Dask cluster on this machine: a scheduler and workers, each a process of its own, which can be killed."""

import subprocess
import sys
import time
from pathlib import Path

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Cluster:
    """A scheduler and its workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.scheduler = self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        self.workers = []

    def _start(self, command: str, *arguments: str) -> subprocess.Popen:
        common = ["--scheduler-file", str(self.file), "--no-dashboard"]
        # the warning that a module run with -m was imported before is nobody's business here
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", f"distributed.cli.{command}", *common, *arguments], **QUIET
        )

    def add_worker(self, *arguments: str) -> None:
        deadline = time.monotonic() + 60
        while not self.file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        name = f"worker-{len(self.workers)}"
        common = ["--nthreads", "1", "--name", name, "--local-directory", str(self.folder / name)]
        self.workers.append(self._start("dask_worker", *common, *arguments))

    def stop(self) -> None:
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()
