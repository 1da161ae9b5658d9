"""Position channels: what they are, and that nothing but the graph and the seed decides about them."""

import subprocess
import sys

import networkx as nx
import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import norm

import pcfi
from pcfi._kernels import reference


def edges_of(graph) -> np.ndarray:
    return np.array(nx.convert_node_labels_to_integers(graph).edges).T


KARATE = edges_of(nx.karate_club_graph())


def sources_of(n_nodes: int, n_channels: int, seed: int = 0) -> np.ndarray:
    """The random sources: in each channel, the nodes with the lowest numbers hold a normal one, the others NaN."""
    n_sources = max(2, min(64, n_nodes // 32))
    values = np.full((n_nodes, n_channels), np.nan)
    for channel in range(n_channels):
        drawn = np.random.PCG64([seed, channel]).random_raw(n_nodes)
        chosen = np.argsort(drawn)[:n_sources]
        values[chosen, channel] = norm.ppf(((drawn[chosen] & np.uint64(2**32 - 1)) + 0.5) / 2**32)
    return values


def filled_sources(adjacency: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Stage 1 by the reference implementation, less the mean of what is within reach, in unit mean square."""
    result = np.zeros_like(values)
    for channel, column in enumerate(values.T):
        known = ~np.isnan(column)
        distance = reference.hops(adjacency, known)
        matrix = reference.confidence_matrix(adjacency, distance, 0.9)
        result[:, channel] = reference.steady_state(matrix, column, known, distance != reference.UNREACHED)
        reached = distance != reference.UNREACHED
        result[reached, channel] -= result[reached, channel].mean()
    return result / np.sqrt(np.mean(result**2))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "graph",
    [
        nx.karate_club_graph(),
        nx.les_miserables_graph(),
        nx.path_graph(100),
        nx.disjoint_union_all([nx.cycle_graph(9)] * 3),
    ],
    ids=["karate", "miserables", "path", "three rings"],
)
def test_position_is_stage_1_of_random_sources(graph, weighted):
    adjacency = nx.to_numpy_array(graph, weight="weight" if weighted else None)
    adjacency = adjacency / adjacency.max()
    n_channels = min(len(adjacency), 70)  # the path: more than are filled at a time
    place = pcfi.position(sparse.csr_array(adjacency), n_channels)
    assert place.dtype == np.float32
    np.testing.assert_allclose(place, filled_sources(adjacency, sources_of(len(adjacency), n_channels)), atol=2e-3)


def test_nodes_of_one_community_are_alike():
    graph = nx.planted_partition_graph(4, 30, 0.4, 0.01, seed=0)
    place = pcfi.position(edges_of(graph), 120)
    group = np.repeat(np.arange(4), 30)
    alike = np.corrcoef(place)
    assert alike[group[:, None] == group].mean() > alike[group[:, None] != group].mean() + 0.5


@pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")
@pytest.mark.parametrize("n_nodes", [2_000, 70_000], ids=["a block per thread", "one block for all threads"])
def test_the_number_of_threads_does_not_change_a_bit(n_nodes):
    edges = np.random.default_rng(0).integers(0, n_nodes, size=(2, 2 * n_nodes))
    before = numba.get_num_threads()
    results = []
    try:
        for n_threads in dict.fromkeys((1, min(2, before), before)):
            numba.set_num_threads(n_threads)
            results.append(pcfi.position(edges, 20, n_nodes=n_nodes).tobytes())
    finally:
        numba.set_num_threads(before)
    assert len(set(results)) == 1


def test_seeds_decide_and_generators_are_used():
    place = pcfi.position(KARATE, 8)
    assert np.array_equal(place, pcfi.position(KARATE, 8, random_state=0))
    assert not np.allclose(place, pcfi.position(KARATE, 8, random_state=1))
    rng = np.random.default_rng(5)
    drawn = pcfi.position(KARATE, 8, random_state=rng)
    assert not np.allclose(drawn, pcfi.position(KARATE, 8, random_state=rng))
    assert np.array_equal(drawn, pcfi.position(KARATE, 8, random_state=np.random.default_rng(5)))


def test_a_small_change_of_the_graph_moves_positions_little():
    graph = nx.planted_partition_graph(4, 50, 0.3, 0.02, seed=1)
    edges = edges_of(graph)
    place = pcfi.position(edges, 32)
    more = pcfi.position(np.concatenate([edges, [[0, 3], [1, 60]]], axis=1), 32)
    change = np.linalg.norm(more - place) / np.linalg.norm(place)
    assert 0 < change < 0.1
    added = np.concatenate([edges, [[0, 1], [200, 200]]], axis=1)  # a new node
    change = np.linalg.norm(pcfi.position(added, 32)[:200] - place) / np.linalg.norm(place)
    assert 0 < change < 0.4  # it is a source itself, in one of 33 channels


@given(st.integers(0, 2**32 - 1))
def test_components_do_not_see_each_other(seed):
    rng = np.random.default_rng(seed)
    one, two = (edges_of(nx.random_labeled_tree(int(rng.integers(10, 30)), seed=seed % 1000 + k)) for k in (0, 1))
    size = one.max() + 1
    place = pcfi.position(np.concatenate([one, two + size], axis=1), 20)
    start = sources_of(len(place), 20)
    for part in (slice(size), slice(size, None)):
        n_sources = np.isfinite(start[part]).sum(axis=0)
        assert not place[part][:, n_sources == 0].any()
        np.testing.assert_allclose(np.ptp(place[part][:, n_sources == 1], axis=0), 0, atol=1e-3)


def test_further_channels_change_nothing():
    few, many = pcfi.position(KARATE, 5), pcfi.position(KARATE, 30)[:, :5]
    np.testing.assert_allclose(few / np.linalg.norm(few), many / np.linalg.norm(many), rtol=1e-5)


def test_nodes_without_edges_are_zero_and_counted():
    with pytest.warns(pcfi.UnreachableWarning, match="3 of 37 nodes have no edges: their position is 0"):
        place = pcfi.position(KARATE, 8, n_nodes=37)
    assert not place[34:].any()
    alone = pcfi.position(KARATE, 8)
    np.testing.assert_allclose(place[:34] / np.linalg.norm(place), alone / np.linalg.norm(alone), atol=1e-5)
    with pytest.warns(pcfi.UnreachableWarning, match="5 of 5 nodes"):
        assert not pcfi.position(np.empty((2, 0), int), 3, n_nodes=5).any()


def test_a_graph_without_any_structure_tells_only_the_sources_apart():
    place = pcfi.position(edges_of(nx.complete_graph(40)), 8)
    others = np.isnan(sources_of(40, 8))
    for column, other in zip(place.T, others.T, strict=True):
        assert np.ptp(column[other]) < 1e-3 * np.ptp(column)


def test_directions_do_not_count_and_graphs_come_in_any_form():
    place = pcfi.position(KARATE, 8)
    assert np.array_equal(place, pcfi.position(KARATE[::-1], 8))
    assert np.array_equal(place, pcfi.position(pcfi.prepare_graph(KARATE, directed=True), 8))
    assert np.array_equal(place, pcfi.position(nx.karate_club_graph(), 8))
    weights = np.full(KARATE.shape[1], 7.0)
    np.testing.assert_allclose(pcfi.position((KARATE, weights), 8), place, atol=1e-5)


def test_weights_of_any_magnitude_are_safe():
    place = pcfi.position((KARATE, np.full(KARATE.shape[1], 3.0)), 8)
    for factor in (1e-200, 1e-30, 1e30, 1e200):
        scaled = pcfi.position((KARATE, np.full(KARATE.shape[1], 3.0 * factor)), 8)
        assert np.isfinite(scaled).all()
        if factor in (1e-30, 1e30):
            assert np.abs(scaled).max() > 0.1
    assert np.abs(place).max() > 0.1


BAD = {
    "more channels than nodes": (
        lambda: pcfi.position(KARATE, 35),
        "n_channels must be at most .* got 35",
    ),
    "no channels": (lambda: pcfi.position(KARATE, 0), "n_channels must be an integer of at least 1"),
    "half a channel": (lambda: pcfi.position(KARATE, 2.5), "n_channels must be an integer"),
    "True": (lambda: pcfi.position(KARATE, True), "n_channels must be an integer"),
    "an empty graph": (lambda: pcfi.position(np.empty((2, 0), int), 1), "the graph has no nodes"),
    "an infinite weight": (lambda: pcfi.position(([[0], [1]], [np.inf]), 1), "weight inf"),
    "NaN as a weight": (lambda: pcfi.position(([[0], [1]], [np.nan]), 1), "weight nan"),
    "a negative weight": (lambda: pcfi.position(([[0], [1]], [-1.0]), 1), "at least 0"),
    "a wrong seed": (lambda: pcfi.position(KARATE, 3, random_state=-1), "random_state must be"),
    "too few nodes": (lambda: pcfi.position(KARATE, 3, n_nodes=5), "n_nodes is 5"),
    "not a graph": (lambda: pcfi.position("karate", 3), "graph is 'karate'"),
    "with values": (
        lambda: pcfi.impute(np.eye(34), KARATE, position=3),
        "position must be 0 for values, because position channels belong to a representation",
    ),
    "more than nodes in impute": (
        lambda: pcfi.impute(np.eye(34), KARATE, position=99, objective="representation"),
        "position must be at most the number of nodes",
    ),
    "negative in impute": (
        lambda: pcfi.impute(np.eye(34), KARATE, position=-1, objective="representation"),
        "position must be an integer",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_an_error_that_says_what_to_do(case):
    call, message = BAD[case]
    with pytest.raises(pcfi.PcfiError, match=message):
        call()


def test_memory_is_checked_before_allocation(monkeypatch):
    monkeypatch.setattr("pcfi.system_memory.available", lambda: 10_000_000)
    path = pcfi.prepare_graph([np.arange(99_999), np.arange(1, 100_000)])
    with pytest.raises(pcfi.TooLargeError, match=r"128 position channels of 100,000 nodes needs about .* only 10 MB"):
        pcfi.position(path, 128)


RESIDENT = """
import ctypes, warnings
import numpy as np
import pcfi
from pcfi._kernels import csr_graph
from pcfi.memory import position_bytes

warnings.simplefilter("error")
ring = lambda n: np.stack([np.arange(n), (np.arange(n) + 1) % n])
csr_graph.MAX_CACHED_BLOCK_BYTES, usual = 0, csr_graph.MAX_CACHED_BLOCK_BYTES
pcfi.position(ring(300), 20)  # loads the kernels for large graphs
csr_graph.MAX_CACHED_BLOCK_BYTES = usual
graph = pcfi.prepare_graph(np.concatenate([ring(70_000), ring(70_000) * [[1], [7]] % 70_000], axis=1))
ctypes.CDLL(None).malloc_trim(0)
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")  # the peak starts again from here
def bytes_of(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) * 1024
before = bytes_of("VmRSS")
pcfi.position(graph, 256)
print(bytes_of("VmHWM") - before, position_bytes(graph, 256))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_announced_is_enough_for_what_the_allocator_keeps():
    # freed working memory stayed resident, and the process took up to 18 % more than was announced
    done = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True)
    taken, announced = map(int, done.stdout.split())
    assert 0.5 * announced < taken <= announced


# In a representation


def features(rng) -> np.ndarray:
    values = rng.normal(size=(34, 3)) * [1.0, 10.0, 0.1] + 5
    values[rng.random((34, 3)) < 0.4] = np.nan
    return values


@pytest.mark.parametrize("method", ["pcfi", "fp", "mean"])
def test_a_representation_has_position_behind_the_values(method):
    table = features(np.random.default_rng(0))
    plain = pcfi.impute(table, KARATE, objective="representation", method=method)
    result = pcfi.impute(table, KARATE, objective="representation", method=method, position=8, random_state=3)
    assert np.array_equal(result.values, plain.values)
    assert np.array_equal(result.representation[:, :3], plain.values)
    place = pcfi.position(KARATE, 8, random_state=3)
    ratio = result.representation[:, 3:] / place
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-4)
    assert result.representation[:, 3:].var(axis=0).sum() == pytest.approx(
        pcfi.positions.RELATIVE_SIZE**2 * plain.values.var(axis=0).sum(), rel=1e-4
    )
    again = pcfi.impute(table, KARATE, **result.parameters)
    assert np.array_equal(again.representation, result.representation)
    assert plain.position is None
    assert "position    8 channels" in repr(result)


def test_known_cells_never_change_by_default():
    table = features(np.random.default_rng(1)) + 100  # means that "auto" finds large
    result = pcfi.impute(table, KARATE, objective="representation", position=4)
    known = ~np.isnan(table)
    assert result.representation[:, :3][known].tobytes() == table[known].tobytes()
    assert result.center is None
    centred = pcfi.impute(table, KARATE, objective="representation", center="auto")
    assert centred.center is not None


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_tables_get_named_columns(library):
    module = pytest.importorskip(library)
    table = features(np.random.default_rng(2))
    columns = {name: table[:, place] for place, name in enumerate("abc")}
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    result = pcfi.impute(frame, KARATE, objective="representation", position=2)
    names = list(getattr(result.representation, "column_names", None) or result.representation.columns)
    assert names == ["a", "b", "c", "position_1", "position_2"]
    plain = pcfi.impute(table, KARATE, objective="representation", position=2)
    np.testing.assert_allclose(np.asarray(result.representation["position_2"]), plain.representation[:, 4], rtol=1e-6)
    renamed = module.table(columns | {"position_1": columns["a"]}) if library == "pyarrow" else None
    if renamed is not None:
        with pytest.raises(pcfi.FeatureError, match="already has a column 'position_1'"):
            _ = pcfi.impute(renamed, KARATE, objective="representation", position=2).representation


def test_constant_and_unreachable_features_leave_position_finite():
    table = np.full((34, 2), np.nan)
    table[:, 0] = 1.0
    with pytest.warns(pcfi.UnreachableWarning):
        result = pcfi.impute(table, KARATE, objective="representation", position=4, unreachable="nan")
    assert np.isfinite(result.representation[:, 2:]).all()
    assert np.abs(result.representation[:, 2:]).max() > 0.1
