"""How long does a large map take, and how much memory? Points with 10 columns, 20 % missing, 8 neighbours each.

In a process of its own, with kernels compiled before. The time is that of `pcfi.geo.impute`, graph included.
"""

import sys

from common import answer, peak_memory

CODE = """
import json, resource, time
import numpy as np, geopandas, pcfi
n, columns = {n}, 10
rng = np.random.default_rng(0)
places = rng.random((n, 2)) * 1e5
waves = np.sin(places @ rng.standard_normal((2, columns)) / 5e3) + 0.3 * rng.standard_normal((n, columns))
waves[rng.random(waves.shape) < 0.2] = np.nan
names = [f"column {{k}}" for k in range(columns)]
gdf = geopandas.GeoDataFrame(dict(zip(names, waves.T)), geometry=geopandas.GeoSeries.from_xy(*places.T, crs=3857))
pcfi.geo.impute(gdf.iloc[:500], k=8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
result = pcfi.geo.impute(gdf, k=8)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(dict(seconds=seconds, peak=peak / 1e3, before=before / 1e3, error=result.tuning.error)))
"""


def row_of(n: int) -> dict[str, float]:
    found = peak_memory(CODE.format(n=n))
    return {
        "points": n,
        "columns": 10,
        "seconds": found["seconds"],
        "peak memory, MB": found["peak"],
        "before the call, MB": found["before"],
        "error on hidden cells": found["error"],
    }


if __name__ == "__main__":
    sizes = [int(size) for size in sys.argv[1:]] or [10_000, 100_000]
    answer("map_sizes", (row_of(size) for size in sizes))
