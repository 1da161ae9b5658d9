"""How good are filled panels? Against linear interpolation, the last value, the neighbours' mean, and both combined.

Generated sensors on a road network with known truth, states by year from the wheel of libpysal, and series that ignore
their graph. Cells are removed as single readings, in outages of several lengths, and as whole sensors. Errors are mean
absolute errors over all removed cells; the best rival is the best one of that row. `both` is the mean of linear
interpolation and the neighbours' mean. The recipe of the road network: sensors at random places, each linked to its 5
nearest; free-flow speeds that differ by sensor, rush hours on working days whose depth varies smoothly over the
network, and autoregressive deviations with innovations smooth over the network, plus noise. With three columns there
are also occupancy, which falls linearly with speed, and flow, their product, both with noise of their own; every second
outage hits all columns of a sensor, and errors are in standard deviations of the columns.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import answer

import pcfi

THREE = "road, three columns"
CASES = ("road", "road, no season told", "walks that ignore the graph", "noise", "states by year", THREE)
LEVEL = 0.9
DAY, WEEK = 288, 2016  # readings every five minutes

Panel = tuple[np.ndarray, Any, dict[str, Any]]


def road(n_nodes: int = 207, n_times: int = 2 * WEEK, seed: int = 0) -> tuple[np.ndarray, Any]:
    """Speeds (times x sensors) on a generated road network."""
    from scipy import sparse
    from scipy.sparse.linalg import splu
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(seed)
    places = rng.random((n_nodes, 2))
    nearest = cKDTree(places).query(places, k=6)[1][:, 1:]
    graph = pcfi.prepare_graph(np.stack([np.repeat(np.arange(n_nodes), 5), nearest.ravel()]), n_nodes)
    adjacency = sparse.csr_array((np.ones(len(graph.indices)), graph.indices, graph.indptr), shape=(n_nodes, n_nodes))
    laplacian = sparse.diags_array(adjacency.sum(axis=1)) - adjacency
    smooth = splu((laplacian + 0.1 * sparse.eye_array(n_nodes)).tocsc()).solve
    clock = np.arange(n_times) % DAY
    rush = np.exp(-(((clock - 100) / 15) ** 2)) + 1.2 * np.exp(-(((clock - 210) / 20) ** 2))
    working = np.where((np.arange(n_times) // DAY) % 7 < 5, 1.0, 0.3)
    speed = 60 + 5 * rng.standard_normal(n_nodes)
    depth = 8 * np.exp(0.3 * smooth(rng.standard_normal(n_nodes)))
    steps = smooth(rng.standard_normal((n_nodes, n_times)))
    deviation = np.zeros((n_nodes, n_times))
    for t in range(1, n_times):
        deviation[:, t] = 0.97 * deviation[:, t - 1] + steps[:, t]
    deviation *= 4 / deviation.std()
    values = speed[:, None] - depth[:, None] * rush * working + deviation + rng.standard_normal((n_nodes, n_times))
    return values.T, graph


def states() -> tuple[np.ndarray, Any]:
    import geopandas
    import pandas as pd
    from libpysal import examples

    shapes = geopandas.read_file(examples.get_path("us48.shp"))
    income = pd.read_csv(examples.get_path("usjoin.csv")).set_index("Name").drop(columns="STATE_FIPS")
    return income.loc[shapes["STATE_NAME"]].to_numpy(dtype=float).T, pcfi.geo.build_graph(shapes, contiguity="queen")


def panel_of(case: str) -> Panel:
    rng = np.random.default_rng(7)
    if case.startswith("road"):
        return *road(), {} if "no season" in case else {"season": [DAY, WEEK]}
    if case == "states by year":
        return *states(), {}
    _, graph = road(60, 2)
    values = rng.standard_normal((1500, 60))
    return (np.cumsum(values, axis=0) if case.startswith("walks") else values), graph, {}


def remove(truth: np.ndarray, case: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    lengths = (3, 8, 20) if case == "states by year" else (6, 40, 300)
    missing = rng.random(truth.shape) < 0.05
    for column in missing.T:
        for length in rng.choice(lengths, 2):
            start = rng.integers(0, len(truth) - length)
            column[start : start + length] = True
    if case.startswith(("road", "states")):
        missing[:, rng.choice(truth.shape[1], 4, replace=False)] = True
    return missing


def neighbor_means(table: np.ndarray, graph: Any) -> np.ndarray:
    known = ~np.isnan(table)
    filled = pcfi.impute(np.nan_to_num(table).T, graph, known=known.T, method="neighbors", unreachable="nan").values.T
    return np.where(np.isnan(filled), np.nanmean(table), filled)


def rivals_of(table: np.ndarray, graph: Any) -> dict[str, np.ndarray]:
    import pandas as pd

    frame, near = pd.DataFrame(table), neighbor_means(table, graph)
    linear = frame.interpolate(limit_direction="both").to_numpy()
    last = frame.ffill().bfill().to_numpy()
    linear, last = (np.where(np.isnan(one), near, one) for one in (linear, last))
    return {"linear": linear, "last value": last, "neighbour mean": near, "both": (linear + near) / 2}


def row_of(case: str) -> dict[str, Any]:
    truth, graph, options = panel_of(case)
    missing = remove(truth, case)
    table = np.where(missing, np.nan, truth)

    def error(filled: np.ndarray) -> float:
        return float(np.abs(filled - truth)[missing].mean())

    start = time.perf_counter()
    result = pcfi.panel.impute(table, graph, **options)
    seconds = time.perf_counter() - start
    errors = {name: error(filled) for name, filled in rivals_of(table, graph).items()}
    low, high = result.interval(LEVEL)
    inside = (low <= truth) & (truth <= high)
    gaps = result.gaps
    covered = {f"coverage, {kind}": float(inside[gaps == kind].mean()) for kind in np.unique(gaps[missing])}
    own = error(result.values)
    facts = {"panel": case, "sensors": truth.shape[1], "times": truth.shape[0], **errors, "pcfi": own}
    return {**facts, "pcfi over best": own / min(errors.values()), **covered, "seconds": seconds}


def three_columns() -> dict[str, Any]:
    """Speed, occupancy and flow in one call, beside one call for each."""
    import pandas as pd

    rng = np.random.default_rng(5)
    speed, graph = road()
    occupancy = 50 * (1 - speed / 80) + 2 * rng.standard_normal(speed.shape)
    flow = speed * occupancy / 10 + 5 * rng.standard_normal(speed.shape)
    truth = np.stack([speed, occupancy, flow])
    shared, *alone = (remove(speed, "road", seed) for seed in range(4))
    missing = np.stack([shared | one & ~one.all(axis=0) for one in alone])
    table = np.where(missing, np.nan, truth)
    units, names = truth.std(axis=(1, 2)), ["speed", "occupancy", "flow"]
    when, sensor = np.indices(speed.shape)
    keys = {"sensor": sensor.ravel(), "when": when.ravel()}
    long = pd.DataFrame(keys | {name: one.ravel() for name, one in zip(names, table, strict=True)})

    def error(filled: np.ndarray) -> float:
        return float((np.abs(filled - truth) / units[:, None, None])[missing].mean())

    def fill(columns: list[str]) -> Any:
        return pcfi.panel.impute(long, graph, node="sensor", time="when", season=[DAY, WEEK], columns=columns)

    def arrays(frame: Any) -> np.ndarray:
        return np.stack([frame[name].to_numpy().reshape(speed.shape) for name in names])

    start = time.perf_counter()
    result = fill(names)
    seconds = time.perf_counter() - start
    apart = np.stack([fill([name]).values[name].to_numpy().reshape(speed.shape) for name in names])
    rivals = [rivals_of(one, graph) for one in table]
    errors = {name: error(np.stack([one[name] for one in rivals])) for name in rivals[0]}
    low, high = map(arrays, result.interval(LEVEL))
    inside, gaps = (low <= truth) & (truth <= high), arrays(result.gaps)
    covered = {f"coverage, {kind}": float(inside[gaps == kind].mean()) for kind in np.unique(gaps[missing])}
    own = error(arrays(result.values))
    facts = {"panel": THREE, "sensors": speed.shape[1], "times": len(speed), **errors}
    best = {"pcfi, one call per column": error(apart), "pcfi": own, "pcfi over best": own / min(errors.values())}
    return {**facts, **best, **covered, "seconds": seconds}


def large() -> dict[str, Any]:
    """As many sensors and times as METR-LA has: the time of one call, the second one, after kernels are compiled."""
    truth, graph = road(n_times=34_272)
    missing = remove(truth, "road")
    table = np.where(missing, np.nan, truth)
    pcfi.panel.impute(table[:500], graph, season=DAY)
    start = time.perf_counter()
    result = pcfi.panel.impute(table, graph, season=[DAY, WEEK])
    seconds = time.perf_counter() - start
    error = float(np.abs(result.values - truth)[missing].mean())
    return {"panel": "road, large", "sensors": 207, "times": 34_272, "pcfi": error, "seconds": seconds}


def rows(cases: list[str]) -> Iterator[dict[str, Any]]:
    for case in cases:
        yield large() if case == "large" else three_columns() if case == THREE else row_of(case)


if __name__ == "__main__":
    answer("panel", rows(sys.argv[1:] or [*CASES, "large"]))
