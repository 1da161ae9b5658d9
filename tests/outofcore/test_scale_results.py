"""Where results go: each to a place of its own, all of what was there replaced, and opened by name."""

import os
from functools import partial

import numpy as np
import pytest

import pcfi
from pcfi import scale
from pcfi.outofcore import folder

PAPER = {"alpha": 0.5, "beta": 0.1, "objective": "representation"}
impute = partial(scale.impute, **PAPER)

pytestmark = pytest.mark.slow

pytest.importorskip("pyarrow")
pytest.importorskip("zarr")
fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def files(tmp_path):
    """The paths of features and of a graph folder: a path of nodes, every other one missing."""
    return write(tmp_path, "x.npy", 20)


def write(folder, name, n_nodes):
    values = np.where(np.arange(n_nodes) % 2 == 0, np.arange(n_nodes) * 1.0, np.nan)[:, None].repeat(2, axis=1)
    np.save(folder / name, values)
    graph = folder / f"{name}.graph"
    scale.build_graph(np.stack([np.arange(n_nodes - 1), np.arange(1, n_nodes)]), graph, n_nodes=n_nodes)
    return folder / name, graph


@pytest.fixture
def lake():
    """A folder of a file system in memory, empty before and after."""
    system = fsspec.filesystem("memory")
    system.makedirs("/lake", exist_ok=True)
    system.rm("/lake", recursive=True)
    yield system
    system.rm("/", recursive=True)


def test_a_result_at_an_address_replaces_all_of_what_was_there(tmp_path, files, lake):
    large = write(tmp_path, "large.npy", 5000)
    address, work = "memory://lake/y.parquet", tmp_path / "work"
    impute(*large, address, work=work)
    assert len(lake.glob("/lake/y.parquet/part-*")) > 1
    stored = impute(*files, address, work=work, overwrite=True)
    assert sorted(lake.ls("/lake/y.parquet", detail=False)) == [
        "/lake/y.parquet/_SUCCESS",
        "/lake/y.parquet/part-00000.parquet",
    ]
    assert stored.open().count_rows() == 20


@pytest.mark.parametrize("kind", ["parquet", "zarr"])
def test_a_result_at_an_address_does_not_replace_what_is_being_read(tmp_path, files, lake, kind):
    address = f"memory://lake/y.{kind}"
    impute(*files, address, work=tmp_path / "work")
    before = {path: lake.cat_file(path) for path in lake.find("/lake")}
    for same in (address, f"memory:///lake/y.{kind}", f"{address}/"):
        with pytest.raises(pcfi.ParameterError, match=rf"result would replace features at 'memory://lake/y.{kind}'"):
            impute(address, files[1], same, work=tmp_path / "work", overwrite=True)
    with pytest.raises(pcfi.ParameterError, match="hops would replace features"):
        impute(address, files[1], tmp_path / "y.npy", hops=address, work=tmp_path / "work", overwrite=True)
    assert {path: lake.cat_file(path) for path in lake.find("/lake")} == before


def test_two_results_are_never_written_to_one_place(tmp_path, files, monkeypatch):
    monkeypatch.chdir(tmp_path)
    others = ["o.npy", "./o.npy", tmp_path / "o.npy", "file://o.npy"]
    if os.name != "nt":  # where links need a privilege
        (tmp_path / "link").symlink_to(tmp_path)
        others.append("link/o.npy")
    for other in others:
        with pytest.raises(pcfi.ParameterError, match="result and confidence have the same path"):
            impute(*files, "o.npy", confidence=other)
    with pytest.raises(pcfi.ParameterError, match="confidence and hops have the same path"):
        impute(*files, "o.npy", confidence="c.npy", hops="./c.npy")
    assert not list(tmp_path.glob("*.partial"))


def test_what_was_not_written_cannot_be_opened(tmp_path, files):
    stored = impute(*files, tmp_path / "y.npy", hops=tmp_path / "h.npy")
    assert stored.open("hops").shape == stored.open().shape == (20, 2)
    with pytest.raises(pcfi.ParameterError, match="confidence was not written: pass confidence= and a path"):
        stored.open("confidence")
    for name in ("status", "nonsense"):
        with pytest.raises(pcfi.ParameterError, match=f"no '{name}' to open: the results are values, confidence, hops"):
            stored.open(name)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, np.iinfo(np.int64).min, np.iinfo(np.int64).max])
def test_integers_that_float64_cannot_tell_apart_are_refused(tmp_path, files, value):
    np.save(tmp_path / "whole.npy", np.array([[1, 2]] * 19 + [[3, value]]))
    with pytest.raises(pcfi.FeatureError, match=r"integers beyond 2\^53"):
        impute(tmp_path / "whole.npy", files[1], tmp_path / "y.npy")


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">f2"])
def test_foreign_byte_order_is_read_like_any_other(tmp_path, files, dtype):
    values = np.load(files[0])
    np.save(tmp_path / "foreign.npy", values.astype(dtype))
    stored = impute(tmp_path / "foreign.npy", files[1], tmp_path / "y.npy")
    expected = pcfi.impute(
        values.astype(dtype), pcfi.scale.open_graph(files[1]), alpha=0.5, beta=0.1, objective="representation"
    ).values
    assert stored.open().dtype == expected.dtype
    np.testing.assert_allclose(stored.open(), expected, rtol=1e-6)


def test_warnings_are_those_of_impute(tmp_path):
    # a path, most of it far from its sources, and a node alone
    values = np.where(np.arange(201) % 100 == 0, np.arange(201.0), np.nan)[:, None]
    values[200] = np.nan
    edges = np.stack([np.arange(199), np.arange(1, 200)])
    np.save(tmp_path / "x.npy", values)
    scale.build_graph(edges, tmp_path / "g", n_nodes=201)
    parameters = {"alpha": 1.0, "beta": 0.1, "solver": pcfi.UntilSettled(1e-6, 2), "unreachable": "zero"}
    with pytest.warns(pcfi.PcfiWarning) as expected:
        pcfi.impute(values, pcfi.prepare_graph(edges, 201), **parameters, objective="representation")
    with pytest.warns(pcfi.PcfiWarning) as told:
        impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy", **parameters)
    assert [(one.category, str(one.message)) for one in told] == [(one.category, str(one.message)) for one in expected]
    assert {one.category for one in told} == {pcfi.NotSettledWarning, pcfi.UnreachableWarning}


def test_files_at_an_address_are_closed(tmp_path, files, monkeypatch):
    from fsspec.implementations.local import LocalFileSystem

    first = impute(*files, tmp_path / "x.parquet")
    opened, by_fsspec = [], LocalFileSystem._open

    def noted(*arguments, **options):
        opened.append(by_fsspec(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(LocalFileSystem, "_open", noted)
    impute(f"local://{first.values}", files[1], tmp_path / "y.npy")
    assert opened
    assert all(file.closed for file in opened)


def test_an_address_without_a_file_is_told(files, tmp_path):
    with pytest.raises(pcfi.ParameterError, match=r"there is no file 'memory://.*nothing.parquet'"):
        impute("memory://lake/nothing.parquet", files[1], tmp_path / "y.npy")


@pytest.fixture
def edge_file(tmp_path):
    """The paths of features and of an edge file, from which the run builds a graph."""
    np.save(tmp_path / "x.npy", np.where(np.arange(40).reshape(20, 2) % 3 == 0, np.arange(40.0).reshape(20, 2), np.nan))
    np.save(tmp_path / "e.npy", np.stack([np.arange(19), np.arange(1, 20)]))
    return tmp_path / "x.npy", tmp_path / "e.npy"


def test_a_finished_run_leaves_only_its_result(tmp_path, edge_file):
    # the graph was still mapped when its folder was removed, which Windows refuses
    impute(*edge_file, tmp_path / "y.npy")
    assert {path.name for path in tmp_path.iterdir()} == {"x.npy", "e.npy", "y.npy"}


def test_files_that_are_still_in_use_are_told_and_the_result_is_there(tmp_path, edge_file, monkeypatch):
    def in_use(path):
        raise PermissionError(13, "used by another process", str(path))

    monkeypatch.setattr(folder, "remove", in_use)
    with pytest.warns(pcfi.PcfiWarning, match=r"y.npy.work' is still in use, and is left there: remove it"):
        stored = impute(*edge_file, tmp_path / "y.npy")
    assert stored.open().shape == (20, 2)
