"""Columns of text files that look like numbers and are none: codes, and numbers dressed for people."""

import pytest
from pyarrow import csv
from typer.testing import CliRunner

from pcfi.cli.app import app
from pcfi.files.opening import open_input
from pcfi.files.text import header

NODES = "id,age,zip,{}\na,1,00501,{}\nb,2,10001,{}\nc,,,\nd,4,90210,{}\n"


def impute(folder, nodes, *options):
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text("source,target\na,b\nb,c\nc,d\n")
    files = [folder / "nodes.csv", folder / "edges.csv", "-o", folder / "filled.csv"]
    done = CliRunner().invoke(
        app, list(map(str, ["impute", *files, "--alpha=0.5", "--beta=0", "--objective=representation", *options]))
    )
    assert done.exit_code == 0, done.stderr
    return done.stderr, (folder / "filled.csv").read_text()


def test_codes_that_begin_with_0_are_no_numbers(tmp_path):
    said, filled = impute(tmp_path, NODES.format("note", "x", "y", "z"))
    assert "1 channel (age); passed through: zip, note" in said
    assert filled == NODES.format("note", "x", "y", "z").replace("c,,", "c,3,")


def test_codes_are_numbers_if_the_user_says_so(tmp_path):
    _, filled = impute(tmp_path, NODES.format("note", "x", "y", "z"), "--columns", "zip")
    assert "c,,50105.5," in filled


def test_fractions_below_one_are_no_codes(tmp_path):
    said, _ = impute(tmp_path, NODES.replace("00501", "0.5").format("note", "x", "y", "z"))
    assert "2 channels (age, zip)" in said


def test_codes_are_found_in_a_file_longer_than_the_sample(tmp_path):
    rows = "".join(f"n{row},{row % 7},{row % 100:05d}\n" for row in range(40_000))
    (tmp_path / "nodes.csv").write_text("id,age,zip\n" + rows + 'last,,"00001"\n')
    (tmp_path / "edges.csv").write_text("source,target\nn0,last\nn1,last\n")
    files = [tmp_path / "nodes.csv", tmp_path / "edges.csv", "-o", tmp_path / "filled.csv"]
    done = CliRunner().invoke(
        app, list(map(str, ["impute", *files, "--alpha=0.5", "--beta=0", "--objective=representation"]))
    )
    assert "1 channel (age); passed through: zip" in done.stderr
    assert csv.read_csv(tmp_path / "filled.csv")["age"][-1].as_py() == 0.5


@pytest.mark.parametrize(
    "values",
    [
        ('"1,234"', '"9,500"', '"12,000,000.50"'),
        ("$12.50", "$3", "$0.99"),
        ("12 %", "3%", "0.5%"),
        ("1'000", "7", "2'500"),
    ],
)
def test_numbers_dressed_for_people_are_pointed_out(tmp_path, values):
    said, filled = impute(tmp_path, NODES.format("income", *values))
    assert f"the column 'income' is not filled, because '{values[0].strip(chr(34))}' is text" in said.replace('"', "'")
    assert values[0] in filled
    assert "income" not in impute_again(tmp_path, "--exclude", "income")


def impute_again(folder, *options):
    said, _ = impute(folder, (folder / "nodes.csv").read_text(), "--force", *options)
    return said.partition("warning")[2]


@pytest.mark.parametrize(
    "values", [("2020-01-01", "2021-01-01", "2022-05-05"), ("555-1234", "12-34", "1"), ("1,2", "1,3", "4")]
)
def test_other_text_passes_in_silence(tmp_path, values):
    said, _ = impute(tmp_path, NODES.format("note", *[f'"{value}"' for value in values]))
    assert "is not filled" not in said


def test_a_few_dressed_numbers_among_plain_ones_are_refused_with_advice(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES.format("income", '"1,234"', "500", "7"))
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    files = [tmp_path / "nodes.csv", tmp_path / "edges.csv", "-o", tmp_path / "filled.csv"]
    done = CliRunner().invoke(app, list(map(str, ["impute", *files])))
    assert "mixes numbers and text; first '1,234' in row 1: write it as a plain number" in done.stderr


@pytest.mark.parametrize("memory", [[], ["--memory", "8GB"]], ids=["in memory", "larger than memory"])
@pytest.mark.parametrize(
    ("numbers", "culprits"),
    [
        (("NA", "n.a.", "-", "n.a.", "1", "2", "3", "4"), "first 'n.a.' in row 2, also '-'"),
        (("NA", "n.a.", "-", "n.a.", "1,25", "2,5", "3,5", "4,5"), "first 'n.a.' in row 2, also '-'"),
    ],
)
def test_only_text_that_does_not_mean_missing_is_blamed(tmp_path, numbers, culprits, memory):
    """NA was blamed, even if it was named as a marker; columns with decimal commas became categories."""
    lines = [f"v{row};{number};{row}" for row, number in enumerate(numbers)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id;SAT, math;other", *lines, ""]))
    (tmp_path / "edges.csv").write_text("source,target\nv0,v1\n")
    files = [tmp_path / "nodes.csv", tmp_path / "edges.csv", "-o", tmp_path / "filled.csv", *memory]
    invoked = CliRunner().invoke(app, list(map(str, ["impute", *files])))
    options = "--missing-value n.a. --missing-value -"
    assert (
        f"the column 'SAT, math' mixes numbers and text; {culprits}: if they mean missing, add {options}; "
        in invoked.stderr
    )
    assert """use --exclude '"SAT, math"'""" in invoked.stderr
    again = CliRunner().invoke(app, list(map(str, ["impute", *files, "--missing-value=NA", "--missing-value=-"])))
    assert "first 'n.a.' in row 2: if that means missing, add --missing-value n.a.; " in again.stderr
    done = CliRunner().invoke(app, list(map(str, ["impute", *files, "--missing-value=n.a.", "--missing-value=-"])))
    assert done.exit_code == 0, done.stderr


def test_the_first_column_of_a_file_is_blamed_in_every_process(tmp_path):
    """The order was that of a set of names, so `info` and `impute` named different columns."""
    names = [f"column{place}" for place in range(20)]
    rows = [",".join(["oops" if row == 1 else str(row)] * len(names)) for row in range(4)]
    (tmp_path / "nodes.csv").write_text("\n".join([",".join(names), *rows, ""]))
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    done = CliRunner().invoke(app, ["info", str(tmp_path / "nodes.csv"), str(tmp_path / "edges.csv")])
    assert "the column 'column0' mixes numbers and text" in done.stderr


DELIMITERS = {
    "a comma in a name": ("id;Spending, $1000\na;1\nb;\nc;3\n", ["id", "Spending, $1000"]),
    "as many decimal commas": ("id;Spending, $1000\na;1,5\nb;2,5\nc;3,5\n", ["id", "Spending, $1000"]),
    "tabs": ("id\tx, y\na\t1\nb\t\nc\t3\n", ["id", "x, y"]),
    "a semicolon in a name": ("id,x;y\na,1\nb,\nc,3\n", ["id", "x;y"]),
    "semicolons in cells": ("id,x;y\na,p;q\nb,r;s\nc,\n", ["id", "x;y"]),
    "a comma in quotes": ('id;"x, y"\na;1\nb;\nc;3\n', ["id", "x, y"]),
    "one line": ("id,x;y\n", ["id", "x;y"]),
}


@pytest.mark.parametrize("case", DELIMITERS)
def test_the_delimiter_is_the_mark_that_separates_all_lines(tmp_path, case):
    """A comma in a name of a file with semicolons made it a file that cannot be read."""
    text, expected = DELIMITERS[case]
    (tmp_path / "nodes.csv").write_text(text)
    assert header(open_input(str(tmp_path / "nodes.csv"), ["csv"], "nodes")) == expected
