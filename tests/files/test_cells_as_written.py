"""Text files come back as they were written, numbers are read in one way or refused, and names decide, not places."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from scipy import sparse
from typer.testing import CliRunner

import pcfi
from pcfi.cli.app import app
from pcfi.errors import FileError, GraphError
from pcfi.files.edge_files import read_edges
from pcfi.files.node_files import read_nodes
from pcfi.files.text import null_markers
from pcfi.files.text_types import ColumnScan, cast_text, plain_numbers, without_markers
from pcfi.inputs.columns import EdgeColumns, NodeColumns

PAPER = ["--alpha=0.5", "--beta=0", "--objective=representation"]
EDGES = "source,target\na,b\nb,c\nc,d\n"


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def impute(folder, nodes, *options, edges=EDGES, name="filled.csv"):
    (folder / "nodes.csv").write_bytes(nodes.encode())
    (folder / "edges.csv").write_text(edges)
    done = invoke("impute", folder / "nodes.csv", folder / "edges.csv", "-o", folder / name, *PAPER, *options)
    assert done.exit_code == 0, done.stderr
    return done.stderr


CELLS = {
    "trailing zeros": ("1.50", "2.5"),
    "exponent": ("1e2", "3E+2"),
    "sign": ("+1", "3"),
    "more digits than a float has": ("0.1234567890123456789", "2"),
    "long fraction": ("3.14159265358979323846264338327950288", "1"),
    "spaces": (" 1.5", "2 "),
    "no leading zero": (".5", "1."),
    "truth": ("true", "false"),
    "capital truth": ("True", "FALSE"),
    "negative zero": ("-0", "-0.0"),
}


@pytest.mark.parametrize("case", CELLS)
def test_known_cells_come_back_byte_for_byte(tmp_path, case):
    first, second = CELLS[case]
    impute(tmp_path, f"id,x,note\na,{first},p\nb,,q\nc,{second},r\nd,{first},\n")
    lines = (tmp_path / "filled.csv").read_text().splitlines()
    assert [lines[row] for row in (0, 1, 3, 4)] == ["id,x,note", f"a,{first},p", f"c,{second},r", f"d,{first},"]
    assert lines[2].split(",")[1] not in ("", "None")


def test_truth_values_are_filled_by_truth_values_in_every_format(tmp_path):
    impute(tmp_path, "id,x\na,true\nb,\nc,true\nd,true\n")
    assert (tmp_path / "filled.csv").read_text().splitlines()[2] == "b,true"
    table = pa.table({"id": ["a", "b", "c"], "x": [True, None, True]})
    parquet.write_table(table, tmp_path / "n.parquet")
    done = invoke("impute", tmp_path / "n.parquet", tmp_path / "edges.csv", "-o", tmp_path / "y.parquet", *PAPER,
                  "--unknown-ids=drop")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    filled = parquet.read_table(tmp_path / "y.parquet")["x"]
    assert (filled.type, filled.to_pylist()) == (pa.bool_(), [True, True, True])


@pytest.mark.parametrize("codes", [("0x00FF", "0x10"), ("12345678901234567890", "98765432109876543210")])
def test_what_no_number_holds_is_no_channel(tmp_path, codes):
    said = impute(tmp_path, f"id,x,y\na,{codes[0]},1\nb,,\nc,{codes[1]},3\nd,{codes[1]},4\n")
    assert "1 channel (y); passed through: x" in said
    assert f"a,{codes[0]},1" in (tmp_path / "filled.csv").read_text()
    assert ("the column 'x' is not filled" in said) == (codes[0].isdecimal())
    impute(tmp_path, (tmp_path / "nodes.csv").read_text(), name="typed.parquet")
    assert parquet.read_table(tmp_path / "typed.parquet")["x"].to_pylist()[0] == codes[0]


def test_codes_are_found_in_any_row(tmp_path):
    rows = "".join(f"n{row},{row},{row % 9 + 1}\n" for row in range(60_000))
    (tmp_path / "n.csv").write_text(f"id,x,zip\n{rows}last,,007\n")
    nodes = read_nodes(str(tmp_path / "n.csv"), NodeColumns())
    assert nodes.channels == ["x"]
    assert nodes.table["zip"][-1].as_py() == "007"


def test_a_long_file_comes_back_byte_for_byte_but_for_its_missing_cells(tmp_path):
    """Long enough for several parts, which are turned into text on several threads."""
    n_rows, spellings = 150_000, ["1.50", "+2", "3e0", "-0.0", "", "4.", " 7"]
    notes = ["plain", '"two, with a comma"', '"a ""quote"""', "", "é"]
    rows = [
        f"n{row},{spellings[row % 7]},{row % 9 / 8},{'' if row % 5 < 3 else 'TRUE'},{notes[row % 5]}"
        for row in range(n_rows)
    ]
    ends = "".join(f"n{row},n{row + 1}\n" for row in range(n_rows - 1))
    impute(tmp_path, "\n".join(["id,x,y,z,note", *rows]) + "\n", edges=f"source,target\n{ends}")
    filled = (tmp_path / "filled.csv").read_text().splitlines()
    assert len(filled) == n_rows + 1
    for row in range(n_rows):
        name, x, y, _, note = rows[row].split(",", 4)
        parts = filled[row + 1].split(",", 4)
        assert parts[::2] == [name, y, note]
        assert parts[1] == x if x else float(parts[1]) < 8
        assert parts[3] == "TRUE"


def test_the_first_truth_value_spells_those_of_all_parts(tmp_path):
    n_rows = 70_000
    rows = "".join(f"n{row},{'True' if row == 0 else '' if row % 2 else 'true'}\n" for row in range(n_rows))
    ends = "".join(f"n{row},n{row + 1}\n" for row in range(n_rows - 1))
    impute(tmp_path, f"id,x\n{rows}", edges=f"source,target\n{ends}")
    filled = (tmp_path / "filled.csv").read_text().splitlines()[1:]
    assert {line.split(",")[1] for line in filled[1::2]} == {"True"}
    assert {line.split(",")[1] for line in filled[2::2]} == {"true"}


NUMBERS = ["", "1", "0", "-3", "+4", "1.5", ".5", "2.", "1e3", "1,5", "1.234", "1,234", "inf", "-0", " 1"]
OTHERS = ["007", "0x1F", "nan", "NA", "true", "abc", "12345678901234567890"]
CELL = st.sampled_from([*NUMBERS, *OTHERS])


@given(st.lists(st.lists(CELL, max_size=12), min_size=1, max_size=3) | st.just([["1.5"], ["", "2.25"], ["1,5"]]))
def test_a_column_of_plain_numbers_is_judged_as_the_slow_way_judges_it(batches):
    fast, slow = ColumnScan.of_numbers(), ColumnScan.of_numbers()
    for cells in batches:
        column = pa.chunked_array([cells], pa.string())
        numbers = plain_numbers(column)
        marked = without_markers(column, null_markers())
        fast.add(column if numbers is not None else marked, numbers)
        slow.add(marked)
        if numbers is not None:
            assert cast_text(marked, pa.float64()).equals(numbers)
    assert fast == slow


# Decimal marks


def test_a_file_of_decimal_commas_comes_back_with_decimal_commas(tmp_path):
    said = impute(tmp_path, "id;x;y\na;1,50;0,5\nb;;\nc;2,5;1,5\nd;3,5;\n", "--confidence", tmp_path / "c.csv")
    assert "(separated by ';', decimal commas)" in said
    lines = (tmp_path / "filled.csv").read_text().splitlines()
    assert lines[:2] == ["id;x;y", "a;1,50;0,5"]
    assert lines[2] == "b;2;1"
    assert "." not in (tmp_path / "filled.csv").read_text()
    assert (tmp_path / "c.csv").read_text().splitlines()[2] == "b;0,5;0,5"


def test_quoted_decimal_commas_are_numbers(tmp_path):
    said = impute(tmp_path, 'id,x,y\na,"1,5",2.5\nb,,\nc,"2,5",3.5\nd,"2,5",3.5\n')
    assert "2 channels (x, y)" in said
    assert (tmp_path / "filled.csv").read_text().splitlines()[1] == 'a,"1,5",2.5'
    assert (tmp_path / "filled.csv").read_text().splitlines()[2] == "b,2,3" or '"' in said + "x"
    nodes = read_nodes(str(tmp_path / "nodes.csv"), NodeColumns())
    assert nodes.table["x"].to_pylist() == [1.5, None, 2.5, 2.5]
    assert nodes.table["y"].to_pylist() == [2.5, None, 3.5, 3.5]


AMBIGUOUS = {
    "a thousand or one": ("price;x\n1.234;1,5\n2.345;2,5\n;\n", "'1.234', which may be 1234 or 1.234"),
    "semicolons only": ("price;x\n1.234;1\n2.345;\n", "columns are separated by ';'"),
    "two marks in one column": ("x;y\n1.5;1\n1,5;2\n;3\n", "holds both '1.5' and '1,5', two decimal marks"),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_numbers_that_could_be_read_in_two_ways_are_refused_with_the_option(tmp_path, case):
    text, words = AMBIGUOUS[case]
    (tmp_path / "n.csv").write_text(text)
    (tmp_path / "e.csv").write_text("source,target\n0,1\n")
    done = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", "-o", tmp_path / "o.csv")
    assert done.exit_code == 1
    assert words in done.stderr
    assert "--decimal" in done.stderr
    budget = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", "-o", tmp_path / "o.parquet", "--memory=2GB")
    assert (budget.exit_code, words in budget.stderr) == (1, True)


def test_the_option_decides(tmp_path):
    (tmp_path / "n.csv").write_text("price;x\n1.234;1,5\n2.345;2,5\n;\n")
    point = read_nodes(str(tmp_path / "n.csv"), NodeColumns(decimal="."))
    assert (point.channels, point.table["price"].to_pylist()) == (["price"], [1.234, 2.345, None])
    comma = read_nodes(str(tmp_path / "n.csv"), NodeColumns(decimal=","))
    assert (comma.channels, comma.table["x"].to_pylist()) == (["x"], [1.5, 2.5, None])
    with pytest.raises(pcfi.ParameterError, match=r"decimal must be '.' or ',', got ';'"):
        NodeColumns(decimal=";")


@pytest.mark.parametrize("value", ["1.234,56", "1.234.567"])
def test_grouped_numbers_of_both_kinds_are_pointed_out(tmp_path, value):
    said = impute(tmp_path, f"id;x;y\na;{value};1\nb;;\nc;{value};3\nd;{value};4\n")
    assert f"the column 'x' is not filled, because '{value}' is text" in said.replace('"', "'")


def test_points_are_points_where_the_file_shows_it(tmp_path):
    (tmp_path / "n.csv").write_text("price;x\n1.234;1.5\n2.345;2.5\n;\n")
    assert read_nodes(str(tmp_path / "n.csv"), NodeColumns()).table["price"].to_pylist() == [1.234, 2.345, None]


def test_files_may_be_separated_by_vertical_bars(tmp_path):
    said = impute(tmp_path, "id|x|y\na|1.5|p\nb||q\nc|2.5|r\nd|1|\n", edges="source|target\na|b\nb|c\n")
    assert "(separated by '|')" in said
    assert (tmp_path / "filled.csv").read_text().splitlines()[:3] == ["id|x|y", "a|1.5|p", "b|2|q"]


# Edges


@pytest.mark.parametrize("memory", [[], ["--memory", "2GB"]])
@pytest.mark.parametrize(
    ("nodes", "edges"),
    [("id,x\nann,1\nbob,\ncyd,3\n", "ann,bob\nbob,cyd\n"), ("x,y\n1,2\n,4\n3,\n", "0,1,friend\n1,2,friend\n")],
)
def test_an_edge_file_without_a_header_is_refused(tmp_path, nodes, edges, memory):
    (tmp_path / "n.csv").write_text(nodes)
    (tmp_path / "e.csv").write_text(edges)
    done = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", "-o", tmp_path / "o.parquet", *memory)
    assert done.exit_code == 1
    assert "its first line must name the columns, as in source,target" in done.stderr


def test_observations_are_matched_to_nodes_by_their_names(tmp_path):
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(np.zeros((4, 1)))
    cells.obs_names = ["a", "b", "c", "d"]
    cells.obsp["connectivities"] = sparse.csr_array(([1.0, 5.0], ([0, 2], [1, 3])), shape=(4, 4))  # a-b and c-d
    cells.write_h5ad(tmp_path / "e.h5ad")
    (tmp_path / "n.csv").write_text("id,x\nd,\nb,1\nc,9\na,\n")
    done = invoke("impute", tmp_path / "n.csv", tmp_path / "e.h5ad", "-o", tmp_path / "o.csv", *PAPER)
    assert done.exit_code == 0, done.stderr
    assert "nodes named by the names of the observations" in done.stderr
    assert (tmp_path / "o.csv").read_text() == "id,x\nd,9\nb,1\nc,9\na,1\n"
    (tmp_path / "n.csv").write_text("id,x\nd,\nb,1\nc,9\nz,\n")
    nodes = read_nodes(str(tmp_path / "n.csv"), NodeColumns())
    with pytest.raises(GraphError, match=r"names 'a', which is not in the column 'id' .* 1 observation of 4 are not"):
        read_edges(str(tmp_path / "e.h5ad"), nodes)
    assert read_edges(str(tmp_path / "e.h5ad"), nodes, EdgeColumns(unknown_ids="drop")).graph.nnz == 1


def test_observations_without_names_of_their_own_are_rows(tmp_path):
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(np.zeros((3, 1)))
    cells.obsp["connectivities"] = sparse.csr_array(([1.0], ([0], [1])), shape=(3, 3))
    cells.write_h5ad(tmp_path / "e.h5ad")
    (tmp_path / "n.csv").write_text("id,x\nd,\nb,1\nc,9\n")
    graph = read_edges(str(tmp_path / "e.h5ad"), read_nodes(str(tmp_path / "n.csv"), NodeColumns())).graph
    assert graph.toarray()[0, 1] == 1


def test_an_unreadable_file_is_not_called_damaged(tmp_path, monkeypatch):
    from pcfi.files import node_files

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "n.csv").write_text("id,x\na,1\n")
    monkeypatch.setattr(node_files, "_read_text", denied)
    with pytest.raises(FileError, match=r"n.csv cannot be read: check its permissions"):
        read_nodes(str(tmp_path / "n.csv"), NodeColumns())


def test_names_of_files_need_not_be_valid_utf8(tmp_path):
    path = os.fsdecode(bytes(tmp_path) + b"/n\xff.csv")
    try:
        Path(path).write_text("id,x\na,1\nb,\n")
    except OSError:
        pytest.skip("this disk takes valid UTF-8 only")
    assert read_nodes(path, NodeColumns()).channels == ["x"]


def test_a_column_without_fractions_is_filled_with_the_decimal_mark_of_the_file(tmp_path):
    nodes = "id;x;rooms\na;1,50;1\nb;;\nc;2,5;2\nd;3,5;4\n"
    impute(tmp_path, nodes, "--confidence", tmp_path / "c.csv")
    assert (tmp_path / "filled.csv").read_text().splitlines()[2] == "b;2;1,5"
    assert "." not in (tmp_path / "c.csv").read_text()
    rows = "".join(f"n{row};{row % 7},5;{row % 5};{'' if row % 4 else row % 3}\n" for row in range(40))
    edges = "source,target\n" + "".join(f"n{row},n{row + 1}\n" for row in range(39))
    (tmp_path / "n.csv").write_text("id;x;rooms;floor\n" + rows)
    (tmp_path / "e.csv").write_text(edges)
    intervals, filled = tmp_path / "i.csv", tmp_path / "f.csv"
    done = invoke("impute", tmp_path / "n.csv", tmp_path / "e.csv", "-o", filled, "--intervals", intervals)
    assert done.exit_code == 0, done.stderr
    for path in (intervals, filled):
        assert "." not in path.read_text()
        assert "," in path.read_text().splitlines()[2].split(";")[-1]
    assert intervals.read_text().splitlines()[0].count(";") == 9


def test_a_file_of_both_decimal_marks_keeps_both(tmp_path):
    impute(tmp_path, 'id;x;y;z\na;"1,5";2.5;1\nb;;;\nc;"2";3;2\nd;"2,5";3.5;3\n', "--decimal=.")
    nodes = read_nodes(str(tmp_path / "nodes.csv"), NodeColumns())
    assert nodes.written.decimals == {"x": ",", "y": ".", "z": "."}
    (tmp_path / "whole.csv").write_text("id;x\na;1\nb;\nc;2\nd;2\n")
    nodes = read_nodes(str(tmp_path / "whole.csv"), NodeColumns(decimal=","))
    assert nodes.written.decimals == {"x": ","}


def test_the_table_of_surprising_cells_is_written_as_the_nodes_are(tmp_path):
    rows = "".join(f"n{row};{row % 7},5;{'' if row % 4 else row}\n" for row in range(40))
    (tmp_path / "n.csv").write_text("id;x;y\n" + rows)
    (tmp_path / "e.csv").write_text("source,target\n" + "".join(f"n{row},n{row + 1}\n" for row in range(39)))
    done = invoke("check", tmp_path / "n.csv", tmp_path / "e.csv", "-o", tmp_path / "s.csv")
    assert done.exit_code == 0, done.stderr
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines[0] == "node;column;value;expected;surprise"
    assert all(line.count(";") == 4 and "." not in line for line in lines)


@pytest.mark.parametrize(("first", "second"), [("True", "False"), ("TRUE", "FALSE"), ("true", "false")])
def test_truth_values_are_filled_in_the_spelling_of_the_file(tmp_path, first, second):
    impute(tmp_path, f"id,x\na,{second}\nb,\nc,{second}\nd,{first}\n")
    assert (tmp_path / "filled.csv").read_text().splitlines()[2] == f"b,{second}"


@pytest.mark.parametrize("memory", [[], ["--memory", "8GB"]], ids=["in memory", "larger than memory"])
def test_a_marker_with_points_does_not_bring_decimal_points_into_a_file_with_commas(tmp_path, memory):
    """Integer columns with the marker n.a. were filled with 2.5, and all further files had points."""
    edges = "source;target\na;b\nb;c\nc;d\n" + "".join(f"v{row};v{row + 1}\n" for row in range(2, 29))
    outputs = {name: tmp_path / f"{name}.csv" for name in ("intervals", "confidence")}
    rows = [f"v{row};{row};{row},5" for row in range(2, 30)]
    nodes = "\n".join(["id;whole;fraction", "a;1;1,5", "b; n.a. ;n.a.", "c;4;2,5", "d;7;7,5", *rows, ""])
    for name, text in (("nodes", nodes), ("edges", edges)):
        (tmp_path / f"{name}.csv").write_text(text)
    files = [tmp_path / "nodes.csv", tmp_path / "edges.csv", "-o", tmp_path / "filled.csv", "--draws=1"]
    options = [part for name, path in outputs.items() for part in (f"--{name}", path)]
    done = invoke("impute", *files, "--missing-value=n.a.", *options, *memory)
    assert done.exit_code == 0, done.stderr
    filled = (tmp_path / "filled.csv").read_text().splitlines()
    assert [filled[row] for row in (1, 3, 4)] == ["a;1;1,5", "c;4;2,5", "d;7;7,5"]
    numbers = [cell for path in tmp_path.glob("*.csv") for line in path.read_text().splitlines()[1:]
               for cell in line.split(";")[1:] if path.stem not in ("nodes", "edges")]  # fmt: skip
    assert not [cell for cell in numbers if "." in cell]
    assert len([cell for cell in numbers if "," in cell]) > 10
    assert len(numbers) == 32 * (2 + 2 + 2 + 6)
