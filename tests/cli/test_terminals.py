"""Terminals of any encoding, names with control characters, interruptions: one line, and nothing raw."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import typer
from typer.testing import CliRunner

from command_line import COMMAND
from pcfi.cli.app import app
from pcfi.cli.arguments import plain_errors, printable

EVIL = "age\x1b[2J\x1b]0;owned\x07\u202e"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "n.csv").write_text("id,größe\na,1\nb,\nc,3\n")
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\n")
    return [str(tmp_path / "n.csv"), str(tmp_path / "e.csv")]


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252", "utf-8"])
def test_any_encoding_of_the_terminal_will_do(files, encoding):
    done = subprocess.run(
        [*COMMAND, "info", *files], capture_output=True, env=os.environ | {"PYTHONIOENCODING": encoding}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert ("█" in done.stdout.decode(encoding)) == (encoding == "utf-8")
    assert ("größe" in done.stdout.decode(encoding)) == (encoding != "ascii")


def test_control_characters_of_names_do_not_reach_the_terminal(tmp_path):
    (tmp_path / "n.csv").write_text(f"id,{EVIL},x{EVIL}\na,1,2\nb,,\nc,3,oops\nd,4,1\n")
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\n")
    files = [str(tmp_path / "n.csv"), str(tmp_path / "e.csv")]
    for command in (
        ["info", *files, "--exclude", f"x{EVIL}"],
        ["impute", *files, "-o", str(tmp_path / "o.csv"), "--exclude", f"x{EVIL}"],
        ["evaluate", *files, "--exclude", f"x{EVIL}"],
        ["impute", *files, "-o", str(tmp_path / "p.csv")],
        ["impute", *files, "-o", str(tmp_path / "p.csv"), "--columns", EVIL + "no"],
    ):
        done = CliRunner().invoke(app, command)
        for text in (done.stdout, done.stderr):
            assert not {"\x1b", "\x07", "\u202e"} & set(text), command
    assert EVIL in (tmp_path / "o.csv").read_text()  # what is in the file stays as it is


def test_printable_text_stays_as_it_is():
    assert printable("größe █\tein\nzwei") == "größe █\tein\nzwei"
    assert printable("a\x1b[1m\x9b") == "a\\x1b[1m\\x9b"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
@pytest.mark.parametrize("delay", [0.15, 0.4, 0.8])
def test_an_interruption_at_any_moment_is_one_line(files, tmp_path, delay):
    code = "import pcfi.cli, sys; print('begun', flush=True); pcfi.cli.main()"
    command = [sys.executable, "-c", code, "impute", *files, "-o", str(tmp_path / "o.csv"), "--evaluate", "-q"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout.readline() == b"begun\n"
    time.sleep(delay)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate()
    if (tmp_path / "o.csv").exists():
        return  # it had ended before
    assert (started.returncode, said.splitlines()[-1]) == (130, b"pcfi: interrupted")
    assert b"Traceback" not in said


@pytest.mark.parametrize("address", ["hello", "tcp://", "::", "http://[", "tcp://127.0.0.1:99999999"])
def test_an_address_that_is_none_is_one_line(files, tmp_path, monkeypatch, address):
    cluster = pytest.importorskip("pcfi.outofcore.cluster")
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT", "1s")
    done = CliRunner().invoke(app, ["impute", *files, "-o", str(tmp_path / "o.parquet"), "--cluster", address])
    assert done.exit_code == 1
    assert f"the scheduler at '{address}' cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interruption_that_becomes_another_error_is_an_interruption(capsys):
    def import_compiled():  # prints the interruption, and raises an error of its own
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ImportError("numpy failed to import")

    with pytest.raises(typer.Exit) as ended, plain_errors():
        import_compiled()
    assert (ended.value.exit_code, capsys.readouterr().err) == (130, "pcfi: interrupted\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
