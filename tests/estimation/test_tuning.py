"""Choosing parameters without labels: the laws of calibrated values, representations, and little to go by."""

import warnings

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

import pcfi
from array_interfaces import device_backend_on_cpu
from pcfi.estimation.search import DEFAULT_ALPHA, DEFAULT_BETA
from random_problems import numba_threads, random_known
from smooth_features import hidden_at, ring, smooth

pytestmark = pytest.mark.slow

# Laws of calibrated values


@pytest.mark.parametrize("kind", ["structural", "uniform", "block"])
def test_known_cells_survive_and_the_input_is_untouched(kind):
    rng = np.random.default_rng(2)
    features = hidden_at(rng, smooth(rng), kind)
    before = features.tobytes()
    result = pcfi.impute(features, ring(200))
    pcfi.tune(features, ring(200))
    known = ~np.isnan(features)
    assert features.tobytes() == before
    assert result.values[known].tobytes() == features[known].tobytes()
    assert np.isfinite(result.values).all()
    assert result.objective == "values"


@pytest.mark.parametrize("objective", ["values", "representation"])
def test_what_stands_in_missing_cells_is_never_looked_at(objective):
    rng = np.random.default_rng(3)
    values = smooth(rng)
    known = random_known(rng, "uniform", values.shape, 0.4)
    results = [
        pcfi.impute(np.where(known, values, junk), ring(200), known=known, objective=objective)
        for junk in (values, 1e6 * rng.normal(size=values.shape), np.nan)
    ]
    for other in results[1:]:
        assert other.values.tobytes() == results[0].values.tobytes()
        assert repr(other.tuning) == repr(results[0].tuning)


def test_the_same_seed_gives_the_same_bits_and_another_one_may_not():
    rng = np.random.default_rng(4)
    features = hidden_at(rng, smooth(rng), "uniform")
    same = [pcfi.impute(features, ring(200), random_state=5).values.tobytes() for _ in range(2)]
    other = pcfi.impute(features, ring(200), random_state=6).values.tobytes()
    assert same[0] == same[1] != other


def test_the_number_of_threads_changes_no_bit(digits):
    def run():
        result = pcfi.impute(digits.features, digits.edges)
        return result.values.tobytes(), result.beta, result.expected_error.tobytes()

    usual = run()
    with numba_threads(1), threadpool_limits(1):
        assert run() == usual


@pytest.mark.parametrize("kind", ["structural", "uniform"])
def test_scales_of_channels_do_not_matter(kind):
    rng = np.random.default_rng(5)
    features = hidden_at(rng, smooth(rng), kind)
    scales = np.array([1.0, 1000.0, 2.0**-20, 3.0, 1e5, 0.1])
    plain, scaled = (pcfi.impute(features * scale, ring(200)) for scale in (1.0, scales))
    assert scaled.alpha == plain.alpha
    assert scaled.beta == pytest.approx(plain.beta, rel=1e-6)
    np.testing.assert_allclose(scaled.tuning.kappa, plain.tuning.kappa, atol=1e-8)
    np.testing.assert_allclose(scaled.values / scales, plain.values, rtol=1e-7)
    np.testing.assert_allclose(scaled.expected_error / scales, plain.expected_error, rtol=1e-6)


def test_numbers_for_both_mean_the_paper():
    rng = np.random.default_rng(6)
    features = hidden_at(rng, smooth(rng))
    paper = pcfi.impute(features, ring(200), alpha=0.6, beta=0.3)
    named = pcfi.impute(features, ring(200), alpha=0.6, beta=0.3, objective="representation")
    calibrated = pcfi.impute(features, ring(200), alpha=0.6, beta=0.3, objective="values")
    assert paper.objective == named.objective == "representation"
    assert paper.tuning is None
    assert paper.values.tobytes() == named.values.tobytes()
    assert (calibrated.alpha, calibrated.beta, calibrated.objective) == (0.6, 0.3, "values")
    assert calibrated.tuning.kappa[1] < 1
    assert not np.array_equal(calibrated.values, paper.values)


def test_values_are_drawn_towards_the_mean_as_the_reliability_says():
    rng = np.random.default_rng(7)
    features = hidden_at(rng, smooth(rng))
    result = pcfi.impute(features, ring(200), solver=pcfi.UntilSettled(1e-9))
    plain = pcfi.impute(
        features,
        ring(200),
        alpha=result.alpha,
        beta=result.beta,
        standardize=True,
        solver=pcfi.UntilSettled(1e-9),
    )
    means = result.tuning.means.values
    wanted = means + result.tuning.kappa[result.hops] * (plain.values - means)
    np.testing.assert_allclose(result.values, wanted, rtol=1e-9)


def test_tuned_values_are_better_than_the_mean_and_the_papers_on_noise_and_close_on_signal():
    rng = np.random.default_rng(8)
    for noise in (0.05, 3.0):
        values = smooth(rng, noise=noise)
        features = hidden_at(rng, values)
        missing = np.isnan(features)

        def error(missing=missing, values=values, features=features, **options):
            return np.sqrt(np.mean((pcfi.impute(features, ring(200), **options).values - values)[missing] ** 2))

        assert error() < 1.03 * min(error(method="mean"), error(alpha=0.5, beta=0.0), error(method="fp"))


def test_tuning_on_digits_beats_every_plain_method(digits):
    removed = ~digits.known

    def error(**options):
        values = pcfi.impute(digits.features, digits.edges, **options).values
        return np.sqrt(np.mean((values - digits.images)[removed] ** 2))

    tuned = error()
    assert tuned < 0.9 * error(method="fp")
    assert tuned < 0.9 * error(method="neighbors")
    assert tuned < 0.6 * error(method="mean")
    assert tuned < 1.001 * error(alpha=0.5, beta=0.1)


def test_tensors_are_tuned_like_arrays():
    rng = np.random.default_rng(9)
    features = hidden_at(rng, smooth(rng)).astype(np.float32)
    plain = pcfi.impute(features, ring(200))
    tensor = pcfi.impute(torch.from_numpy(features), torch.from_numpy(ring(200)))
    assert tensor.values.numpy().tobytes() == plain.values.tobytes()
    with device_backend_on_cpu():
        device = pcfi.impute(torch.from_numpy(features), torch.from_numpy(ring(200)))
        low, high = device.interval(0.9)
    assert (device.alpha, device.beta) == (plain.alpha, plain.beta)
    np.testing.assert_allclose(device.values.numpy(), plain.values, rtol=1e-3)
    np.testing.assert_allclose(device.expected_error.numpy(), plain.expected_error, rtol=1e-4)
    assert bool((low <= high).all())


# Representation


def test_a_representation_is_not_shrunk_and_centred_only_where_means_are_large():
    rng = np.random.default_rng(12)
    large = hidden_at(rng, 3 + smooth(rng))
    sparse = hidden_at(rng, (rng.random((200, 40)) < 0.05).astype(float))
    for features, centred in ((large, True), (sparse, False)):
        result = pcfi.impute(features, ring(200), objective="representation")
        paper = pcfi.impute(features, ring(200), alpha=result.alpha, beta=result.beta)
        assert result.objective == "representation"
        assert (result.center is not None) == centred
        assert result.values.tobytes() == paper.values.tobytes()
        if centred:
            np.testing.assert_allclose(result.representation, result.values - result.values.mean(axis=0))
        else:
            assert result.representation is result.values


# Little to go by


@pytest.mark.parametrize(
    ("features", "why"),
    [
        (np.array([[1.0], [np.nan], [3.0]]), "needed"),
        (np.array([[1.0, 2.0], [np.nan, np.nan], [np.nan, np.nan]]), "too few to hide"),
        (np.array([[0.0, 0.0]] * 9 + [[np.nan, np.nan]]), "holds its channel's mean"),
        (np.array([[4.0, 2.0]] * 9 + [[np.nan, np.nan]]), "holds its channel's mean"),
    ],
    ids=["two known", "one known node", "silent", "constant"],
)
def test_with_too_little_known_defaults_are_used_and_said(features, why):
    edges = ring(len(features), reach=1)
    with pytest.warns(pcfi.TuningWarning, match=why):
        result = pcfi.impute(features, edges)
    plain = pcfi.impute(features, edges, alpha=DEFAULT_ALPHA, beta=DEFAULT_BETA, standardize=True)
    np.testing.assert_array_equal(result.values, plain.values)
    assert why in repr(pcfi.tune(features, edges))


def test_nothing_known_and_nothing_missing_need_no_tuning():
    full = np.arange(12.0).reshape(6, 2)
    assert pcfi.impute(full, ring(6)).status == "Nothing was missing."
    with pytest.warns(pcfi.PcfiWarning):
        empty = pcfi.impute(np.full((6, 2), np.nan), ring(6))
    assert (empty.values == 0).all()


def test_one_channel_is_enough():
    rng = np.random.default_rng(13)
    result = pcfi.impute(hidden_at(rng, smooth(rng, n_channels=1)), ring(200))
    assert result.tuning.n_hidden > 20
    assert np.isfinite(result.values).all()


# Metrics and wishes


def test_metrics_decide_and_a_fixed_parameter_stays():
    rng = np.random.default_rng(14)
    features = hidden_at(rng, smooth(rng))
    for metric in ("rmse", "mae", "cosine", lambda truth, filled: np.abs(truth - filled).max()):
        tuning = pcfi.tune(features, ring(200), metric=metric)
        best = min((one for one in tuning.tried if one.folds == tuning.n_folds), key=lambda one: one.error)
        assert tuning.error <= best.error + best.standard_error
    mine = pcfi.tune(features, ring(200), alpha=0.45)
    assert mine.alpha == 0.45
    assert len(mine.tried) == 1
    assert pcfi.tune(features, ring(200), beta=0.2).beta == 0.2
    with pytest.raises(pcfi.ParameterError, match="metric must be one of 'rmse', 'mae', 'cosine'"):
        pcfi.tune(features, ring(200), metric="accuracy")


def test_the_error_to_expect_is_about_the_error_that_comes():
    rng = np.random.default_rng(15)
    values = smooth(rng, n_nodes=600)
    features = hidden_at(rng, values)
    result = pcfi.impute(features, ring(600))
    missing = np.isnan(features)
    spread = np.nanmax(features, axis=0) - np.nanmin(features, axis=0)
    actual = np.sqrt(np.mean(((result.values - values) / spread)[missing] ** 2))
    assert result.tuning.error == pytest.approx(actual, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": "best"}, "alpha must be a number greater than 0 and at most 1, or 'auto', got 'best'"),
        ({"objective": "gnn"}, "objective must be one of 'values', 'representation', or None, got 'gnn'"),
        ({"center": "yes"}, "center must be True or False, or 'auto', or None, got 'yes'"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0, a numpy Generator, or None, got -1"),
    ],
)
def test_bad_wishes_are_refused(options, message):
    with pytest.raises(pcfi.ParameterError, match=message):
        pcfi.impute(np.eye(4), ring(4), **options)


def test_progress_says_that_it_tunes(capsys):
    rng = np.random.default_rng(16)
    pcfi.impute(hidden_at(rng, smooth(rng)), ring(200), progress=True)
    assert "tune: 100%" in capsys.readouterr().err


def test_tuned_options_give_what_auto_gives():
    rng = np.random.default_rng(12)
    features = hidden_at(rng, smooth(rng) * np.array([1.0, 1e-3, 1e3, 1.0, 0.5, 3.0]), "uniform")
    tuning = pcfi.tune(features, ring(200))
    expected = pcfi.impute(features, ring(200)).values
    np.testing.assert_allclose(pcfi.impute(features, ring(200), **tuning.options).values, expected, rtol=1e-9)
    representation = pcfi.tune(features, ring(200), objective="representation")
    result = pcfi.impute(features, ring(200), standardize=True, **representation.options)
    assert (result.alpha, result.beta, result.objective) == (
        representation.alpha,
        representation.beta,
        "representation",
    )


def test_numbers_for_channels_of_different_scales_warn_where_they_lead_astray():
    rng = np.random.default_rng(13)
    features = hidden_at(rng, smooth(rng) * np.array([1.0, 1e3, 1e-3, 1.0, 0.5, 3.0]), "uniform")
    with pytest.warns(pcfi.ScaleWarning, match="beyond what is known"):
        pcfi.impute(features, ring(200), alpha=0.5, beta=2.0)
    empty = np.column_stack([features, np.full(200, np.nan)])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pcfi.impute(empty, ring(200), alpha=0.5, beta=2.0, unreachable="nan")
    assert {warning.category for warning in said} == {pcfi.ScaleWarning, pcfi.UnreachableWarning}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pcfi.impute(features, ring(200), alpha=0.5, beta=2.0, standardize=True)
        pcfi.impute(features, ring(200), alpha=0.5, beta=2.0, objective="values")
