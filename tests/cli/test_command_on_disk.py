"""With and without `--memory`: draws in every format, maps, arrays, types of columns, and what is chosen."""

import json

import geopandas
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, dataset, ipc, parquet
from typer.testing import CliRunner

from pcfi import scale
from pcfi.cli import requirements, stored_tables
from pcfi.cli.app import app

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Geometry column")]

N_NODES = 300
BUDGET = ["--memory", "2GB"]


def invoke(*arguments, code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.stderr
    return done


def node_table():
    """A field on a ring in columns of several types, a third of the cells missing; `late` only at the end."""
    rng = np.random.default_rng(0)
    field = np.sin(np.arange(N_NODES) / 12)
    gone = rng.random((N_NODES, 5)) < 0.35
    grades = pd.Categorical(np.where(gone[:, 2], None, np.where(field > 0, "up", "down")), ["up", "none", "down"])
    return pa.Table.from_pandas(
        pd.DataFrame(
            {
                "code": [f"n{k}" for k in range(N_NODES)],
                "age": pd.array(np.where(gone[:, 0], None, np.rint(40 + 20 * field)), dtype="Int16"),
                "income": np.where(gone[:, 1], np.nan, 3 + field + 0.1 * rng.normal(size=N_NODES)),
                "grade": grades,
                "level": np.where(gone[:, 3], np.nan, np.rint(2 * field)),
                "member": pd.array(np.where(gone[:, 4], None, field > 0.1), dtype="boolean"),
                "late": np.where(np.arange(N_NODES) > 280, np.nan, field),
                "year": 2020 + np.arange(N_NODES) % 2,
            }
        ),
        preserve_index=False,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, nodes = tmp_path_factory.mktemp("files"), node_table()
    ends = np.stack([np.arange(N_NODES), (np.arange(N_NODES) + 1) % N_NODES])
    names = np.array(nodes["code"].to_pylist())
    edges = pa.table({"source": names[ends[0]], "target": names[ends[1]]})
    parquet.write_table(nodes, folder / "nodes.parquet", row_group_size=70)
    csv.write_csv(nodes.set_column(3, "grade", nodes["grade"].cast(pa.string())), folder / "n.csv")
    csv.write_csv(edges, folder / "edges.csv")
    parts = dataset.partitioning(pa.schema([("year", pa.int64())]), flavor="hive")
    dataset.write_dataset(nodes, folder / "hive.parquet", format="parquet", partitioning=parts)
    numbers = np.stack([nodes[name].to_pandas().astype(float) for name in ("age", "income", "late")], axis=1)
    np.save(folder / "array.npy", numbers)
    np.save(folder / "edges.npy", ends)
    angle = 2 * np.pi * np.arange(N_NODES) / N_NODES
    places = geopandas.points_from_xy(1e4 * np.cos(angle), 1e4 * np.sin(angle))
    geopandas.GeoDataFrame(nodes.to_pandas(), geometry=places, crs=3857).to_parquet(folder / "map.parquet")
    return folder


def content(path):
    """What a file holds, as tables or arrays."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".duckdb":
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(path), read_only=True) as database:
            names = sorted(name for (name,) in database.execute("show tables").fetchall())
            return [database.sql(f'select * from "{name}"').to_arrow_table() for name in names], names
    if path.suffix == ".arrow":
        return ipc.open_file(path).read_all().unify_dictionaries()
    if path.suffix == ".gpkg":
        return pa.Table.from_pandas(pd.DataFrame(geopandas.read_file(path).to_wkt()))
    if path.suffix == ".csv":
        return csv.read_csv(path)
    folders = sorted(str(part.relative_to(path).parent) for part in path.rglob("*.parquet")) if path.is_dir() else []
    table = dataset.dataset(path, partitioning="hive").to_table()
    return table, [name for name in folders if name != "."]


def assert_same(left, right, name):
    if isinstance(left, list | tuple):
        for pair in zip(left, right, strict=True):
            assert_same(*pair, name)
    elif isinstance(left, np.ndarray):
        spread = np.nanmax(left) - np.nanmin(left)
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-6 * spread, err_msg=name)
    elif isinstance(left, pa.Table):
        assert [(one.name, one.type) for one in left.schema] == [(one.name, one.type) for one in right.schema], name
        assert set(left.schema.metadata or ()) == set(right.schema.metadata or ()), name
        for column in left.column_names:
            if pa.types.is_floating(left.schema.field(column).type):
                assert_same(left[column].to_numpy(), right[column].to_numpy(), f"{name}, {column}")
            else:
                assert left[column].to_pylist() == right[column].to_pylist(), f"{name}, {column}"
    else:
        assert left == right, name


def assert_same_with_a_budget(files, tmp_path, nodes, edges, outputs, options=()):
    found, sources = [], [files / nodes, *([files / edges] if edges else [])]
    for way, budget in (("memory", []), ("disk", BUDGET)):
        folder = tmp_path / way
        folder.mkdir()
        named = [word for option, name in outputs.items() for word in (option, folder / name)]
        invoke("impute", *sources, *named, "--exclude", "year" if nodes != "array.npy" else "", *options, *budget)
        found.append({path.name: content(path) for path in folder.iterdir()})
    assert sorted(found[0]) == sorted(found[1])
    for name, left in found[0].items():
        assert_same(left, found[1][name], name)
    return found[1]


DRAWS = {
    "DuckDB": ("nodes.parquet", "edges.csv", "y.duckdb/filled", []),
    "folders": ("hive.parquet", "edges.csv", "y.parquet", []),
    "a map": ("map.parquet", None, "y.parquet", []),
    "a map as GeoPackage": ("map.parquet", None, "y.gpkg", []),
    "dictionaries": ("nodes.parquet", "edges.csv", "y.parquet", ["--categorical", "grade,level"]),
    "dictionaries in Arrow": ("nodes.parquet", "edges.csv", "y.arrow", ["--categorical", "grade,level"]),
}


@pytest.mark.parametrize("case", DRAWS)
def test_a_budget_changes_no_draw(files, tmp_path, case, monkeypatch):
    """Arrow files with several dictionaries failed, and a category of dictionaries came back as text."""
    monkeypatch.setattr(stored_tables, "ROWS_AT_A_TIME", 100)
    nodes, edges, target, options = DRAWS[case]
    if case == "DuckDB":
        pytest.importorskip("duckdb")
    found = assert_same_with_a_budget(files, tmp_path, nodes, edges, {"-o": target}, ["--draws", "2", *options])
    if case == "DuckDB":
        assert found["y.duckdb"][1] == ["filled", "filled_draw1", "filled_draw2"]
    else:
        assert len(found) == 3


TABLES = {
    "confidence twice": (
        ("nodes.parquet", "edges.csv"),
        {"-o": "y.parquet", "--confidence": "c.parquet"},
        ["--confidence-columns"],
    ),
    "a map and its intervals": (("map.parquet", None), {"-o": "y.parquet", "--intervals": "i.parquet"}, []),
    "a map as text": (("map.parquet", None), {"-o": "y.csv"}, []),
    "two formats": (
        ("n.csv", "edges.csv"),
        {"-o": "y.parquet", "--intervals": "i.csv", "--confidence": "c.arrow", "--hops": "h.npy"},
        [],
    ),
    "categories that are floats": (
        ("nodes.parquet", "edges.csv"),
        {"-o": "y.parquet"},
        ["--categorical", "level,member"],
    ),
    "columns of an array": (("array.npy", "edges.npy"), {"-o": "y.parquet"}, ["--columns", "channel_0,channel_2"]),
    "markers in an array": (("array.npy", "edges.npy"), {"-o": "y.npy"}, ["--missing-value", "40"]),
    "categories of an array": (("array.npy", "edges.npy"), {"-o": "y.parquet"}, ["--categorical", "channel_0"]),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_budget_changes_no_table(files, tmp_path, case, monkeypatch):
    """Each of these lost columns, failed, or gave other values, if results are written some rows at a time."""
    monkeypatch.setattr(stored_tables, "ROWS_AT_A_TIME", 100)
    (nodes, edges), outputs, options = TABLES[case]
    assert_same_with_a_budget(files, tmp_path, nodes, edges, outputs, options)


def test_columns_of_an_array_have_one_name(files, tmp_path, monkeypatch):
    """They were channel_0 in memory, and 0 on disk."""
    monkeypatch.chdir(tmp_path)
    sources = [files / "array.npy", files / "edges.npy"]
    facts = []
    for budget in ([], BUDGET):
        invoke("impute", *sources, "-o", "y.npy", "--facts", "f.json", "--force", *budget)
        facts.append(json.loads((tmp_path / "f.json").read_text()))
    assert [one["name"] for one in facts[0]["columns"]] == [f"channel_{k}" for k in range(3)]
    for name in ("columns", "explained"):
        texts = [json.dumps(one[name]) for one in facts]
        assert ("channel_1" in texts[0]) == ("channel_1" in texts[1])
    assert [one["verdict"] for one in facts[0]["columns"]] == [one["verdict"] for one in facts[1]["columns"]]
    explained = [
        invoke("explain", *sources, "--node", 299, "--column", "channel_2", *budget).stdout for budget in ([], BUDGET)
    ]
    assert explained[0] == explained[1]
    columns = scale.impute(*sources, tmp_path / "z.npy").columns
    assert [one.name for one in columns] == ["0", "1", "2"]  # as pcfi.impute calls them


def test_a_warning_names_the_column(files, tmp_path):
    """On disk it named the number of the channel."""
    table = node_table().to_pandas()[["code", "age", "level"]].assign(age=lambda frame: 1000.0 * frame["age"])
    table.to_csv(tmp_path / "n.csv", index=False)
    said = []
    for budget in ([], BUDGET):
        options = ["-f", "--objective", "representation", "--alpha", "0.9", "--beta", "1", *budget]
        done = invoke("impute", tmp_path / "n.csv", files / "edges.csv", "-o", tmp_path / "y.csv", *options)
        said.append([line for line in done.stderr.splitlines() if "warning: " in line])
    assert said[0] == said[1]
    assert "moved the column 'level' outside its known range" in said[0][0]


@pytest.mark.parametrize("nodes", ["hive.parquet", "map.parquet"])
def test_an_explanation_leaves_nothing_behind(files, tmp_path, monkeypatch, nodes):
    """The filled table of a partitioned dataset stayed in the current folder, and the next explanation failed."""
    monkeypatch.chdir(tmp_path)
    edges = [] if nodes == "map.parquet" else [files / "edges.csv"]
    command = ["explain", files / nodes, *edges, "--node", "n299", "--column", "late", "--exclude", "year"]
    assert invoke(*command, *BUDGET).stdout == invoke(*command).stdout
    assert list(tmp_path.iterdir()) == []


def test_what_only_disks_hold_is_processed_there(files, tmp_path, monkeypatch):
    """Zarr and graph folders were unknown formats unless --memory was given."""
    zarr = pytest.importorskip("zarr")
    monkeypatch.chdir(tmp_path)
    values = np.load(files / "array.npy")
    zarr.open("x.zarr", mode="w", shape=values.shape, dtype=values.dtype)[:] = values
    scale.build_graph(files / "edges.npy", "graph", n_nodes=N_NODES)
    draws = ["--draws", 2]
    invoke("impute", files / "array.npy", files / "edges.npy", "-o", "y.npy", *draws)
    done = invoke("impute", "x.zarr", files / "edges.npy", "-o", "z.zarr", *draws)
    assert done.stderr.startswith("x.zarr is processed on disk, within ")
    invoke("impute", files / "array.npy", "graph", "-o", "g.npy", *draws)
    for name in ("", ".draw1", ".draw2"):
        expected = np.load(f"y{name}.npy")
        assert_same(expected, zarr.open(f"z{name}.zarr", mode="r")[:], name)
        assert_same(expected, np.load(f"g{name}.npy"), name)
    explained = invoke("explain", "x.zarr", "graph", "--node", 299, "--column", "channel_2").stdout
    command = ["explain", files / "array.npy", files / "edges.npy", "--node", 299, "--column", "channel_2"]
    assert explained == invoke(*command).stdout
    assert "only their metadata was read" in invoke("info", "x.zarr", "graph").stdout


def test_maps_and_explanations_that_do_not_fit_go_to_disk(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(requirements, "bytes_in_memory", lambda *_: 10**13)
    done = invoke("impute", files / "map.parquet", "-o", "y.parquet", "--exclude", "year")
    assert "they are processed on disk within " in done.stderr.splitlines()[0]
    command = ["explain", files / "nodes.parquet", files / "edges.csv", "--node", "n299", "--column", "late"]
    assert "they are processed on disk within " in invoke(*command).stderr.splitlines()[0]
    assert [path.name for path in tmp_path.iterdir()] == ["y.parquet"]


def test_a_budget_that_is_refused_leaves_no_neighbours_behind(files, tmp_path):
    """Neighbours and weights of a map stayed, under names that could be those of other files."""
    done = invoke("impute", files / "map.parquet", "-o", tmp_path / "y.parquet", "--memory", "5MB", code=1)
    assert "grant more" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_infinite_cell_is_named_by_its_column(files, tmp_path):
    """On disk the column was called a channel."""
    table = node_table().to_pandas()
    table.loc[250, "income"] = np.inf
    table.to_parquet(tmp_path / "n.parquet", index=False)
    done = invoke("impute", tmp_path / "n.parquet", files / "edges.csv", "-o", tmp_path / "y.csv", *BUDGET, code=1)
    assert "the column 'income' in row 250 is inf" in done.stderr
