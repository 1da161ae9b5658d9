"""A log scale is used where hidden cells are estimated better with it, not where a column merely looks log-normal."""

import numpy as np

import pcfi
from pcfi.estimation.channel_scale import fit_channel_scale
from pcfi.inputs.problem import read_problem


def graph_of(n_nodes):
    nodes = np.arange(n_nodes)
    return np.stack([nodes, (nodes + 1) % n_nodes])


def filled(truth, rate=0.3):
    missing = np.random.default_rng(2).random(truth.shape) < rate
    features = np.where(missing, np.nan, truth)
    result = pcfi.impute(features, graph_of(len(truth)))
    errors = ((result.values - truth) / truth.std(axis=0))[missing]
    looks = fit_channel_scale(read_problem(features, graph_of(len(truth)))).logarithmic
    return result, float(np.sqrt((errors**2).mean())), looks


def test_parts_of_a_sum_are_modelled_as_they_are():
    parts = np.exp(np.random.default_rng(0).normal(size=(200, 3)))
    result, error, looks = filled(np.column_stack([parts, parts.sum(axis=1)]))
    assert looks.all()
    assert not result.tuning.model.scale.logarithmic.any()
    assert error < 0.9


def test_products_are_modelled_by_their_logarithms():
    rng = np.random.default_rng(0)
    parts = np.exp(rng.normal(size=(200, 2)))
    result, _, looks = filled(np.column_stack([parts, parts.prod(axis=1) * np.exp(0.1 * rng.normal(size=200))]))
    assert looks.all()
    assert result.tuning.model.scale.logarithmic.all()
