"""Features and results at s3:// addresses: a real server, wrong credentials, a server that goes away, many parts."""

import socket
import urllib.request

import numpy as np
import pytest
from typer.testing import CliRunner

import pcfi
from pcfi import scale
from pcfi.cli.app import app
from pcfi.outofcore.folder import WorkFolder

pa = pytest.importorskip("pyarrow")
pytest.importorskip("zarr")
s3fs = pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.server")
import pyarrow.parquet as pq  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

N_NODES, N_CHANNELS = 400, 3
PAPER = {"alpha": 0.5, "beta": 0.1, "objective": "representation"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server of moto that can be stopped and started again with its objects."""

    def __init__(self) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self._server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def post(self, path: str, data: bytes = b"") -> None:
        headers = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(f"{self.address}/moto-api/{path}", data, headers)).close()


@pytest.fixture
def server(monkeypatch):
    for name, value in {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    running = Server()
    monkeypatch.setenv("AWS_ENDPOINT_URL", running.address)
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("lake")
    yield running
    running.post("reset")
    running.stop()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    rng = np.random.default_rng(0)
    values = np.where(rng.random((N_NODES, N_CHANNELS)) < 0.5, np.nan, rng.normal(size=(N_NODES, N_CHANNELS)))
    edges = np.stack([np.arange(N_NODES - 1), np.arange(1, N_NODES)])
    path = tmp_path_factory.mktemp("graph") / "edges.npy"
    np.save(path, edges)
    return values, path, pcfi.impute(values, edges, **PAPER).values


def put_table(values: np.ndarray, address: str) -> None:
    table = pa.table({f"c{k}": pa.array(column, from_pandas=True) for k, column in enumerate(values.T)})
    with s3fs.S3FileSystem().open(address, "wb") as file:
        pq.write_table(table, file)


@pytest.mark.parametrize("kind", ["parquet", "zarr"])
def test_features_and_results_at_an_address(server, problem, tmp_path, kind):
    values, edges, expected = problem
    if kind == "parquet":
        put_table(values, "s3://lake/x.parquet")
    else:
        import zarr

        zarr.open("s3://lake/x.zarr", mode="w", shape=values.shape, chunks=(100, 3), dtype=values.dtype)[:] = values
    address = f"s3://lake/y.{kind}"
    stored = scale.impute(f"s3://lake/x.{kind}", edges, address, work=tmp_path / "work", **PAPER)
    assert stored.values == address
    opened = stored.open()
    found = opened[:] if kind == "zarr" else np.stack(opened.to_table().to_pandas().to_numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(pcfi.ParameterError, match="overwrite=True"):
        scale.impute(f"s3://lake/x.{kind}", edges, address, work=tmp_path / "work", **PAPER)
    assert not (tmp_path / "work").exists()


def test_wrong_credentials_are_one_line(server, problem, tmp_path, monkeypatch):
    values, edges, _ = problem
    put_table(values, "s3://lake/x.parquet")
    server.post("reset-auth", b"0")  # from now on, keys are checked
    s3fs.S3FileSystem.clear_instance_cache()
    command = ["impute", "s3://lake/x.parquet", str(edges), "-o", str(tmp_path / "y.npy"), "--memory", "2GB"]
    done = CliRunner().invoke(app, command)
    server.post("reset-auth", b"1000000")
    assert done.exit_code == 1
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith("pcfi: ")
    assert "s3://lake/x.parquet" in lines[-1]
    assert "unexpected" not in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_goes_away_is_a_clear_error_and_the_run_goes_on_later(server, problem, tmp_path, monkeypatch):
    values, edges, expected = problem
    put_table(values, "s3://lake/x.parquet")
    record = WorkFolder.record

    def unplugged(self, stage, index, facts):
        record(self, stage, index, facts)
        if stage == "diffuse":
            server.stop()

    arguments = ("s3://lake/x.parquet", edges, tmp_path / "y.npy")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "record", unplugged)
        patch.setattr(s3fs.S3FileSystem, "retries", 1)
        with pytest.raises((pcfi.PcfiError, OSError), match=r"x\.parquet"):
            scale.impute(*arguments, **PAPER)
    assert WorkFolder(tmp_path / "y.npy.work").n_finished
    server.start()
    s3fs.S3FileSystem.clear_instance_cache()
    stored = scale.impute(*arguments, **PAPER)
    np.testing.assert_allclose(stored.open(), expected, rtol=1e-6, atol=1e-6)
    assert not (tmp_path / "y.npy.work").exists()


def test_more_parts_than_a_listing_has(server, problem, tmp_path):
    """A listing of S3 ends after a thousand objects; the rest is on its next page."""
    from pcfi.outofcore.feature_stores import parquet_files

    fs = s3fs.S3FileSystem()
    fs.pipe({f"lake/parts.parquet/part-{k:05d}.parquet": b"" for k in range(1050)})
    names = parquet_files("s3://lake/parts.parquet")
    assert len(names) == 1050
    assert names == sorted(names)
    assert names[-1] == "s3://lake/parts.parquet/part-01049.parquet"
