"""AnnData: a filled layer and a confidence layer, and X left alone."""

import warnings
from importlib.util import find_spec
from pathlib import Path

import anndata
import numpy as np
import pytest
from scipy import sparse

import pcfi
from pcfi import system_memory


def cells(kind=np.asarray, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(1.0, size=(30, 8)).astype(np.float32)
    adata = anndata.AnnData(kind(counts))
    adata.var_names = [f"g{k}" for k in range(8)]
    near = sparse.random_array((30, 30), density=0.2, random_state=rng, format="csr")
    adata.obsp["connectivities"] = near + near.T
    return adata, counts


every_kind = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])


@every_kind
def test_zeros_may_count_as_missing(kind):
    adata, counts = cells(kind)
    pcfi.anndata.impute(adata, zeros_missing=True, alpha=0.5, beta=0.0, objective="representation")
    expected = pcfi.impute(
        counts, adata.obsp["connectivities"], known=counts != 0, beta=0.0, alpha=0.5, objective="representation"
    )
    np.testing.assert_array_equal(adata.layers["pcfi"], expected.values)
    np.testing.assert_array_equal(adata.layers["pcfi_confidence"], expected.confidence)
    assert adata.uns["pcfi"]["status"] == expected.status


@every_kind
def test_x_is_left_alone(kind):
    adata, counts = cells(kind)
    graph = adata.obsp["connectivities"].copy()
    added = pcfi.anndata.impute(
        adata,
        zeros_missing=True,
        genes=["g1"],
        copy=True,
        key_added="mine",
        alpha=0.5,
        beta=0.0,
        objective="representation",
    )
    assert not adata.layers
    assert set(added.layers) == {"mine", "mine_confidence"}
    for one in (adata, added):
        np.testing.assert_array_equal(one.X.toarray() if sparse.issparse(one.X) else one.X, counts)
        assert (one.obsp["connectivities"] != graph).nnz == 0


@every_kind
@pytest.mark.parametrize("genes", [["g6", "g2"], np.isin(np.arange(8), [2, 6])])
def test_chosen_genes_are_filled_from_themselves_alone(kind, genes):
    adata, counts = cells(kind)
    pcfi.anndata.impute(adata, zeros_missing=True, genes=genes, alpha=0.5, beta=0.0, objective="representation")
    chosen = [2, 6]
    expected = pcfi.impute(
        counts[:, chosen],
        adata.obsp["connectivities"],
        known=counts[:, chosen] != 0,
        beta=0.0,
        alpha=0.5,
        objective="representation",
    )
    layer, confidence = adata.layers["pcfi"], adata.layers["pcfi_confidence"]
    if kind is not np.asarray:
        assert sparse.issparse(layer)
        assert confidence.nnz == 60
        layer, confidence = layer.toarray(), confidence.toarray()
    others = np.setdiff1d(np.arange(8), chosen)
    np.testing.assert_array_equal(layer[:, chosen], expected.values)
    np.testing.assert_array_equal(layer[:, others], counts[:, others])
    np.testing.assert_array_equal(confidence[:, chosen], expected.confidence)
    assert (confidence[:, others] == 0).all()


def test_nan_is_missing_and_a_layer_can_be_read():
    adata, counts = cells()
    counts[::3, 1] = np.nan
    adata.layers["measured"] = counts
    pcfi.anndata.impute(adata, "measured", alpha=0.5, beta=0.0, objective="representation")
    expected = pcfi.impute(counts, adata.obsp["connectivities"], beta=0.0, alpha=0.5, objective="representation").values
    np.testing.assert_array_equal(adata.layers["pcfi"], expected)


def test_nothing_missing_is_said():
    adata, _ = cells()
    with pytest.warns(pcfi.PcfiWarning, match="nothing is missing in X: pass zeros_missing=True"):
        pcfi.anndata.impute(adata, alpha=0.5, beta=0.0, objective="representation")


def test_what_is_added_can_be_written_to_a_file(tmp_path):
    adata, _ = cells(sparse.csr_matrix)
    pcfi.anndata.impute(adata, zeros_missing=True, genes=["g1", "g2"], alpha=0.5, beta=0.0, objective="representation")
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(again.layers["pcfi"].toarray(), adata.layers["pcfi"].toarray())
    assert again.uns["pcfi"]["alpha"] == 0.5


def test_what_does_not_fit_into_memory_is_refused_before_it_is_tried(monkeypatch):
    adata = anndata.AnnData(sparse.csr_matrix((3_000, 20_000), dtype=np.float32))
    adata.obsp["connectivities"] = sparse.csr_matrix((3_000, 3_000), dtype=np.float32)
    monkeypatch.setattr(system_memory, "_container_limit", lambda: 500_000_000)  # page cache is not in it
    wanted = "20,000 genes of 3,000 cells needs about 1.1 GB, but only 0.5 GB of memory is available"
    with pytest.raises(pcfi.TooLargeError, match=wanted):
        pcfi.anndata.impute(adata, zeros_missing=True, alpha=0.5, beta=0.0, objective="representation")


REFUSED = {
    "graph": ({"obsp_key": "near"}, pcfi.GraphError, "no graph 'near', only 'connectivities': name one with obsp_key="),
    "layer": ({"layer": "raw"}, pcfi.FeatureError, "no layer 'raw', only none"),
    "gene": ({"genes": ["g1", "actin"]}, pcfi.ParameterError, r"'actin', .* \(1 such name\)"),
    "one gene": ({"genes": "g1"}, pcfi.ParameterError, r"use \['g1'\]"),
    "mask": ({"genes": np.ones(3, dtype=bool)}, pcfi.ParameterError, r"mask of shape \(3,\), but there are 8 genes"),
    "no gene": ({"genes": np.zeros(8, dtype=bool)}, pcfi.ParameterError, "genes is empty"),
    "flag": ({"zeros_missing": 1}, pcfi.ParameterError, "zeros_missing must be True or False"),
    "type": ({"adata": np.eye(3)}, pcfi.UnsupportedTypeError, "must be an AnnData"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_gets_an_error_that_says_what_to_do(case):
    given, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        pcfi.anndata.impute(**{"adata": cells()[0], **given})


def test_hidden_counts_of_blood_cells_are_found_again_better_than_by_the_mean():
    package = find_spec("scanpy")
    if package is None:
        pytest.skip("scanpy, which ships the data, is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file is in an old format
        reduced = anndata.read_h5ad(Path(package.origin).parent / "datasets" / "10x_pbmc68k_reduced.h5ad")
    expression = reduced.raw.X.toarray()
    hidden = np.random.default_rng(0).random(expression.shape) < 0.1
    adata = anndata.AnnData(
        np.where(hidden, np.float32(np.nan), expression), obsp={"connectivities": reduced.obsp["connectivities"]}
    )
    errors = {}
    for method in ("pcfi", "mean"):
        pcfi.anndata.impute(adata, method=method)
        errors[method] = np.sqrt(np.mean((adata.layers["pcfi"] - expression)[hidden] ** 2))
    assert errors["pcfi"] < 0.9 * errors["mean"]


def test_genes_are_filled_with_the_values_of_impute():
    rng = np.random.default_rng(0)
    angle = np.linspace(0, 2 * np.pi, 60)
    waves = np.sin(angle[:, None] + [0.0, 0.1, 0.2]) + 0.3 * rng.normal(size=(60, 3))
    adata = anndata.AnnData(np.where(rng.random((60, 3)) < 0.5, np.nan, waves))
    ring = sparse.diags_array([1.0] * 59, offsets=1, shape=(60, 60), format="csr")
    adata.obsp["connectivities"] = ring + ring.T
    pcfi.anndata.impute(adata)
    tuned = pcfi.impute(adata.X, adata.obsp["connectivities"])
    np.testing.assert_array_equal(adata.layers["pcfi"], tuned.values)
    assert adata.uns["pcfi"]["beta"] == tuned.beta == 0
    pcfi.anndata.impute(adata, alpha=0.5, beta=0.3, objective="representation")
    paper = pcfi.impute(adata.X, adata.obsp["connectivities"], alpha=0.5, beta=0.3, objective="representation")
    np.testing.assert_array_equal(adata.layers["pcfi"], paper.values)
    assert adata.uns["pcfi"]["beta"] == 0.3


def test_expected_errors_and_intervals_become_layers():
    rng = np.random.default_rng(0)
    angle = np.arange(80) / 80 * 2 * np.pi
    truth = 5 + np.stack([np.sin(angle + shift) for shift in (0, 1, 2)], axis=1) + 0.1 * rng.standard_normal((80, 3))
    matrix = np.where(rng.random(truth.shape) < 0.3, np.nan, truth)
    adata = anndata.AnnData(matrix)
    ends = np.arange(80), (np.arange(80) + 1) % 80
    adata.obsp["connectivities"] = sparse.csr_array((np.ones(80), ends), shape=(80, 80))
    pcfi.anndata.impute(adata, interval=0.9)
    expected = pcfi.impute(matrix, adata.obsp["connectivities"])
    np.testing.assert_array_equal(adata.layers["pcfi_expected_error"], expected.expected_error)
    for layer, bound in zip(("pcfi_low", "pcfi_high"), expected.interval(0.9), strict=True):
        np.testing.assert_array_equal(adata.layers[layer], bound)
    some = anndata.AnnData(matrix, obsp={"connectivities": adata.obsp["connectivities"]})
    pcfi.anndata.impute(some, genes=np.array([True, False, True]), interval=0.9)
    assert (some.layers["pcfi_expected_error"][:, 1] == 0).all()
    np.testing.assert_array_equal(some.layers["pcfi_low"][:, 1], matrix[:, 1])
