"""NetworkX: a copy of the graph with its attributes filled."""

import networkx as nx
import numpy as np
import pytest

import pcfi

KNOWN = {"a": 1.0, "d": 4.0}
EDGES = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "c")]


def graph(kind=nx.Graph, **attributes):
    G = kind()
    G.add_nodes_from("abcd")
    G.add_edges_from(EDGES, strength=2.0)
    for name, values in (attributes or {"height": KNOWN}).items():
        nx.set_node_attributes(G, values, name)
    return G


def plainly(features, **options):
    rows = np.array([["abcd".index(end) for end in edge] for edge in EDGES]).T
    return pcfi.impute(
        np.asarray(features, dtype=float), rows, **{"alpha": 0.5, "beta": 0.1, "objective": "representation"} | options
    )


FEATURES = np.array([[1.0], [np.nan], [np.nan], [4.0]])


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
@pytest.mark.parametrize("directed", [False, True])
def test_every_kind_of_graph_gives_the_numbers_of_impute(kind, directed):
    tight = pcfi.UntilSettled(1e-12)
    filled = pcfi.networkx.impute(
        graph(kind), directed=directed, solver=tight, alpha=0.5, beta=0.1, objective="representation"
    )
    expected = plainly(FEATURES, directed=directed and kind().is_directed(), solver=tight).values.ravel()
    np.testing.assert_allclose([height for _, height in filled.nodes(data="height")], expected, rtol=1e-10)
    assert type(filled) is kind


def test_the_graph_given_is_not_touched():
    G = graph(vector={"a": np.array([1.0, np.nan]), "c": np.array([2.0, 3.0])})
    before = {node: dict(data) for node, data in G.nodes(data=True)}
    vector = G.nodes["a"]["vector"].copy()
    filled = pcfi.networkx.impute(G, confidence=True, alpha=0.5, beta=0.1, objective="representation")
    assert {node: dict(data) for node, data in G.nodes(data=True)} == before
    np.testing.assert_array_equal(G.nodes["a"]["vector"], vector)
    assert filled.nodes["c"]["vector"] is G.nodes["c"]["vector"]


def test_confidence_stands_beside_the_attribute():
    filled = pcfi.networkx.impute(graph(), confidence=True, alpha=0.25, beta=0.1, objective="representation")
    expected = plainly(FEATURES, alpha=0.25).confidence.ravel()
    assert [value for _, value in filled.nodes(data="height_confidence")] == expected.tolist()
    assert (
        "height_confidence"
        not in pcfi.networkx.impute(graph(), alpha=0.5, beta=0.1, objective="representation").nodes["b"]
    )


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_vectors_come_back_as_what_they_were(kind):
    G = graph(place={"a": kind([1.0, 10.0]), "d": kind([4.0, np.nan])}, size={"b": 3})
    filled = pcfi.networkx.impute(G, beta=0.5, alpha=0.5, objective="representation")
    columns = [[1, 10, np.nan], [np.nan, np.nan, 3], [np.nan] * 3, [4, np.nan, np.nan]]
    expected = plainly(columns, beta=0.5).values
    for row, (_, data) in enumerate(filled.nodes(data=True)):
        np.testing.assert_array_equal([*data["place"], data["size"]], expected[row])
        assert isinstance(data["place"], np.ndarray if kind is np.array else kind)


def test_weights_are_used_if_named():
    G = graph()
    G.edges["a", "b"]["strength"] = 30.0
    rows = np.array([["abcd".index(end) for end in edge] for edge in EDGES]).T
    expected = pcfi.impute(
        FEATURES, (rows, [30.0, 2.0, 2.0, 2.0]), alpha=0.5, beta=0.1, objective="representation"
    ).values.ravel()
    filled = pcfi.networkx.impute(G, weight="strength", alpha=0.5, beta=0.1, objective="representation")
    np.testing.assert_array_equal([height for _, height in filled.nodes(data="height")], expected)


def test_parallel_edges_add_up():
    G = graph(nx.MultiGraph)
    G.add_edge("a", "b")
    rows = np.array([["abcd".index(end) for end in edge] for edge in EDGES]).T
    expected = pcfi.impute(
        FEATURES, (rows, [2.0, 1.0, 1.0, 1.0]), alpha=0.5, beta=0.1, objective="representation"
    ).values.ravel()
    filled = pcfi.networkx.impute(G, alpha=0.5, beta=0.1, objective="representation")
    np.testing.assert_array_equal([height for _, height in filled.nodes(data="height")], expected)


def test_impute_accepts_the_graph_too():
    np.testing.assert_array_equal(
        pcfi.impute(FEATURES, graph(), alpha=0.5, beta=0.1, objective="representation").values, plainly(FEATURES).values
    )


def test_none_and_nan_are_missing_and_words_pass_through():
    G = graph(
        height={**KNOWN, "b": None, "c": float("nan")}, name=dict(zip("abcd", ["Ann", "Bo", "Cy", "Di"], strict=True))
    )
    filled = pcfi.networkx.impute(G, alpha=0.5, beta=0.1, objective="representation")
    assert [height for _, height in filled.nodes(data="height")] == plainly(FEATURES).values.ravel().tolist()
    assert [name for _, name in filled.nodes(data="name")] == ["Ann", "Bo", "Cy", "Di"]


REFUSED = {
    "no such attribute": ({"attributes": "weight"}, pcfi.FeatureError, "no node has an attribute 'weight': .*'height'"),
    "words": (
        {"G": graph(name={"a": "Ann"})},
        pcfi.FeatureError,
        "no node has a numeric attribute: the nodes' attributes are 'name'",
    ),
    "a mapping": (
        {"G": graph(v={"a": {}}), "attributes": ["v"]},
        pcfi.FeatureError,
        "of node 'a' is {}, but must be a",
    ),
    "mixed types": (
        {"G": graph(v={"a": 1.0, "b": "x"})},
        pcfi.FeatureError,
        "is 'x' on node 'b', but 1.0 on node 'a': all must be numbers, or text",
    ),
    "mixed lengths": (
        {"G": graph(v={"a": [1.0, 2.0], "b": [1.0]})},
        pcfi.FeatureError,
        r"is \[1.0\] on node 'b', but \[1.0, 2.0\] on node 'a'",
    ),
    "number and vector": (
        {"G": graph(v={"a": [1.0], "b": 1.0})},
        pcfi.FeatureError,
        "all must be numbers, or text, or vectors",
    ),
    "all None": ({"G": graph(v={"a": None}), "attributes": "v"}, pcfi.FeatureError, "is None on every node"),
    "no such weight": (
        {"weight": "length"},
        pcfi.GraphError,
        "the weight attribute 'length'.*are 'strength'",
    ),
    "no graph": ({"G": {"a": ["b"]}}, pcfi.UnsupportedTypeError, "G is a dict"),
    "no attributes": ({"attributes": []}, pcfi.FeatureError, "attributes is empty"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_graphs_get_an_error_that_says_what_to_do(case):
    given, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        pcfi.networkx.impute(**{"G": graph(), **given})


def test_weights_must_be_numbers():
    G = graph()
    G.edges["a", "b"]["strength"] = "strong"
    with pytest.raises(pcfi.GraphError, match="'strength' holds 'strong'"):
        pcfi.networkx.impute(G, weight="strength", alpha=0.5, beta=0.1, objective="representation")
