"""Commands as careless users call them: each of these went wrong once."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pcfi.cli.app import app

pytestmark = pytest.mark.slow

SIZE = 400


def invoke(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    wave = np.where(rng.random(SIZE) < 0.8, np.nan, np.sin(np.arange(SIZE) / 25))
    pd.DataFrame({"id": range(SIZE), "wave": wave}).to_csv(tmp_path / "nodes.csv", index=False)
    pd.DataFrame({"source": range(SIZE - 1), "target": range(1, SIZE)}).to_csv(tmp_path / "edges.csv", index=False)
    return tmp_path / "nodes.csv", tmp_path / "edges.csv"


def test_no_number_of_an_evaluation_is_cut_off(files):
    said = invoke("evaluate", *files)
    assert "…" not in said.stdout
    assert "RMSE" in said.stdout
    assert "6 hops" in said.stdout


@pytest.mark.parametrize("unit", [1e-7, 1e40])
def test_errors_of_any_size_can_be_read(files, unit):
    nodes = pd.read_csv(files[0])
    nodes["wave"] *= unit
    nodes.to_csv(files[0], index=False)
    said = invoke("evaluate", *files, "--methods", "mean,fp", "--unit", "data")
    row = next(line for line in said.stdout.splitlines() if "mean" in line)
    assert f"e{'-' if unit < 1 else '+'}" in row
    assert len(row) < 120


@pytest.mark.parametrize("command", ["info", "evaluate"])
def test_quiet_keeps_what_was_asked_for(files, command):
    said = invoke(command, *files, "--quiet")
    assert said.exit_code == 0
    assert "wave" in said.stdout or "RMSE" in said.stdout
    assert said.stderr == ""


def test_a_report_comes_without_an_evaluation_where_none_is_possible(tmp_path):
    (tmp_path / "n.csv").write_text("id,x\n1,2\n2,\n")
    (tmp_path / "e.csv").write_text("source,target\n1,2\n")
    outputs = ["-o", tmp_path / "o.csv", "--evaluate", "--report", tmp_path / "r.html"]
    said = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", *outputs)
    assert said.exit_code == 0
    assert "warning: --evaluate: too few known cells" in said.stderr
    assert (tmp_path / "r.html").exists()


def test_what_the_best_method_does_not_have_is_left_out_with_a_warning(tmp_path, files):
    rng = np.random.default_rng(0)
    noise = np.where(rng.random(SIZE) < 0.5, np.nan, rng.normal(size=SIZE))
    pd.DataFrame({"id": range(SIZE), "noise": noise}).to_csv(files[0], index=False)
    asked = {what: tmp_path / f"{what}.csv" for what in ("confidence", "hops", "intervals")}
    options = [word for what, path in asked.items() for word in (f"--{what}", path)]
    said = invoke("impute", *files, "-o", tmp_path / "o.csv", "--method", "auto", *options)
    assert said.exit_code == 0, said.stderr
    assert said.stderr.count("was not written: the method mean was best") == 3
    assert not any(path.exists() for path in asked.values())
    refused = invoke("impute", *files, "-o", tmp_path / "p.csv", "--method", "mean", "--hops", tmp_path / "h.csv")
    assert refused.exit_code == 2
    assert "the method mean does not count hops" in refused.stderr


def test_a_column_that_looks_like_ids_is_asked_about(tmp_path):
    (tmp_path / "n.csv").write_text("user,age\n2,20\n0,\n1,30\n3,40\n")
    (tmp_path / "e.csv").write_text("a,b\n1,2\n0,1\n2,3\n")
    said = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", "-o", tmp_path / "o.csv")
    assert "if it holds the ids, add --id user" in said.stderr
    named = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", "-o", tmp_path / "p.csv", "--id", "user")
    assert "--id user" not in named.stderr
    (tmp_path / "e.csv").write_text("a,b\n1,2\n0,9\n")
    said = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", "-o", tmp_path / "q.csv")
    assert said.exit_code == 1
    assert "name its ids with --id" in said.stderr


def test_edges_that_are_given_twice_are_mentioned(tmp_path):
    (tmp_path / "n.csv").write_text("id,x\na,1\nb,\nc,5\n")
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\nb,c\n")
    options = ["--alpha", "1", "--beta", "0", "--objective", "representation", "-o", "-"]
    said = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", *options)
    assert "the weights of duplicate edges are added" in said.stderr
    assert "b,3.66" in said.stdout


@pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")
def test_a_table_without_edges_is_filled_from_similar_rows(tmp_path, files):
    import pcfi

    rng = np.random.default_rng(1)
    truth = rng.normal(size=(80, 2)) @ rng.normal(size=(2, 4)) + 0.2 * rng.normal(size=(80, 4))
    table = pd.DataFrame(np.where(rng.random(truth.shape) < 0.2, np.nan, truth), columns=list("abcd"))
    table.to_csv(tmp_path / "rows.csv", index=False)
    done = invoke("impute", tmp_path / "rows.csv", "-o", tmp_path / "filled.csv", "--knn", "7", "--evaluate")
    assert done.exit_code == 0, done.stderr
    expected = pcfi.impute(table, lambda rows: pcfi.knn_graph(rows, 7)).values
    np.testing.assert_allclose(pd.read_csv(tmp_path / "filled.csv"), expected)
    refused = invoke("impute", *files, "-o", tmp_path / "o.csv", "--knn", "7")
    assert refused.exit_code != 0
    assert "--knn links similar rows" in refused.stderr


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("impute", ["--seed", 10**22], "--seed must be an integer of at least 0 and below 2**63"),
        ("impute", ["--source", "source", "--target", "source"], "source and target are both 'source'"),
        ("impute", ["--columns", ""], "--columns is empty, got ''"),
        ("impute", ["--columns", " , "], "--columns is empty"),
        ("evaluate", ["--methods", ""], "--methods is empty"),
    ],
)
def test_options_that_say_nothing_or_too_much_are_refused_in_their_own_name(files, tmp_path, command, options, words):
    output = ["-o", tmp_path / "o.csv"] if command == "impute" else []
    said = invoke(command, *files, *output, *options)
    assert said.exit_code == 2, said.stderr
    assert words in said.stderr
    assert not (tmp_path / "o.csv").exists()


def test_a_number_of_similar_rows_below_one_is_refused_in_the_name_of_its_option(files, tmp_path):
    said = invoke("impute", files[0], "-o", tmp_path / "o.csv", "--knn", "0")
    assert said.exit_code == 2
    assert "--knn must be an integer of at least 1, got 0" in said.stderr


def test_an_evaluation_of_equal_values_prints_no_nan(files):
    nodes = pd.read_csv(files[0])
    nodes["wave"] = nodes["wave"].where(nodes["wave"].isna(), 5.0)
    nodes.to_csv(files[0], index=False)
    said = invoke("evaluate", *files)
    assert said.exit_code == 0
    assert "nan" not in said.stdout
