"""Tables as careless users have them: each of these went wrong once."""

import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import sparse
from typer.testing import CliRunner

import pcfi
from pcfi.cli.app import app

SIZE = 40
PATH = np.stack([np.arange(SIZE - 1), np.arange(1, SIZE)])
EDGES = pd.DataFrame({"source": PATH[0], "target": PATH[1]})
WAVE = np.sin(np.arange(SIZE) / 4)
GAPPED = np.where(np.arange(SIZE) % 3 == 0, np.nan, WAVE)
NUMBERS = {"alpha": 0.5, "beta": 0.1, "objective": "representation"}


def test_a_sparse_mask_goes_with_a_table():
    known = ~np.isnan(GAPPED)[:, None]
    table = pd.DataFrame({"x": WAVE})
    masked = pcfi.impute(table, EDGES, known=sparse.csr_array(known), **NUMBERS)
    np.testing.assert_array_equal(masked.values, pcfi.impute(table, EDGES, known=known, **NUMBERS).values)


def test_a_mask_in_another_order_is_refused():
    table = pd.DataFrame({"x": WAVE}, index=[f"n{row}" for row in range(SIZE)])
    known = pd.DataFrame({"x": ~np.isnan(GAPPED)}, index=table.index)
    assert pcfi.impute(table, PATH, known=known, **NUMBERS).n_missing == np.isnan(GAPPED).sum()
    with pytest.raises(pcfi.FeatureError, match=r"known\.loc\[nodes\.index\]"):
        pcfi.impute(table, PATH, known=known.iloc[::-1], **NUMBERS)


@pytest.mark.parametrize("index", [[0, 1] * 20, pd.MultiIndex.from_product([range(20), range(2)])])
def test_an_index_that_names_no_nodes_matters_only_if_the_graph_needs_names(index):
    table = pd.DataFrame({"x": GAPPED}, index=index)
    plain = pcfi.impute(GAPPED[:, None], PATH, **NUMBERS).values
    np.testing.assert_array_equal(pcfi.impute(table, PATH, **NUMBERS).values.to_numpy(), plain)
    with pytest.raises(pcfi.FeatureError, match=r"is duplicated|several levels"):
        pcfi.impute(table, EDGES, **NUMBERS)


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_decimals_are_the_nearest_floats(library):
    cells = [decimal.Decimal(text) if text else None for text in ("2.30", "3.30", None, "35.30")] * 10
    column = pa.table({"price": pa.array(cells, pa.decimal128(9, 2))})
    filled = pcfi.impute(column if library == "pyarrow" else pl.from_arrow(column), EDGES, **NUMBERS).values
    assert filled["price"].to_numpy()[[0, 1, 3]].tolist() == [2.3, 3.3, 35.3]


def test_decimals_of_files_are_the_nearest_floats(tmp_path):
    cells = [decimal.Decimal("2.30"), None, decimal.Decimal("3.30"), decimal.Decimal("35.30")] * 10
    parquet.write_table(
        pa.table({"id": range(SIZE), "price": pa.array(cells, pa.decimal128(9, 2))}), tmp_path / "n.parquet"
    )
    EDGES.to_csv(tmp_path / "e.csv", index=False)
    arguments = ["impute", tmp_path / "n.parquet", tmp_path / "e.csv", "-o", tmp_path / "o.parquet", "-q"]
    assert CliRunner().invoke(app, list(map(str, arguments))).exit_code == 0
    assert parquet.read_table(tmp_path / "o.parquet")["price"].to_pylist()[2:4] == [3.3, 35.3]


def test_sparse_columns_of_pandas_are_refused_in_words():
    table = pd.DataFrame({"a": GAPPED, "s": pd.arrays.SparseArray(GAPPED)})
    with pytest.raises(pcfi.FeatureError, match=r"'s' is sparse: convert it with \.sparse\.to_dense"):
        pcfi.impute(table, EDGES)


def test_integers_of_any_width_can_be_rounded():
    table = pl.DataFrame({"x": [1, None, 3, 4] * 10}, schema={"x": pl.Int128})
    rounded = pcfi.frames.impute(table, PATH, round=True, **NUMBERS).values
    assert rounded["x"].dtype == pl.Int128
    assert rounded["x"].null_count() == 0


def test_ids_are_no_categories():
    table = pd.DataFrame({"id": range(SIZE), "x": GAPPED})
    with pytest.raises(pcfi.ParameterError, match="'id', which holds the ids"):
        pcfi.frames.impute(table, EDGES, categorical=["id"])
    assert pcfi.frames.impute(table, EDGES, categorical=None, **NUMBERS).n_missing == np.isnan(GAPPED).sum()


def test_a_column_of_one_category_is_no_number():
    city = np.where(np.arange(SIZE) % 4 == 0, None, "Oslo")
    table = pd.DataFrame({"x": GAPPED, "city": city})
    alone = pcfi.frames.evaluate(table[["x"]], EDGES, methods=["mean"]).methods[0]
    both = pcfi.frames.evaluate(table, EDGES, categorical=["city"], methods=["mean"]).methods[0]
    assert both.scores["accuracy"] == 1
    assert both.scores["rmse"] == pytest.approx(alone.scores["rmse"], rel=0.5)
    low, _ = pcfi.frames.impute(table, EDGES, categorical=["city"]).interval()
    assert low["city"].isna().all()
    assert low["x"].notna().all()


@pytest.mark.parametrize("option", [["--method", "zero"], ["--unreachable", "zero"]])
def test_the_command_invents_no_category_for_zero(tmp_path, option):
    (tmp_path / "n.csv").write_text("id,c\n1,b\n2,\n3,c\n4,\n5,b\n")
    (tmp_path / "e.csv").write_text("source,target\n1,2\n2,3\n")
    files = [str(tmp_path / name) for name in ("n.csv", "e.csv")]
    said = CliRunner().invoke(app, ["impute", *files, "-o", "-", "--categorical", "c", *option])
    assert said.exit_code == 2
    assert "zero is not a category" in said.stderr


def test_markers_of_missing_cells_count_in_coded_columns(tmp_path):
    plan = pd.Categorical(["free", "pro", "unknown", "free"] * 10)
    pd.DataFrame({"id": range(SIZE), "x": GAPPED, "plan": plan}).to_parquet(tmp_path / "n.parquet")
    EDGES.to_csv(tmp_path / "e.csv", index=False)
    files = [str(tmp_path / name) for name in ("n.parquet", "e.csv")]
    options = ["--categorical", "plan", "--missing-value", "unknown", "-q"]
    said = CliRunner().invoke(app, ["impute", *files, "-o", str(tmp_path / "o.parquet"), *options])
    assert said.exit_code == 0, said.stderr
    filled = pd.read_parquet(tmp_path / "o.parquet")["plan"]
    assert filled.dtype == "category"
    assert set(filled) == {"free", "pro"}
