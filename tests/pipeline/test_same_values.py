"""The pipeline gives the same values to whoever calls it, and its policies hold for every caller."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import pcfi
from pcfi import scale
from pcfi.backends import backend_for
from pcfi.estimation.folds import make_folds
from pcfi.estimation.graph_estimates import HiddenCellsBackend
from pcfi.inputs.problem import read_problem
from pcfi.pipeline import fill, run_stages
from pcfi.settings import Settings
from pcfi.stages.diffusion import Route

N_NODES = 120

CASES = {
    "channels with their own sources": {},
    "nodes known as a whole": {"kind": "structural"},
    "few sources and many channels": {"kind": "structural", "share_known": 0.04, "n_channels": 40},
    "a directed graph": {"directed": True},
    "the paper's steps": {"solver": pcfi.FixedSteps(9)},
    "channels in units of their spread": {"standardize": True},
    "zero where no source reaches": {"unreachable": "zero"},
    "one stage": {"beta": 0.0},
    "Feature Propagation": {"method": "fp"},
}


def problem_of(kind="uniform", share_known=0.4, n_channels=6, **options):
    """Features in float32 with an unreachable part, the edges of a graph, and the settings."""
    rng = np.random.default_rng(3)
    shape = (N_NODES, n_channels if kind == "uniform" else 1)
    values = rng.normal(size=(N_NODES, n_channels)).cumsum(axis=0)
    known = np.broadcast_to(rng.random(shape) < share_known, values.shape).copy()
    known[-3:] = False  # without an edge
    edges = rng.integers(0, N_NODES - 3, size=(2, 400))
    options = {"alpha": 0.6, "beta": 0.3, "objective": "representation"} | options
    return np.where(known, values, np.nan).astype(np.float32), edges, options


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.PcfiWarning)
        yield problem_of(**request.param)


def test_a_run_in_files_gives_the_values_of_a_call(case, tmp_path):
    features, edges, options = case
    expected = pcfi.impute(features, edges, **options)
    np.save(tmp_path / "x.npy", features)
    directed = options.get("directed", False)
    scale.build_graph(edges, tmp_path / "g", n_nodes=N_NODES, directed=directed)
    stored = scale.impute(tmp_path / "x.npy", tmp_path / "g", tmp_path / "y.npy", hops=tmp_path / "h.npy", **options)
    np.testing.assert_allclose(stored.open(), expected.values, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(stored.open("hops"), expected.hops)
    assert (stored.steps, stored.n_unreachable) == (expected.steps, expected.n_unreachable)


def test_a_fold_gives_the_values_of_a_call_at_its_hidden_cells(case):
    features, edges, options = case
    problem = read_problem(features, edges, directed=options.get("directed", False))
    fold = make_folds(problem, n_folds=1, seed=0)[0]
    backend, settings = HiddenCellsBackend(fold), Settings(**options)
    for alpha in (0.9, options["alpha"]):  # what a candidate leaves behind does not matter to the next
        filled = run_stages(fold.problem, replace(settings, alpha=alpha), backend)
    hidden = features.copy()
    hidden[fold.nodes, fold.channels] = np.nan
    for beta, values in ((settings.beta, fold.at(filled.values)), (0.0, backend.diffused)):
        expected = pcfi.impute(hidden, edges, **options | {"beta": beta}).values
        np.testing.assert_allclose(values, fold.at(expected), rtol=1e-5, atol=1e-6)


def test_the_cases_take_every_route():
    routes = set()
    for options in CASES.values():
        features, edges, given = problem_of(**options)
        problem = read_problem(features, edges, directed=given.get("directed", False))
        backend = backend_for(problem)
        seen = []

        def diffuse(diffusion, out, *, keep_product, seen=seen, of=backend.diffuse):
            seen.append(diffusion)
            return of(diffusion, out, keep_product=keep_product)

        backend.diffuse = diffuse
        run_stages(problem, Settings(**given), backend)
        routes |= {route for route, _ in seen[0].routes}
    assert routes == set(Route)


@pytest.mark.parametrize("wrong", [{"method": "zero"}, {"unreachable": "zero"}])
def test_a_category_cannot_be_zero_whoever_calls(wrong):
    features, edges, _ = problem_of()
    problem = replace(read_problem(features, edges), categorical=np.array([1, 2]))
    settings = Settings(**{"alpha": 0.5, "beta": 0.0} | wrong)
    with pytest.raises(pcfi.ParameterError, match="zero is not a category"):
        fill(problem, settings, backend_for(problem))
