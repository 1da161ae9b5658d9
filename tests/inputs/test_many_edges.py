"""Many ids and many edges: the compiled hash table and sort give what the libraries give for few."""

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcfi
from pcfi._kernels.id_table import find_ids
from pcfi.inputs import edge_frames, id_index, ids, sorted_rows
from pcfi.inputs.id_index import IdIndex
from pcfi.inputs.sorted_rows import sorted_rows as sort_edges


@pytest.fixture(autouse=True)
def _compiled_from_the_first(monkeypatch):
    for module, name in (
        (id_index, "MIN_HASHED"),
        (ids, "MIN_HASHED"),
        (edge_frames, "MANY_EDGES"),
        (sorted_rows, "MIN_EDGES"),
    ):
        monkeypatch.setattr(module, name, 0)


def same_rows(keys, values):
    expected = pc.fill_null(pc.index_in(values, value_set=keys), -1).to_numpy(zero_copy_only=False)
    np.testing.assert_array_equal(IdIndex(keys).rows(values), expected)


texts = st.text(alphabet="ab0é\0", max_size=20) | st.text(max_size=9)


@given(st.lists(texts, unique=True, max_size=40), st.lists(texts | st.none(), max_size=60), st.booleans())
def test_ids_of_any_length_are_found_where_pyarrow_finds_them(keys, others, large):
    kind = pa.large_string() if large else pa.string()
    values = pa.array([*others, *keys, None], kind)
    same_rows(pa.array(keys, kind), values)
    same_rows(pa.array(keys, kind), pa.chunked_array([values.slice(3), values.slice(0, 0), values.slice(1, 2)]))
    if len(keys) > 2:
        same_rows(pa.array(keys, kind).slice(1), values)


KINDS = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us"), pa.float64(), pa.bool_()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ids_of_any_type_are_found(kind):
    numbers = np.arange(2 if pa.types.is_boolean(kind) else 100, dtype=np.int32)
    bits = pa.int32() if kind == pa.date32() else pa.int64()
    keys = pa.array(np.random.default_rng(0).permutation(numbers)).cast(bits).cast(kind)
    values = pa.concat_arrays([keys, pa.array([None, None], kind), keys.slice(1)])
    same_rows(keys.slice(0, len(keys) - 1), values)
    same_rows(keys.slice(1), values)


@pytest.mark.parametrize("width", [3, 8, 16])
def test_ids_of_one_width_are_found(width):
    keys = pa.array([bytes([k, 255 - k]) + bytes(width - 2) for k in range(200)], pa.binary(width))
    same_rows(keys.slice(7), keys)


def test_the_rows_do_not_depend_on_threads():
    keys = pa.array([f"node-{k}" for k in range(5000)])
    values = keys.take(pa.array(np.random.default_rng(0).integers(0, 5000, 20_000)))
    before = numba.get_num_threads()
    try:
        found = []
        for threads in (1, before):
            numba.set_num_threads(threads)
            found.append(IdIndex(keys).rows(values))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(*found)


def test_equal_hashes_are_told_apart_by_their_bytes():
    ids = pa.array(["a", "bb", "ccc" * 9])
    packed, slots, _ = IdIndex(ids)._table
    rows = np.empty(3, dtype=np.int32)
    find_ids(packed, 0, 3, packed, slots, rows)
    assert rows.tolist() == [0, 1, 2]
    hashes = slots & np.uint64(0xFFFFFFFF00000000)
    find_ids(packed, 0, 3, packed, np.where(slots, hashes | np.uint64(1), slots), rows)  # each slot now says row 0
    assert rows.tolist() == [0, -1, -1]


def test_a_repeated_id_is_named():
    assert IdIndex(pa.array(["a", "b", "c"])).first_repeated is None
    assert IdIndex(pa.array(["a", "b", "c", "b", "a"])).first_repeated == 3
    nodes = pa.table({"id": ["a", "b", "b"], "x": [1.0, None, 3.0]})
    with pytest.raises(pcfi.FeatureError, match="the id 'b' is duplicated"):
        pcfi.impute(nodes, pa.table({"source": ["a"], "target": ["b"]}))


def test_a_table_with_many_edges_is_read_like_one_with_few(monkeypatch):
    rng = np.random.default_rng(0)
    names = pa.array([f"n{k}" for k in rng.permutation(300)])
    nodes = pa.table({"id": names, "x": pa.array(np.where(rng.random(300) < 0.5, np.nan, rng.normal(size=300)))})
    ends = [names.take(pa.array(rng.integers(0, 300, 900))) for _ in range(2)]
    edges = pa.table({"source": ends[0], "target": ends[1], "weight": rng.random(900)})
    options = {"alpha": 0.5, "beta": 0.0, "objective": "representation"}
    many = pcfi.impute(nodes, edges, **options).values["x"].to_numpy()
    for module, name in ((id_index, "MIN_HASHED"), (ids, "MIN_HASHED"), (edge_frames, "MANY_EDGES")):
        monkeypatch.setattr(module, name, 1 << 40)
    np.testing.assert_array_equal(pcfi.impute(nodes, edges, **options).values["x"].to_numpy(), many)


def test_an_unknown_id_among_many_edges_is_named():
    nodes = pa.table({"id": ["a", "b", "c"], "x": [1.0, None, 3.0]})
    edges = pa.table({"source": ["a", "b"], "target": ["b", "z"]})
    with pytest.raises(pcfi.GraphError, match="edge 1 refers to 'z', which is not in the column 'id'"):
        pcfi.impute(nodes, edges)
    known = pcfi.frames.impute(nodes, edges, unknown_ids="drop", alpha=0.5, beta=0.0, objective="representation")
    assert known.values["x"].to_pylist() == [1.0, 1.0, 3.0]


@st.composite
def edge_lists(draw):
    n_nodes = draw(st.integers(1, 40) | st.sampled_from([1024, 5000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ends = rng.integers(0, n_nodes, (2, draw(st.integers(0, 200)))).astype(draw(st.sampled_from([np.int32, np.int64])))
    weights = rng.integers(0, 4, ends.shape[1]) / 4 if draw(st.booleans()) else np.empty(0)
    return ends, weights, n_nodes


@given(edge_lists(), st.booleans())
def test_many_edges_are_sorted_as_scipy_sorts_few(edges, both_sides):
    (rows, neighbours), weights, n_nodes = edges
    found = sort_edges(rows, neighbours, weights, n_nodes, both_sides=both_sides)
    expected = sorted_rows._by_scipy(rows, neighbours, weights, n_nodes, both_sides)
    for one, other in zip(found, expected, strict=True):
        if other is None:
            assert one is None
            continue
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_the_sums_of_duplicates_are_in_the_order_of_the_edges_whatever_the_threads():
    rng = np.random.default_rng(0)
    ends, weights = rng.integers(0, 50, (2, 30_000)), 10.0 ** rng.integers(-12, 12, 30_000)
    before = numba.get_num_threads()
    graphs = []
    try:
        for threads in (1, before):
            numba.set_num_threads(threads)
            graphs.append(pcfi.prepare_graph((ends, weights), 50, directed=True))
    finally:
        numba.set_num_threads(before)
    expected = np.zeros((50, 50))
    for source, target, weight in zip(*ends, weights, strict=True):
        expected[target, source] += weight
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(graphs[0].matrix().toarray(), expected)
    np.testing.assert_array_equal(graphs[0].weights, graphs[1].weights)


def test_the_edges_of_the_caller_stay_as_they_are():
    ends, weights = np.array([[0, 1, 1, 2], [1, 0, 1, 0]]), np.array([1.0, 2.0, 3.0, 0.0])
    copies = ends.copy(), weights.copy()
    pcfi.prepare_graph((ends, weights), 3)
    np.testing.assert_array_equal(ends, copies[0])
    np.testing.assert_array_equal(weights, copies[1])
