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

import pcfi
from command_line import run

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
        files = [f"nodes.{suffix}", f"edges.{suffix}", "-o", "filled.parquet"]
        done = run("impute", *files, *OPTIONS, *as_options(case), *more, folder=folder)
        assert done.returncode == 0, done.stderr.decode()
        return parquet.read_table(folder / "filled.parquet")

    return fill


def by_scale(suffix):
    def fill(case, folder):
        method = {name: value for name, value in METHOD.items() if name != "objective"}
        paths = [folder / name for name in (f"nodes.{suffix}", f"edges.{suffix}", "filled.parquet")]
        pcfi.scale.impute(*paths, **case.options, **method)
        return parquet.read_table(folder / "filled.parquet")

    return fill


WAYS = {
    "pandas": python_way(read_pandas),
    "polars": python_way(read_polars),
    "pcfi.impute": by_impute,
    "command line, text": command("csv"),
    "command line, Parquet": command("parquet"),
    "command line within a budget, Parquet": command("parquet", "--memory", "1GB"),
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
