"""How long do the import and the first call take, with a cold and a warm cache, and a small call once warm?"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from common import answer

CODE = """
import json, sys, time
start = time.perf_counter()
import numpy
bare = time.perf_counter() - start
start = time.perf_counter()
import pcfi
imported = time.perf_counter() - start
import numpy as np
rng = np.random.default_rng(0)
features = np.where(rng.random((100, 10)) < 0.5, rng.normal(size=(100, 10)), np.nan).astype(np.float32)
ring = np.stack([np.arange(100), (np.arange(100) + 1) % 100])
start = time.perf_counter()
pcfi.impute(features, ring, alpha=0.5, beta=0.1, objective="representation")
first = time.perf_counter() - start
times = []
for _ in range(200):
    start = time.perf_counter()
    pcfi.impute(features, ring, alpha=0.5, beta=0.1, objective="representation")
    times.append(time.perf_counter() - start)
print(json.dumps(dict(numpy=bare, pcfi=imported, first=first, small=sorted(times)[100])))
"""


def run(cache: str) -> dict[str, float]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment)
    return dict(json.loads(done.stdout))


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        cold = run(cache)
        warm = [run(cache) for _ in range(5)]
    best = {key: float(np.min([found[key] for found in warm])) for key in cold}
    answer(
        "first_call",
        [
            {"what": "import numpy", "seconds": best["numpy"]},
            {"what": "import pcfi, numpy being there", "seconds": best["pcfi"]},
            {"what": "first small call, kernels to be compiled", "seconds": cold["first"]},
            {"what": "first small call, kernels in the cache", "seconds": best["first"]},
            {"what": "small call (100 nodes, 10 channels) once warm", "seconds": best["small"]},
        ],
    )


if __name__ == "__main__":
    main()
