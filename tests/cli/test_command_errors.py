"""Errors on the command line: parameters of the library as options, the user's words as they are."""

import pickle

import pytest
from typer.testing import CliRunner

import pcfi
from pcfi.cli.app import app
from pcfi.cli.arguments import in_options
from pcfi.errors import ParameterError, StorageError, TooLargeError, UnreachableError


@pytest.mark.parametrize("name", ["source=web/id=3/n.csv", "id=/n.csv", "{id}/n.csv", "beta=0/n.csv", "work=.csv"])
def test_errors_leave_the_users_own_names_alone(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for path in (name, f"{tmp_path}/{name}"):
        assert (
            f"pcfi: {path} does not exist"
            in CliRunner().invoke(app, ["impute", path, "edges.csv", "-o", "o.csv"]).stderr
        )


@pytest.mark.parametrize(
    ("remedy", "in_python", "on_the_command_line"),
    [
        ("name it with {id}", "name it with id=", "name it with --id"),
        ("leave it out with {channels}", "leave it out with channels=", "leave it out with --columns"),
        ("drop them, {unknown_ids='drop'}", "drop them, unknown_ids='drop'", "drop them, --unknown-ids drop"),
        ("set {beta=0} or {standardize=True}", "set beta=0 or standardize=True", "set --beta 0 or --standardize"),
        ("take {solver=FixedSteps(100)}", "take solver=FixedSteps(100)", "take --steps"),
    ],
)
def test_each_interface_words_the_remedy(remedy, in_python, on_the_command_line):
    error = UnreachableError("'{id}' is far away", remedy=remedy)
    assert str(error) == f"'{{id}}' is far away: {in_python}"
    assert in_options(error) == f"'{{id}}' is far away: {on_the_command_line}"


def test_each_interface_names_the_parameter_that_is_wrong():
    with pytest.raises(ParameterError, match=r"^alpha must be .*, got 2$") as caught:
        pcfi.impute([[1.0], [float("nan")]], [[0], [1]], alpha=2)
    assert caught.value.parameter == "alpha"
    assert in_options(caught.value).startswith("--alpha must be ")


@pytest.mark.parametrize("kind", [ParameterError, StorageError, TooLargeError])
def test_errors_survive_the_way_from_a_worker(kind):
    error = pickle.loads(pickle.dumps(kind("must fit", parameter="memory", remedy="grant more, or choose {work}")))
    assert str(error) == "memory must fit: grant more, or choose work="
