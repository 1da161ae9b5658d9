"""The scripts in `examples/` run; real data sets give the same values through every interface."""

import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import pcfi
from array_interfaces import device_backend_on_cpu
from pcfi.pyg import ImputeFeatures

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory, request):
    shared = request.getfixturevalue("shared")
    root = tmp_path_factory.mktemp("data")
    shutil.copytree(shared / "data" / "Cora", root / "Cora")
    return root


def test_pcfi_and_fp_let_a_gcn_learn_where_zeros_do_not(data_folder, monkeypatch):
    monkeypatch.setenv("PCFI_DATA", str(data_folder))
    found = runpy.run_path(str(EXAMPLES / "cora.py"))["main"](n_seeds=1, epochs=25)
    assert found["pcfi"] > found["zero"] + 0.2
    assert found["fp"] > found["zero"] + 0.2


@pytest.mark.parametrize("kind", ["structural", "uniform"])
def test_cora_is_filled_alike_by_every_interface_and_engine(data_folder, kind):
    from torch_geometric.datasets import Planetoid

    data = Planetoid(str(data_folder), "Cora")[0]
    channels = slice(0, 60)
    x = data.x[:, channels].contiguous()
    rng = np.random.default_rng(0)
    known = torch.from_numpy(rng.random((len(x), 1 if kind == "structural" else 60)) < 0.02).expand_as(x).contiguous()
    data.x, data.missing = x, ~known
    options = {"alpha": 0.8, "beta": 0.3, "unreachable": "zero", "solver": pcfi.UntilSettled(1e-6)}
    with pytest.warns(pcfi.UnreachableWarning):
        plain = pcfi.impute(
            x.numpy(), data.edge_index.numpy(), known=known.numpy(), objective="representation", **options
        )
    with pytest.warns(pcfi.UnreachableWarning):
        transformed = ImputeFeatures("missing", **options)(data).x
    assert transformed.numpy().tobytes() == plain.values.tobytes()
    with device_backend_on_cpu(), pytest.warns(pcfi.UnreachableWarning):
        on_device = pcfi.impute(x, data.edge_index, known=known, objective="representation", **options)
    np.testing.assert_allclose(on_device.values.numpy(), plain.values, atol=2e-4)
    np.testing.assert_array_equal(on_device.hops.numpy(), plain.hops)
