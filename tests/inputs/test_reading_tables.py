"""The same files give the same values by every way in: Python tables, the command line, and larger than memory."""

import warnings
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from typer.testing import CliRunner

import pcfi
from pcfi.cli.app import app

SIZE = 60
METHOD = {"alpha": 0.6, "beta": 0.2, "objective": "representation"}
OPTIONS = ["--alpha", "0.6", "--beta", "0.2", "--objective", "representation"]


@dataclass(frozen=True)
class Case:
    """Node and edge table as text files hold them, and what the user says about them."""

    ids: str | None = "node_id"
    weight: str | None = "weight"
    delimiter: str = ","
    city: bool = False
    marker: str = ""
    text_ids: bool = False
    options: dict = field(default_factory=dict)


CASES = {
    "ids and weights": Case(),
    "row numbers": Case(ids=None),
    "ids named like one": Case(ids="customerId"),
    "ids of text": Case(ids="name", text_ids=True),
    "unweighted": Case(weight=None),
    "usual name of weights": Case(weight="W"),
    "a third column of numbers is not a weight": Case(weight="length"),
    "named weights": Case(weight="length", options={"weight": "length"}),
    "named id": Case(ids="station", options={"id": "station"}),
    "semicolons": Case(delimiter=";"),
    "tabs": Case(delimiter="\t"),
    "categories": Case(city=True, options={"categorical": ["city"]}),
    "markers": Case(marker="-999", options={"missing_values": ["-999"]}),
    "categories, markers, semicolons": Case(
        city=True, marker="-999", delimiter=";", options={"categorical": ["city"], "missing_values": ["-999", "?"]}
    ),
}


def node_table(case):
    """A smooth channel, a noisy one with gaps, and a text column that passes through."""
    rng = np.random.default_rng(1)
    angle = 2 * np.pi * np.arange(SIZE) / SIZE
    nodes = pd.DataFrame({"age": 2 + np.sin(angle), "income": 2 + np.cos(angle) + 0.1 * rng.normal(size=SIZE)})
    ids = rng.permutation(SIZE) + 500
    if case.ids is not None:
        nodes.insert(0, case.ids, [f"n{one}" for one in ids] if case.text_ids else ids)
    if case.city:
        nodes.insert(1, "city", np.where(np.arange(SIZE) < SIZE // 2, "Oslo", "Rome"))
    for name in ("age", "income", "city"):
        if name in nodes:
            gaps = rng.random(SIZE) < 0.4
            text = nodes[name].map(str).where(~gaps, case.marker)
            nodes[name] = text.where(~((name == "city") & gaps), "?" if case.marker else "")
    return nodes


def edge_table(case, nodes):
    ids = np.arange(SIZE) if case.ids is None else nodes[case.ids].to_numpy()
    edges = pd.DataFrame({"source": ids, "target": np.roll(ids, -1)})
    if case.weight is not None:
        edges[case.weight] = np.random.default_rng(2).uniform(0.1, 5, SIZE)
    return edges


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    chosen = CASES[request.param]
    nodes = node_table(chosen)
    nodes.to_csv(tmp_path / "nodes.csv", sep=chosen.delimiter, index=False)
    edge_table(chosen, nodes).to_csv(tmp_path / "edges.csv", sep=chosen.delimiter, index=False)
    for name in ("nodes", "edges"):
        read = arrow_csv.ParseOptions(delimiter=chosen.delimiter)
        nulls = arrow_csv.ConvertOptions(strings_can_be_null=True)
        table = arrow_csv.read_csv(tmp_path / f"{name}.csv", parse_options=read, convert_options=nulls)
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    return chosen


def numbers(table):
    """The channels of a filled table as an array, the city as a number."""
    columns = [table["age"].to_numpy(), table["income"].to_numpy()]
    if "city" in table.column_names:
        columns.append(np.array([name == "Rome" for name in table["city"].to_pylist()], dtype=float))
    return np.stack(columns, axis=1)


def python_way(read):
    def fill(case, folder):
        result = pcfi.frames.impute(read(folder, case, "nodes"), read(folder, case, "edges"), **case.options, **METHOD)
        values = result.values
        return pa.Table.from_pandas(values) if isinstance(values, pd.DataFrame) else values.to_arrow()

    return fill


def read_pandas(folder, case, name):
    return pd.read_csv(folder / f"{name}.csv", sep=case.delimiter, na_values=[])


def read_polars(folder, case, name):
    return pl.read_parquet(folder / f"{name}.parquet")


def by_impute(case, folder):
    if case.options:
        pytest.skip("pcfi.impute takes no names of columns")
    values = pcfi.impute(read_pandas(folder, case, "nodes"), read_pandas(folder, case, "edges"), **METHOD).values
    return pa.Table.from_pandas(values)


def as_options(case):
    words = []
    for name, value in case.options.items():
        flag = {"missing_values": "--missing-value"}.get(name, f"--{name}")
        words += [word for one in ([value] if isinstance(value, str) else value) for word in (f"{flag}={one}",)]
    return words


def command(suffix, *more):
    def fill(case, folder):
        files = [folder / f"nodes.{suffix}", folder / f"edges.{suffix}", "-o", folder / "filled.parquet"]
        done = CliRunner().invoke(app, list(map(str, ["impute", *files, *OPTIONS, *as_options(case), *more])))
        assert done.exit_code == 0, done.stderr
        return parquet.read_table(folder / "filled.parquet")

    return fill


def by_scale(suffix):
    def fill(case, folder):
        paths = [folder / name for name in (f"nodes.{suffix}", f"edges.{suffix}", "filled.parquet")]
        pcfi.scale.impute(*paths, **case.options, **METHOD)
        return parquet.read_table(folder / "filled.parquet")

    return fill


WAYS = {
    "pandas": python_way(read_pandas),
    "polars": python_way(read_polars),
    "pcfi.impute": by_impute,
    "command line, text": command("csv"),
    "command line, Parquet": command("parquet"),
    "command line within a budget, text": command("csv", "--memory", "8GB"),
    "command line within a budget, Parquet": command("parquet", "--memory", "8GB"),
    "pcfi.scale, text": by_scale("csv"),
    "pcfi.scale, Parquet": by_scale("parquet"),
}


def reference(case, folder):
    """Arrays, by hand."""
    nodes, edges = node_table(case), edge_table(case, node_table(case))
    rows = {one: row for row, one in enumerate(range(SIZE) if case.ids is None else nodes[case.ids])}
    index = np.array([[rows[one] for one in edges[end]] for end in ("source", "target")])
    weighted = case.weight in ("weight", "W") or "weight" in case.options
    columns = []
    for name in (one for one in nodes.columns if one in ("age", "income", "city")):
        if name == "city":
            known = nodes[name].isin(["Oslo", "Rome"])
            columns += [np.where(known, nodes[name] == one, np.nan) for one in ("Oslo", "Rome")]
        else:
            columns.append(pd.to_numeric(nodes[name].replace({case.marker: None})).to_numpy(dtype=float))
    graph = (index, edges[case.weight].to_numpy()) if weighted else index
    filled = pcfi.impute(np.stack(columns, axis=1), graph, **METHOD).values
    values = filled[:, -2:]
    return np.column_stack([values, filled[:, 1] > filled[:, 0]]) if case.city else values


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_gives_the_same_values(case, way, tmp_path):
    expected = reference(case, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.ColumnWarning)
        filled = numbers(WAYS[way](case, tmp_path))
    spread = np.ptp(expected, axis=0)
    assert np.all(np.abs(filled - expected) <= 1e-6 * np.maximum(spread, 1))


def smooth_nodes(n_nodes=200):
    """A wave on a ring, whose nodes are numbered in another order than the rows of the table."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(n_nodes)
    wave = np.sin(2 * np.pi * ids / n_nodes)
    truth = pd.DataFrame({"node_id": ids, "wave": wave})
    edges = pd.DataFrame({"source": np.arange(n_nodes), "target": (np.arange(n_nodes) + 1) % n_nodes})
    return truth, truth.assign(wave=np.where(rng.random(n_nodes) < 0.5, np.nan, wave)), edges


def test_a_column_called_node_id_names_the_nodes():
    # it used to be a feature, and edges were matched by row number: an error of 0.5
    truth, nodes, edges = smooth_nodes()
    result = pcfi.impute(nodes, edges)
    assert np.sqrt(np.mean((result.values["wave"] - truth["wave"]) ** 2)) < 0.05
    assert result.column_names == ("wave",)
    assert result.values["node_id"].equals(nodes["node_id"])


def test_the_index_of_pandas_names_nodes_unless_it_is_the_default():
    _, nodes, edges = smooth_nodes()
    indexed = nodes.set_index("node_id")
    by_index = pcfi.impute(indexed, edges, **METHOD).values["wave"].to_numpy()
    np.testing.assert_array_equal(by_index, pcfi.impute(nodes, edges, **METHOD).values["wave"].to_numpy())
    named = indexed.assign(name=[f"n{row}" for row in range(len(nodes))])
    np.testing.assert_array_equal(by_index, pcfi.impute(named, edges, **METHOD).values["wave"].to_numpy())


def test_text_that_differs_is_not_taken_for_ids_if_edges_name_row_numbers():
    _, nodes, edges = smooth_nodes()
    rows = nodes.drop(columns="node_id")
    expected = pcfi.impute(rows, edges, **METHOD).values["wave"].to_numpy()
    named = rows.assign(name=[f"n{row}" for row in range(len(nodes))])
    for table in (named, pl.from_pandas(named), pa.Table.from_pandas(named)):
        filled = pcfi.impute(table, edges, **METHOD).values["wave"]
        np.testing.assert_array_equal(np.asarray(filled.to_numpy()), expected)


def test_a_channel_that_looks_like_ids_is_pointed_out():
    _, nodes, edges = smooth_nodes()
    nodes = nodes.rename(columns={"node_id": "station"})
    with pytest.warns(pcfi.ColumnWarning, match="pass id='station'"):
        pcfi.impute(nodes, edges, alpha=0.6, beta=0.0, objective="representation")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pcfi.frames.impute(nodes, edges, id="station", alpha=0.6, beta=0.0, objective="representation")
        pcfi.impute(nodes.assign(station=nodes["station"] // 2), edges, alpha=0.6, beta=0.0, objective="representation")


def test_a_channel_that_looks_like_ids_is_pointed_out_for_files(tmp_path):
    _, nodes, edges = smooth_nodes()
    nodes.rename(columns={"node_id": "station"}).to_parquet(tmp_path / "n.parquet", index=False)
    edges.to_csv(tmp_path / "e.csv", index=False)
    files = [str(tmp_path / name) for name in ("n.parquet", "e.csv", "o.parquet")]
    with pytest.warns(pcfi.ColumnWarning, match="pass id='station'"):
        pcfi.scale.impute(*files, beta=0.0)
    for memory in ([], ["--memory", "8GB"]):
        options = ["--alpha", "0.5", "--beta", "0", "--objective", "representation", "--force", *memory]
        done = CliRunner().invoke(app, ["impute", *files[:2], "-o", files[2].replace("o.", "p."), *options])
        assert done.exit_code == 0, done.stderr
        assert done.stderr.count("if it holds the ids, add --id station") == 1
        named = CliRunner().invoke(app, ["impute", *files[:2], "-o", files[2], *options, "--id", "station"])
        assert "--id station" not in named.stderr


def test_an_error_names_the_column_that_holds_what_the_edges_name():
    _, nodes, edges = smooth_nodes()
    nodes = nodes.rename(columns={"node_id": "station"}).assign(station=lambda table: table["station"] + 1000)
    with pytest.raises(pcfi.GraphError, match=r"the node column 'station' contains all ids.*name it with id="):
        pcfi.impute(nodes, edges + 1000, **METHOD)


def test_numbers_that_are_not_used_as_weights_are_pointed_out():
    _, nodes, edges = smooth_nodes()
    edges = edges.assign(length=2.0)
    with pytest.warns(pcfi.ColumnWarning, match="pass weight='length'"):
        pcfi.impute(nodes, edges, **METHOD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pcfi.frames.impute(nodes, edges, weight="length", **METHOD)
        pcfi.frames.impute(nodes, edges, weight=None, **METHOD)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_markers_are_missing_in_numbers_and_categories(make):
    nodes = make({"id": [1, 2, 3], "age": [20, -999, 40], "height": [1.5, 2.5, -999.0], "city": ["?", "Oslo", "Oslo"]})
    edges = make({"source": [1, 2], "target": [2, 3]})
    markers = {"missing_values": [-999, "?"], "categorical": ["city"]}
    result = pcfi.frames.impute(nodes, edges, **markers, alpha=0.5, beta=0.0, objective="representation")
    assert result.n_missing == 3
    values = result.values if make is not pa.table else result.values.to_pandas()
    assert list(values["age"]) == [20, 30, 40]
    assert list(values["height"]) == [1.5, 2.5, 2.5]
    assert list(values["city"]) == ["Oslo"] * 3


@pytest.mark.parametrize("memory", [[], ["--memory", "8GB"]], ids=["in memory", "larger than memory"])
def test_decimal_commas_and_a_byte_order_mark(tmp_path, memory):
    (tmp_path / "n.csv").write_bytes("\ufeffid;x;code\na;1,5;007\nb;;010\nc;2,5;011\n".encode())
    (tmp_path / "e.csv").write_bytes("\ufefffrom;to;weight\na;b;0,5\nb;c;1,5\n".encode())
    files = [str(tmp_path / name) for name in ("n.csv", "e.csv")]
    options = ["--alpha", "1", "--beta", "0", "--objective", "representation", "--rtol", "1e-9"]
    done = CliRunner().invoke(app, ["impute", *files, "-o", str(tmp_path / "o.parquet"), *options, *memory])
    assert done.exit_code == 0, done.stderr
    filled = parquet.read_table(tmp_path / "o.parquet")
    assert filled["x"].to_pylist() == pytest.approx([1.5, 2.25, 2.5])
    assert filled["code"].to_pylist() == ["007", "010", "011"]


def test_a_converted_table_is_resumed_and_leaves_nothing_behind(tmp_path, monkeypatch):
    case = CASES["categories, markers, semicolons"]
    nodes = node_table(case)
    for table, name in ((nodes, "nodes"), (edge_table(case, nodes), "edges")):
        table.to_csv(tmp_path / f"{name}.csv", sep=";", index=False)
    paths = [tmp_path / name for name in ("nodes.csv", "edges.csv", "filled.parquet")]
    outputs = {"confidence": tmp_path / "confidence.parquet", "hops": tmp_path / "hops.parquet"}
    begun = set(tmp_path.iterdir())
    whole = pcfi.scale.impute(*paths, **case.options, **outputs, alpha=0.6, beta=0.2)
    expected = {name: whole.open(name).to_table() for name in ("values", "confidence", "hops")}
    assert whole.shape == (SIZE, 3)
    assert whole.n_missing == sum((nodes[name].isin(["-999", "?"])).sum() for name in ("age", "income", "city"))
    assert expected["confidence"].column_names == ["node_id", "city", "age", "income"]

    from pcfi.outofcore import imputation

    with monkeypatch.context() as patch:
        patch.setattr(imputation, "fill_run", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pcfi.scale.impute(*paths, **case.options, **outputs, alpha=0.6, beta=0.2, overwrite=True)
    assert (tmp_path / "filled.parquet.work.nodes.parquet").exists()
    with monkeypatch.context() as patch:  # what was converted is not converted again
        patch.setattr("pcfi.outofcore.node_source.convert_nodes", None)
        again = pcfi.scale.impute(*paths, **case.options, **outputs, alpha=0.6, beta=0.2, overwrite=True)
    assert {name: again.open(name).to_table() for name in expected} == expected
    assert set(tmp_path.iterdir()) - begun == {paths[2], *outputs.values()}


def test_a_table_of_categories_alone_is_filled_larger_than_memory(tmp_path):
    nodes = pa.table({"id": ["a", "b", "c"], "city": pa.array(["Oslo", None, "Oslo"]), "kind": [1, 1, None]})
    parquet.write_table(nodes, tmp_path / "n.parquet")
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\n")
    paths = [tmp_path / name for name in ("n.parquet", "e.csv", "o.parquet")]
    pcfi.scale.impute(*paths, columns=[], categorical=["city", "kind"], **METHOD)
    filled = parquet.read_table(paths[2])
    assert filled.schema.equals(nodes.schema)
    assert filled.to_pydict() == {"id": ["a", "b", "c"], "city": ["Oslo"] * 3, "kind": [1, 1, 1]}


@pytest.mark.filterwarnings("ignore::pcfi.TuningWarning")
def test_another_conversion_is_another_run(tmp_path, monkeypatch):
    (tmp_path / "n.csv").write_text("id,x\na,1\nb,\nc,-1\n")
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\n")
    paths = [tmp_path / name for name in ("n.csv", "e.csv", "o.parquet")]

    from pcfi.outofcore import imputation

    with monkeypatch.context() as patch:
        patch.setattr(imputation, "fill_run", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pcfi.scale.impute(*paths)
    with pytest.raises(pcfi.ParameterError, match="belongs to another run"):
        pcfi.scale.impute(*paths, missing_values=[-1])
    assert pcfi.scale.impute(*paths).n_missing == 1


def test_a_result_names_its_channels():
    nodes = pd.DataFrame({f"c{k}": [1.0, np.nan, 3.0] for k in range(9)})
    text = repr(pcfi.impute(nodes, [[0, 1], [1, 2]], **METHOD))
    assert "c0, c1, c2, c3, c4, c5, ... c8" in text


@pytest.mark.parametrize("form", ["pandas", "polars", "networkx"])
def test_ids_that_repeat_are_named_where_the_table_cannot_be_read_otherwise(form):
    import networkx as nx

    nodes = pd.DataFrame({"station": ["a", "b", "b", "c"], "x": [1.0, np.nan, 2.0, 3.0]})
    edges = pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"]})
    graph = nx.from_pandas_edgelist(edges) if form == "networkx" else edges
    with pytest.raises(pcfi.GraphError, match="'station' of the nodes probably holds the ids, but 'b' is duplicated"):
        pcfi.impute(pl.from_pandas(nodes) if form == "polars" else nodes, graph)
