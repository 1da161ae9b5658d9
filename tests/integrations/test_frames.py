"""Tables of pandas, polars and pyarrow: what comes back, how ids find their rows, and what is refused."""

import copy
import pickle
from contextlib import nullcontext

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pcfi

AGE = np.array([31.0, np.nan, 35.0, np.nan, 50.0])
PAIRS = [("e", "d"), ("a", "b"), ("c", "b"), ("d", "c")]
ROWS = np.array([[4, 0, 2, 3], [3, 1, 1, 2]])
EXPECTED = pcfi.impute(AGE[:, None], ROWS, alpha=0.5, beta=0.1, objective="representation").values.ravel()
COLUMNS = {
    "who": list("abcde"),
    "age": [31.0, None, 35.0, None, 50.0],
    "city": ["Oslo", None, "Oslo", "Rome", None],
    "kids": [1, 2, None, 4, 5],
    "member": [True, None, True, False, None],
}
LIBRARIES = {
    "pandas": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "polars": pl.DataFrame,
    "pyarrow": lambda columns: pl.DataFrame(columns).to_arrow(),
}
every_library = pytest.mark.parametrize("make", LIBRARIES.values(), ids=LIBRARIES)


def edges_of(make, pairs=PAIRS, **more):
    return make({"source": [source for source, _ in pairs], "target": [target for _, target in pairs], **more})


def column(table, name):
    values = table[name]
    values = values.to_pylist() if hasattr(values, "to_pylist") else values.to_list()
    return [None if value is pd.NA else value for value in values]


@every_library
def test_ids_find_their_rows_whatever_the_order(make):
    nodes, edges = make(COLUMNS), edges_of(make)
    result = pcfi.frames.impute(
        nodes, edges, id="who", channels=["age"], alpha=0.5, beta=0.1, objective="representation"
    )
    np.testing.assert_array_equal(np.array(column(result.values, "age"), dtype=float), EXPECTED)
    assert column(result.values, "who") == list("abcde")
    assert column(result.values, "city") == COLUMNS["city"]
    assert list(result.values.columns if hasattr(result.values, "index") else column_names(result.values)) == [*COLUMNS]


def column_names(table):
    return getattr(table, "column_names", None) or table.columns


@every_library
def test_confidence_and_hops_are_tables_of_ids_and_channels(make):
    result = pcfi.frames.impute(
        make(COLUMNS),
        edges_of(make),
        id="who",
        channels=["age", "kids"],
        alpha=0.5,
        beta=0.1,
        objective="representation",
    )
    assert (result.confidence.shape, result.values.shape) == ((5, 3), (5, 5))
    assert column(result.confidence, "age") == [1.0, 0.5, 1.0, 0.5, 1.0]
    assert column(result.hops, "kids") == [0, 0, 1, 0, 0]
    assert column(result.unreachable, "age") == [False] * 5
    assert column(result.confidence, "who") == list("abcde")


@every_library
def test_categories_take_the_largest_share(make):
    nodes, edges = make(COLUMNS), edges_of(make)
    result = pcfi.frames.impute(
        nodes, edges, id="who", channels=[], categorical=["city"], beta=0.0, alpha=0.5, objective="representation"
    )
    shares = np.array([[1, 0], [np.nan, np.nan], [1, 0], [0, 1], [np.nan, np.nan]])
    filled = pcfi.impute(shares, ROWS, beta=0.0, alpha=0.5, objective="representation")
    expected = [["Oslo", "Rome"][best] for best in filled.values.argmax(axis=1)]
    assert expected == ["Oslo", "Oslo", "Oslo", "Rome", "Rome"]
    assert column(result.values, "city") == expected
    assert column(result.confidence, "city") == filled.confidence[:, 0].tolist()
    assert column(result.values, "age") == column(nodes, "age")


@every_library
def test_integers_become_floats_unless_rounded_and_booleans_stay_booleans(make):
    nodes, edges = make(COLUMNS), edges_of(make)
    chosen = {"id": "who", "channels": ["kids", "member"], "alpha": 0.5, "beta": 0.0, "objective": "representation"}
    exact = pcfi.frames.impute(nodes, edges, **chosen)
    array = np.array([[1, 1], [2, np.nan], [np.nan, 1], [4, 0], [5, np.nan]])
    expected = pcfi.impute(array, ROWS, beta=0.0, alpha=0.5, objective="representation").values
    np.testing.assert_array_equal(np.array(column(exact.values, "kids"), dtype=float), expected[:, 0])
    assert column(exact.values, "member") == [True, True, True, False, False]
    rounded = pcfi.frames.impute(nodes, edges, round=True, **chosen).values
    assert column(rounded, "kids") == [1, 2, 3, 4, 5]
    assert column(rounded, "member") == [True, True, True, False, False]
    kept = pl.from_arrow(rounded) if isinstance(rounded, pa.Table) else pl.DataFrame(rounded)
    assert kept["kids"].dtype == pl.Int64
    assert kept["member"].dtype == pl.Boolean


def test_dtypes_index_and_column_names_of_pandas_are_kept():
    nodes = pd.DataFrame(
        {
            "single": np.array([1, np.nan, 3], dtype=np.float32),
            7: [1.0, np.nan, 2.0],
            "whole": np.array([1, 2, 3], dtype=np.int8),
            "when": pd.to_datetime(["2020", "2021", "2022"]),
            "kind": pd.Categorical(["x", None, "x"], categories=["y", "x"]),
        },
        index=pd.Index([30, 10, 20], name="person"),
    )
    before = copy.deepcopy(nodes)
    edges = pd.DataFrame({"source": [30, 10], "target": [10, 20]})
    values = pcfi.frames.impute(
        nodes, edges, categorical=["kind"], alpha=0.5, beta=0.1, objective="representation"
    ).values
    pd.testing.assert_frame_equal(nodes, before)
    pd.testing.assert_index_equal(values.index, nodes.index)
    assert values.dtypes.to_dict() == nodes.dtypes.to_dict()
    assert values["kind"].tolist() == ["x", "x", "x"]
    assert values.loc[10, 7] == 1.5


def test_columns_without_missing_cells_are_left_as_they_are():
    nodes = pl.DataFrame({"id": [1, 2], "full": pl.Series([3, 4], dtype=pl.UInt8), "open": [1.0, None]})
    values = pcfi.impute(nodes, [[0], [1]], alpha=0.5, beta=0.1, objective="representation").values
    assert values["full"].dtype == pl.UInt8
    assert values["open"].to_list() == [1.0, 1.0]


@every_library
def test_the_callers_table_is_not_touched(make):
    nodes = make(COLUMNS)
    before = pickle.dumps(nodes)
    pcfi.frames.impute(
        nodes, edges_of(make), id="who", categorical=["city"], alpha=0.5, beta=0.1, objective="representation"
    )
    assert pickle.dumps(nodes) == before


def test_ids_are_never_a_channel():
    nodes = pl.DataFrame({"id": [10, 20, 30], "age": [1.0, None, 3.0]})
    edges = pl.DataFrame({"source": [10, 20], "target": [20, 30]})
    result = pcfi.impute(nodes, edges, alpha=0.5, beta=0.1, objective="representation")
    assert result.shape == (3, 1)
    assert result.values["id"].to_list() == [10, 20, 30]


@pytest.mark.parametrize(
    "method", [{"alpha": 0.5, "beta": 0.1, "objective": "representation"}, {"method": "fp"}, {"method": "mean"}]
)
def test_cells_are_counted_as_the_table_has_them(method):
    searches = method != {"method": "mean"}
    nodes = pd.DataFrame({"city": ["A", None, "B", "C", None], "age": [1.0, np.nan, 3.0, 4.0, np.nan]})
    with pytest.warns(pcfi.UnreachableWarning, match="2 of 4 missing") if searches else nullcontext():
        result = pcfi.frames.impute(nodes, [[0, 1], [1, 2]], categorical=["city"], **method)
    assert result.shape == (5, 2)
    assert result.n_missing == 4
    assert result.n_unreachable == (2 if searches else 0)
    assert result.unreachable["city"].tolist() == [False] * 4 + [searches]


def test_messages_call_columns_by_their_names():
    around = {"city": ["A", "B"] * 20, "age": np.linspace(-1, 1, 40), "income": 1e6 * np.linspace(-1, 1, 40)}
    nodes = pd.DataFrame(around)
    nodes.loc[::3, "age"] = nodes.loc[1::3, "income"] = np.nan
    edges = np.stack([np.arange(39), np.arange(1, 40)])
    with pytest.warns(pcfi.ScaleWarning, match="moved the column 'age' outside its known range by"):
        pcfi.frames.impute(nodes, edges, categorical=["city"], alpha=0.5, beta=0.5, objective="representation")
    nodes.loc[7, "income"] = np.inf
    with pytest.raises(pcfi.FeatureError, match="the column 'income' in row 7 is inf"):
        pcfi.frames.impute(nodes, edges, categorical=["city"])
    nodes["income"] = np.where(nodes.index < 9, -1.7e308, 1.7e308)
    with pytest.raises(pcfi.DivergenceError, match="the known values of the column 'income' span more"):
        pcfi.frames.impute(
            nodes.assign(income=nodes["income"].where(nodes.index > 2)),
            edges,
            alpha=0.5,
            beta=0.0,
            objective="representation",
        )


def test_null_and_nan_are_both_missing():
    nodes = pl.DataFrame({"a": [1.0, None, float("nan"), 4.0]})
    values = pcfi.impute(nodes, [[0, 1, 2], [1, 2, 3]], alpha=0.5, beta=0.1, objective="representation").values["a"]
    np.testing.assert_array_equal(
        values.to_numpy(),
        pcfi.impute(
            [[1.0], [np.nan], [np.nan], [4.0]], [[0, 1, 2], [1, 2, 3]], alpha=0.5, beta=0.1, objective="representation"
        ).values.ravel(),
    )


@pytest.mark.parametrize("as_table", [True, False])
def test_known_says_what_is_missing(as_table):
    nodes = pd.DataFrame({"a": [1, -999, 3], "b": [5.0, 6.0, 7.0]})
    known = pd.DataFrame({"b": [True] * 3, "a": [True, False, True]})
    mask = known if as_table else known[["a", "b"]].to_numpy()
    values = pcfi.impute(nodes, [[0, 1], [1, 2]], known=mask, beta=0, alpha=0.5, objective="representation").values
    assert values["a"].tolist() == [1.0, 2.0, 3.0]


def test_libraries_may_be_mixed():
    nodes = {name: make(COLUMNS) for name, make in LIBRARIES.items()}
    edges = {name: edges_of(make) for name, make in LIBRARIES.items()}
    for table in nodes.values():
        for graph in edges.values():
            result = pcfi.frames.impute(
                table, graph, id="who", channels=["age"], alpha=0.5, beta=0.1, objective="representation"
            )
            np.testing.assert_array_equal(np.array(column(result.values, "age"), dtype=float), EXPECTED)


@pytest.mark.parametrize(
    "ids",
    [[3, 1, 2], ["ö", "", "x y"], [2**62, -5, 0], pd.to_datetime(["2020", "2021", "2019"]), [1.5, 2.5, 0.5]],
    ids=["integers", "strings", "long", "dates", "floats"],
)
def test_ids_may_be_of_any_type(ids):
    nodes = pd.DataFrame({"id": ids, "a": [1.0, np.nan, 3.0]})
    edges = pd.DataFrame({"source": nodes["id"][[0, 1]].to_list(), "target": nodes["id"][[1, 2]].to_list()})
    assert pcfi.impute(nodes, edges, alpha=0.5, beta=0.1, objective="representation").values["a"].tolist() == [
        1.0,
        2.0,
        3.0,
    ]


def test_a_networkx_graph_names_the_rows_of_a_table():
    nodes = pd.DataFrame({"age": AGE}, index=list("abcde"))
    result = pcfi.impute(nodes, nx.Graph(PAIRS), alpha=0.5, beta=0.1, objective="representation")
    np.testing.assert_array_equal(result.values["age"], EXPECTED)
    with pytest.raises(pcfi.GraphError, match="has a node 'z', which is not in the index of the nodes"):
        pcfi.impute(nodes, nx.Graph([*PAIRS, ("a", "z")]), alpha=0.5, beta=0.1, objective="representation")


def test_weights_and_column_names_are_the_users():
    nodes = pd.DataFrame({"age": AGE}, index=list("abcde"))
    edges = edges_of(pd.DataFrame, strength=[1.0, 2.0, 3.0, 0.5]).rename(columns={"source": "from", "target": "to"})
    result = pcfi.frames.impute(
        nodes, edges, source="from", target="to", weight="strength", alpha=0.5, beta=0.1, objective="representation"
    )
    expected = pcfi.impute(
        AGE[:, None], (ROWS, [1.0, 2.0, 3.0, 0.5]), alpha=0.5, beta=0.1, objective="representation"
    ).values.ravel()
    np.testing.assert_array_equal(result.values["age"], expected)
    unweighted = pcfi.frames.impute(
        nodes,
        edges.assign(weight=9.0),
        source="from",
        target="to",
        weight=None,
        alpha=0.5,
        beta=0.1,
        objective="representation",
    )
    np.testing.assert_array_equal(unweighted.values["age"], EXPECTED)


@every_library
def test_an_edge_that_names_an_unknown_id_is_refused_or_dropped(make):
    nodes = make({"id": list("abcde"), "age": COLUMNS["age"]})
    edges = edges_of(make, [*PAIRS, ("a", "zoe"), ("yan", "zoe")])
    with pytest.raises(
        pcfi.GraphError, match=r"edge 4 refers to 'zoe', .*2 of 6 edges have unknown ids \(such as 'zoe', 'yan'\)"
    ):
        pcfi.impute(nodes, edges, alpha=0.5, beta=0.1, objective="representation")
    values = pcfi.frames.impute(
        nodes, edges, unknown_ids="drop", alpha=0.5, beta=0.1, objective="representation"
    ).values
    np.testing.assert_array_equal(np.array(column(values, "age"), dtype=float), EXPECTED)


def test_an_edge_table_of_row_numbers_goes_with_arrays():
    edges = pl.DataFrame({"source": ROWS[0], "target": ROWS[1]})
    np.testing.assert_array_equal(
        pcfi.impute(AGE[:, None], edges, alpha=0.5, beta=0.1, objective="representation").values.ravel(), EXPECTED
    )
    assert pcfi.prepare_graph(edges).n_edges == 4


def test_results_with_tables_can_be_pickled():
    result = pcfi.impute(pl.DataFrame({"age": AGE}), ROWS, alpha=0.5, beta=0.1, objective="representation")
    copied = pickle.loads(pickle.dumps(result))
    assert copied.values.equals(result.values)
    assert copied.confidence.equals(result.confidence)


NODES = pd.DataFrame({"id": list("abcde"), "age": AGE, "city": COLUMNS["city"]})
EDGES = edges_of(pd.DataFrame)
REFUSED = {
    "duplicate ids": ({"nodes": NODES.assign(id=list("abcda"))}, pcfi.FeatureError, "'a' is duplicated"),
    "missing ids": ({"nodes": NODES.assign(id=["a", None, "c", "d", "e"])}, pcfi.FeatureError, "1 missing id"),
    "no such id column": (
        {"id": "name"},
        pcfi.ParameterError,
        "names 'name', but the node table has only the columns 'id', 'age', 'city'",
    ),
    "strings against integers": (
        {"nodes": NODES.assign(id=range(5))},
        pcfi.GraphError,
        "the ids in the column 'id' are integers, but the edge column 'source' holds strings: convert",
    ),
    "no ids at all": ({"nodes": pl.DataFrame({"age": AGE})}, pcfi.GraphError, "their row numbers: name the id column"),
    "no numbers": ({"nodes": NODES[["id"]].assign(name=list("vwxyz"))}, pcfi.FeatureError, "no numeric or categorical"),
    "numbers as objects": (
        {"nodes": NODES.assign(age=[1, None, 2.5, 3, 4]).astype({"age": object})},
        pcfi.FeatureError,
        "'age' holds .* as Python objects: convert it with pandas.to_numeric",
    ),
    "a string channel": ({"channels": ["city"]}, pcfi.FeatureError, "'city' holds String, not numbers: name it in cat"),
    "no category but NaN": (
        {"nodes": pl.DataFrame({"id": list("abcde"), "kind": [np.nan] * 5}), "categorical": ["kind"]},
        pcfi.FeatureError,
        "no known category",
    ),
    "no category": (
        {"nodes": NODES.assign(city=None), "categorical": ["city"]},
        pcfi.FeatureError,
        "no known category",
    ),
    "a lone string": ({"categorical": "city"}, pcfi.ParameterError, r"use \['city'\]"),
    "unknown channel": ({"channels": ["wage"]}, pcfi.ParameterError, "names 'wage', but the node table has only"),
    "id as channel": ({"channels": ["id"]}, pcfi.ParameterError, "which holds the ids"),
    "no source": ({"source": "from"}, pcfi.ParameterError, "source names 'from', but the edge table has only"),
    "no weight": ({"weight": "strength"}, pcfi.ParameterError, "weight names 'strength', but the edge table"),
    "negative weight": ({"edges": EDGES.assign(weight=[1, 1, -1, 1])}, pcfi.GraphError, "edge 2 has weight -1"),
    "string weight": ({"edges": EDGES.assign(weight=list("abcd"))}, pcfi.GraphError, "'weight' holds String"),
    "no rows": ({"nodes": NODES[:0]}, pcfi.FeatureError, "the node table has no rows"),
    "policy": ({"unknown_ids": "ignore"}, pcfi.ParameterError, "unknown_ids must be one of 'error', 'drop'"),
    "round": ({"round": 1.0}, pcfi.ParameterError, "round must be True or False"),
    "zero category": ({"categorical": ["city"], "method": "zero"}, pcfi.ParameterError, "zero is not a category"),
    "known categories": (
        {"categorical": ["city"], "known": np.ones((5, 2), dtype=bool)},
        pcfi.ParameterError,
        "cannot be combined",
    ),
    "infinite": (
        {"nodes": NODES.assign(age=[1.0, np.inf, 2, 3, 4])},
        pcfi.FeatureError,
        "the column 'age' in row 1 is inf",
    ),
    "lazy": ({"nodes": pl.DataFrame(COLUMNS).lazy()}, pcfi.UnsupportedTypeError, r"call .collect\(\) first"),
    "long integers": (
        {"nodes": NODES.assign(age=2**60 + np.arange(5))},
        pcfi.FeatureError,
        "'age' holds integers beyond",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_tables_get_an_error_that_says_what_to_do(case):
    given, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        pcfi.frames.impute(**{"nodes": NODES, "edges": EDGES, **given})


def test_several_columns_of_one_name_are_refused():
    nodes = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], columns=["a", "a"])
    with pytest.raises(pcfi.FeatureError, match="several columns named 'a'"):
        pcfi.impute(nodes, [[0], [1]], alpha=0.5, beta=0.1, objective="representation")


def test_unreachable_categories_are_null_only_if_asked_for():
    nodes = pl.DataFrame({"id": ["a", "b", "c"], "city": ["Oslo", "Oslo", None]})
    edges = pl.DataFrame({"source": ["a"], "target": ["b"]})
    with pytest.warns(pcfi.UnreachableWarning):
        assert (
            pcfi.frames.impute(nodes, edges, categorical=["city"], alpha=0.5, beta=0.1, objective="representation")
            .values["city"]
            .to_list()
            == ["Oslo"] * 3
        )
    with pytest.warns(pcfi.UnreachableWarning):
        kept = pcfi.frames.impute(
            nodes, edges, categorical=["city"], unreachable="nan", alpha=0.5, beta=0.1, objective="representation"
        ).values
    assert kept["city"].to_list() == ["Oslo", "Oslo", None]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_intervals_of_a_table_are_tables_whose_other_columns_stay(make):
    rng = np.random.default_rng(0)
    ages = np.where(rng.random(60) < 0.6, 40 + 10 * np.sin(np.arange(60) / 5), np.nan)
    heights = np.where(rng.random(60) < 0.6, 170 + 5 * np.cos(np.arange(60) / 5), np.nan)
    cities = [None if rng.random() < 0.3 else "Oslo" if place % 2 else "Rome" for place in range(60)]
    nodes = make({"id": np.arange(60)[::-1] * 3, "age": ages, "city": cities, "height": heights})
    edges = make({"source": np.arange(59) * 3, "target": np.arange(1, 60) * 3})
    result = pcfi.frames.impute(nodes, edges, categorical=["city"])
    low, high = (
        pa.table(bound) if make is not pd.DataFrame else pa.Table.from_pandas(bound) for bound in result.interval()
    )
    values = pa.table(result.values) if make is not pd.DataFrame else pa.Table.from_pandas(result.values)
    assert low["id"].to_pylist() == high["id"].to_pylist() == values["id"].to_pylist()
    for name in ("age", "height"):
        under, filled, over = (np.array(table[name].to_pylist(), dtype=float) for table in (low, values, high))
        missing = np.isnan(ages if name == "age" else heights)
        assert (under[missing] < filled[missing]).all()
        assert (filled[missing] < over[missing]).all()
        np.testing.assert_array_equal(under[~missing], over[~missing])
    assert not any(isinstance(city, str) for city in low["city"].to_pylist())


def test_a_column_of_categories_reports_the_share_of_hidden_categories_that_it_finds():
    rng = np.random.default_rng(0)
    size = rng.standard_normal(80)
    nodes = pd.DataFrame({"who": np.arange(80), "size": size, "kind": np.where(size > 0, "big", "small")})
    nodes.loc[rng.random(80) < 0.3, "kind"] = None
    edges = pd.DataFrame({"source": np.arange(79), "target": np.arange(1, 80)})
    numbers, kinds = pcfi.frames.impute(nodes, edges, id="who", categorical=["kind"]).columns
    assert numbers.accuracy is None
    assert 0.9 < kinds.accuracy <= 1
    assert kinds.verdict.endswith(f"({kinds.accuracy:.0%} of hidden categories found)")
