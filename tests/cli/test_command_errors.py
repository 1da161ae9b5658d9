"""Errors on the command line: parameters of the library as options, the user's words as they are."""

import pickle

import pytest
from typer.testing import CliRunner

import pcfi
from pcfi.cli.app import app
from pcfi.cli.arguments import in_options
from pcfi.cli.session import Session
from pcfi.errors import FeatureError, ParameterError, PcfiWarning, StorageError, TooLargeError, UnreachableError
from pcfi.imputation import similar_rows_warnings


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


@pytest.mark.parametrize(
    ("arguments", "in_python", "on_the_command_line"),
    [
        (
            {"missing_values": ["n.a.", -999]},
            "missing_values=['n.a.', -999]",
            "--missing-value n.a. --missing-value -999",
        ),
        ({"exclude": ["Population (1000)"]}, "channels= without 'Population (1000)'", "--exclude 'Population (1000)'"),
        ({"categorical": ["Spending, $"]}, "categorical=['Spending, $']", """--categorical '"Spending, $"'"""),
        ({"id": "Teachers' pay"}, 'id="Teachers\' pay"', """--id 'Teachers'"'"' pay'"""),
    ],
)
def test_each_interface_quotes_what_the_user_wrote(arguments, in_python, on_the_command_line):
    """Hints such as --exclude Population (1000) could not be pasted into a shell."""
    error = FeatureError("is text", remedy=f"use {{{next(iter(arguments))}}}", arguments=arguments)
    assert str(error) == f"is text: use {in_python}"
    assert in_options(error) == f"is text: use {on_the_command_line}"


def test_warnings_on_the_command_line_name_options(tmp_path):
    """They named parameters of Python: graph='knn', islands=."""
    session = Session(quiet=True, as_json=False, data_to_stdout=False)
    session.warn(*similar_rows_warnings(0.9))
    session.warn(PcfiWarning("3 places stay unlinked", remedy="set {islands} to change this"))
    assert "use --knn, or in Python a function" in session.warnings[0]
    assert "use graph='knn', or in Python a function" in str(similar_rows_warnings(0.9)[0])
    assert session.warnings[1] == "3 places stay unlinked: set --islands to change this"
    (tmp_path / "nodes.csv").write_text("id,x\n" + "".join(f"{row},{row % 3 or -999}\n" for row in range(9)) + "9,\n")
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{row},{row + 1}\n" for row in range(9)))
    options = ["-o", str(tmp_path / "o.csv"), "--method=fp"]
    done = CliRunner().invoke(app, ["impute", str(tmp_path / "nodes.csv"), str(tmp_path / "edges.csv"), *options])
    assert "name it with --missing-value -999" in done.stderr


def test_a_table_without_edges_can_be_linked_by_similar_rows(tmp_path):
    """The error named only an edge file and maps."""
    (tmp_path / "nodes.csv").write_text("id,x\na,1\nb,\nc,3\n")
    done = CliRunner().invoke(app, ["impute", str(tmp_path / "nodes.csv"), "-o", str(tmp_path / "o.csv")])
    assert done.exit_code == 1
    assert "name an edge file after it, or link similar rows with --knn 10" in done.stderr


def test_each_interface_names_the_parameter_that_is_wrong():
    with pytest.raises(ParameterError, match=r"^alpha must be .*, got 2$") as caught:
        pcfi.impute([[1.0], [float("nan")]], [[0], [1]], alpha=2)
    assert caught.value.parameter == "alpha"
    assert in_options(caught.value).startswith("--alpha must be ")


@pytest.mark.parametrize("kind", [ParameterError, StorageError, TooLargeError])
def test_errors_survive_the_way_from_a_worker(kind):
    error = pickle.loads(pickle.dumps(kind("must fit", parameter="memory", remedy="grant more, or choose {work}")))
    assert str(error) == "memory must fit: grant more, or choose work="
