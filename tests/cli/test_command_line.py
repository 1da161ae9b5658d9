"""The command line, end to end: processes on real files, compared with `pcfi.impute`; bad input; kills; exit codes."""

import json
import os
import signal
import subprocess
import time
from inspect import signature
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet
from typer.testing import CliRunner

import pcfi
from command_line import COMMAND, N_NODES, edge_table, features, node_table, ring, run
from pcfi.cli.app import COMMANDS, app, load_command
from pcfi.estimation import ColumnReports

pytestmark = pytest.mark.slow

CHANNELS = ["age", "income", "height"]


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def files(tmp_path):
    parquet.write_table(node_table(features()), tmp_path / "nodes.parquet")
    parquet.write_table(edge_table(ring()), tmp_path / "edges.parquet")
    csv.write_csv(node_table(features()), tmp_path / "nodes.csv")
    csv.write_csv(edge_table(ring()), tmp_path / "edges.csv")
    return tmp_path


def expected(**options):
    return pcfi.impute(features(), ring(), **options)


def channels(table):
    return np.stack([table[name].to_numpy() for name in CHANNELS], axis=1)


def test_files_in_files_out_is_all_there_is_to_it(files):
    done = run("impute", "nodes.parquet", "edges.parquet", "-o", "filled.parquet", "--exclude", "label", folder=files)
    assert done.returncode == 0, done.stderr
    filled, before = parquet.read_table(files / "filled.parquet"), node_table(features())
    assert np.array_equal(channels(filled), expected().values)
    for untouched in ("id", "label", "since"):
        assert filled[untouched].to_pylist() == before[untouched].to_pylist()
    assert filled.column_names == before.column_names
    assert b"ids in 'id', 3 channels (age, income, height); passed through: label, since" in done.stderr
    assert b"'source' to 'target', unweighted" in done.stderr
    assert b"Filled " in done.stdout


@pytest.mark.parametrize(
    "name", ["filled.csv", "filled.tsv", "filled.csv.gz", "filled.feather", "filled.npy", "filled.npz"]
)
def test_every_output_format_holds_the_same_numbers(files, name):
    done = invoke("impute", files / "nodes.csv", files / "edges.csv", "-o", files / name, "--exclude", "label")
    assert done.exit_code == 0, done.stderr
    path = files / name
    if name.endswith(".npy"):
        found = np.load(path)
    elif name.endswith(".npz"):
        found = np.load(path)["features"]
    elif name.endswith(".feather"):
        found = channels(feather.read_table(path))
    else:
        parse = csv.ParseOptions(delimiter="\t" if ".tsv" in name else ",")
        as_text = csv.ConvertOptions(column_types={"id": pa.string()})
        table = csv.read_csv(path, parse_options=parse, convert_options=as_text)
        assert table["id"].to_pylist()[:2] == ["000", "001"]
        found = channels(table)
    assert np.array_equal(found, expected().values)


def test_options_are_the_parameters_of_impute(files):
    asked = ["--alpha", "0.9", "--beta", "0.5", "--steps", "30", "--standardize", "--unreachable", "zero", "--directed"]
    done = invoke(
        "impute", files / "nodes.parquet", files / "edges.parquet", "-o", files / "o.npy", "--exclude=label", *asked
    )
    assert done.exit_code == 0, done.stderr
    options = {"alpha": 0.9, "beta": 0.5, "standardize": True, "unreachable": "zero", "directed": True}
    options["solver"] = pcfi.FixedSteps(30)
    assert np.array_equal(np.load(files / "o.npy"), expected(**options).values)


def test_confidence_and_hops_are_written(files):
    written = ["--confidence", files / "c.parquet", "--hops", files / "h.parquet", "--confidence-columns"]
    done = invoke(
        "impute", files / "nodes.parquet", files / "edges.parquet", "-o", files / "o.csv", "--exclude=label", *written
    )
    assert done.exit_code == 0, done.stderr
    result = expected()
    confidence, hops = parquet.read_table(files / "c.parquet"), parquet.read_table(files / "h.parquet")
    assert confidence.column_names == ["id", *CHANNELS]
    assert np.array_equal(channels(confidence), result.confidence)
    assert np.array_equal(channels(hops), result.hops)
    beside = csv.read_csv(files / "o.csv")["income_confidence"].to_numpy()
    assert np.array_equal(beside, result.confidence[:, 1])


def test_hops_of_unreachable_cells_are_null(files):
    parquet.write_table(edge_table(ring()[:, :10]), files / "few.parquet")
    done = run(
        "impute", "nodes.parquet", "few.parquet", "-o", "o.csv", "--hops", "h.csv", "--exclude=label", folder=files
    )
    assert done.returncode == 0
    assert b"pcfi: warning: " in done.stderr
    hops = csv.read_csv(files / "h.csv")["age"]
    assert hops.null_count > 0
    assert max(hops.drop_null().to_pylist()) < N_NODES


def test_columns_categories_and_whole_numbers(tmp_path):
    (tmp_path / "n.csv").write_text("node,kind,n,x\na,red,1,1.0\nb,,?,2.0\nc,red,2,-999\nd,blue,7,1.5\n")
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\nc,d\nx,a\n")
    options = [
        "--categorical",
        "kind",
        "--round",
        "--missing-value",
        "?",
        "--missing-value",
        "-999",
        "--unknown-ids",
        "drop",
        "--alpha",
        "0.5",
        "--beta",
        "0.1",
        "--objective",
        "representation",
    ]
    facts = tmp_path / "facts.json"
    done = invoke(
        "impute", tmp_path / "n.csv", tmp_path / "e.csv", "-o", tmp_path / "o.csv", "--facts", facts, *options
    )
    assert done.exit_code == 0, done.stderr
    assert "Filled 3 missing cells (25.0%)" in done.stdout
    gathered = json.loads(facts.read_text())
    assert {one["name"]: one["n_missing"] for one in gathered["channels"]} == {"n": 1, "x": 1, "kind": 1}
    assert sum(one["n_cells"] for one in gathered["hops"]) == 3
    filled = csv.read_csv(tmp_path / "o.csv").to_pydict()
    assert filled["kind"] == ["red", "red", "red", "blue"]
    assert filled["n"][1] in (1, 2)
    assert all(isinstance(n, int) for n in filled["n"])
    assert 1.0 <= filled["x"][2] <= 2.0


AS_WRITTEN = '''id,digit,code,share,note,x
a,0,007,3.0,"so, so",1
b,,010,,"a ""b""",
c,2,,0.50,,3
'''


def test_columns_that_pass_through_text_files_stay_as_they_are_written(tmp_path):
    (tmp_path / "n.csv").write_text(AS_WRITTEN)
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\n")
    for name in ("o.csv", "o.parquet"):
        asked = ["--columns", "x", "--round", "--alpha=0.5", "--beta=0.1"]
        done = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", "-o", tmp_path / name, *asked)
        assert done.exit_code == 0, done.stderr
    assert (tmp_path / "o.csv").read_text() == AS_WRITTEN.replace('""b""",', '""b""",2')
    filled = parquet.read_table(tmp_path / "o.parquet")
    kinds = [str(kind) for kind in filled.schema.types]
    assert kinds == ["string", "int64", "string", "double", "string", "int64"]
    assert filled["digit"].to_pylist() == [0, None, 2]
    assert filled["code"].to_pylist() == ["007", "010", None]


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_standard_input_and_output(files, kind):
    if kind == "feather":
        feather.write_feather(node_table(features()), files / "nodes.feather")
    content = (files / f"nodes.{kind}").read_bytes()
    done = run("impute", "-", "edges.csv", "-o", "-", "--to", "parquet", "--exclude=label", folder=files, stdin=content)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(channels(parquet.read_table(pa.BufferReader(done.stdout))), expected().values)
    assert b"Filled" in done.stderr


def test_json_is_for_machines(files):
    done = run("impute", "nodes.csv", "edges.csv", "-o", "o.csv", "--exclude=label", "--json", folder=files)
    facts = json.loads(done.stdout)
    assert done.stderr == b""
    assert sum(channel["n_missing"] for channel in facts["channels"]) == int(np.isnan(features()).sum())
    assert facts["convergence"]["converged"] is True
    assert facts["outputs"] == {"values": "o.csv"}
    result = pcfi.impute(node_table(features()).select(["id", *CHANNELS]), edge_table(ring()))
    assert [(one["name"], one["verdict"]) for one in facts["columns"]] == [
        (one.name, one.verdict) for one in result.columns
    ]
    assert [one["rmse"] for one in facts["columns"]] == pytest.approx([one.rmse for one in result.columns])


def test_the_summary_has_a_table_of_the_incomplete_columns(files, tmp_path):
    done = invoke("impute", files / "nodes.csv", files / "edges.csv", "-o", tmp_path / "o.csv")
    result = pcfi.impute(node_table(features()), edge_table(ring()))
    incomplete = ColumnReports(one for one in result.columns if one.name != "label")
    assert [one.name for one in incomplete] == CHANNELS
    assert f"\n{incomplete!r}\n" in done.stdout
    assert done.stdout.index("Settled") < done.stdout.index("verdict") < done.stdout.index("Wrote")


def test_the_summary_of_many_columns_is_short(tmp_path):
    values = np.where(np.random.default_rng(0).random((40, 25)) < 0.3, np.nan, np.arange(40.0)[:, None])
    np.save(tmp_path / "n.npy", values)
    np.save(tmp_path / "e.npy", ring())
    said = invoke("impute", tmp_path / "n.npy", tmp_path / "e.npy", "-o", tmp_path / "o.npy").stdout
    assert sum("follows the graph" in line or "explained by" in line for line in said.splitlines()) == 20
    assert "and 5 more columns: --json and --report have them all" in said


def test_quiet_says_nothing(files):
    done = run(
        "impute", "nodes.csv", "edges.csv", "-o", "o.csv", "--exclude=label", "-q", "--threads", "1", folder=files
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_evaluate_ranks_methods_by_their_error_on_hidden_cells(files):
    done = invoke("evaluate", files / "nodes.csv", files / "edges.csv", "--exclude=label", "--json", "--seed", "3")
    found = json.loads(done.stdout)
    errors = {method["method"]: method["rmse"] for method in found["methods"]}
    assert set(errors) == {"pcfi", "fp", "neighbors", "mean", "zero"}
    assert errors["fp"] < 0.5 < errors["mean"] < errors["zero"]
    assert found["n_hidden"] == sum(at["n_cells"] for at in found["methods"][0]["by_hops"])
    same = pcfi.evaluate(features(), ring(), methods=("mean", "fp"), folds=3, unit="deviation", random_state=3)
    assert [errors["mean"], errors["fp"]] == [one.scores["rmse"] for one in same.methods]
    again = invoke("evaluate", files / "nodes.csv", files / "edges.csv", "--exclude=label", "--json", "--seed", "3")
    assert [one["rmse"] for one in json.loads(again.stdout)["methods"]] == [one["rmse"] for one in found["methods"]]


BAD = {
    "no such file": (["impute", "none.csv", "edges.csv", "-o", "o.csv"], 1, "none.csv does not exist"),
    "wrong suffix": (["impute", "nodes.doc", "edges.csv", "-o", "o.csv"], 1, "the suffix .doc"),
    "wrong output": (["impute", "nodes.csv", "edges.csv", "-o", "o.doc"], 1, "the suffix .doc"),
    "output exists": (["impute", "nodes.csv", "edges.csv", "-o", "nodes.csv"], 1, "nodes.csv exists already"),
    "output twice": (["impute", "nodes.csv", "edges.csv", "-o", "o.csv", "--hops", "o.csv"], 2, "two outputs"),
    "written twice": (["impute", "nodes.csv", "edges.csv", "-o", "o.csv", "--hops", "./o.csv"], 2, "two outputs"),
    "no folder": (["impute", "nodes.csv", "edges.csv", "-o", "no/o.csv"], 1, "folder no does not exist"),
    "a folder": (["impute", "nodes.csv", "edges.csv", "-o", "."], 1, ". is a folder"),
    "duplicate ids": (["impute", "twice.csv", "edges.csv", "-o", "o.csv"], 1, "'a' is duplicated"),
    "unknown ids": (["impute", "nodes.csv", "strange.csv", "-o", "o.csv"], 1, "(such as 'x0', 'x1', 'x2', 'x3', 'x4')"),
    "unknown ids, dropped": (
        ["impute", "nodes.csv", "others.csv", "-o", "o.csv", "--unknown-ids", "drop"],
        1,
        "not in the column 'id' of the nodes (such as '000', '001', '002', '003', '004'); 1 of 1 edges have",
    ),
    "spaces": (["impute", "nodes.csv", "spaces.csv", "-o", "o.csv"], 1, "ids match if surrounding spaces are ignored"),
    "case": (["impute", "names.csv", "case.csv", "-o", "o.csv"], 1, "ids match if upper and lower case are ignored"),
    "zeros": (["impute", "nodes.csv", "zeros.csv", "-o", "o.csv"], 1, "ids match if leading zeros are ignored"),
    "null id": (["impute", "null.csv", "edges.csv", "-o", "o.csv"], 1, "the column 'id' lacks 1 id, first in row 2"),
    "null name": (["impute", "lacking.csv", "case.csv", "-o", "o.csv"], 1, "'who' lacks 1 id, first in row 11"),
    "name twice": (["impute", "again.csv", "case.csv", "-o", "o.csv"], 1, "'who' holds 'n0' more than once"),
    "text weights": (["impute", "names.csv", "heavy.csv", "-o", "o.csv"], 1, "first 'strong' in edge 1"),
    "infinite": (["impute", "infinite.csv", "e.csv", "-o", "o.csv"], 1, "the column 'y' holds -inf at node 'b'"),
    "nothing known": (["impute", "nothing.csv", "e.csv", "-o", "o.csv"], 1, "no known value in any channel"),
    "mixed": (["impute", "mixed.csv", "edges.csv", "-o", "o.csv"], 1, "mixes numbers and text"),
    "no numbers": (["impute", "words.csv", "edges.csv", "-o", "o.csv"], 1, "no numeric columns"),
    "empty": (["impute", "empty.csv", "edges.csv", "-o", "o.csv"], 1, "empty.csv is empty"),
    "truncated": (["impute", "cut.parquet", "edges.csv", "-o", "o.csv"], 1, "cannot be read as parquet"),
    "bad alpha": (["impute", "nodes.csv", "edges.csv", "-o", "o.csv", "--alpha", "2"], 2, "alpha must be"),
    "bad method": (["impute", "nodes.csv", "edges.csv", "-o", "o.csv", "--method", "x"], 2, "method must be"),
    "bad column": (["impute", "nodes.csv", "edges.csv", "-o", "o.csv", "--columns", "x"], 2, "--columns names 'x'"),
    "two solvers": (["impute", "nodes.csv", "edges.csv", "-o", "o.csv", "--steps=3", "--rtol=0.1"], 2, "--steps fixes"),
    "both from stdin": (["impute", "-", "-", "-o", "o.csv"], 2, "only one of the two"),
    "no such option": (["impute", "nodes.csv", "edges.csv", "-o", "o.csv", "--nonsense"], 2, "No such option"),
    "no output": (["impute", "nodes.csv", "edges.csv"], 2, "Missing option"),
    "bad facts": (["report", "nodes.csv"], 1, "nodes.csv: the facts are not valid JSON"),
    "no facts": (["report", "missing.json"], 1, "missing.json does not exist"),
    "bad folds": (["evaluate", "nodes.csv", "edges.csv", "--folds", "1"], 2, "at least 2"),
    "bad unit": (["evaluate", "nodes.csv", "edges.csv", "--unit", "x"], 2, "unit must be one of"),
    "bad methods": (["evaluate", "nodes.csv", "edges.csv", "--methods", "x"], 2, "--methods must be among"),
    "bad threads": (["info", "nodes.csv", "edges.csv", "--threads", "0"], 2, "--threads must be"),
}


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    csv.write_csv(node_table(features()), folder / "nodes.csv")
    csv.write_csv(edge_table(ring()), folder / "edges.csv")
    (folder / "nodes.doc").write_text("id,x\n")
    (folder / "twice.csv").write_text("id,x\na,1\na,\n")
    (folder / "mixed.csv").write_text("id,x\na,1\nb,2\nc,three\n")
    (folder / "words.csv").write_text("id,x\na,b\n")
    (folder / "empty.csv").write_text("")
    strange = "".join(f"000,x{place}\n" for place in range(7))
    (folder / "strange.csv").write_text(f"source,target\n{strange}000,001\n")
    (folder / "others.csv").write_text("source,target\nx,y\n")
    (folder / "spaces.csv").write_text("source,target\n000, 001\n")
    (folder / "zeros.csv").write_text("source,target\n0,1\n")
    (folder / "case.csv").write_text("source,target\nN0,N1\n")
    (folder / "heavy.csv").write_text("source,target,weight\nn0,n1,2.5\nn0,n1,strong\n")
    (folder / "e.csv").write_text("source,target\na,b\n")
    (folder / "null.csv").write_text("id,x\na,1\n,2\n")
    names = "".join(f"n{place},1\n" for place in range(10))
    for name, row in (("names", "n10,"), ("lacking", ",1"), ("again", "n0,1")):
        (folder / f"{name}.csv").write_text(f"who,x\n{names}{row}\n")
    (folder / "infinite.csv").write_text("id,x,y\na,1,2\nb,,-inf\n")
    (folder / "nothing.csv").write_text("id,x,y\na,,\nb,,\n")
    parquet.write_table(node_table(features()), folder / "whole.parquet")
    (folder / "cut.parquet").write_bytes((folder / "whole.parquet").read_bytes()[:-100])
    return folder


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_words_and_nothing_is_written(bad_files, monkeypatch, case):
    arguments, code, words = BAD[case]
    monkeypatch.chdir(bad_files)
    before = sorted(bad_files.iterdir())
    done = invoke(*arguments)
    assert done.exit_code == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    if done.stderr.startswith("pcfi:"):
        assert done.stderr.count("\n") == 1
    assert sorted(bad_files.iterdir()) == before


def test_errors_speak_of_options(bad_files, monkeypatch):
    monkeypatch.chdir(bad_files)
    done = invoke("impute", "nodes.csv", "strange.csv", "-o", "o.csv")
    assert "7 of 8 edges have unknown ids" in done.stderr
    assert "--unknown-ids drop" in done.stderr
    assert "pcfi.frames" not in done.stderr


def test_edges_that_are_dropped_are_counted(bad_files, tmp_path, monkeypatch):
    monkeypatch.chdir(bad_files)
    asked = ["-o", tmp_path / "o.csv", "--unknown-ids", "drop", "--method", "mean"]
    done = invoke("impute", "nodes.csv", "strange.csv", *asked)
    assert "strange.csv: 7 of 8 edges refer to unknown ids and were dropped" in done.stderr


def test_debug_shows_where_an_error_comes_from(bad_files):
    done = run("impute", "none.csv", "edges.csv", "-o", "o.csv", "--debug", folder=bad_files)
    assert b"Traceback" in done.stderr
    assert done.returncode == 1


def test_an_unwritable_folder_is_told_before_the_work(files):
    if not hasattr(os, "geteuid"):
        pytest.skip("folders have no modes here")
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (files / "locked").mkdir(mode=0o500)
    done = run("impute", "nodes.csv", "edges.csv", "-o", "locked/o.csv", folder=files)
    assert (done.returncode, b"may not be written to" in done.stderr) == (1, True)


def test_no_space_left_leaves_nothing_behind(files):
    resource = pytest.importorskip("resource", reason="this system has no limits on file sizes")

    def little_space():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    before = sorted(files.iterdir())
    arguments = ["impute", "nodes.csv", "edges.csv", "-o", "o.csv", "--exclude=label"]
    done = run(*arguments, folder=files, preexec_fn=little_space)
    assert done.returncode == 1
    assert b"pcfi: " in done.stderr
    assert b"Traceback" not in done.stderr
    assert sorted(files.iterdir()) == before


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at the open files of a process")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_run_killed_while_it_writes_leaves_no_half_file(files, name):
    """The output is a slow format, so that there is time to kill it in the middle."""
    values = np.where(np.arange(40_000)[:, None] % 2 == 0, np.random.default_rng(0).normal(size=(40_000, 60)), np.nan)
    np.save(files / "big.npy", values)
    np.save(files / "big-edges.npy", ring(40_000))
    arguments = ["impute", "big.npy", "big-edges.npy", "-o", "o.csv.gz", "--method", "mean", "--debug"]
    started = subprocess.Popen([*COMMAND, *arguments], cwd=files, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    descriptors = Path(f"/proc/{started.pid}/fd")
    size = 0
    while size < 100_000 and started.poll() is None:
        time.sleep(0.01)
        size = largest_open_for_writing(descriptors, str(files))
    assert started.poll() is None, started.stderr.read()
    started.send_signal(getattr(signal, name))
    started.communicate()
    assert started.returncode != 0
    assert [path.name for path in files.iterdir() if "o.csv.gz" in path.name] == []


def largest_open_for_writing(descriptors, folder):
    sizes = [0]
    try:
        for opened in descriptors.iterdir():
            target = str(opened.readlink())
            if target.startswith(folder) and ("#" in target or "o.csv.gz" in target):
                sizes.append(opened.stat().st_size)
    except OSError:
        pass
    return max(sizes)


@pytest.mark.skipif(os.name == "nt", reason="needs bash")
def test_a_closed_pipe_is_no_error(files):
    words = " ".join(map(str, [*COMMAND, "impute", "nodes.csv", "edges.csv", "-o", "-", "-q", "--exclude=label"]))
    done = subprocess.run(
        f"set -o pipefail; {words} | head -c 10", shell=True, executable="/bin/bash", cwd=files, capture_output=True
    )
    assert len(done.stdout) == 10
    assert done.stderr == b""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    done = invoke(name, "--help")
    assert done.exit_code == 0
    assert "Usage: " in done.stdout
    assert load_command(name).name == name


def test_defaults_shown_are_those_of_python():
    shown = " ".join(invoke("impute", "--help").stdout.replace("│", "").split())
    for name in ("alpha", "beta", "unreachable", "method"):
        assert f"Default: {signature(pcfi.impute).parameters[name].default}." in shown


def test_help_lists_every_method_and_outputs_under_output():
    assert "pcfi, fp, neighbors, mean, zero, auto." in " ".join(invoke("impute", "--help").stdout.split())
    sections = invoke("report", "--help").stdout
    assert sections.index("Output:") < sections.index("--output") < sections.index("--force") < sections.index("Help:")


def test_spaces_after_commas_separate_columns_too(files):
    done = invoke("info", files / "nodes.csv", files / "edges.csv", "--columns", "age, income", "--json")
    assert [channel["name"] for channel in json.loads(done.stdout)["channels"]] == ["age", "income"]


BARE_APP = """
import typer
app = typer.Typer(rich_markup_mode=None)
for name in ("impute", "info"):
    app.command(name)(lambda: None)
main = app
"""


def modules_of_help(arguments: list[str], app: str) -> str:
    """Names of the modules that `arguments` load, packages and our own in full."""
    code = (
        f"import sys; sys.argv = ['pcfi', *{arguments}]\n{app}\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), *sys.modules, file=sys.stderr)"
    )
    return subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, check=True).stderr


@pytest.mark.parametrize("arguments", [["--help"], ["impute", "--help"]])
def test_help_loads_nothing_heavy(arguments):
    loaded = modules_of_help(arguments, "from pcfi.cli import main")
    heavy = {"pyarrow", "scipy", "numba", "narwhals", "matplotlib", "jinja2", "networkx", "pydantic", "rich", "dask"}
    heavy -= set(modules_of_help(arguments, BARE_APP).split())  # older versions of typer load rich themselves
    assert not heavy & set(loaded.split())
    assert "pcfi.experiments" not in loaded


def test_version_is_printed():
    assert invoke("--version").stdout == f"pcfi {pcfi.__version__}\n"


def test_shell_completion_knows_commands_and_options():
    asked = {"_PCFI_COMPLETE": "complete_bash", "COMP_CWORD": "1", "COMP_WORDS": "pcfi im"}
    done = subprocess.run(COMMAND, capture_output=True, text=True, env={**os.environ, **asked}, check=False)
    assert "impute" in done.stdout
    asked = {"_PCFI_COMPLETE": "complete_bash", "COMP_CWORD": "2", "COMP_WORDS": "pcfi impute --conf"}
    done = subprocess.run(COMMAND, capture_output=True, text=True, env={**os.environ, **asked}, check=False)
    assert "--confidence" in done.stdout
