"""The same files with and without `--memory` give the same output, for every option of `pcfi impute`."""

import gzip
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, dataset, feather, parquet
from scipy import io, sparse
from typer.testing import CliRunner

from pcfi.cli.app import app

pytestmark = pytest.mark.slow

N_NODES = 400
BUDGET = ["--memory", "2GB"]


def invoke(*arguments):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.stderr
    return done


def node_table():
    """A field on a ring, in columns of all kinds, a third of the cells missing."""
    rng = np.random.default_rng(0)
    field = np.sin(np.arange(N_NODES) / 12)
    gone = rng.random((N_NODES, 5)) < 0.35
    cities = np.where(field > 0.3, "Oslo", np.where(field < -0.4, "Turku", "Bergen"))
    return pa.table(
        {
            "code": [f"{k * 7 % N_NODES:04d}" for k in range(N_NODES)],
            "age": pa.array(np.rint(40 + 20 * field + rng.normal(size=N_NODES)).astype(int), mask=gone[:, 0]),
            "income": pa.array((3 + field + 0.1 * rng.normal(size=N_NODES)).round(3), mask=gone[:, 1]),
            "member": pa.array(field > 0, mask=gone[:, 2]),
            "city": pa.array(cities, mask=gone[:, 3]),
            "label": [f"{k % 3}.50" for k in range(N_NODES)],
            "height": pa.array((field * 100).round(2), mask=gone[:, 4]),
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, nodes = tmp_path_factory.mktemp("files"), node_table()
    ends = np.arange(N_NODES)
    codes = np.array(nodes["code"].to_pylist())
    edges = pa.table({"source": codes[ends], "target": codes[(ends + 1) % N_NODES]})
    parquet.write_table(nodes, folder / "nodes.parquet", row_group_size=130)
    csv.write_csv(edges, folder / "edges.csv")
    feather.write_feather(nodes, folder / "nodes.feather")
    options = csv.WriteOptions(quoting_style="none")
    csv.write_csv(nodes, folder / "nodes.csv", options)
    (folder / "nodes.csv.gz").write_bytes(gzip.compress((folder / "nodes.csv").read_bytes()))
    text = (folder / "nodes.csv").read_text().replace("true", "TRUE").replace("false", "FALSE")
    lines = [line.replace(",", ";").replace(".", ",") for line in text.splitlines()]
    (folder / "german.csv").write_text("\n".join(lines) + "\n")
    (folder / "marked.csv").write_text(text.replace(",,", ",-999,"))
    numbers = np.stack([nodes[name].cast(pa.float64()).to_numpy() for name in ("age", "income", "height")], axis=1)
    np.save(folder / "nodes.npy", numbers)
    np.savez(folder / "nodes.npz", features=numbers)
    index = np.stack([ends, (ends + 1) % N_NODES])
    np.save(folder / "edges.npy", index)
    np.savez(folder / "edges.npz", edge_index=index)
    weights = sparse.coo_array((1.0 + ends % 3, index), shape=(N_NODES, N_NODES))
    sparse.save_npz(folder / "weighted.npz", sparse.csr_matrix(weights))
    io.mmwrite(folder / "edges.mtx", weights)
    feather.write_feather(edges, folder / "edges.feather")
    return folder


def read(path):
    """Columns by name, as lists."""
    if path.suffix == ".npz":
        return {"features": np.load(path)["features"].ravel().tolist()}
    if path.suffix == ".npy":
        return {"features": np.load(path).ravel().tolist()}
    if path.suffix == ".feather":
        return feather.read_table(path).to_pydict()
    if path.suffix == ".parquet":
        return parquet.read_table(path).to_pydict()
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    header, *rows = text.splitlines()
    mark = next(mark for mark in "\t;," if mark in header)
    return {name: list(cells) for name, *cells in zip(*(line.split(mark) for line in [header, *rows]), strict=True)}


def number(cell):
    try:
        return math.nan if cell is None else float(str(cell).replace(",", "."))
    except ValueError:
        return None


def assert_same(left, right):
    assert list(left) == list(right)
    for name, cells in left.items():
        numbers = [[number(cell) for cell in column] for column in (cells, right[name])]
        if None in numbers[0] or all(a == b for a, b in zip(cells, right[name], strict=True)):
            assert cells == right[name], name
            continue
        spread = np.nanmax(numbers[1]) - np.nanmin(numbers[1])
        np.testing.assert_allclose(*numbers, rtol=0, atol=1e-6 * spread, err_msg=name)


WIDE = ["--exclude", "label"]
CASES = {
    "text": ("nodes.csv", "o.csv", []),
    "packed text": ("nodes.csv.gz", "o.csv.gz", WIDE),
    "semicolons and commas": ("german.csv", "o.csv", WIDE),
    "markers": ("marked.csv", "o.tsv", ["--missing-value", "-999"]),
    "categories as text": ("nodes.csv", "o.csv", ["--categorical", "city", *WIDE]),
    "categories": ("nodes.parquet", "o.parquet", ["--categorical", "city", *WIDE]),
    "Parquet to text": ("nodes.parquet", "o.csv", WIDE),
    "text to Parquet": ("nodes.csv", "o.parquet", WIDE),
    "feather out": ("nodes.parquet", "o.feather", WIDE),
    "arrays": ("nodes.npy", "o.npz", []),
    "rounding": ("nodes.parquet", "o.parquet", ["--round", *WIDE]),
    "rounding in text": ("nodes.csv", "o.csv", ["--round", *WIDE]),
    "columns": ("nodes.csv", "o.csv", ["--columns", "age,income"]),
    "confidence columns": ("nodes.parquet", "o.parquet", ["--confidence-columns", *WIDE]),
    "representation": ("nodes.csv", "o.csv", ["--objective", "representation", *WIDE]),
    "positions": ("nodes.parquet", "o.parquet", ["--objective", "representation", "--position", "4", *WIDE]),
    "positions of an array": ("nodes.npy", "o.npy", ["--objective", "representation", "--position", "4"]),
    "feature propagation": ("nodes.csv", "o.csv", ["--method", "fp", *WIDE]),
    "unreachable": ("nodes.csv", "o.csv", ["--unreachable", "nan", "--directed", *WIDE]),
}


INPUTS = {
    "feather": ("nodes.feather", "edges.feather", WIDE),
    "npz": ("nodes.npz", "edges.npz", []),
    "sparse matrix": ("nodes.npy", "weighted.npz", []),
    "directed sparse matrix": ("nodes.npy", "edges.mtx", ["--directed"]),
}


@pytest.mark.parametrize("case", INPUTS)
def test_a_budget_reads_every_format(files, tmp_path, case):
    nodes, edges, options = INPUTS[case]
    found = []
    for way, budget in (("memory", []), ("disk", BUDGET)):
        folder = tmp_path / way
        folder.mkdir()
        invoke("impute", files / nodes, files / edges, "-o", folder / "o.csv", *options, *budget)
        assert [path.name for path in folder.iterdir()] == ["o.csv"]
        found.append(read(folder / "o.csv"))
    assert_same(*found)


@pytest.mark.parametrize("case", CASES)
def test_a_budget_changes_no_output(files, tmp_path, case):
    source, target, options = CASES[case]
    edges = files / ("edges.npy" if source.endswith(".npy") else "edges.csv")
    found = []
    for way, budget in (("memory", []), ("disk", BUDGET)):
        folder = tmp_path / way
        folder.mkdir()
        invoke("impute", files / source, edges, "-o", folder / target, *options, *budget)
        assert [path.name for path in folder.iterdir()] == [target]
        found.append(read(folder / target))
    assert_same(*found)


DRAWS = {
    "text": ("nodes.csv", "o.csv", ["--round", *WIDE]),
    "semicolons and commas": ("german.csv", "o.csv.gz", WIDE),
    "categories": ("nodes.parquet", "o.parquet", ["--categorical", "city", *WIDE]),
    "feather out": ("nodes.csv", "o.feather", ["--categorical", "city", *WIDE]),
    "arrays": ("nodes.npy", "o.npy", []),
    "confidence columns": ("nodes.parquet", "o.csv", ["--confidence-columns", *WIDE]),
}


@pytest.mark.parametrize("case", DRAWS)
def test_a_budget_changes_no_draw(files, tmp_path, case):
    source, target, options = DRAWS[case]
    edges = files / ("edges.npy" if source.endswith(".npy") else "edges.csv")
    found, (stem, _, suffix) = [], target.partition(".")
    drawn = [f"{stem}.draw{number}.{suffix}" for number in (1, 2)]
    for way, budget in (("memory", []), ("disk", BUDGET)):
        folder = tmp_path / way
        folder.mkdir()
        output = ["-o", folder / target, "--draws", 2, "--seed", 7]
        done = invoke("impute", files / source, edges, *output, *options, *budget)
        assert {path.name for path in folder.iterdir()} == {target, *drawn}
        assert f"Wrote {folder / drawn[1]}" in done.stdout
        found.append([read(folder / name) for name in drawn])
    assert found[0][0] != found[0][1]
    for left, right in zip(*found, strict=True):
        assert_same(left, right)


def test_a_budget_changes_no_warning(tmp_path):
    from sklearn.datasets import load_wine
    from sklearn.neighbors import kneighbors_graph

    values, rng = load_wine().data, np.random.default_rng(0)
    near = kneighbors_graph((values - values.mean(axis=0)) / values.std(axis=0), 6).tocoo()
    columns = {
        f"c{k}": pa.array(column, mask=rng.random(len(values)) < 0.05, from_pandas=True)
        for k, column in enumerate(values.T)
    }
    columns |= {"zip_code": 10_000 + rng.permutation(len(values)), "price": [f"${k},500" for k in range(len(values))]}
    csv.write_csv(pa.table(columns), tmp_path / "n.csv")
    csv.write_csv(pa.table({"source": near.row, "target": near.col}), tmp_path / "e.csv")
    found = []
    for budget in ([], BUDGET):
        done = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", "-o", tmp_path / f"{len(budget)}.csv", *budget)
        found.append([line for line in done.stderr.splitlines() if "warning" in line])
    assert found[0] == found[1]
    for words in ("'price' is not filled", "'zip_code' holds unique integers", "beyond chance"):
        assert any(words in line for line in found[0])


@pytest.mark.parametrize("budget", [[], BUDGET])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "fp"], "--draws: the method fp has none; pcfi has"),
        (["--unreachable", "zero"], "--draws belong to --objective values and --unreachable mean"),
        (["--draws", "-1"], "--draws must be an integer of at least 0, got -1"),
    ],
)
def test_draws_that_cannot_be_made_are_refused_before_work(files, tmp_path, budget, options, words):
    command = ["impute", files / "nodes.csv", files / "edges.csv", "-o", tmp_path / "o.csv", "--draws", 2]
    done = CliRunner().invoke(app, list(map(str, [*command, *options, *budget])))
    assert done.exit_code == 2
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["csv", "tsv", "feather", "parquet"])
@pytest.mark.parametrize("source", ["nodes.csv", "nodes.parquet"])
def test_a_budget_changes_no_further_table(files, tmp_path, source, suffix):
    found = []
    for way, budget in (("memory", []), ("disk", BUDGET)):
        folder = tmp_path / way
        folder.mkdir()
        tables = {name: folder / f"{name}.{suffix}" for name in ("confidence", "hops", "intervals")}
        named = [word for name, path in tables.items() for word in (f"--{name}", path)]
        output = ["-o", folder / f"o.{suffix}", *named, "--coverage", "0.8"]
        invoke("impute", files / source, files / "edges.csv", *output, *WIDE, *budget)
        found.append([read(path) for path in tables.values()])
    for left, right in zip(*found, strict=True):
        assert_same(left, right)


def approximately(facts):
    return {name: value for name, value in facts.items() if name not in ("created", "command", "files", "stages")}


def assert_same_facts(left, right, place=""):
    if isinstance(left, dict):
        assert left.keys() == right.keys(), place
        for name in left:
            assert_same_facts(left[name], right[name], f"{place}/{name}")
    elif isinstance(left, list):
        assert len(left) == len(right), place
        for number_, pair in enumerate(zip(left, right, strict=True)):
            assert_same_facts(*pair, f"{place}/{number_}")
    elif isinstance(left, float):
        assert left == pytest.approx(right, rel=1e-5, abs=1e-6), place
    else:
        assert left == right, place


@pytest.mark.parametrize("options", [WIDE, ["--categorical", "city", "--round", *WIDE], ["--method", "fp", *WIDE]])
def test_a_budget_changes_no_report(files, tmp_path, options):
    found = []
    for way, budget in (("memory", []), ("disk", BUDGET)):
        folder = tmp_path / way
        folder.mkdir()
        output = ["-o", folder / "o.csv", "--report", folder / "r.html", "--facts", folder / "f.json", "--json"]
        done = invoke("impute", files / "nodes.csv", files / "edges.csv", *output, *options, *budget)
        assert {path.name for path in folder.iterdir()} == {"o.csv", "r.html", "f.json"}
        assert "<svg" in (folder / "r.html").read_text() or "vega" in (folder / "r.html").read_text()
        printed = {name: value for name, value in json.loads(done.stdout).items() if name != "outputs"}
        found.append([approximately(json.loads((folder / "f.json").read_text())), approximately(printed)])
    assert_same_facts(*found)


@pytest.mark.parametrize("options", [["--column", "age,height"], ["--categorical", "city", "--column", "city,income"]])
def test_a_budget_changes_no_explanation(files, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    command = ["explain", files / "nodes.csv", files / "edges.csv", "--node", "0007,0035,0301", *WIDE, *options]
    found = [json.loads(invoke(*command, "--json", *budget).stdout) for budget in ([], BUDGET)]
    assert len(found[0]) == 6
    for left, right in zip(*found, strict=True):
        assert left["value"] == pytest.approx(right["value"], rel=1e-6)
        parts = [{(one["node"], one["column"]): one["contribution"] for one in side["parts"]} for side in (left, right)]
        assert parts[0] == pytest.approx(parts[1], abs=1e-4)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_name_is_an_error_before_anything_is_filled(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [
        "explain",
        files / "nodes.csv",
        files / "edges.csv",
        *WIDE,
        "--node",
        "0007",
        "--column",
        "agge",
        *BUDGET,
    ]
    done = CliRunner().invoke(app, list(map(str, command)))
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == "pcfi: --column 'agge' is not a filled column: the closest is 'age'"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("budget", [[], BUDGET])
def test_a_partitioned_dataset_keeps_its_folders(files, tmp_path, monkeypatch, budget):
    monkeypatch.chdir(tmp_path)
    nodes = node_table().append_column("region", pa.array([f"r {k % 3}" for k in range(N_NODES)]))
    nodes = nodes.append_column("year", pa.array(2020 + np.arange(N_NODES) % 2))
    parts = dataset.partitioning(pa.schema([("year", pa.int64()), ("region", pa.string())]), flavor="hive")
    dataset.write_dataset(nodes, tmp_path / "in.parquet", format="parquet", partitioning=parts)
    command = ["impute", "./in.parquet/", files / "edges.csv", "--exclude", "label,year"]
    invoke(*command, "-o", tmp_path / "out.parquet", *budget)
    folders = [
        sorted(path.relative_to(tmp_path / name).parent.as_posix() for path in (tmp_path / name).rglob("*.parquet"))
        for name in ("in.parquet", "out.parquet")
    ]
    assert folders[0] == folders[1]
    assert len(folders[0]) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]
    before, after = (
        dataset.dataset(tmp_path / name, partitioning="hive").to_table().sort_by("code").to_pandas()
        for name in ("in.parquet", "out.parquet")
    )
    assert list(before.columns) == list(after.columns)
    assert after["age"].notna().all()
    for name in ("code", "region", "year"):
        assert list(before[name]) == list(after[name])
    known = before["income"].notna()
    assert (before["income"][known] == after["income"][known]).all()
