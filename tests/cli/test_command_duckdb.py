"""`pcfi impute` on tables and queries of DuckDB, in memory and within a budget, gives what it gives on files."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from command_line import edge_table, features, node_table, ring
from pcfi.cli.app import app

duckdb = pytest.importorskip("duckdb")
pytestmark = pytest.mark.slow


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def files(tmp_path):
    nodes, edges = node_table(features()), edge_table(ring())
    parquet.write_table(nodes, tmp_path / "nodes.parquet")
    parquet.write_table(edges, tmp_path / "edges.parquet")
    with duckdb.connect(tmp_path / "shop.duckdb") as connection:
        for name, table in (("people", nodes), ("links", edges)):
            connection.register("rows", table)
            connection.execute(f"create table {name} as select * from rows")
    return tmp_path


def table(files, name):
    with duckdb.connect(files / "shop.duckdb", read_only=True) as connection:
        return pa.Table.from_pydict(connection.execute(f"select * from {name}").fetch_df().to_dict("list"))


@pytest.mark.parametrize("budget", [[], ["--memory", "2GB"]])
def test_tables_go_in_and_out(files, budget):
    common = ["--exclude", "label", "-q", *budget]
    done = invoke("impute", files / "nodes.parquet", files / "edges.parquet", "-o", files / "o.parquet", *common)
    assert done.exit_code == 0, done.stderr
    base, before = files / "shop.duckdb", sorted(path.name for path in files.iterdir())
    sides = ["-o", f"{base}/filled", "--intervals", f"{base}/sides"]
    done = invoke("impute", f"{base}/people", f"{base}/links", *sides, *common)
    assert done.exit_code == 0, done.stderr
    expected, found = parquet.read_table(files / "o.parquet"), table(files, "filled")
    assert found.column_names == expected.column_names
    assert found["id"].to_pylist() == expected["id"].to_pylist()
    for name in ("age", "income", "height"):
        np.testing.assert_allclose(found[name].to_numpy(), expected[name].to_numpy(), rtol=1e-9)
    assert "age_low" in table(files, "sides").column_names
    assert sorted(path.name for path in files.iterdir()) == before
    again = invoke("impute", f"{base}/people", f"{base}/links", *sides, *common)
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)
    assert invoke("impute", f"{base}/people", f"{base}/links", *sides, *common, "--force").exit_code == 0


@pytest.mark.parametrize("budget", [[], ["--memory", "2GB"]])
def test_a_query_is_the_table(files, budget):
    query = "select id, age, height from people where id < '030'"
    edges = "select source, target from links where source < '030' and target < '030'"
    base = files / "shop.duckdb"
    done = invoke("impute", base, base, "--query", query, "--edge-query", edges, "-o", files / "o.csv", *budget)
    assert done.exit_code == 0, done.stderr
    lines = (files / "o.csv").read_text().splitlines()
    assert lines[0] == "id,age,height"
    assert len(lines) == 31


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["shop.duckdb", "edges.parquet", "-o", "o.csv"], 1, "holds these tables: 'links', 'people'"),
        (["shop.duckdb/nobody", "edges.parquet", "-o", "o.csv"], 1, "shop.duckdb/nobody cannot be read as duckdb"),
        (["shop.duckdb", "edges.parquet", "-o", "o.csv", "--query", "selec"], 1, "cannot be read as duckdb"),
        (["none.duckdb/people", "edges.parquet", "-o", "o.csv"], 1, "does not exist"),
        (["nodes.parquet", "edges.parquet", "-o", "o.csv", "--query", "select 1"], 2, "--query needs a .duckdb file"),
        (["nodes.parquet", "edges.parquet", "-o", "new.duckdb"], 1, "name the table to write"),
    ],
)
@pytest.mark.parametrize("budget", [[], ["--memory", "2GB"]])
def test_errors_are_one_line(files, monkeypatch, arguments, code, message, budget):
    monkeypatch.chdir(files)
    before = sorted(files.iterdir())
    done = invoke("impute", *arguments, *budget)
    assert (done.exit_code, message in done.stderr.splitlines()[-1]) == (code, True), done.stderr
    assert sorted(files.iterdir()) == before
