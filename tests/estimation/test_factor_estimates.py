"""Factors: the same estimates for all cells of rows and for single cells, and from dense and sparse matrices."""

import pickle

import numpy as np
from scipy import sparse

import pcfi
from pcfi.estimation.factor_model import FactorModel, fit_factor_model, packed, unpacked
from pcfi.estimation.graph_link import GraphLink, combine, combine_cells

RNG = np.random.default_rng(0)


def factor_table(n_rows=400, n_columns=6, rank=2, rate=0.5):
    loadings = RNG.normal(size=(n_columns, rank))
    values = RNG.normal(size=(n_rows, rank)) @ loadings.T + 0.3 * RNG.normal(size=(n_rows, n_columns))
    known = (RNG.random(values.shape) < rate).astype(float)
    return loadings, values * known, known


def test_unpacking_inverts_packing():
    square = RNG.normal(size=(5, 3, 3))
    symmetric = square + square.transpose(0, 2, 1)
    np.testing.assert_array_equal(unpacked(packed(symmetric), 3), symmetric)


def test_sparse_and_dense_matrices_give_one_factor_model_that_finds_the_covariance():
    loadings, values, known = factor_table(n_rows=4000)
    dense = fit_factor_model(values, known, 2)
    thin = fit_factor_model(sparse.csr_array(values), sparse.csr_array(known), 2)
    np.testing.assert_allclose(dense.loadings, thin.loadings, rtol=1e-8, atol=1e-10)
    found, true = (part @ part.T for part in (dense.loadings, loadings))
    np.testing.assert_allclose(found, true, atol=0.1 * np.abs(true).max())


def test_cells_of_rows_and_single_cells_have_the_textbook_estimate():
    n_columns, rank = 4, 2
    model = FactorModel(RNG.normal(size=(n_columns, rank)), np.full(n_columns, 0.5))
    link = GraphLink(np.full(n_columns, 0.7), np.full(n_columns, 0.2), RNG.normal(size=(n_columns, rank)))
    known = (RNG.random((3, n_columns)) < 0.5).astype(float)
    posterior = model.posterior(RNG.normal(size=known.shape) * known, known)
    graph = RNG.normal(size=known.shape)
    graph[0, 0] = np.nan
    every = combine(graph, posterior, model, link)
    rows, channels = (part.ravel() for part in np.indices(graph.shape))
    single = combine_cells(graph.ravel(), rows, channels, posterior, model, link)
    np.testing.assert_allclose(every.value.ravel(), single.value)
    np.testing.assert_allclose(every.variance.ravel(), single.variance)
    mean, covariance = posterior[0][1], posterior[1][1]
    loading, delta = model.loadings[2], link.factors[2]
    own, with_factors = loading @ covariance @ loading + 0.5, loading @ covariance @ delta
    of_graph = 0.7**2 * own + 2 * 0.7 * with_factors + delta @ covariance @ delta + 0.2
    gain = (0.7 * own + with_factors) / of_graph
    expected = loading @ mean + gain * (graph[1, 2] - 0.7 * loading @ mean - delta @ mean)
    np.testing.assert_allclose(every.value[1, 2], expected)
    np.testing.assert_allclose(every.variance[1, 2], own - gain * (0.7 * own + with_factors))


def test_reports_of_columns_are_made_when_looked_at_and_survive_pickling():
    table = np.cumsum(RNG.normal(size=(80, 3)), axis=0)
    table[RNG.random(table.shape) < 0.3] = np.nan
    columns = pcfi.impute(table, [np.arange(79), np.arange(1, 80)]).columns
    assert "_reports" not in vars(columns)
    copy = pickle.loads(pickle.dumps(columns))
    assert [one.verdict for one in copy] == [one.verdict for one in columns]
    assert len(columns) == 3
    assert columns[0].n_known == int((~np.isnan(table[:, 0])).sum())
