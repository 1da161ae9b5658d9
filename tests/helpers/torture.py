"""Torture: kill, damage, fill disks and mangle files at random until the time is up, and count what was tried.

    python tests/helpers/torture.py --seconds 600 [--seed 1] [--only kills damage ...] [--ways draws]

Prints the seed first. The first promise that is broken ends the run with the round that broke it; the same seed
repeats it, as far as moments of kills can be repeated. Counts go to standard output as JSON. Not a part of `make test`.
"""

import argparse
import gzip
import json
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

N_NODES, N_CHANNELS = 3000, 24
N_PLACES = 300  # of the map
PAPER = ["--alpha=0.5", "--beta=0.1", "--objective=representation"]
COUNTS: Counter[str] = Counter()


class BrokenPromiseError(Exception):
    """A promise was not kept."""


def require(kept: bool, words: str) -> None:
    if not kept:
        raise BrokenPromiseError(words)


# Processes


def run_command(arguments: list[str], said: str, limit: int | None) -> None:
    """The body of a process: the command line, with both streams in a file, and a limit on the size of files."""
    if limit is not None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    stream = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    sys.argv = ["pcfi", *arguments]
    from pcfi.cli import main

    main()


class Command:
    """A command line that runs in a process of its own."""

    context = multiprocessing.get_context("forkserver")

    def __init__(self, arguments: list[Any], folder: Path, limit: int | None = None) -> None:
        self.said = folder.parent / f"said-{time.monotonic_ns()}.txt"
        self.process = self.context.Process(target=run_command, args=(list(map(str, arguments)), str(self.said), limit))
        self.process.start()

    def end(self, seconds: float = 300) -> int:
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            raise BrokenPromiseError(f"hangs: {self.text()}")
        return int(self.process.exitcode)

    def stop(self, how: int) -> int:
        if self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, how)
        return self.end()

    def text(self) -> str:
        return self.said.read_text(errors="replace") if self.said.exists() else ""


# Inputs


def make_inputs(folder: Path) -> None:
    import geopandas
    import pyarrow as pa
    from pyarrow import csv, parquet

    rng = np.random.default_rng(0)
    values = np.where(rng.random((N_NODES, N_CHANNELS)) < 0.5, rng.normal(size=(N_NODES, N_CHANNELS)), np.nan)
    ring = np.stack([np.arange(N_NODES), (np.arange(N_NODES) + 1) % N_NODES])
    edges = np.concatenate([ring, rng.integers(0, N_NODES, size=(2, N_NODES))], axis=1)
    names = [f"n{row:05d}" for row in range(N_NODES)]
    columns = {f"c{place}": pa.array(column, from_pandas=True) for place, column in enumerate(values.T)}
    table = pa.table({"id": names, **columns})
    ends = pa.table({"source": np.array(names)[edges[0]], "target": np.array(names)[edges[1]]})
    parquet.write_table(table, folder / "n.parquet", row_group_size=700)
    parquet.write_table(ends, folder / "e.parquet")
    csv.write_csv(table, folder / "n.csv")
    csv.write_csv(ends, folder / "e.csv")
    places = geopandas.points_from_xy(*rng.random((2, N_PLACES)) * 1e4)
    geopandas.GeoDataFrame(table.slice(0, N_PLACES).to_pandas(), geometry=places, crs=3857).to_file(folder / "n.gpkg")


WAYS: dict[str, tuple[list[str], list[str]]] = {
    "in memory, csv": (["n.csv", "e.csv"], ["-o", "y.csv", "--confidence", "c.csv", "--report", "r.html", *PAPER]),
    "in memory, parquet": (
        ["n.parquet", "e.parquet"],
        ["-o", "y.parquet", "--hops", "h.parquet", "--facts", "f.json", *PAPER],
    ),
    "in memory, npy": (["n.parquet", "e.csv"], ["-o", "y.npy", *PAPER]),
    "in memory, npz": (["n.parquet", "e.parquet"], ["-o", "y.npz"]),
    "in memory, arrow": (["n.csv", "e.csv"], ["-o", "y.arrow", "--intervals", "i.arrow"]),
    "in memory, tsv.gz": (["n.csv", "e.csv"], ["-o", "y.tsv.gz", "--intervals", "i.csv"]),
    "in memory, gpkg": (["n.gpkg"], ["-o", "y.gpkg", "--report", "r.html"]),
    "in memory, geojson": (["n.gpkg"], ["-o", "y.geojson"]),
    "check": (["n.csv", "e.csv"], ["-o", "y.csv"]),
    "suggest": (["n.csv", "e.csv"], ["-o", "y.parquet"]),
    "budget, npy": (["n.parquet", "e.parquet"], ["-o", "y.npy", "--hops", "h.npy", "--memory", "2GB", *PAPER]),
    "budget, parquet": (
        ["n.csv", "e.csv"],
        ["-o", "y.parquet", "--confidence", "c.parquet", "--memory", "2GB", *PAPER],
    ),
    "budget, zarr": (["n.parquet", "e.csv"], ["-o", "y.zarr", "--memory", "2GB", *PAPER]),
    "budget, values": (["n.csv", "e.csv"], ["-o", "y.parquet", "--intervals", "i.parquet", "--memory", "2GB"]),
    "budget, draws": (
        ["n.parquet", "e.csv"],
        ["-o", "y.parquet", "--intervals", "i.parquet", "--draws", "2", "--memory", "2GB"],
    ),
    "budget, draws as text": (["n.csv", "e.csv"], ["-o", "y.csv", "--draws", "1", "--memory", "2GB"]),
    "in memory, draws": (["n.csv", "e.csv"], ["-o", "y.csv", "--draws", "2"]),
    "budget, values, zarr": (["n.parquet", "e.parquet"], ["-o", "y.zarr", "--memory", "2GB"]),
}
TIMED = ("f.json", "r.html")  # hold times, which differ from run to run


class Laboratory:
    """Inputs, and what each way of running gives when nothing disturbs it."""

    def __init__(self, home: Path) -> None:
        self.home, self.inputs = home, home / "inputs"
        self.inputs.mkdir()
        make_inputs(self.inputs)
        self.expected: dict[str, dict[str, Any]] = {}
        self.seconds: dict[str, float] = {}

    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.home))

    def arguments(self, way: str, folder: Path) -> list[Any]:
        files, outputs = WAYS[way]
        command = way if way in ("check", "suggest") else "impute"
        return [command, *(self.inputs / name for name in files), *_placed(outputs, folder)]

    def learn(self, way: str) -> None:
        folder, begin = self.folder(), time.monotonic()
        command = Command(self.arguments(way, folder), folder)
        require(command.end() == 0, f"{way} fails undisturbed: {command.text()}")
        self.seconds[way] = time.monotonic() - begin
        self.expected[way] = contents(folder)

    def check(self, way: str, folder: Path, *, complete: bool) -> None:
        """Every output under its name is complete; if `complete`, all of them are there and nothing else is."""
        found, expected = contents(folder), self.expected[way]
        for name, content in found.items():
            if name in expected:
                same = name in TIMED or same_content(content, expected[name])
                require(same, f"{way}: {name} is not complete")
        if complete:
            require(set(found) == set(expected), f"{way}: {sorted(found)} instead of {sorted(expected)}")


def _placed(outputs: list[str], folder: Path) -> list[Any]:
    return [folder / one if "." in one and not one.startswith("-") else one for one in outputs]


def contents(folder: Path) -> dict[str, Any]:
    return {path.name: content_of(path) for path in sorted(folder.iterdir())}


def content_of(path: Path) -> Any:
    from pyarrow import parquet

    if path.suffix == ".parquet":
        return parquet.read_table(path)
    if path.suffix == ".zarr":
        import zarr

        return zarr.open(str(path), mode="r")[:]
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return np.concatenate(
                [arrays[name].ravel() for name in sorted(arrays.files) if arrays[name].dtype.kind == "f"]
            )
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix in (".gpkg", ".geojson"):
        import geopandas

        return geopandas.read_file(path)
    return path.read_bytes() if path.is_file() else None


def same_content(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return left.shape == right.shape and left.tobytes() == right.tobytes()
    return bool(left.equals(right) if hasattr(left, "equals") else left == right)


# Trials: each tries one thing once


def kills(lab: Laboratory, rng: random.Random) -> None:
    """A process ends at a random moment, once or several times; the same command then completes the work."""
    way = rng.choice(sorted(WAYS))
    folder, how = lab.folder(), rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    for _ in range(rng.choice([1, 1, 2, 4])):
        command = Command(lab.arguments(way, folder), folder)
        time.sleep(rng.uniform(0, 1.1 * lab.seconds[way]))
        code = command.stop(how)
        lab.check(way, folder, complete=code == 0)
        COUNTS[f"kills: {way}"] += 1
        COUNTS["kills by SIGKILL before the end"] += how == signal.SIGKILL and code != 0
        if code == 0:
            break
        require("Traceback" not in command.text(), f"{way}: traceback after {how!r}: {command.text()}")
    force = [] if "--memory" in WAYS[way][1] else ["--force"]
    if not (folder / WAYS[way][1][1]).exists() or (folder / f"{WAYS[way][1][1]}.work").exists() or force:
        command = Command([*lab.arguments(way, folder), *force], folder)
        require(command.end() == 0, f"{way}: does not go on: {command.text()}")
    for left in folder.glob(".*.partial"):  # of a kill between two system calls
        left.unlink()
    for left in folder.glob("*.work.retired"):  # of a kill while the work folder was removed
        shutil.rmtree(left)
    for left in folder.glob("*.work.lock"):
        left.unlink()
    lab.check(way, folder, complete=True)


def damage(lab: Laboratory, rng: random.Random) -> None:
    """A run is stopped, bytes of one of its files change, and the same call gives the same bits or an error."""
    from pcfi import scale
    from pcfi.outofcore.folder import WorkFolder

    class Killed(BaseException):
        pass

    folder, nodes, suffix = lab.folder(), rng.choice(["n.parquet", "n.csv"]), rng.choice(["npy", "parquet"])
    files = (lab.inputs / nodes, lab.inputs / "e.parquet", folder / f"y.{suffix}")
    record, left = WorkFolder.record, rng.randrange(1, 12)

    def stopping(self: Any, stage: str, index: int, facts: Any) -> None:
        nonlocal left
        record(self, stage, index, facts)
        left -= 1
        if left == 0:
            raise Killed

    WorkFolder.record = stopping  # type: ignore[method-assign]
    try:
        scale.impute(*files)
    except Killed:
        pass
    finally:
        WorkFolder.record = record  # type: ignore[method-assign]
    work = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    if work:
        target = rng.choice(work)
        data = bytearray(target.read_bytes())
        first = rng.randrange(len(data))
        for place in range(first, min(len(data), first + rng.choice([1, 8, 4096]))):
            data[place] ^= rng.randrange(1, 256)
        target.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)
    COUNTS["damaged files"] += 1
    try:
        scale.impute(*files)
    except scale.StorageError as error:
        require("damaged" in str(error), f"damage of {target.name}: {error}")
        COUNTS["damaged files: refused"] += 1
        return
    except Exception as error:
        raise BrokenPromiseError(f"damage of {target}: {type(error).__name__}: {error}") from error
    whole = content_of(folder / f"y.{suffix}")
    require(same_content(whole, lab.expected[f"scale {nodes} {suffix}"]["y"]), f"damage of {target}: other result")


def worker_deaths(lab: Laboratory, rng: random.Random) -> None:
    """Workers are killed at random moments: others do their work, or an error says what is kept; then it goes on."""
    import distributed

    from local_cluster import Cluster
    from pcfi import scale
    from pcfi.outofcore import runners

    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # it logs that its scheduler is gone
    runners.MAX_SECONDS_WITHOUT_WORKERS, runners.SECONDS_BETWEEN_LOOKS = 3, 0.2
    folder, suffix, n_workers = lab.folder(), rng.choice(["npy", "parquet"]), rng.choice([1, 2])
    files = (lab.inputs / "n.parquet", lab.inputs / "e.parquet", folder / f"y.{suffix}")
    cluster = Cluster(folder)
    try:
        for _ in range(n_workers):
            cluster.add_worker("--no-nanny")
        with distributed.Client(scheduler_file=str(cluster.file), timeout="20s", set_as_default=False) as client:
            client.wait_for_workers(n_workers, timeout=60)
            victims = [*cluster.workers, cluster.scheduler][: rng.randint(1, n_workers + 1)]
            killers = [threading.Timer(rng.uniform(0, 8), process.kill) for process in victims]
            for killer in killers:
                killer.start()
            COUNTS["workers and schedulers killed"] += len(victims)
            try:
                scale.impute(*files, client=client)
            except scale.ClusterError as error:
                COUNTS["clusters lost"] += 1
                require("\n" not in str(error), f"an error of several lines: {error}")
            for killer in killers:
                killer.cancel()
    finally:
        cluster.stop()
    if not files[2].exists() or Path(f"{files[2]}.work").exists():
        scale.impute(*files)
    require(close_content(content_of(files[2]), lab.expected[f"scale n.parquet {suffix}"]["y"]), "other result")


def close_content(left: Any, right: Any) -> bool:
    """The BLAS of a worker may differ in the last bit."""
    if isinstance(left, np.ndarray):
        return bool(np.allclose(left, right, rtol=1e-9, atol=1e-9))
    return bool(left.schema == right.schema) and all(
        np.allclose(one, other, rtol=1e-9, atol=1e-9) if name != "id" else one.equals(other)
        for name, one, other in zip(left.column_names, left.columns, right.columns, strict=True)
    )


def full_disk(lab: Laboratory, rng: random.Random) -> None:
    """No file may grow beyond a random size: an error in words, and no output that is not whole."""
    way, folder = rng.choice(sorted(WAYS)), lab.folder()
    command = Command(lab.arguments(way, folder), folder, limit=int(10 ** rng.uniform(2, 6.5)))
    code, said = command.end(), command.text()
    COUNTS["full disks"] += 1
    require(code in (0, 1), f"{way}: exit code {code} on a full disk: {said}")
    require("Traceback" not in said, f"{way}: traceback on a full disk: {said}")
    lab.check(way, folder, complete=code == 0)
    again = Command([*lab.arguments(way, folder), "--force"], folder)
    require(again.end() == 0, f"{way}: does not go on after a full disk: {again.text()}")
    lab.check(way, folder, complete=True)


def two_at_once(lab: Laboratory, rng: random.Random) -> None:
    """Two equal commands at the same time: one completes the work, the other one does so too or says why not."""
    way, folder = rng.choice(sorted(WAYS)), lab.folder()
    first = Command(lab.arguments(way, folder), folder)
    time.sleep(rng.uniform(0, 0.5 * lab.seconds[way]))
    second = Command(lab.arguments(way, folder), folder)
    codes, said = [first.end(), second.end()], first.text() + second.text()
    COUNTS["two runs at once"] += 1
    require(0 in codes, f"{way}: neither of two runs at once succeeded: {said}")
    require("Traceback" not in said and "Errno" not in said, f"{way}: two runs at once: {said}")
    lab.check(way, folder, complete=True)


def read_only(lab: Laboratory, rng: random.Random) -> None:
    """Places that cannot be written to are refused before any work, in words."""
    way = rng.choice(sorted(WAYS))
    folder = Path(rng.choice(["/proc", "/sys", "/nowhere", "/dev/null"]))
    command = Command(lab.arguments(way, folder), lab.folder())
    code, said = command.end(), command.text()
    COUNTS["places that cannot be written to"] += 1
    require(code in (1, 2) and "Traceback" not in said, f"{way} to {folder}: {code}, {said}")


def parsers(lab: Laboratory, rng: random.Random) -> None:
    """Mangled files are read or refused in one line."""
    import pcfi
    from intact_files import INTACT_FILES
    from pcfi.files.node_files import read_nodes
    from pcfi.inputs.columns import NodeColumns

    kind = rng.choice(sorted(INTACT_FILES))
    path = lab.home / f"mangled.{kind}"
    for _ in range(50):
        path.write_bytes(mangled(INTACT_FILES[kind], rng))
        COUNTS["mangled node files"] += 1
        try:
            read_nodes(str(path), NodeColumns())
        except pcfi.PcfiError as error:
            require("\n" not in str(error), f"{kind}: an error of several lines: {error}")
        except Exception as error:
            shutil.copy(path, lab.home.parent / f"broken.{kind}")
            raise BrokenPromiseError(f"{kind}: {type(error).__name__}: {error}") from error


def mangled(intact: bytes, rng: random.Random) -> bytes:
    content = bytearray(intact)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(content) + 1)
        match rng.randrange(5):
            case 0:
                content = content[:place]
            case 1 if place < len(content):
                content[place] ^= rng.randrange(1, 256)
            case 2:
                content[place:place] = rng.randbytes(rng.randint(1, 20))
            case 3:
                content[place:place] = rng.choice(
                    [b",", b";", b"\n", b'"', b"\0", b"1,5", b"nan", b"0x1", b"-", b"\xff"]
                )
            case _:
                del content[place : place + rng.randint(1, 30)]
    return bytes(content)


def laws(lab: Laboratory, rng: random.Random) -> None:
    """Random problems: known cells stay, values are finite and, settled, those of a dense solver."""
    del lab
    import pcfi
    from random_problems import random_problem

    for _ in range(5):
        generator = np.random.default_rng(rng.randrange(2**32))
        problem = random_problem(
            generator,
            n_nodes=rng.randint(1, 30),
            n_channels=rng.randint(2, 12),
            degree=rng.uniform(0.5, 6),
            kind=rng.choice(["structural", "uniform", "block", "mixed"]),
            rate=rng.uniform(0.05, 0.95),
            directed=rng.random() < 0.3,
            weighted=rng.random() < 0.5,
            dtype=rng.choice([np.float32, np.float64]),
            shape=rng.choice(["random", "path", "star", "tree"]),
            values=rng.choice(["normal", "offset", "scales", "binary"]),
        )
        alpha, values = rng.choice([0.3, 0.5, 0.9, 1.0]), problem.masked
        before = values.tobytes()
        solver = pcfi.UntilSettled(rtol=1e-10, max_steps=100_000)
        options = {"alpha": alpha, "beta": 0.0, "objective": "representation", "solver": solver}
        settled = pcfi.impute(values, problem.graph, directed=problem.directed, **options)
        estimated = pcfi.impute(values, problem.graph, directed=problem.directed)
        COUNTS["random problems"] += 1
        for result in (settled, estimated):
            same = result.values[problem.known].tobytes() == problem.features[problem.known].tobytes()
            require(same, "a known cell changed")
            require(bool(np.isfinite(result.values).all()), "a value is not finite")
        require(values.tobytes() == before, "the caller's data changed")
        compare_with_dense(problem, settled, alpha)


def compare_with_dense(problem: Any, result: Any, alpha: float) -> None:
    """Compare with the solution of the dense system x_i = sum_j a_ij xi_j x_j / sum_j a_ij xi_j, channel by channel."""
    import pcfi

    hops, flow = result.hops, problem.flow
    for channel in range(problem.features.shape[1]):
        known = problem.known[:, channel]
        reached = hops[:, channel] != pcfi.UNREACHABLE
        rows = np.flatnonzero(~known & reached & (flow.sum(axis=1) > 0))
        if not len(rows):
            continue
        steps = np.where(reached, hops[:, channel], 0).astype(float)
        weights = np.where(reached, alpha**steps, 0.0)
        step = flow[rows] * weights
        total = step.sum(axis=1, keepdims=True)
        step = step / total
        truth = problem.features[:, channel].astype(float)
        right = step[:, known] @ truth[known]
        exact = np.linalg.solve(np.eye(len(rows)) - step[:, rows], right)
        scale = max(
            np.ptp(truth[known]), np.abs(truth[known]).max() * (1e-4 if result.values.dtype == np.float32 else 1e-9)
        )
        error = np.abs(result.values[rows, channel] - exact).max()
        tolerance = 2e-3 if result.values.dtype == np.float32 else 1e-5
        require(error <= tolerance * scale + 1e-300, f"a dense solver differs by {error:g} of {scale:g}")


TRIALS: dict[str, tuple[Callable[[Laboratory, random.Random], None], int]] = {  # each with its share of the rounds
    "kills": (kills, 6),
    "damage": (damage, 4),
    "worker_deaths": (worker_deaths, 2),
    "full_disk": (full_disk, 2),
    "two_at_once": (two_at_once, 2),
    "read_only": (read_only, 1),
    "parsers": (parsers, 3),
    "laws": (laws, 3),
}


def prepare(lab: Laboratory, names: list[str]) -> None:
    from pcfi import scale

    if {"kills", "full_disk", "two_at_once"} & set(names):
        for way in WAYS:
            lab.learn(way)
    if {"damage", "worker_deaths"} & set(names):
        for nodes, suffix in product(("n.parquet", "n.csv"), ("npy", "parquet")):
            folder = lab.folder()
            scale.impute(lab.inputs / nodes, lab.inputs / "e.parquet", folder / f"y.{suffix}")
            lab.expected[f"scale {nodes} {suffix}"] = {"y": content_of(folder / f"y.{suffix}")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", nargs="*", choices=sorted(TRIALS), default=sorted(TRIALS))
    parser.add_argument("--ways", default="", help="only ways of running whose names hold this text")
    arguments = parser.parse_args()
    for way in [way for way in WAYS if arguments.ways not in way]:
        del WAYS[way]
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    warnings.simplefilter("ignore")
    rng, rounds = random.Random(seed), 0
    Command.context.set_forkserver_preload(["pcfi.cli.impute", "pcfi.cli.outofcore", "pcfi.scale", "pyarrow.parquet"])
    with tempfile.TemporaryDirectory() as home:
        lab = Laboratory(Path(home))
        prepare(lab, arguments.only)
        deadline = time.monotonic() + arguments.seconds
        while time.monotonic() < deadline:
            name = rng.choices(arguments.only, [TRIALS[one][1] for one in arguments.only])[0]
            rounds += 1
            try:
                TRIALS[name][0](lab, rng)
            except BrokenPromiseError as broken:
                print(f"round {rounds} ({name}), seed {seed}: {broken}; tried: {dict(COUNTS)}", flush=True)
                return 1
            for path in Path(home).glob("tmp*"):
                shutil.rmtree(path, ignore_errors=True)
    print(json.dumps({"seed": seed, "seconds": arguments.seconds, "rounds": rounds, **dict(sorted(COUNTS.items()))}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
