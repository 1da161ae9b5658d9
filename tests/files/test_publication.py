"""Outputs of a command appear together, whole, with the mode that belongs to them, or not at all."""

import errno
import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from pcfi.cli import impute as impute_command
from pcfi.cli.app import app
from pcfi.errors import FileError
from pcfi.files import atomic_output
from pcfi.files.atomic_output import Publication
from pcfi.files.writing import atomic_file, check_output


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "n.csv").write_text("id,x\na,1\nb,\nc,3\n")
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\n")
    return ["impute", tmp_path / "n.csv", tmp_path / "e.csv"]


def outputs(folder):
    return ["-o", folder / "o.csv", "--confidence", folder / "c.csv", "--hops", folder / "h.csv", "--report",
            folder / "r.html", "--facts", folder / "f.json"]  # fmt: skip


OUTPUTS = {"o.csv", "c.csv", "h.csv", "r.html", "f.json"}


@pytest.fixture(params=["nameless", "hidden"])
def way(request, monkeypatch):
    """Files without names, and under temporary names where there is no such thing."""
    if request.param == "hidden":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return request.param


@pytest.mark.parametrize("moment", ["_evaluation", "_facts", "_write_report"])
def test_a_command_that_fails_late_leaves_none_of_its_outputs(files, tmp_path, monkeypatch, moment, way):
    def fails(*_, **__):
        raise KeyboardInterrupt

    before = {path.name for path in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(impute_command, moment, fails)
        assert invoke(*files, *outputs(tmp_path), "--evaluate").exit_code == 130
    assert {path.name for path in tmp_path.iterdir()} == before
    done = invoke(*files, *outputs(tmp_path))
    assert done.exit_code == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == before | OUTPUTS


def test_if_one_name_cannot_be_given_the_message_lists_those_that_were(tmp_path, way):
    words = r"b.csv was created in the meantime.* \(.*a.csv had been written before\)"
    with pytest.raises(FileError, match=words), Publication() as publication:  # noqa: PT012  it is the end that raises
        for name in ("a.csv", "b.csv", "c.csv"):
            with publication.open(tmp_path / name, force=False) as file:
                file.write(b"new")
        (tmp_path / "b.csv").write_text("of someone else")
    assert (tmp_path / "a.csv").read_bytes() == b"new"
    assert (tmp_path / "b.csv").read_text() == "of someone else"
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "b.csv"}


@pytest.mark.skipif(os.name == "nt", reason="files have no modes")
def test_an_output_is_private_until_it_has_its_name(tmp_path, way):
    with atomic_file(str(tmp_path / "o.csv")) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "o.csv").stat().st_mode) == 0o666 & ~mask


@pytest.mark.skipif(os.name == "nt", reason="files have no modes, and links need a privilege")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_that_is_replaced_keeps_its_mode_and_its_links(tmp_path, way, mode):
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(mode)
    link.symlink_to(real)
    with atomic_file(str(link), force=True) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == mode


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
def test_a_link_to_nothing_is_followed_or_refused_before_work(tmp_path, files):
    (tmp_path / "there").mkdir()
    (tmp_path / "good.csv").symlink_to(tmp_path / "there" / "new.csv")
    (tmp_path / "bad.csv").symlink_to(tmp_path / "nowhere" / "new.csv")
    assert invoke(*files, "-o", tmp_path / "good.csv").exit_code == 0
    assert (tmp_path / "there" / "new.csv").is_file()
    with pytest.raises(FileError, match=r"folder .*nowhere does not exist"):
        check_output(str(tmp_path / "bad.csv"), force=False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_devices_and_pipes_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", str(tmp_path / "pipe")):
        with pytest.raises(FileError, match="is a device or a pipe"):
            check_output(path, force=True)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_full_disk_names_the_file(tmp_path, files, monkeypatch, way):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_output.os, "fsync", full)
    done = invoke(*files, "-o", tmp_path / "o.csv")
    assert done.exit_code == 1
    message = "no space left on the disk; free some space, or choose another disk"
    assert done.stderr.splitlines()[-1] == f"pcfi: {tmp_path / 'o.csv'}: {message}"
    assert {path.name for path in tmp_path.iterdir()} == {"n.csv", "e.csv"}


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int8())]
)
def test_columns_that_an_output_cannot_hold_are_refused_before_work(tmp_path, files, monkeypatch, kind):
    table = pa.table({"id": ["a", "b", "c"], "x": [1.0, None, 3.0], "tags": pa.nulls(3, kind)})
    parquet.write_table(table, tmp_path / "n.parquet")

    def works(*_, **__):
        raise AssertionError("it began to work")

    with monkeypatch.context() as patch:
        patch.setattr(impute_command, "fill_loaded", works)
        done = invoke("impute", tmp_path / "n.parquet", tmp_path / "e.csv", "-o", tmp_path / "o.csv")
    assert done.exit_code == 1
    assert "o.csv cannot hold the column 'tags'" in done.stderr
    done = invoke("impute", tmp_path / "n.parquet", tmp_path / "e.csv", "-o", tmp_path / "o.parquet")
    assert done.exit_code == 0, done.stderr
    assert parquet.read_table(tmp_path / "o.parquet")["tags"].type == kind
