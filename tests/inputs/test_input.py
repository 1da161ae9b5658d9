"""What goes in: every accepted form gives the same, and bad input gets an error that says what to do."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse

import pcfi

EDGES = np.array([[0, 1, 2, 3, 0], [1, 2, 3, 4, 2]])
FEATURES = np.array([[1.0, 5.0], [np.nan, np.nan], [2.0, np.nan], [np.nan, 7.0], [4.0, np.nan]])
EXPECTED = pcfi.impute(FEATURES, EDGES, alpha=0.5, beta=0.1, objective="representation").values


def adjacency(data=None):
    weights = np.ones(EDGES.shape[1]) if data is None else data
    return sparse.coo_array((weights, tuple(EDGES)), shape=(5, 5))


FORMS = {
    **{
        f"{name} array": getattr(adjacency(), f"to{name}")()
        for name in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
    },
    "csr matrix": sparse.csr_matrix(adjacency()),
    "boolean": adjacency(np.ones(5, dtype=bool)),
    "integer": adjacency(np.ones(5, dtype=np.int8)),
    "both directions": sparse.csr_array(adjacency() + adjacency().T),
    "edge index": EDGES,
    "edge index, int32": EDGES.astype(np.int32),
    "edge index, uint8": EDGES.astype(np.uint8),
    "edge index, whole floats": EDGES.astype(float),
    "nested lists": EDGES.tolist(),
    "two arrays": (EDGES[0], EDGES[1]),
    "both directions of an edge index": np.concatenate([EDGES, EDGES[::-1]], axis=1),
    "with weights": (EDGES, np.ones(5)),
    "without weights": (EDGES, None),
    "self-loops": np.concatenate([EDGES, [[0, 3], [0, 3]]], axis=1),
    "zero weights": (np.concatenate([EDGES, [[0], [4]]], axis=1), [1, 1, 1, 1, 1, 0]),
    "prepared": pcfi.prepare_graph(EDGES, 5),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_graph_means_the_same(form):
    assert (
        pcfi.impute(FEATURES, FORMS[form], alpha=0.5, beta=0.1, objective="representation").values.tobytes()
        == EXPECTED.tobytes()
    )


@pytest.mark.parametrize("duplicate", [([[0, 0], [1, 1]], None), ([[0, 1], [1, 0]], None), ([[0], [1]], [2.0])])
def test_duplicates_add_up_and_directions_take_the_larger(duplicate):
    edges, weights = duplicate
    graph = pcfi.prepare_graph((np.array(edges), weights))
    total = 1.0 if edges == [[0, 1], [1, 0]] else 2.0
    np.testing.assert_array_equal(graph.degree, [total, total])


def test_directed_edges_carry_values_one_way_only():
    features = np.array([[1.0], [np.nan], [np.nan]])
    with pytest.warns(pcfi.UnreachableWarning):
        result = pcfi.impute(
            features,
            [[0, 2], [1, 1]],
            directed=True,
            unreachable="nan",
            alpha=0.5,
            beta=0.1,
            objective="representation",
        )
    np.testing.assert_array_equal(result.values.ravel(), [1.0, 1.0, np.nan])
    matrix = sparse.csr_array(([1.0, 1.0], ([0, 2], [1, 1])), shape=(3, 3))
    assert pcfi.prepare_graph(matrix, directed=True).indptr.tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize(
    "features",
    [
        FEATURES.tolist(),
        np.asfortranarray(FEATURES),
        np.repeat(FEATURES, 2, axis=0)[::2],
        FEATURES.astype(">f8"),
        np.matrix(FEATURES),
    ],
    ids=["lists", "fortran", "strided", "big-endian", "matrix"],
)
def test_every_form_of_features_means_the_same(features):
    assert (
        pcfi.impute(features, EDGES, alpha=0.5, beta=0.1, objective="representation").values.tobytes()
        == EXPECTED.tobytes()
    )


def test_sparse_features_need_a_mask_and_come_back_dense():
    filled = np.nan_to_num(FEATURES)
    for form in (sparse.csr_array(filled), sparse.csc_matrix(filled)):
        result = pcfi.impute(form, EDGES, known=~np.isnan(FEATURES), alpha=0.5, beta=0.1, objective="representation")
        assert isinstance(result.values, np.ndarray)
        assert result.values.tobytes() == EXPECTED.tobytes()
    with pytest.raises(pcfi.FeatureError, match="pass known="):
        pcfi.impute(sparse.csr_array(filled), EDGES, alpha=0.5, beta=0.1, objective="representation")


def test_integers_are_all_known_and_become_float64():
    result = pcfi.impute(np.arange(10).reshape(5, 2), EDGES, alpha=0.5, beta=0.1, objective="representation")
    assert result.values.dtype == np.float64
    assert result.status == "Nothing was missing."
    masked = pcfi.impute(
        np.arange(10).reshape(5, 2), EDGES, known=~np.isnan(FEATURES), alpha=0.5, beta=0.1, objective="representation"
    )
    assert masked.values.dtype == np.float64
    assert masked.n_missing == 5


def test_float16_is_computed_in_float32_and_comes_back():
    result = pcfi.impute(FEATURES.astype(np.float16), EDGES, alpha=0.5, beta=0.1, objective="representation")
    assert result.values.dtype == np.float16
    np.testing.assert_allclose(result.values, EXPECTED, rtol=2e-3)


def test_prepared_graphs_can_be_copied_and_pickled():
    graph = pcfi.prepare_graph((EDGES, np.arange(1.0, 6)), directed=True)
    for copied in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        np.testing.assert_array_equal(copied.indices, graph.indices)
        np.testing.assert_array_equal(copied.weights, graph.weights)
        assert copied.directed
    assert repr(graph) == "Graph(5 nodes, 5 edges, directed, weighted)"


BAD_FEATURES = {
    "one dimension": (np.ones(5), r"must be 2-D .* got shape \(5,\): for one channel pass features\[:, None\]"),
    "three dimensions": (np.ones((5, 2, 1)), r"must be 2-D"),
    "no rows": (np.ones((0, 2)), "no rows"),
    "no channels": (np.ones((5, 0)), "no channels"),
    "strings": (np.full((5, 2), "a"), "must be real numbers"),
    "objects": (np.full((5, 2), None), "must be real numbers"),
    "complex": (np.ones((5, 2), complex), "must be real numbers"),
    "ragged": ([[1.0], [1.0, 2.0]], "different lengths"),
    "infinite": (
        np.where(np.isnan(FEATURES), np.inf, FEATURES),
        r"features\[1, 0\] is inf: known values must be finite",
    ),
    "minus infinite": (np.where(np.isnan(FEATURES), -np.inf, FEATURES), r"features\[1, 0\] is -inf"),
}


@pytest.mark.parametrize("case", BAD_FEATURES)
def test_bad_features_get_a_clear_error(case):
    features, message = BAD_FEATURES[case]
    with pytest.raises(pcfi.FeatureError, match=message) as error:
        pcfi.impute(features, EDGES, alpha=0.5, beta=0.1, objective="representation")
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("features", ["abc", {"a": 1}, 3.0, np.ma.masked_invalid(FEATURES)])
def test_features_of_an_unknown_type_get_a_type_error(features):
    with pytest.raises(pcfi.UnsupportedTypeError, match="features is a") as error:
        pcfi.impute(features, EDGES, alpha=0.5, beta=0.1, objective="representation")
    assert isinstance(error.value, TypeError)


BAD_MASKS = {
    "shape": (np.ones((5, 1), bool), r"known has shape \(5, 1\), but features has shape \(5, 2\)"),
    "one per node": (np.ones(5, bool), r"for whole nodes pass np.broadcast_to\(known\[:, None\], features.shape\)"),
    "dtype": (np.ones((5, 2), int), r"boolean mask .* use np.asarray\(known, dtype=bool\)"),
    "NaN said to be known": (np.ones((5, 2), bool), r"features\[1, 0\] is NaN, but known is True there"),
}


@pytest.mark.parametrize("case", BAD_MASKS)
def test_bad_masks_get_a_clear_error(case):
    known, message = BAD_MASKS[case]
    with pytest.raises(pcfi.FeatureError, match=message):
        pcfi.impute(FEATURES, EDGES, known=known, alpha=0.5, beta=0.1, objective="representation")


BAD_GRAPHS = {
    "(E, 2)": (EDGES.T, r"looks like an \(E, 2\) list of edges: pass its transpose"),
    "dense": (np.ones((5, 5)), r"dense adjacency: pass scipy.sparse.csr_array\(graph\)"),
    "one row": (np.array([0, 1]), r"has shape \(2,\)"),
    "three rows": (np.ones((3, 4), int), r"has shape \(3, 4\)"),
    "ragged": ([[0, 1], [1]], "ragged"),
    "too large": (
        [[0, 1], [1, 17]],
        "edge 1 refers to node 17, but features has 5 rows: drop the edge or add the rows",
    ),
    "negative": ([[0, -1], [1, 2]], "edge 1 refers to node -1"),
    "fractional": ([[0, 1.5], [1, 2]], "edge 1 refers to node 1.5"),
    "NaN index": ([[0, np.nan], [1, 2]], "edge 1 refers to node nan"),
    "text": ([["a"], ["b"]], "holds integers"),
    "negative weight": ((EDGES, [1, 1, -1, 1, 1]), "edge 2 has weight -1"),
    "NaN weight": ((EDGES, [1, 1, 1, 1, np.nan]), "edge 4 has weight nan"),
    "infinite weight": ((EDGES, [np.inf, 1, 1, 1, 1]), "edge 0 has weight inf"),
    "complex weight": ((EDGES, np.ones(5, complex)), "must be real numbers"),
    "few weights": ((EDGES, [1.0]), r"weights has shape \(1,\), but there are 5 edges"),
    "not square": (sparse.csr_array(np.ones((5, 4))), "must be square"),
    "other size": (sparse.csr_array(np.ones((4, 4))), r"shape \(4, 4\), but features has 5 rows"),
    "prepared for others": (pcfi.prepare_graph([[0], [1]]), "the graph has 2 nodes, but features has 5 rows"),
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_bad_graphs_get_a_clear_error(case):
    graph, message = BAD_GRAPHS[case]
    with pytest.raises(pcfi.GraphError, match=message) as error:
        pcfi.impute(FEATURES, graph, alpha=0.5, beta=0.1, objective="representation")
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("graph", ["edges.csv", {0: [1]}, 5, None, object()])
def test_an_unknown_graph_type_is_told_the_known_ones(graph):
    with pytest.raises(
        pcfi.UnsupportedTypeError, match=r"scipy or torch sparse adjacency .* edge index .*prepare_graph"
    ):
        pcfi.impute(FEATURES, graph, alpha=0.5, beta=0.1, objective="representation")


def test_an_undirected_prepared_graph_cannot_be_used_as_directed():
    with pytest.raises(pcfi.GraphError, match="directed=True"):
        pcfi.impute(FEATURES, pcfi.prepare_graph(EDGES), directed=True, alpha=0.5, beta=0.1, objective="representation")


BAD_PARAMETERS = [
    ({"alpha": 0}, "alpha must be a number greater than 0 and at most 1, or 'auto', got 0"),
    ({"alpha": 1.1}, "alpha"),
    ({"alpha": -0.5}, "alpha"),
    ({"alpha": np.nan}, "alpha"),
    ({"alpha": "0.5"}, "alpha"),
    ({"alpha": None}, "alpha"),
    ({"alpha": True}, "alpha"),
    ({"beta": -0.1}, "beta must be a finite number of at least 0, or 'auto', got -0.1"),
    ({"beta": np.inf}, "beta"),
    ({"beta": np.nan}, "beta"),
    ({"beta": "x"}, "beta"),
    ({"method": "knn"}, "method must be one of 'pcfi', 'fp', 'neighbors', 'mean', 'zero', 'auto', got 'knn'"),
    ({"method": ["pcfi"]}, "method must be one of"),
    ({"unreachable": "drop"}, "unreachable must be one of 'mean', 'zero', 'nan', 'error', got 'drop'"),
    ({"unreachable": 0}, "unreachable"),
    ({"solver": "exact"}, "solver must be"),
    ({"solver": pcfi.FixedSteps}, "solver must be"),
    ({"standardize": 1}, "standardize must be True or False, or None"),
    ({"self_loops": "no"}, "self_loops must be True or False"),
    ({"progress": 3}, "progress must be True or False"),
    ({"directed": "no"}, "directed must be True or False"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD_PARAMETERS, ids=lambda case: str(case)[:40])
def test_bad_parameters_get_a_clear_error(parameters, message):
    with pytest.raises(pcfi.ParameterError, match=message) as error:
        pcfi.impute(FEATURES, EDGES, **parameters)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("make", [lambda v: pcfi.FixedSteps(v), lambda v: pcfi.UntilSettled(max_steps=v)])
@pytest.mark.parametrize("steps", [0, -1, 1.5, "10", True, None, np.nan])
def test_step_counts_are_whole_and_positive(make, steps):
    with pytest.raises(pcfi.ParameterError, match="steps must be an integer of at least 1"):
        make(steps)


@pytest.mark.parametrize("rtol", [0, 1, -1e-3, np.nan, np.inf, "1e-4", None])
def test_rtol_is_between_0_and_1(rtol):
    with pytest.raises(pcfi.ParameterError, match="rtol"):
        pcfi.UntilSettled(rtol)


def count_warnings(features, graph, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = pcfi.impute(features, graph, **{"alpha": 0.5, "beta": 0.1, "objective": "representation"} | options)
    return result, [warning for warning in caught if issubclass(warning.category, pcfi.UnreachableWarning)]


@pytest.mark.parametrize("method", ["pcfi", "fp"])
def test_unreachable_cells_are_counted_in_one_warning_that_points_here(method):
    features = np.array([[1.0, np.nan], [np.nan, np.nan], [np.nan, np.nan]])
    result, caught = count_warnings(features, [[0], [1]], method=method)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert "4 of 5 missing cells cannot be reached" in text
    assert "(1 channel without any known value)" in text
    assert result.n_unreachable == 4
    np.testing.assert_array_equal(result.unreachable, [[False, True], [False, True], [True, True]])
    if method == "pcfi":
        np.testing.assert_array_equal(result.values, [[1, 0], [1, 0], [1, 0]])


def test_unreachable_cells_can_be_an_error():
    with pytest.raises(pcfi.UnreachableError, match="1 of 1 missing cell cannot"):
        pcfi.impute(
            [[1.0], [np.nan]],
            np.empty((2, 0), int),
            unreachable="error",
            alpha=0.5,
            beta=0.1,
            objective="representation",
        )


@pytest.mark.parametrize("method", ["pcfi", "fp", "neighbors", "mean"])
def test_without_any_known_value_everything_is_unreachable(method):
    result, caught = count_warnings(np.full((3, 2), np.nan), [[0, 1], [1, 2]], method=method)
    assert len(caught) == 1
    assert result.n_unreachable == 6
    assert result.unreachable.all()
    np.testing.assert_array_equal(result.values, 0.0)
    silent, _ = count_warnings(np.full((3, 2), np.nan), [[0, 1], [1, 2]], method=method, unreachable="nan")
    assert np.isnan(silent.values).all()


def test_without_edges_everything_missing_is_unreachable():
    result, caught = count_warnings(FEATURES, np.empty((2, 0), int))
    assert len(caught) == 1
    assert result.n_unreachable == result.n_missing == 5
    means = np.nanmean(FEATURES, axis=0)
    np.testing.assert_allclose(result.values, np.where(np.isnan(FEATURES), means, FEATURES))


def test_with_nothing_missing_the_values_come_back_without_work(monkeypatch):
    monkeypatch.setattr("pcfi.pipeline.run_stages", None)
    features = np.arange(10.0).reshape(5, 2)
    result = pcfi.impute(features, EDGES, alpha=0.5, beta=0.1, objective="representation")
    np.testing.assert_array_equal(result.values, features)
    assert not np.shares_memory(result.values, features)
    assert result.n_missing == result.steps == result.residual == 0
    assert result.converged


def test_values_too_large_for_the_arithmetic_are_an_error():
    features = np.array([[1.7e308], [np.nan], [-1.7e308]])
    with pytest.raises(pcfi.DivergenceError, match="channel 0"):
        pcfi.impute(features, [[0, 1], [1, 2]], alpha=0.5, beta=0.1, objective="representation")


def test_one_node_and_one_channel():
    assert pcfi.impute([[2.0]], np.empty((2, 0), int), alpha=0.5, beta=0.1, objective="representation").values == [
        [2.0]
    ]
