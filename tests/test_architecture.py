"""The shape of the project: public names, what an import loads, sizes, and documented defaults."""

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pcfi
from pcfi.backends import backend_for
from pcfi.inputs.problem import read_problem
from pcfi.pipeline import fill
from pcfi.settings import METHODS, Settings

SOURCE = Path(pcfi.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

PUBLIC = {
    "UNREACHABLE",
    "ColumnWarning",
    "DivergenceError",
    "Evaluation",
    "FeatureError",
    "FixedSteps",
    "Graph",
    "GraphError",
    "GraphWarning",
    "Imputation",
    "NotSettledWarning",
    "ParameterError",
    "PcfiError",
    "PcfiWarning",
    "ScaleWarning",
    "TooLargeError",
    "Tuning",
    "TuningWarning",
    "UnreachableError",
    "UnreachableWarning",
    "UnsupportedTypeError",
    "UntilSettled",
    "evaluate",
    "impute",
    "knn_graph",
    "position",
    "pool",
    "prepare_graph",
    "suggest",
    "tune",
}


def test_public_names_are_frozen():
    assert set(pcfi.__all__) == PUBLIC
    assert all(hasattr(pcfi, name) for name in PUBLIC)
    assert set(dir(pcfi)) >= {"PCFI", "anndata", "frames", "geo", "networkx", "panel"}


def test_import_loads_numpy_and_nothing_heavier():
    code = "import sys, pcfi; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "numpy" in loaded
    heavy = {
        "scipy",
        "numba",
        "llvmlite",
        "tqdm",
        "torch",
        "torch_geometric",
        "pandas",
        "polars",
        "pyarrow",
        "narwhals",
        "anndata",
        "geopandas",
        "libpysal",
        "shapely",
        "sklearn",
        "matplotlib",
        "networkx",
        "zarr",
        "fsspec",
        "dask",
        "distributed",
    }
    assert not loaded & heavy


def test_integrations_are_imported_on_first_use_and_name_their_extra():
    code = """
import importlib.abc, sys, pcfi

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch_geometric":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

assert pcfi.pyg.ImputeFeatures.__name__ == "ImputeFeatures" if len(sys.argv) == 1 else True
if len(sys.argv) > 1:
    sys.meta_path.insert(0, Absent())
    pcfi.pyg
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    refused = subprocess.run([sys.executable, "-c", code, "absent"], capture_output=True, text=True, check=False)
    assert refused.stderr.strip().endswith(
        'ModuleNotFoundError: pcfi.pyg needs PyTorch Geometric: pip install "pcfi[pyg]"'
    )


def test_every_error_is_a_value_error_or_a_type_error():
    errors = [getattr(pcfi, name) for name in PUBLIC if name.endswith("Error") and name != "PcfiError"]
    assert errors
    for error in errors:
        assert issubclass(error, pcfi.PcfiError)
        assert issubclass(error, ValueError | TypeError)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_are_small(path):
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert lines <= 60, f"{node.name} has {lines} lines"


def test_class_names_are_unique():
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(str(path.relative_to(SOURCE)))
    duplicates = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert not duplicates


@pytest.mark.parametrize("path", [path for path in FILES if "_kernels" in path.parts], ids=lambda path: path.name)
def test_kernels_take_at_most_eight_arguments(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert len(node.args.args) <= 8, node.name


def documented_defaults(text: str) -> dict[str, str]:
    lines = re.findall(r"^(\w+(?:, \w+)*) : .*default=(.+)$", inspect.cleandoc(text), flags=re.MULTILINE)
    return {name: default for names, default in lines for name in names.split(", ")}


DOCUMENTED = [
    pcfi.impute,
    pcfi.tune,
    pcfi.evaluate,
    pcfi.prepare_graph,
    pcfi.suggest,
    pcfi.FixedSteps,
    pcfi.UntilSettled,
    pcfi.PCFI,
    pcfi.frames.impute,
    pcfi.networkx.impute,
    pcfi.anndata.impute,
    pcfi.datasets.load_states,
    pcfi.geo.build_graph,
    pcfi.geo.impute,
    pcfi.panel.impute,
    pcfi.scale.impute,
    pcfi.scale.build_graph,
    pcfi.scale.estimate,
]


@pytest.mark.parametrize("documented", DOCUMENTED, ids=lambda documented: f"{documented.__module__}")
def test_documented_defaults_are_those_of_the_signature(documented):
    stated = documented_defaults(documented.__doc__)
    actual = {
        name: parameter.default
        for name, parameter in inspect.signature(documented).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    assert set(stated) == set(actual)
    for name, default in actual.items():
        evaluated = eval(stated[name], {"UntilSettled": pcfi.UntilSettled, "np": np})
        assert evaluated == default or (evaluated != evaluated and default != default), name  # NaN


def test_settings_have_the_defaults_of_impute():
    parameters = inspect.signature(pcfi.impute).parameters
    for field in dataclasses.fields(Settings):
        assert field.default == parameters[field.name].default, field.name
    assert set(parameters) - {field.name for field in dataclasses.fields(Settings)} == {
        "bounds",
        "categorical",
        "features",
        "graph",
        "known",
    }


def test_every_method_has_its_fill():
    problem = read_problem(np.array([[1.0], [np.nan], [4.0]]), [[0, 1], [1, 2]])
    filled = {
        method: fill(problem, Settings(method=method, alpha=0.5, beta=0.0), backend_for(problem)).values[1, 0]
        for method in METHODS
    }
    assert filled == pytest.approx({"pcfi": 2.5, "fp": 2.5 * np.sqrt(1.5), "neighbors": 2.5, "mean": 2.5, "zero": 0.0})


def test_version_is_written_once():
    from importlib.metadata import version

    assert pcfi.__version__ == version("pcfi")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pcfi.nonsense
    assert not [path for path in FILES if pcfi.__version__ in path.read_text()]


def test_the_documented_path_from_impute_to_a_kernel_is_the_call_stack(monkeypatch):
    from pcfi.stages.diffusion import block_solver

    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    documented = re.findall(r"^\d+\. `pcfi/([\w/]+\.py)`", page.partition("## From `impute()`")[2], flags=re.MULTILINE)
    kernel, stack = block_solver.solve_steady_state, []

    def record(*arguments):
        files = [Path(frame.filename) for frame in inspect.stack()]
        stack.extend(path.relative_to(SOURCE).as_posix() for path in reversed(files) if path.is_relative_to(SOURCE))
        return kernel(*arguments)

    monkeypatch.setattr(block_solver, "solve_steady_state", record)
    features = np.array([[1.0, 2.0], [np.nan, 3.0], [np.nan, np.nan], [4.0, 1.0]])
    pcfi.impute(features, [[0, 1, 2], [1, 2, 3]], alpha=0.5, beta=0.1, objective="representation")
    helpers = {"_kernels/threads.py", "_kernels/thread_team.py"}
    assert [path for path in dict.fromkeys(stack) if path not in helpers] == documented[:-1]
    assert (SOURCE / documented[-1]).read_text().count("def solve_steady_state(") == 1
