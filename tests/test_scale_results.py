"""Where results go: each to a place of its own, all of what was there replaced, and opened by name."""

import numpy as np
import pytest

import pcfi
from pcfi import scale

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
    yield system
    system.rm("/", recursive=True)


def test_a_result_at_an_address_replaces_all_of_what_was_there(tmp_path, files, lake):
    large = write(tmp_path, "large.npy", 5000)
    address, work = "memory://lake/y.parquet", tmp_path / "work"
    scale.impute(*large, address, work=work)
    assert len(lake.glob("/lake/y.parquet/part-*")) > 1
    stored = scale.impute(*files, address, work=work, overwrite=True)
    assert sorted(lake.ls("/lake/y.parquet", detail=False)) == [
        "/lake/y.parquet/_SUCCESS",
        "/lake/y.parquet/part-00000.parquet",
    ]
    assert stored.open().count_rows() == 20


@pytest.mark.parametrize("kind", ["parquet", "zarr"])
def test_a_result_at_an_address_does_not_replace_what_is_being_read(tmp_path, files, lake, kind):
    address = f"memory://lake/y.{kind}"
    scale.impute(*files, address, work=tmp_path / "work")
    before = {path: lake.cat_file(path) for path in lake.find("/lake")}
    for same in (address, f"memory:///lake/y.{kind}", f"{address}/"):
        with pytest.raises(pcfi.ParameterError, match=rf"result would replace features at 'memory://lake/y.{kind}'"):
            scale.impute(address, files[1], same, work=tmp_path / "work", overwrite=True)
    with pytest.raises(pcfi.ParameterError, match="hops would replace features"):
        scale.impute(address, files[1], tmp_path / "y.npy", hops=address, work=tmp_path / "work", overwrite=True)
    assert {path: lake.cat_file(path) for path in lake.find("/lake")} == before


def test_two_results_are_never_written_to_one_place(tmp_path, files, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for other in ("o.npy", "./o.npy", tmp_path / "o.npy", "file://o.npy", "link/o.npy"):
        with pytest.raises(pcfi.ParameterError, match="result and confidence would both go to"):
            scale.impute(*files, "o.npy", confidence=other)
    with pytest.raises(pcfi.ParameterError, match="confidence and hops would both go to"):
        scale.impute(*files, "o.npy", confidence="c.npy", hops="./c.npy")
    assert not list(tmp_path.glob("*.partial"))


def test_what_was_not_written_cannot_be_opened(tmp_path, files):
    stored = scale.impute(*files, tmp_path / "y.npy", hops=tmp_path / "h.npy")
    assert stored.open("hops").shape == stored.open().shape == (20, 2)
    with pytest.raises(pcfi.ParameterError, match="confidence was not written: pass confidence= and a path"):
        stored.open("confidence")
    for name in ("status", "nonsense"):
        with pytest.raises(pcfi.ParameterError, match=f"no '{name}' to open: the results are values, confidence, hops"):
            stored.open(name)
