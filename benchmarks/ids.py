"""Which hash table maps the 20 M string ends of 10 M edges to the rows of 1 M nodes fastest, and in how much memory?

Each candidate runs in a process of its own that holds the columns of the ids; the results are compared.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from common import answer
from pyarrow import parquet

N_NODES, N_EDGES, REPEATS = 1_000_000, 10_000_000, 3

RUN = """
import json, sys, time
import numpy as np, pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

def memory(field):
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith(field)).split()[1]) * 1024

def by_pcfi(ids, ends):
    from pcfi.inputs.id_index import IdIndex
    index = IdIndex(ids)
    return [index.rows(end) for end in ends]

def by_index_in(ids, ends):
    from concurrent.futures import ThreadPoolExecutor
    keys = ids.combine_chunks()
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda end: np.asarray(pc.fill_null(pc.index_in(end, value_set=keys), -1)), ends))

def by_arrow_join(ids, ends):
    nodes = pa.table({"id": ids, "row": pa.array(np.arange(len(ids), dtype=np.int32))})
    found = []
    for end in ends:
        edges = pa.table({"id": end, "edge": pa.array(np.arange(len(end), dtype=np.int32))})
        joined = edges.join(nodes, "id", join_type="left outer")
        rows = np.empty(len(end), dtype=np.int32)
        rows[joined["edge"].to_numpy()] = pc.fill_null(joined["row"], -1).to_numpy()
        found.append(rows)
    return found

def by_polars(ids, ends):
    import polars as pl
    nodes = pl.DataFrame({"id": pl.from_arrow(ids)}).with_row_index("row")
    joined = (pl.DataFrame({"id": pl.from_arrow(end)}).join(nodes, on="id", how="left", maintain_order="left")
              for end in ends)
    return [table["row"].to_numpy() for table in joined]

def by_duckdb(ids, ends):
    import duckdb
    nodes = pa.table({"id": ids, "row": pa.array(np.arange(len(ids), dtype=np.int32))})
    found = []
    for end in ends:
        edges = pa.table({"id": end, "edge": pa.array(np.arange(len(end), dtype=np.int32))})
        query = "select edge, row from edges left join nodes using (id)"
        joined = duckdb.connect().sql(query).fetchnumpy()
        rows = np.empty(len(end), dtype=np.int32)
        rows[joined["edge"]] = joined["row"]
        found.append(rows)
    return found

folder, name, repeats = sys.argv[1:]
ids = parquet.read_table(folder + "/nodes.parquet")["id"]
edges = parquet.read_table(folder + "/edges.parquet")
ends = [edges["source"], edges["target"]]
candidate = globals()["by_" + name]
candidate(ids.slice(0, 200_000), [end.slice(0, 200_000) for end in ends])  # loads the library
pa.default_memory_pool().release_unused()
time.sleep(1)  # what the allocator gives back, it gives back now
before = memory("VmRSS")
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")
seconds, busy = [], []
for _ in range(int(repeats)):
    start, cpu = time.perf_counter(), time.process_time()
    found = candidate(ids, ends)
    seconds.append(time.perf_counter() - start)
    busy.append(time.process_time() - cpu)
above = (memory("VmHWM") - before) / 1e9
facts = {"seconds": min(seconds), "CPU seconds": min(busy), "memory above the ids, GB": above}
np.save(f"{folder}/{name}.npy", np.stack(found))
print(json.dumps(facts))
"""

CANDIDATES = {
    "pcfi": "pcfi, one table, both ends",
    "index_in": "pyarrow, index_in of each end on a thread",
    "arrow_join": "pyarrow, join",
    "polars": "polars, join",
    "duckdb": "DuckDB, join",
}


def make(folder: Path) -> None:
    """Ids that are strings in a shuffled order, and the ends of random edges."""
    rng = np.random.default_rng(0)
    numbers = pa.array(rng.permutation(10 * N_NODES)[:N_NODES])
    ids = pc.binary_join_element_wise("node-", pc.cast(numbers, pa.string()), "")
    parquet.write_table(pa.table({"id": ids}), folder / "nodes.parquet")
    ends = {name: ids.take(pa.array(rng.integers(0, N_NODES, N_EDGES))) for name in ("source", "target")}
    parquet.write_table(pa.table(ends), folder / "edges.parquet")


def measure(folder: str, name: str) -> dict[str, float]:
    command = [sys.executable, "-c", RUN, folder, name, str(REPEATS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(CANDIDATES)
    with tempfile.TemporaryDirectory() as name:
        make(Path(name))
        rows = [{"ids mapped by": CANDIDATES[one], **measure(name, one)} for one in chosen]
        first = np.load(f"{name}/{chosen[0]}.npy")
        assert all(np.array_equal(np.load(f"{name}/{one}.npy"), first) for one in chosen)
    answer("ids", rows, nodes=N_NODES, edges=N_EDGES)
