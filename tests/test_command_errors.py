"""Errors on the command line: the library's words as options, the user's words as they are."""

import pytest
from typer.testing import CliRunner

from pcfi.cli.app import app
from pcfi.cli.arguments import in_options


@pytest.mark.parametrize("name", ["source=web/id=3/n.csv", "id=/n.csv", "id=3/n.csv", "beta=0/n.csv", "work=.csv"])
def test_errors_leave_the_users_own_names_alone(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for path in (name, f"{tmp_path}/{name}"):
        assert (
            f"pcfi: {path} does not exist"
            in CliRunner().invoke(app, ["impute", path, "edges.csv", "-o", "o.csv"]).stderr
        )


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("name it as id= if it is one", "name it as --id if it is one"),
        ("leave it out with channels=", "leave it out with --columns"),
        ("name them with source= and target=.", "name them with --source and --target."),
        ("choose unreachable='mean', 'id=' or 'nan'", "choose --unreachable 'mean', 'id=' or 'nan'"),
        ("switch sharing off with beta=0", "switch sharing off with --beta 0"),
        ("id='x' names a column of 'source= x'", "--id 'x' names a column of 'source= x'"),
    ],
)
def test_keywords_become_options_where_the_library_writes_them(python, said):
    assert in_options(python) == said
