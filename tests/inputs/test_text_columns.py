"""Columns of text files that look like numbers and are none: codes, and numbers dressed for people."""

import pytest
from pyarrow import csv
from typer.testing import CliRunner

from pcfi.cli.app import app

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
