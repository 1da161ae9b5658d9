"""The table that pcfi ships equals its source, and removing cells is reproducible."""

import numpy as np
import pytest

import pcfi


def test_incomes_and_borders_are_those_of_libpysal():
    examples = pytest.importorskip("libpysal.examples")
    pandas = pytest.importorskip("pandas")
    weights = pytest.importorskip("libpysal.io")
    states, borders = pcfi.datasets.load_states()
    source = pandas.read_csv(examples.get_path("usjoin.csv")).set_index("Name")
    np.testing.assert_array_equal(states.to_numpy(), source.loc[states.index, states.columns].to_numpy())
    file = weights.open(examples.get_path("states48.gal"))
    neighbours = file.read().neighbors
    file.close()
    names = list(source.index)
    linked = {frozenset((names[int(a)], names[int(b)])) for a, ends in neighbours.items() for b in ends}
    assert {frozenset(pair) for pair in borders.to_numpy()} == linked
    assert len(borders) == len(linked)


def test_removed_cells_depend_on_the_seed_only():
    complete = pcfi.datasets.load_states()[0]
    first, second, other = (pcfi.datasets.load_states(0.3, random_state=seed)[0] for seed in (1, 1, 2))
    assert first.equals(second)
    assert not first.equals(other)
    assert complete.notna().all(axis=None)
    assert first.fillna(complete).equals(complete)
    with pytest.raises(pcfi.ParameterError, match=r"missing must be at least 0 and below 1, got 1\.5"):
        pcfi.datasets.load_states(1.5)
