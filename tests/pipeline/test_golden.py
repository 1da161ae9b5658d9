"""Golden outputs: of the reference implementation, in every clone; of the authors', when they are beside the repo."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import pcfi

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SOLVERS = {"steps": pcfi.FixedSteps(100), "settled": pcfi.UntilSettled(rtol=1e-9, max_steps=10_000)}


@pytest.mark.parametrize("kind", ["structural", "uniform"])
@pytest.mark.parametrize("output", SOLVERS)
def test_pcfi_equals_the_golden_output_of_the_reference_implementation(kind, output):
    golden = np.load(GOLDEN / f"states_{kind}.npz", allow_pickle=False)
    options = {"alpha": 0.8, "beta": 0.3, "objective": "representation", "solver": SOLVERS[output]}
    result = pcfi.impute(golden["features"], np.array(golden["flow"].nonzero()), known=golden["known"], **options)
    np.testing.assert_array_equal(result.hops, golden["hops"])
    np.testing.assert_allclose(result.values, golden[output], rtol=0, atol=1e-7)


@pytest.mark.parametrize("kind", ["structural", "uniform"])
def test_feature_propagation_equals_the_golden_output_of_the_reference_implementation(kind):
    golden = np.load(GOLDEN / f"states_{kind}.npz", allow_pickle=False)
    edges = np.array(golden["flow"].nonzero())
    result = pcfi.impute(golden["features"], edges, known=golden["known"], method="fp", solver=pcfi.FixedSteps(40))
    np.testing.assert_allclose(result.values, golden["fp"], rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def cora(tmp_path_factory, request):
    shared = request.getfixturevalue("shared")
    datasets = pytest.importorskip("torch_geometric.datasets")
    from torch_geometric.transforms import LargestConnectedComponents

    root = tmp_path_factory.mktemp("data")
    shutil.copytree(shared / "data" / "Cora", root / "Cora")
    data = LargestConnectedComponents()(datasets.Planetoid(str(root), "Cora")[0])
    return data.x.numpy(), data.edge_index.numpy()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["structural", "uniform"])
def test_hundred_steps_equal_the_authors_output(shared, cora, kind):
    features, edge_index = cora
    golden = np.load(shared / "golden" / f"Cora_{kind}.npz", allow_pickle=False)
    shape = tuple(golden["shape"])
    known = np.unpackbits(golden["known"])[: shape[0] * shape[1]].reshape(shape).astype(bool)
    assert features.shape == shape
    result = pcfi.impute(
        features,
        edge_index,
        known=known,
        alpha=float(golden["alpha"]),
        beta=float(golden["beta"]),
        solver=pcfi.FixedSteps(int(golden["steps"])),
        objective="representation",
    )
    ours = result.values[golden["rows"], golden["cols"]]
    theirs = golden["values"]
    assert np.linalg.norm(ours - theirs) < 1e-5 * np.linalg.norm(theirs)
    assert np.abs(ours - theirs).max() < 1e-5 * np.abs(theirs).max()
    assert np.linalg.norm(result.values) == pytest.approx(float(golden["frobenius"]), rel=1e-5)


@pytest.mark.slow
def test_settled_cora_is_settled(cora):
    features, edge_index = cora
    known = np.random.default_rng(0).random(features.shape) > 0.995
    result = pcfi.impute(features, edge_index, known=known, alpha=0.5, beta=0.1, objective="representation")
    assert result.converged
    assert result.residual <= 1e-4
    again = pcfi.impute(
        features,
        edge_index,
        known=known,
        solver=pcfi.UntilSettled(1e-7),
        alpha=0.5,
        beta=0.1,
        objective="representation",
    )
    reachable = ~result.unreachable
    assert np.abs(result.values - again.values)[reachable].max() < 5e-3
