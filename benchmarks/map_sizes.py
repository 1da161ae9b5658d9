"""How long does a large map take, and how much memory? Points with 10 columns, 20 % missing, 8 neighbours each.

    python benchmarks/map_sizes.py [N_POINTS ...]                 pcfi.geo.impute
    python benchmarks/map_sizes.py --memory 2GB [N_POINTS ...]    pcfi impute points.parquet --k 8 --memory 2GB

In a process of its own, with kernels compiled before. The time is that of `pcfi.geo.impute`, graph included. With
`--memory` it is that of the command, and the memory that of its process and those that it starts.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import answer, peak_memory

POINTS = """
import numpy as np, geopandas
n, columns = {n}, 10
rng = np.random.default_rng(0)
places = rng.random((n, 2)) * 1e5
waves = np.sin(places @ rng.standard_normal((2, columns)) / 5e3) + 0.3 * rng.standard_normal((n, columns))
waves[rng.random(waves.shape) < 0.2] = np.nan
names = [f"column {{k}}" for k in range(columns)]
gdf = geopandas.GeoDataFrame(dict(zip(names, waves.T)), geometry=geopandas.GeoSeries.from_xy(*places.T, crs=3857))
"""

CODE = """
import json, resource, time, pcfi
pcfi.geo.impute(gdf.iloc[:500], k=8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
result = pcfi.geo.impute(gdf, k=8)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(dict(seconds=seconds, peak=peak / 1e3, before=before / 1e3, error=result.tuning.error)))
"""


def row_of(n: int) -> dict[str, float]:
    found = peak_memory((POINTS + CODE).format(n=n))
    return {
        "points": n,
        "columns": 10,
        "seconds": found["seconds"],
        "peak memory, MB": found["peak"],
        "before the call, MB": found["before"],
        "error on hidden cells": found["error"],
    }


def resident_memory(pid: int) -> tuple[int, int]:
    """Bytes of memory of a process and those that it started: all of it, and what no file backs."""
    try:
        facts = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:  # it has ended meanwhile
        return 0, 0
    own = [int(facts.get(name, "0").split()[0]) * 1024 for name in ("VmRSS", "RssAnon")]
    every = [own, *map(resident_memory, children)]
    return sum(one[0] for one in every), sum(one[1] for one in every)


def row_within(n: int, memory: str) -> dict[str, float | str]:
    """The command line within a budget of memory."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("PCFI_SCRATCH")) as folder:
        source, target = Path(folder) / "points.parquet", Path(folder) / "filled.parquet"
        write = POINTS.format(n=n) + f"gdf.to_parquet({str(source)!r})"
        subprocess.run([sys.executable, "-c", write], check=True)
        command = [sys.executable, "-m", "pcfi.cli", "impute", str(source), "--k", "8", "--memory", memory]
        start, peaks = time.perf_counter(), [0, 0]
        running = subprocess.Popen([*command, "-o", str(target)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while running.poll() is None:
            peaks = [max(pair) for pair in zip(peaks, resident_memory(running.pid), strict=True)]
            time.sleep(0.02)
        if running.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {running.returncode}")
        seconds = time.perf_counter() - start
    return {
        "points": n,
        "columns": 10,
        "budget": memory,
        "seconds": seconds,
        "peak memory, MB": peaks[0] / 1e6,
        "of it not backed by a file, MB": peaks[1] / 1e6,
    }


def main() -> None:
    words = sys.argv[1:]
    memory = words.pop(1) if words[:1] == ["--memory"] else None
    sizes = [int(size) for size in words[memory is not None :]]
    if memory is None:
        answer("map_sizes", map(row_of, sizes or [10_000, 100_000]))
    else:
        answer("map_memory", (row_within(size, memory) for size in sizes or [1_000_000]))


if __name__ == "__main__":
    main()
