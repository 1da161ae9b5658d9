"""Choosing parameters without labels: what is hidden, what is learned from it, and the laws of calibrated values."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

import pcfi
from faces import device_engine
from pcfi.problem import Channels, read_problem
from pcfi.tuning.calibration import Calibration, Errors, calibrate
from pcfi.tuning.choice import DEFAULT_ALPHA, DEFAULT_BETA
from pcfi.tuning.hiding import make_folds
from pcfi.tuning.means import PRIORS, shrunken_means, sums_of_squares
from pcfi.tuning.moments import LEVELS, Moments, fit, moments_of
from pcfi.tuning.spreads import Typical, spreads
from pcfi.tuning.trials import Whole
from random_problems import numba_threads, random_known


def ring(size: int, reach: int = 2) -> np.ndarray:
    nodes = np.arange(size)
    return np.concatenate([np.stack([nodes, (nodes + step) % size]) for step in range(1, reach + 1)], axis=1)


def smooth(rng: np.random.Generator, n_nodes: int = 200, n_channels: int = 6, noise: float = 0.3) -> np.ndarray:
    """Channels that vary slowly around a ring, some of them together, with noise."""
    angle = np.arange(n_nodes)[:, None] / n_nodes * 2 * np.pi
    waves = np.sin(angle * rng.integers(1, 4, size=n_channels) + rng.integers(0, 3, size=n_channels))
    return 5 + waves + noise * rng.normal(size=(n_nodes, n_channels))


def hidden_at(rng: np.random.Generator, values: np.ndarray, kind: str = "structural", rate: float = 0.4) -> np.ndarray:
    return np.where(random_known(rng, kind, values.shape, rate), values, np.nan)


@pytest.fixture(scope="module")
def digits():
    from pcfi.demo import load_digits

    return load_digits()


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
    found = fit(moments_of(levels, np.ones(len(levels)), diffused, received, wanted))
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
    noise = fit(moments_of(levels, np.ones(5000), rng.normal(size=5000), none, wanted))
    truth = fit(moments_of(levels, np.ones(5000), wanted, none, wanted))
    assert noise.kappa[1:4].max() < 0.05
    assert truth.kappa[1:4].min() > 0.99


def test_few_units_are_followed_less_than_many():
    levels, _, _, wanted = cells(np.random.default_rng(0), 60)
    none = np.zeros(60)
    few = fit(moments_of(levels, np.full(60, 2 / 60), wanted, none, wanted))
    many = fit(moments_of(levels, np.ones(60), wanted, none, wanted))
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
    empty = fit(Moments(*(np.zeros(LEVELS) for _ in range(7))))
    assert empty.beta == 0
    assert (empty.kappa[1:] == 0).all()


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
    with device_engine():
        device = pcfi.impute(torch.from_numpy(features), torch.from_numpy(ring(200)))
        low, high = device.interval(0.9)
    assert (device.alpha, device.beta) == (plain.alpha, plain.beta)
    np.testing.assert_allclose(device.values.numpy(), plain.values, rtol=1e-3)
    np.testing.assert_allclose(device.expected_error.numpy(), plain.expected_error, rtol=1e-4)
    assert bool((low <= high).all())


# Calibrated confidence


def test_expected_error_never_falls_with_hops_and_is_zero_for_known_cells(digits):
    result = pcfi.impute(digits.features, digits.edges)
    pixel = result.expected_error[:, 28]
    means = [pixel[result.hops[:, 28] == hops].mean() for hops in range(4)]
    assert means[0] == 0
    assert means[1] > 0
    assert (np.diff(means[1:]) >= -1e-6).all()  # means of float32


@pytest.mark.parametrize("kind", ["structural", "uniform"])
def test_intervals_cover_what_was_never_seen(digits, kind):
    rng = np.random.default_rng(11)
    known = random_known(rng, kind, digits.images.shape, 0.2)
    result = pcfi.impute(np.where(known, digits.images, np.nan), digits.edges)
    actual = np.abs(result.values - digits.images)[~known]
    heard = (known & (digits.images > 0)).any(axis=0)  # channels of zeros are nearly always covered
    for coverage in (0.5, 0.9):
        low, high = result.interval(coverage)
        inside = (low <= digits.images) & (digits.images <= high)
        assert inside[known].all()
        assert abs(inside[:, heard][~known[:, heard]].mean() - coverage) < 0.04
    ranks = np.argsort(np.argsort(actual)), np.argsort(np.argsort(result.expected_error[~known]))
    assert np.corrcoef(*ranks)[0, 1] > 0.5
    assert result.expected_error[~known].mean() == pytest.approx(actual.mean(), rel=0.1)


def calibrated(folds: list[Errors]) -> Calibration:
    """With channels whose spread is 1."""
    n_channels = 1 + max(fold.channels.max() for fold in folds)
    return calibrate(folds, channels_of([[0.0, 1.0]] * n_channels), np.ones(n_channels))


def channels_of(columns: list[list[float]]) -> Channels:
    length = max(map(len, columns))
    table = np.array([column + [np.nan] * (length - len(column)) for column in columns]).T
    return read_problem(table, ring(length, reach=1)).channels


def test_intervals_grow_where_nodes_differ_more_than_their_cells():
    rng = np.random.default_rng(0)
    channels, levels, silent = np.arange(50), np.ones(50, dtype=int), np.zeros(50, dtype=bool)

    def width(size_of_node):
        errors = (np.abs(rng.normal(size=50)) * size for size in size_of_node)
        return calibrated([Errors(levels, channels, silent, error, np.ones(50)) for error in errors]).half_widths(
            1, 0.9
        )[1]

    alike = np.mean([width(np.ones(8)) for _ in range(10)])
    unlike = np.mean([width(np.array([0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.7])) for _ in range(10)])
    assert unlike > 1.05 * alike


def test_a_few_lucky_cells_do_not_make_a_number_of_hops_sure():
    rng = np.random.default_rng(0)
    levels = np.append(np.full(5, 1), np.full(395, 2))
    errors = np.where(levels == 1, 0.01, np.abs(rng.normal(size=400)))
    none = np.zeros(400, dtype=int)
    cells = Errors(levels, none, none.astype(bool), errors, errors)
    by_hops = calibrated([cells.at(np.arange(400) % 3 == part) for part in range(3)]).by_hops
    assert 0.3 < by_hops[1] < 0.9 * by_hops[2]


def test_channels_of_zeros_do_not_make_intervals_narrow_for_the_others():
    rng = np.random.default_rng(0)
    silent = rng.random(3000) < 0.9
    errors = np.where(silent, 0.0, np.abs(rng.normal(size=3000)))
    cells = Errors(np.ones(3000, dtype=int), silent.astype(int), silent, errors, errors)
    folds = [cells.at(np.arange(3000) % 3 == part) for part in range(3)]
    found = calibrate(folds, channels_of([[0.0, 1.0], [0.0, 0.0]]), np.ones(2))
    wide, narrow = found.half_widths(1, 0.9)[1] * found.reach
    assert wide == pytest.approx(1.645, rel=0.1)
    assert narrow < 0.05


def test_two_values_that_happen_to_be_close_do_not_make_a_channel_narrow():
    many = [float(value) for value in range(1, 11)]
    years = [1e9 + value for value in many]
    columns = [many, many, many, many, years, [4.0, 6.0], [6.0, 6.1], [6.0], [600.0], [0.0, 0.0]]
    features = channels_of(columns)
    squares = np.array([np.sum(np.square(np.array(column) / max(column[-1], 1))) for column in columns])
    found = spreads(features, squares, Typical.of(features, squares))
    deviation = np.std(many, ddof=1)
    np.testing.assert_allclose(found[:4], 1.1 * deviation, rtol=0.02)
    assert deviation < found[4] < 2 * deviation  # far from 0 is not wide
    assert 1.5 < found[5] / np.std([4.0, 6.0], ddof=1) < 2
    assert 3 < found[6] / np.std([6.0, 6.1], ddof=1) < 4
    assert deviation < found[7] < 2 * deviation  # of one value only its size is known
    assert found[8] == pytest.approx(100 * found[7])
    assert found[9] == np.median(found[:9])


def test_nothing_is_promised_about_a_channel_without_a_known_value():
    rng = np.random.default_rng(0)
    features = hidden_at(rng, smooth(rng))
    features[:, 2] = np.nan
    with pytest.warns(pcfi.UnreachableWarning):
        result = pcfi.impute(features, ring(200))
    low, high = result.interval(0.5)
    others = np.arange(6) != 2
    assert (low[:, 2] == -np.inf).all()
    assert (high[:, 2] == np.inf).all()
    assert np.isfinite(low[:, others]).all()
    assert np.isfinite(high[:, others]).all()


def test_a_result_that_learned_nothing_has_no_intervals():
    features = hidden_at(np.random.default_rng(0), smooth(np.random.default_rng(0)))
    paper = pcfi.impute(features, ring(200), alpha=0.5, beta=0.1)
    assert paper.expected_error is None
    with pytest.raises(pcfi.ParameterError, match="interval needs errors learned from hidden cells"):
        paper.interval(0.9)
    with pytest.raises(pcfi.ParameterError, match="coverage must be"):
        pcfi.impute(features, ring(200)).interval(90)


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
