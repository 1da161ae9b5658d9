"""Each integration returns the values of `impute`, and keeps the laws that hold for any input."""

import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcfi
from hypothesis_profiles import examples
from random_problems import RandomProblem, problems
from table_interfaces import INTERFACES, PAPER, PAPER_INTERFACES

options = st.fixed_dictionaries(
    {
        "alpha": st.sampled_from([0.05, 0.5, 1.0]),
        "beta": st.sampled_from([0.0, 0.3]),
        "solver": st.sampled_from([pcfi.FixedSteps(9), pcfi.UntilSettled(1e-9, max_steps=5000)]),
        "standardize": st.booleans(),
    }
)
every_interface = pytest.mark.parametrize("interface", INTERFACES)
every_paper_interface = pytest.mark.parametrize("interface", PAPER_INTERFACES)
few = examples(25)


def run(interface: str, problem: RandomProblem, **chosen):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        warnings.simplefilter("ignore", pcfi.TuningWarning)
        return INTERFACES[interface](problem, directed=problem.directed, **chosen)


def impute_arrays(problem: RandomProblem, features=None, **chosen):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        warnings.simplefilter("ignore", pcfi.TuningWarning)
        features = problem.masked if features is None else features
        return pcfi.impute(features, problem.graph, directed=problem.directed, **PAPER | chosen).values


@every_interface
@few
@given(problems(), options)
def test_an_interface_returns_the_values_of_impute(interface, problem, chosen):
    features = problem.masked.astype(np.float64) if interface == "networkx" else problem.masked
    objective = "values" if interface == "estimator" else "representation"
    values = run(interface, problem, **chosen)
    expected = impute_arrays(problem, features, objective=objective, **chosen)
    assert values.dtype == expected.dtype
    np.testing.assert_array_equal(values, expected)


@every_interface
@few
@given(problems(), options)
def test_known_cells_survive_every_interface(interface, problem, chosen):
    values = run(interface, problem, **chosen)
    np.testing.assert_array_equal(values[problem.known], problem.features[problem.known])
    assert np.isfinite(values).all()


@every_paper_interface
@few
@given(problems(), options, st.integers(0, 2**32 - 1))
def test_node_order_does_not_matter_to_any_interface(interface, problem, chosen, seed):
    order = np.random.default_rng(seed).permutation(len(problem.features))
    edges = np.argsort(order)[problem.edge_index]
    moved = RandomProblem(edges, problem.weights, problem.directed, problem.features[order], problem.known[order])
    tolerance = 3e-4 if problem.features.dtype == np.float32 else 1e-5
    np.testing.assert_allclose(
        run(interface, moved, **chosen), run(interface, problem, **chosen)[order], atol=tolerance
    )


@every_paper_interface
@few
@given(problems(), st.sampled_from([0.05, 0.5, 1.0]))
def test_settled_values_stay_within_the_known_range_of_every_interface(interface, problem, alpha):
    values = run(interface, problem, alpha=alpha, beta=0.0)
    for d in np.flatnonzero(problem.known.any(axis=0)):
        known = problem.features[problem.known[:, d], d]
        assert known.min() <= values[:, d].min()
        assert values[:, d].max() <= known.max()


@every_interface
@few
@given(problems(), options)
def test_every_interface_gives_the_same_bits_twice_and_leaves_its_input_alone(interface, problem, chosen):
    before = problem.masked.tobytes(), problem.edge_index.tobytes()
    assert run(interface, problem, **chosen).tobytes() == run(interface, problem, **chosen).tobytes()
    assert (problem.masked.tobytes(), problem.edge_index.tobytes()) == before


@every_paper_interface
@few
@given(problems(), options, st.integers(0, 2**32 - 1))
def test_channel_order_does_not_matter_to_any_interface(interface, problem, chosen, seed):
    order = np.random.default_rng(seed).permutation(problem.features.shape[1])
    moved = replace(problem, features=problem.features[:, order], known=problem.known[:, order])
    tolerance = 3e-4 if problem.features.dtype == np.float32 else 1e-5
    np.testing.assert_allclose(
        run(interface, moved, **chosen), run(interface, problem, **chosen)[:, order], atol=tolerance
    )


@every_paper_interface
@few
@given(problems(), st.sampled_from([0.05, 0.5, 1.0]))
def test_settled_diffusion_follows_the_channels_unit_in_every_interface(interface, problem, alpha):
    chosen = {"alpha": alpha, "beta": 0.0, "solver": pcfi.UntilSettled(1e-11, max_steps=20_000)}
    wide = replace(problem, features=problem.features.astype(np.float64))
    moved = replace(wide, features=3.0 * wide.features + 7.0)
    has_sources = problem.known.any(axis=0)  # a channel without any is 0 in whatever unit
    expected = 3.0 * run(interface, wide, **chosen) + 7.0
    np.testing.assert_allclose(run(interface, moved, **chosen)[:, has_sources], expected[:, has_sources], atol=1e-6)


@every_interface
@few
@given(problems(), st.sampled_from([0.05, 0.5, 1.0]))
def test_a_constant_channel_stays_constant_in_every_interface(interface, problem, alpha):
    constant = replace(problem, features=np.full_like(problem.features, 4.5))
    values = run(interface, constant, alpha=alpha, beta=0.3)
    assert (values[:, problem.known.any(axis=0)] == 4.5).all()


@pytest.mark.parametrize(
    ("library", "code", "message"),
    [
        ("sklearn", "pcfi.PCFI", 'pcfi.PCFI needs scikit-learn: pip install "pcfi[sklearn]"'),
        ("anndata", "pcfi.anndata.impute(None)", 'pcfi.anndata needs anndata: pip install "pcfi[anndata]"'),
        (
            "narwhals",
            "import pandas; pcfi.impute(pandas.DataFrame(), [[], []])",
            'a table needs narwhals: pip install "pcfi[frames]"',
        ),
    ],
)
def test_an_absent_dependency_is_named_with_its_extra(library, code, message):
    program = f"import sys, pcfi; sys.modules[{library!r}] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert message in done.stderr


def test_interfaces_load_their_library_only_when_used():
    program = "import sys, pcfi, pcfi.frames, pcfi.networkx, pcfi.anndata; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"pandas", "polars", "pyarrow", "narwhals", "networkx", "anndata", "sklearn", "scipy"}
