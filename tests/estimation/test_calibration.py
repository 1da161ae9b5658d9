"""Expected errors and intervals: what is learned about errors from hidden cells."""

import numpy as np
import pytest

import pcfi
from pcfi.estimation.calibration import Calibration, Errors, calibrate
from pcfi.estimation.spreads import Typical, spreads
from pcfi.inputs.problem import Channels, read_problem
from random_problems import random_known
from smooth_features import hidden_at, ring, smooth

pytestmark = pytest.mark.slow


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


def half_width(found: Calibration, coverage: float = 0.9) -> np.ndarray:
    """Of each channel, at one hop."""
    return sum(by_code[1] * by_channel for by_code, by_channel in found.half_widths(1, coverage))


def channels_of(columns: list[list[float]]) -> Channels:
    length = max(map(len, columns))
    table = np.array([column + [np.nan] * (length - len(column)) for column in columns]).T
    return read_problem(table, ring(length, reach=1)).channels


def test_intervals_grow_where_nodes_differ_more_than_their_cells():
    rng = np.random.default_rng(0)
    channels, levels, silent = np.arange(50), np.ones(50, dtype=int), np.zeros(50, dtype=bool)

    def width(size_of_node):
        errors = (np.abs(rng.normal(size=50)) * size for size in size_of_node)
        found = calibrated([Errors(levels, channels, silent, error, np.ones(50)) for error in errors])
        return half_width(found)[0]

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
    wide, narrow = half_width(found)
    assert wide == pytest.approx(1.645, rel=0.1)
    assert narrow < 0.05


def test_a_channel_with_wider_errors_than_others_goes_by_its_own():
    rng = np.random.default_rng(0)
    channels = np.repeat([0, 1, 2], [300, 2700, 50])
    errors = np.where(channels == 1, 1.0, np.abs(rng.standard_t(3, size=3050)))  # of coins, and of anything else
    cells = Errors(np.ones(3050, dtype=int), channels, np.zeros(3050, dtype=bool), errors, errors)
    found = calibrated([cells.at(np.arange(3050) % 3 == part) for part in range(3)])
    assert (found.own.rows >= 0).tolist() == [True, False, False]  # the last has too few cells to tell
    widths = np.array([half_width(found, coverage) for coverage in (0.5, 0.9, 0.99, 0.991, 0.999)])
    assert widths[1, 0] == pytest.approx(np.quantile(errors[channels == 0], 0.9), rel=0.15)
    assert widths[1, 1] == pytest.approx(1, rel=0.2)
    assert (np.diff(widths, axis=0) >= 0).all()  # the more is to be covered, the wider


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
