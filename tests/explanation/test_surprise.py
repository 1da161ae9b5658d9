"""Surprises: wrong values are found, those around them are not blamed, known cells stay."""

import numpy as np
import pytest

import pcfi


def _smooth(n=80, seed=0):
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(n) / n
    table = np.stack([10 + 3 * np.sin(angle), 50 + 10 * np.cos(angle)], axis=1) + 0.1 * rng.normal(size=(n, 2))
    return table, np.stack([np.arange(n), (np.arange(n) + 1) % n]), rng


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_planted_errors_come_first_whether_cells_are_missing_or_not(rate):
    table, ring, rng = _smooth()
    table[rng.random(table.shape) < rate] = np.nan
    planted = {(7, 0), (30, 1), (55, 0)}
    for row, column in planted:
        table[row, column] = 10 * (50 if column else 12)
    before = table.copy()
    found = pcfi.impute(table, ring).surprise
    np.testing.assert_array_equal(table, before)
    assert set(zip(found.rows[:3].tolist(), found.column_numbers[:3].tolist(), strict=True)) == planted
    assert found.scores[2] > 5 * found.scores[3]
    assert len(found) == np.isfinite(table).sum()
    assert abs(found.expected[:3][found.rows[:3] == 30][0] - 50) < 15
    assert "times the error to expect" in repr(found)
    assert len(found.to_frame(most=4)) == 4


def test_a_result_without_a_model_or_with_too_few_cells_says_so():
    table, ring, _ = _smooth()
    with pytest.raises(pcfi.ParameterError, match="surprise needs the model"):
        _ = pcfi.impute(table, ring, method="mean").surprise
    with pytest.raises(pcfi.FeatureError, match="too few known cells"):
        _ = pcfi.impute(np.array([[1.0], [2.0], [3.0]]), [[0, 1], [1, 2]]).surprise


def test_the_rarer_of_two_values_does_not_hide_errors_in_numbers():
    table, ring, rng = _smooth(200)
    rare = (rng.random((200, 3)) < 0.03).astype(float)
    table[40, 0] *= 3
    found = pcfi.impute(np.column_stack([table, rare]), ring).surprise
    assert (found.rows[0], found.column_numbers[0]) == (40, 0)
    assert found.scores[found.column_numbers > 1].max() < 4
    switched = (np.arange(200) // 50 % 2).astype(float)
    switched[25] = 1.0
    found = pcfi.impute(np.column_stack([table, switched]), ring).surprise
    own = found.column_numbers == 2
    assert found.rows[own][0] == 25
