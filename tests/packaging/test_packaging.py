"""Metadata, extras, floors, the lock of minimum versions, the conda recipe and the changelog agree with each other."""

import ast
import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pcfi

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
NOT_FOR_USERS = {"docs"}  # extras that the conda recipe does not constrain, and the minimum versions leave out
CONDA_NAMES = {
    "matplotlib-base": "matplotlib",
    "python-duckdb": "duckdb",
    "pytorch": "torch",
    "pytorch-geometric": "torch-geometric",
}


def requirements(lines):
    """Requirements by name, without those on pcfi itself and on other groups."""
    parsed = [Requirement(line) for line in lines if isinstance(line, str)]
    return [(canonicalize_name(one.name), str(one.specifier)) for one in parsed if one.name != "pcfi"]


def user_floors():
    lines = [line for name, extra in EXTRAS.items() if name not in NOT_FOR_USERS for line in extra]
    return dict(requirements([*PROJECT["project"]["dependencies"], *lines]))


def test_every_dependency_has_one_floor():
    groups = [PROJECT["project"]["dependencies"], *EXTRAS.values(), *PROJECT["dependency-groups"].values()]
    floors = {}
    for name, specifier in requirements(line for group in groups for line in group):
        assert specifier.startswith(">="), f"{name} has no floor"
        assert floors.setdefault(name, specifier) == specifier, f"{name} has two floors"


def test_the_extra_all_has_every_extra_of_users():
    (line,) = EXTRAS["all"]
    assert Requirement(line).extras == set(EXTRAS) - {"all"} - NOT_FOR_USERS


def test_minimum_versions_are_the_floors():
    lines = (ROOT / "requirements" / "minimum.txt").read_text().splitlines()
    pinned = dict(requirements(line for line in lines if line and not line.startswith("#")))
    expected = user_floors() | dict(requirements(PROJECT["dependency-groups"]["test"]))
    for name, specifier in expected.items():
        version, floor = pinned[name].removeprefix("=="), specifier.removeprefix(">=")
        assert re.fullmatch(re.escape(floor) + r"(\.0)*", version), f"{name}: {version} is not the floor {floor}"


@pytest.fixture(scope="module")
def recipe():
    text = (ROOT / "conda" / "meta.yaml").read_text()
    version = re.search(r'{% set version = "(.+)" %}', text)[1]
    text = re.sub(r"{%.*%}\n", "", text).replace("{{ version }}", version).replace("{{ PYTHON }}", "python")
    return yaml.safe_load(text)


def test_the_conda_recipe_has_the_metadata_of_the_project(recipe):
    project = PROJECT["project"]
    assert recipe["package"] == {"name": project["name"], "version": project["version"]}
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]
    assert recipe["about"]["home"] == recipe["about"]["dev_url"] == project["urls"]["Source"]
    assert recipe["about"]["doc_url"] == project["urls"]["Documentation"]
    assert recipe["build"]["entry_points"] == [f"{name} = {path}" for name, path in project["scripts"].items()]
    assert f"python {project['requires-python']}" in recipe["requirements"]["run"]


def test_the_conda_recipe_has_the_dependencies_of_the_project(recipe):
    def floors(lines):
        found = dict(line.split() for line in lines if not line.startswith("python "))
        return {CONDA_NAMES.get(canonicalize_name(name), name): floor for name, floor in found.items()}

    assert floors(recipe["requirements"]["host"][:-1]) == dict(requirements(PROJECT["build-system"]["requires"]))
    core = dict(requirements(PROJECT["project"]["dependencies"]))
    assert floors(recipe["requirements"]["run"]) == core
    optional = {name: floor for name, floor in user_floors().items() if name not in core}
    assert floors(recipe["requirements"]["run_constrained"]) == optional


def test_the_newest_entry_of_the_changelog_is_the_version():
    headings = re.findall(r"^## (?:\[?)([\w.]+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == PROJECT["project"]["version"]


def test_the_citation_has_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["repository-code"] == PROJECT["project"]["urls"]["Source"]


def test_every_address_of_the_project_is_one_of_its_urls():
    """The addresses are placeholders until they are registered: they are replaced together (docs/releasing.md)."""
    urls = PROJECT["project"]["urls"]
    owner = urls["Source"].removeprefix("https://github.com/")
    host = urls["Documentation"].removeprefix("https://")
    files = [*ROOT.glob("*.*"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "conda").iterdir(), *ROOT.glob("src/**/*.py")]
    for path in files:
        if path.is_file() and path.suffix in {".md", ".toml", ".cff", ".yaml", ".yml", ".py"}:
            text = path.read_text(encoding="utf-8")
            owners = re.findall(r"(?:github\.com|githubusercontent\.com)/([\w-]*pcfi[\w-]*/pcfi)", text)
            hosts = re.findall(r"[\w-]*pcfi[\w-]*\.readthedocs\.io", text)
            assert set(owners) <= {owner}, path
            assert set(hosts) <= {host}, path


def test_lazy_names_are_visible_to_type_checkers():
    tree = ast.parse(Path(pcfi.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imported = {name.asname for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert imported == set(pcfi._LAZY)


def test_pre_commit_runs_the_commands_of_make_check():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    commands = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[1]
    assert [hook["entry"] for hook in hooks] == [
        line.strip().replace("$(BIN)", ".venv/bin") for line in commands.splitlines()
    ]


def test_the_reference_lists_every_public_name():
    listed = re.findall(r"^   ([\w.]+)$", (ROOT / "docs" / "api" / "index.md").read_text(), flags=re.MULTILINE)
    modules = {name: getattr(pcfi, name) for name in pcfi._LAZY if name != "PCFI"}
    public = {*pcfi.__all__, "PCFI", *(f"{name}.{public}" for name, one in modules.items() for public in one.__all__)}
    assert sorted(listed) == sorted(public)


def test_the_table_of_the_readme_is_that_of_the_benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_tables", ROOT / "benchmarks" / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    measured = {"values": json.loads((tables.RESULTS / "values.json").read_text())}
    assert f"{tables.BEGIN}{tables.readme_table(measured)}\n{tables.END}" in tables.README.read_text()


def test_the_accuracies_of_the_readme_are_those_of_the_reproduced_table():
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    table_1 = page.split("### Table 1:")[1].split("### Table 2:")[0]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for removed, title in (("whole nodes", "structural missing"), ("single cells", "uniform missing")):
        part = table_1.split(f"{title}, accuracy")[1].split("<details>")[0]
        lines = [line.split(" | ") for line in part.split("\n\n")[1].splitlines()]
        averages = {cells[0].removeprefix("| "): re.findall(r"\d+\.\d+", cells[-1]) for cells in lines}
        expected = [
            averages["FP, 40 steps"][0],
            averages["PCFI"][-1],
            averages["PCFI"][0],
            averages["PCFI, label-free, with position"][0],
        ]
        (row,) = re.findall(rf"^\| {removed} \| (.*) \|$", readme, flags=re.MULTILINE)
        assert row.replace("*", "").split(" | ") == [f"{float(average):.1f}" for average in expected]
