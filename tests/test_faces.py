"""Each face gives the numbers of `impute`, and the laws that hold for any input hold for it."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pcfi
from random_problems import RandomProblem, problems
from table_faces import FACES

options = st.fixed_dictionaries(
    {
        "alpha": st.sampled_from([0.05, 0.5, 1.0]),
        "beta": st.sampled_from([0.0, 0.3]),
        "solver": st.sampled_from([pcfi.FixedSteps(9), pcfi.UntilSettled(1e-9, max_steps=5000)]),
        "standardize": st.booleans(),
    }
)
every_face = pytest.mark.parametrize("face", FACES)
few = settings(max_examples=25)


def run(face: str, problem: RandomProblem, **chosen):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        return FACES[face](problem, directed=problem.directed, **chosen)


def plainly(problem: RandomProblem, features=None, **chosen):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        features = problem.masked if features is None else features
        return pcfi.impute(features, problem.graph, directed=problem.directed, **chosen).values


@every_face
@few
@given(problems(), options)
def test_a_face_gives_the_numbers_of_impute(face, problem, chosen):
    features = problem.masked.astype(np.float64) if face == "networkx" else problem.masked
    values, expected = run(face, problem, **chosen), plainly(problem, features, **chosen)
    assert values.dtype == expected.dtype
    np.testing.assert_array_equal(values, expected)


@every_face
@few
@given(problems(), options)
def test_known_cells_survive_every_face(face, problem, chosen):
    values = run(face, problem, **chosen)
    np.testing.assert_array_equal(values[problem.known], problem.features[problem.known])
    assert np.isfinite(values).all()


@every_face
@few
@given(problems(), options, st.integers(0, 2**32 - 1))
def test_node_order_does_not_matter_to_any_face(face, problem, chosen, seed):
    order = np.random.default_rng(seed).permutation(len(problem.features))
    edges = np.argsort(order)[problem.edge_index]
    moved = RandomProblem(edges, problem.weights, problem.directed, problem.features[order], problem.known[order])
    tolerance = 3e-4 if problem.features.dtype == np.float32 else 1e-5
    np.testing.assert_allclose(run(face, moved, **chosen), run(face, problem, **chosen)[order], atol=tolerance)


@every_face
@few
@given(problems(), st.sampled_from([0.05, 0.5, 1.0]))
def test_settled_values_stay_within_the_known_range_of_every_face(face, problem, alpha):
    values = run(face, problem, alpha=alpha, beta=0.0)
    for d in np.flatnonzero(problem.known.any(axis=0)):
        known = problem.features[problem.known[:, d], d]
        assert known.min() <= values[:, d].min()
        assert values[:, d].max() <= known.max()


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
def test_an_absent_dependency_is_said_kindly(library, code, message):
    program = f"import sys, pcfi; sys.modules[{library!r}] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert message in done.stderr


def test_faces_load_their_library_only_when_used():
    program = "import sys, pcfi, pcfi.frames, pcfi.networkx, pcfi.anndata; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"pandas", "polars", "pyarrow", "narwhals", "networkx", "anndata", "sklearn", "scipy"}
