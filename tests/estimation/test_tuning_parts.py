"""What tuning hides, and what it learns from that: means, reliability, beta."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import pcfi
from pcfi.estimation.closed_form import LEVELS, Moments, Places, fit, moments_of
from pcfi.estimation.fold_runs import Whole
from pcfi.estimation.folds import make_folds
from pcfi.estimation.means import PRIORS, shrunken_means, sums_of_squares
from pcfi.inputs.problem import read_problem
from smooth_features import hidden_at, ring, smooth

# What is hidden


@pytest.mark.parametrize("kind", ["structural", "uniform", "block", "mixed"])
def test_folds_hide_known_cells_once_and_no_others(kind):
    rng = np.random.default_rng(0)
    features = hidden_at(rng, smooth(rng), kind)
    problem = read_problem(features, ring(200))
    times = np.zeros(features.shape, dtype=int)
    folds = make_folds(problem, np.random.default_rng(1), most=5)
    for fold in folds:
        np.testing.assert_array_equal(fold.truth, features[fold.nodes, fold.channels])
        assert not fold.problem.mask[fold.nodes, fold.channels].any()
        assert (fold.problem.mask | np.isnan(features)).sum() == features.size - len(fold.truth)
        times[fold.nodes, fold.channels] += 1
    wanted = ~np.isnan(features) & np.isnan(features).any(axis=0)
    np.testing.assert_array_equal(times, wanted)


def test_whole_nodes_are_hidden_where_whole_nodes_are_missing():
    rng = np.random.default_rng(0)
    features = hidden_at(rng, smooth(rng))
    for fold in make_folds(read_problem(features, ring(200)), rng, most=5):
        nodes, counts = np.unique(fold.nodes, return_counts=True)
        assert len(nodes) > 5
        assert (counts == features.shape[1]).all()


def test_nodes_that_miss_nearly_all_are_hidden_whole_though_no_two_patterns_are_equal():
    rng = np.random.default_rng(0)
    features = hidden_at(rng, smooth(rng))
    features[rng.random(features.shape) < 0.02] = np.nan
    fold = make_folds(read_problem(features, ring(200)), rng, most=5)[0]
    left = fold.problem.mask[np.unique(fold.nodes)].mean(axis=1)
    assert np.mean(left < 0.2) > 0.7


def test_single_cells_are_hidden_where_single_cells_are_missing():
    rng = np.random.default_rng(0)
    features = hidden_at(rng, smooth(rng), "uniform", rate=0.6)
    fold = make_folds(read_problem(features, ring(200)), rng, most=5)[0]
    left = fold.problem.mask[np.unique(fold.nodes)].mean(axis=1)
    assert np.mean(left < 0.2) < 0.25


def test_channels_that_miss_nothing_are_never_hidden():
    rng = np.random.default_rng(0)
    values = smooth(rng)
    features = hidden_at(rng, values)
    features[:, :2] = values[:, :2]
    for fold in make_folds(read_problem(features, ring(200)), rng, most=5):
        assert fold.channels.min() == 2


# What is learned


def test_means_are_shrunk_as_leaving_one_out_prefers():
    rng = np.random.default_rng(0)
    features = np.where(rng.random((40, 30)) < 0.05, 1.0, 0.0) * rng.uniform(0.5, 2, size=30)
    features[rng.random(features.shape) < 0.6] = np.nan
    problem = read_problem(features, ring(40))
    found = shrunken_means(problem.channels, sums_of_squares(problem))

    def left_out(prior: float) -> float:
        error = 0.0
        for column in features.T:
            known = column[~np.isnan(column)]
            spread = np.ptp(known)
            for place in range(len(known) if spread > 0 else 0):
                others = np.delete(known, place)
                error += ((known[place] - others.sum() / (len(others) + prior)) / spread) ** 2
        return error

    errors = [left_out(prior) for prior in PRIORS]
    assert found.prior == PRIORS[np.argmin(errors)]
    assert found.prior > 1
    n_known = (~np.isnan(features)).sum(axis=0)
    np.testing.assert_allclose(found.values, np.nansum(features, axis=0) / (n_known + found.prior))


def test_what_a_fold_leaves_known_has_the_means_that_it_would_have_alone():
    rng = np.random.default_rng(1)
    problem = read_problem(hidden_at(rng, smooth(rng), "uniform"), ring(200))
    whole = Whole.of(problem)
    for fold in make_folds(problem, rng, most=3):
        alone = sums_of_squares(fold.problem)
        np.testing.assert_allclose(whole.squares_without(fold), alone, rtol=1e-10)


def test_a_constant_channel_keeps_its_constant():
    features = np.where(np.random.default_rng(0).random((60, 3)) < 0.5, 7.0, np.nan)
    features[:, 0] = np.where(np.isnan(features[:, 0]), np.nan, np.random.default_rng(1).normal(size=60))
    values = pcfi.impute(features, ring(60)).values
    assert (values[:, 1:] == 7).all()


def direct_error(levels, diffused, received, wanted, kappa, beta):
    return ((wanted - kappa[levels] * (diffused + beta * received)) ** 2).sum()


def cells(rng, size=600):
    levels = rng.integers(1, 6, size=size)
    wanted = rng.normal(size=size)
    diffused = wanted / levels + rng.normal(size=size) * levels / 4
    received = 0.3 * wanted + rng.normal(size=size) / 2
    return levels, diffused, received, wanted


def test_reliability_and_beta_are_the_best_of_all():
    levels, diffused, received, wanted = cells(np.random.default_rng(0), 60_000)
    found = fit(moments_of(Places.together(levels), diffused, received, wanted))
    assert (np.diff(found.kappa[1:]) <= 0).all()
    assert found.kappa[0] == 1
    assert found.kappa.min() >= 0
    best = direct_error(levels, diffused, received, wanted, found.kappa, found.beta)
    for level, step in itertools.product(range(1, 6), (-0.02, 0.02)):
        kappa = found.kappa.copy()
        kappa[level] += step
        if (np.diff(kappa[1:6]) > 0).any():
            continue
        assert direct_error(levels, diffused, received, wanted, kappa, found.beta) > best
    for step in (-0.05, 0.05):
        assert direct_error(levels, diffused, received, wanted, found.kappa, found.beta + step) > best


def test_reliability_of_what_is_noise_is_small_and_of_the_truth_is_one():
    rng = np.random.default_rng(0)
    levels, wanted = rng.integers(1, 4, size=5000), rng.normal(size=5000)
    none = np.zeros(5000)
    noise = fit(moments_of(Places.together(levels), rng.normal(size=5000), none, wanted))
    truth = fit(moments_of(Places.together(levels), wanted, none, wanted))
    assert noise.kappa[1:4].max() < 0.05
    assert truth.kappa[1:4].min() > 0.99


def test_few_units_are_followed_less_than_many():
    levels, _, _, wanted = cells(np.random.default_rng(0), 60)
    none = np.zeros(60)
    places = Places.together(levels)
    few = fit(moments_of(replace(places, unit=np.full(60, 2 / 60)), wanted, none, wanted))
    many = fit(moments_of(places, wanted, none, wanted))
    assert few.kappa[1] < 0.8 < 0.95 < many.kappa[1]


def test_what_few_nodes_say_is_not_followed_against_the_other_folds():
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(12):
        values = rng.normal(size=(200, 40))
        features = hidden_at(rng, values, rate=0.12)  # noise: nothing beats the mean, and two dozen nodes are known
        tuned = pcfi.impute(features, ring(200))
        missing = np.isnan(features)
        means = np.broadcast_to(tuned.tuning.means.values, values.shape)
        errors.append([np.mean((filled - values)[missing] ** 2) for filled in (tuned.values, means)])
    tuned_error, mean_error = np.mean(errors, axis=0)
    assert tuned_error < 1.01 * mean_error


def test_without_anything_to_go_by_nothing_is_kept():
    empty = fit(Moments(*(np.zeros((LEVELS, 1)) for _ in range(8))))
    assert empty.beta == 0
    assert (empty.kappa[1:] == 0).all()
