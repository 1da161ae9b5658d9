"""Intervals and expected errors of columns that differ in kind: two values, mostly one value, counts; many columns."""

import numpy as np
import pandas as pd
import pytest

import pcfi
from pcfi.estimation import fitting, training
from pcfi.estimation.conformal_scores import ConformalScores
from pcfi.estimation.error_model import log_relative_deviation, shrunken_skewness
from spatial_fields import hide, neighbour_graph, smooth_field


def covered(result, truth):
    low, high = result.interval(0.9)
    return (low <= truth) & (truth <= high)


def fields(graph, n_columns, seed=1):
    """Smooth fields of variance 1, each with some noise."""
    rng = np.random.default_rng(seed)
    smooth = np.stack([smooth_field(graph, seed + number) for number in range(n_columns)], axis=1)
    return smooth / smooth.std(axis=0) + 0.3 * rng.standard_normal(smooth.shape)


def test_whether_an_interval_leaves_out_one_of_two_values_depends_on_its_probability_alone():
    graph = neighbour_graph(1500, 0)
    rng = np.random.default_rng(2)
    chance = 1 / (1 + np.exp(1.2 - 2 * fields(graph, 6)))
    truth = (rng.random(chance.shape) < chance).astype(float)
    features, missing = hide(truth, 0.5, 3)
    result = pcfi.impute(features, graph)
    low, high = result.interval(0.9)
    for column in range(
        6
    ):  # with scores over expected errors, calm neighbourhoods would leave out more probable values
        cells = missing[:, column] & (result.hops[:, column] == 1)
        filled, without = result.values[cells, column], high[cells, column] < 1
        assert 0 < without.sum() < cells.sum()
        assert filled[without].max() <= filled[~without].min()
        assert (low[cells, column][without] == 0).all()
    assert covered(result, truth)[missing].mean() == pytest.approx(0.9, abs=0.025)


def test_intervals_include_the_value_that_most_cells_have_where_it_is_most_probable():
    graph = neighbour_graph(600, 0)
    values = fields(graph, 4)
    truth = np.where(values > 0.8, values, 0.0)  # four fifths are 0, the others are near 0 or not
    features, missing = hide(truth, 0.3, 3)
    result = pcfi.impute(features, graph)
    others = np.nansum(features, axis=0) / np.nansum(features != 0, axis=0, where=~np.isnan(features))
    np.testing.assert_allclose(result.tuning.model.scale.mean_of_others, others)
    probable = missing & (np.abs(result.values) <= np.abs(result.values - others))
    assert (result.interval(0.5)[0][probable] <= 0).all()
    assert probable.sum() > 300


def test_columns_of_two_kinds_do_not_share_scores():
    two, other = np.full(50, 0.5), np.full(60, 2.0)
    scores = ConformalScores.of(np.concatenate([two, other]), np.repeat([0, 1], [50, 60]), np.ones(110, dtype=np.int64))
    alone = [scores.of_channels(np.arange(2) == number).quantiles(0.9, 2)[number] for number in range(2)]
    assert alone == [0.5, 2.0]
    assert scores.quantiles(0.9, 2)[0] == 2.0  # pooled, the larger ones count in both
    assert np.isinf(ConformalScores.none().quantiles(0.9, 2)).all()


def test_relative_deviation_of_poisson_counts_is_the_root_of_their_mean():
    mean, of_channel = np.array([1.0, 4.0, 9.0]), 4.0
    standardized, skewness = (mean - of_channel) / np.sqrt(of_channel), 1 / np.sqrt(of_channel)
    np.testing.assert_allclose(np.exp(log_relative_deviation(standardized, skewness)), np.sqrt(mean / of_channel))


def test_skewness_is_that_of_the_values_if_they_are_many_and_0_if_it_may_be_chance():
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.exponential(size=100_000), np.linspace(-1, 1, 20) + 1e-3 * np.arange(20) ** 2, np.ones(3)]
    )
    found = shrunken_skewness(values, np.repeat([0, 1, 2], [100_000, 20, 3]), 4)
    assert found[0] == pytest.approx(2, abs=0.1)
    assert found[1:].tolist() == [0.0, 0.0, 0.0]


def test_categories_do_not_disturb_the_expected_errors_of_numbers():
    """One regression for both made the expected errors of ages 20 to 25 % too large beside regions and genders."""
    rng = np.random.default_rng(0)
    place = rng.random((600, 2))
    nearest = np.argsort(((place[:, None] - place) ** 2).sum(axis=2), axis=1)[:, 1:5]
    graph = np.stack([np.repeat(np.arange(600), 4), nearest.ravel()])
    field = np.sin(4 * place[:, 0]) + np.cos(5 * place[:, 1])
    numbers = {"age": 40 + 10 * field + 5 * rng.normal(size=600), "rate": 50 + 20 * field + 5 * rng.normal(size=600)}
    words = {"region": np.char.add(*np.where(place > 0.5, "ab", "cd").T), "gender": rng.choice(["f", "m"], 600)}
    truth = pd.DataFrame({**numbers, **words})
    table = truth.mask(rng.random(truth.shape) < 0.25)

    def expected_over_actual(categorical):
        result = pcfi.frames.impute(table, graph, channels=list(numbers), categorical=categorical)
        missing = table[list(numbers)].isna().to_numpy()
        actual = (result.values[list(numbers)] - truth[list(numbers)]).abs().to_numpy()[missing]
        return result.expected_error[list(numbers)].to_numpy()[missing].mean() / actual.mean()

    assert expected_over_actual(list(words)) == pytest.approx(expected_over_actual([]), abs=0.07)


def test_expected_errors_of_counts_grow_with_the_estimate():
    graph = neighbour_graph(1500, 0)
    rng = np.random.default_rng(2)
    mean = np.exp(fields(graph, 3))
    truth = rng.poisson(3 * mean).astype(float)
    features, missing = hide(truth, 0.3, 3)
    result = pcfi.impute(features, graph)
    assert result.tuning.model.errors.regression.slopes[0, 4] > 0.3
    estimate, expected, actual = (
        part[missing] for part in (result.values, result.expected_error, np.abs(result.values - truth))
    )
    for part in (estimate > np.quantile(estimate, 0.9), estimate < np.quantile(estimate, 0.3)):
        assert expected[part].mean() == pytest.approx(actual[part].mean(), rel=0.2)


@pytest.mark.parametrize("kind", ["rows", "cells"])
def test_errors_of_wide_tables_are_learned_from_other_rows_than_those_of_the_fit(monkeypatch, kind):
    graph = neighbour_graph(400, 0)
    mixed = fields(graph, 3) @ np.random.default_rng(1).standard_normal((3, 70))
    truth = mixed + 0.3 * np.random.default_rng(2).standard_normal(mixed.shape)
    missing = np.random.default_rng(3).random((400, 1) if kind == "rows" else truth.shape) < 0.3
    features = np.where(missing, np.nan, truth)
    monkeypatch.setattr(training, "MAX_TRAINING_CELLS", 4_000)
    seen = []

    def watched(fits, hidden, scale):
        extended = training.beyond_training(fits, hidden, scale)
        seen.append((fits, extended))
        return extended

    monkeypatch.setattr(fitting, "beyond_training", watched)
    result = pcfi.impute(features, graph)
    for before, after in zip(*seen[-1], strict=True):
        for fit, more in zip(before, after, strict=True):
            assert len(more.estimate.truth) > 2 * len(fit.estimate.truth)
            places = np.searchsorted(more.estimate.sources, fit.estimate.sources)
            np.testing.assert_array_equal(more.estimate.sources[places], fit.estimate.sources)
            np.testing.assert_allclose(more.estimate.value[places], fit.estimate.value, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(more.estimate.variance[places], fit.estimate.variance, rtol=1e-9)
    assert covered(result, truth)[np.isnan(features)].mean() > 0.87
