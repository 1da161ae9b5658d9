"""Outputs of the authors' implementation, and the paper's data sets, when they are beside the repo."""

import shutil

import numpy as np
import pytest

import pcfi

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cora(tmp_path_factory, request):
    shared = request.getfixturevalue("shared")
    datasets = pytest.importorskip("torch_geometric.datasets")
    from torch_geometric.transforms import LargestConnectedComponents

    root = tmp_path_factory.mktemp("data")
    shutil.copytree(shared / "data" / "Cora", root / "Cora")
    data = LargestConnectedComponents()(datasets.Planetoid(str(root), "Cora")[0])
    return data.x.numpy(), data.edge_index.numpy()


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
