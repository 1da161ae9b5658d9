"""Mapped graphs: whatever the edge file, what `prepare_graph` makes of the same edges."""

import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcfi
from hypothesis_profiles import examples
from pcfi.outofcore import buckets, build_graph, open_graph
from random_problems import problems

pytestmark = pytest.mark.slow

pa = pytest.importorskip("pyarrow")
import pyarrow.csv  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402


def assert_same(built: pcfi.Graph, prepared: pcfi.Graph) -> None:
    assert (built.n_nodes, built.directed, built.n_edges) == (prepared.n_nodes, prepared.directed, prepared.n_edges)
    for name in ("indptr", "indices", "degree"):
        left, right = getattr(built, name), getattr(prepared, name)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    assert (built.weights is None) == (prepared.weights is None)
    for dtype in (np.float32, np.float64):
        np.testing.assert_array_equal(built.weights_as(dtype), prepared.weights_as(dtype))
    assert built.weight_range == prepared.weight_range
    for left, right in zip(built.outgoing, prepared.outgoing, strict=True):
        np.testing.assert_array_equal(left, right)


@given(
    problem=problems(max_nodes=300), memory=st.sampled_from(["60kB", "1MB", "1GB"]), n_buckets=st.sampled_from([4, 256])
)
@examples(60)
def test_a_built_graph_is_the_prepared_graph(tmp_path_factory, problem, memory, n_buckets):
    folder = tmp_path_factory.mktemp("built") / "graph"
    size = len(problem.features)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "BUCKETS", n_buckets)
        built = build_graph(
            problem.edge_index,
            folder,
            n_nodes=size,
            weight=problem.weights,
            directed=problem.directed,
            memory=memory,
        )
    assert_same(built, pcfi.prepare_graph(problem.graph, size, directed=problem.directed))
    assert_same(open_graph(folder), built)
    assert [path.name for path in folder.parent.iterdir()] == ["graph"]


def many_edges(n_edges: int = 5000, n_nodes: int = 700) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    index = (n_nodes * rng.random((2, n_edges)) ** [[1], [4]]).astype(np.int64)  # some nodes have hundreds of edges
    return index, rng.integers(0, 5, n_edges) / 4


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv", "npy"])
def test_every_kind_of_edge_file_is_read(tmp_path, suffix):
    index, weights = many_edges()
    path, weight = tmp_path / f"edges.{suffix}", None
    table = pa.table({"weight": weights, "dst": index[1], "note": ["x"] * len(weights), "src": index[0]})
    if suffix == "parquet":
        pq.write_table(table, path, row_group_size=999)
    elif suffix == "npy":
        np.save(path, index)
        weight = tmp_path / "weights.npy"
        np.save(weight, weights)
    else:
        options = pyarrow.csv.WriteOptions(delimiter="\t" if suffix == "tsv" else ",")
        pyarrow.csv.write_csv(table, path, options)
    built = build_graph(path, tmp_path / "graph", weight=weight, memory="1MB")
    assert_same(built, pcfi.prepare_graph((index, weights)))


def test_ids_of_any_kind_are_mapped(tmp_path):
    index, weights = many_edges(300, 50)
    ids = np.array([f"node {k * 7 % 50}" for k in range(50)])
    pq.write_table(pa.table({"source": ids[index[0]], "target": ids[index[1]], "w": weights}), tmp_path / "e.parquet")
    built = build_graph(tmp_path / "e.parquet", tmp_path / "graph", ids=ids, weight="w")
    assert_same(built, pcfi.prepare_graph((index, weights), 50))


def test_columns_of_columns_do_not_count_as_nodes(tmp_path):
    details = pa.array([{"age": 7, "cost": 900}, {"age": 8, "cost": 901}])
    table = pa.table({"details": details, "source": [0, 1], "target": [1, 2]})
    pq.write_table(table, tmp_path / "edges.parquet")
    assert_same(build_graph(tmp_path / "edges.parquet", tmp_path / "graph"), pcfi.prepare_graph([[0, 1], [1, 2]]))
    twins = pa.table({"a": pa.array([{"b": 900}]), "a.b": [0], "c": [1]})
    pq.write_table(twins, tmp_path / "twins.parquet")
    built = build_graph(tmp_path / "twins.parquet", tmp_path / "twins", source="a.b", target="c")
    assert built.n_nodes == 2


def test_the_number_of_nodes_is_checked(tmp_path):
    index = np.array([[0], [1]])
    assert build_graph(index, tmp_path / "graph", n_nodes=np.int64(5)).n_nodes == 5
    for wrong in (-1, 2.5, True, "5"):
        with pytest.raises(pcfi.ParameterError, match="n_nodes must be an integer of at least 0"):
            build_graph(index, tmp_path / "other", n_nodes=wrong)
    pq.write_table(pa.table({"source": ["a"], "target": ["b"]}), tmp_path / "edges.parquet")
    with pytest.raises(pcfi.ParameterError, match="n_nodes is 5, but there are 3 ids: leave n_nodes out"):
        build_graph(tmp_path / "edges.parquet", tmp_path / "other", n_nodes=5, ids=["a", "b", "c"])
    assert build_graph(tmp_path / "edges.parquet", tmp_path / "named", n_nodes=3, ids=["a", "b", "c"]).n_nodes == 3


def test_unweighted_edges_given_once_or_in_both_directions_have_no_weights(tmp_path):
    once = np.array([[0, 1, 2], [1, 2, 3]])
    for k, index in enumerate([once, np.concatenate([once, once[::-1]], axis=1)]):
        built = build_graph(index, tmp_path / str(k))
        assert built.weights is None
        assert not (tmp_path / str(k) / "weights.npy").exists()
        assert repr(built) == "Graph(4 nodes, 3 edges, undirected, unweighted)"


def test_weights_that_begin_late_are_all_there(tmp_path):
    # a thousand rows of weight 1 come before the first other weight
    index = np.stack([np.arange(2000), np.arange(2000) + 1])
    weights = np.where(np.arange(2000) < 1900, 1.0, 2.5)
    built = build_graph(index, tmp_path / "graph", weight=weights)
    assert_same(built, pcfi.prepare_graph((index, weights)))


def test_a_mapped_graph_serves_impute_and_survives_pickling(tmp_path):
    index, weights = many_edges(400, 60)
    built = build_graph(index, tmp_path / "graph", n_nodes=60, weight=weights)
    features = np.where(np.random.default_rng(1).random((60, 3)) < 0.3, 1.0 * np.arange(180).reshape(60, 3), np.nan)
    features[0] = 1.0
    expected = pcfi.impute(
        features, (index, weights), unreachable="zero", alpha=0.5, beta=0.1, objective="representation"
    ).values
    for graph in (built, pickle.loads(pickle.dumps(built))):
        np.testing.assert_array_equal(
            pcfi.impute(features, graph, unreachable="zero", alpha=0.5, beta=0.1, objective="representation").values,
            expected,
        )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"source": [0, 1], "target": [1, -2]}, r"edge 1 refers to node -2.*number the nodes from 0"),
        ({"source": [0, 1], "target": [1, 9]}, r"edge 1 refers to node 9, but n_nodes is 5"),
        ({"source": [0.0, 1.5], "target": [1.0, 2.0]}, r"edge 1 refers to node 1.5.*integers"),
        ({"source": [0, 1], "target": [1, 2], "weight": [1.0, -1.0]}, r"edge 1 has weight -1.0"),
        ({"source": [3, 3], "target": [4, 4], "weight": [1e308, 1e308]}, r"weights of node 3 overflows float64"),
        ({"source": [0, 1], "target": [1, None]}, r"edge 1 has no value in column 'target'"),
        ({"source": ["a", "b"], "target": ["b", "c"]}, r"column 'source' holds string, but must hold row numbers"),
        ({"only": [1, 2]}, r"name the columns with the ends of each edge"),
    ],
)
def test_bad_edges_are_refused_and_leave_no_folder(tmp_path, table, message):
    pq.write_table(pa.table(table), tmp_path / "edges.parquet")
    with pytest.raises(pcfi.GraphError, match=message):
        build_graph(tmp_path / "edges.parquet", tmp_path / "graph", n_nodes=5)
    assert not (tmp_path / "graph").exists()


def test_bad_calls_say_what_to_do(tmp_path):
    index = np.array([[0], [1]])
    build_graph(index, tmp_path / "graph")
    with pytest.raises(pcfi.ParameterError, match="overwrite=True"):
        build_graph(index, tmp_path / "graph")
    build_graph(index, tmp_path / "graph", overwrite=True)
    with pytest.raises(pcfi.ParameterError, match="there is no file"):
        build_graph(tmp_path / "nothing.parquet", tmp_path / "other")
    with pytest.raises(pcfi.ParameterError, match=r"ends in .npy, .parquet, .csv or .tsv"):
        build_graph("edges.xlsx", tmp_path / "other")
    with pytest.raises(pcfi.UnsupportedTypeError, match="path of an edge file"):
        build_graph([[0], [1]], tmp_path / "other")
    with pytest.raises(pcfi.ParameterError, match="is not a graph folder"):
        open_graph(tmp_path)
    with pytest.raises(pcfi.ParameterError, match='size such as "4GB"'):
        build_graph(index, tmp_path / "other", memory="plenty")
    pq.write_table(pa.table({"source": ["a"], "target": ["z"]}), tmp_path / "edges.parquet")
    with pytest.raises(pcfi.GraphError, match=r"edge 0 names 'z', which is not among the 2 ids"):
        build_graph(tmp_path / "edges.parquet", tmp_path / "other", ids=["a", "b"])
    with pytest.raises(pcfi.GraphError, match="the id 'a' is duplicated"):
        build_graph(tmp_path / "edges.parquet", tmp_path / "other", ids=["a", "a"])
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(pcfi.GraphError, match="cannot be read"):
        build_graph(tmp_path / "broken.parquet", tmp_path / "other")


BUILD = """
import sys
from pcfi.scale import build_graph
print("ready", flush=True)
build_graph(sys.argv[1], sys.argv[2], memory="1MB")
"""


@pytest.mark.skipif(os.name == "nt", reason="kills with a signal")
def test_a_killed_build_leaves_no_folder_and_starts_again(tmp_path):
    index, _ = many_edges(60_000, 9_000)
    np.save(tmp_path / "edges.npy", index)
    for pause in (0.0, 0.1, 0.3):
        build = subprocess.Popen(
            [sys.executable, "-c", BUILD, tmp_path / "edges.npy", tmp_path / "graph"], stdout=subprocess.PIPE
        )
        build.stdout.readline()
        time.sleep(pause)
        build.send_signal(signal.SIGKILL)
        build.communicate()
        if (tmp_path / "graph").exists():  # it was faster
            assert_same(open_graph(tmp_path / "graph"), pcfi.prepare_graph(index))
    assert_same(build_graph(tmp_path / "edges.npy", tmp_path / "graph", overwrite=True), pcfi.prepare_graph(index))
