"""Columns that follow the graph beside columns that do not: neither spoils the other."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import pcfi
from array_interfaces import device_backend_on_cpu
from pcfi.estimation.closed_form import LEVELS, Places, fit, moments_of

pytestmark = pytest.mark.slow

SIZE = 1500
EDGES = pd.DataFrame({"source": np.arange(SIZE), "target": (np.arange(SIZE) + 1) % SIZE})


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(0)
    return 40 + 30 * np.sin(2 * np.pi * np.arange(SIZE) / SIZE * 10) + rng.normal(0, 3, SIZE)


def beside(kind, rng):
    """Columns that have nothing to do with the graph, a third of each missing."""

    def gapped(values):
        return pd.Series(values).where(rng.random(SIZE) > 0.3)

    if kind == "noise":
        return {f"noise{number}": gapped(rng.normal(size=SIZE)) for number in range(5)}
    if kind == "rare ones":
        return {f"rare{number}": gapped((rng.random(SIZE) < 0.05) * 1.0) for number in range(20)}
    if kind == "coins":
        return {f"coin{number}": gapped((rng.random(SIZE) < 0.5) * 1.0) for number in range(40)}
    if kind == "against":  # each node is what its neighbours are not
        return {f"parity{number}": gapped(np.arange(SIZE) % 2 * 1.0) for number in range(3)}
    if kind == "constants":
        return {f"year{number}": gapped(np.full(SIZE, 2024.0)) for number in range(5)}
    if kind == "one category":
        return {"category": gapped(np.full(SIZE, "NO", dtype=object))}
    names = np.array([f"c{number}" for number in range(2 if kind == "two categories" else 100)], dtype=object)
    return {"category": gapped(rng.choice(names, SIZE))}


KINDS = ("noise", "coins", "rare ones", "against", "constants", "one category", "two categories", "many categories")


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_filled_as_well_as_alone_and_covered(truth, kind):
    # broke once: all columns had one reliability and one distribution of errors
    rng = np.random.default_rng(1)
    gone = rng.random(SIZE) < 0.3
    alone = pd.DataFrame({"age": np.where(gone, np.nan, truth)})
    table = alone.assign(**beside(kind, rng))
    categorical = [name for name in table if name == "category"]
    result = pcfi.frames.impute(table, EDGES, categorical=categorical)
    low, high = (end["age"].to_numpy() for end in result.interval(0.9))
    best = pcfi.impute(alone, EDGES).values["age"]

    def error(filled):
        return np.sqrt(np.mean((filled - truth)[gone] ** 2))

    assert error(result.values["age"]) < 1.15 * error(best)
    assert 0.85 < ((low <= truth) & (truth <= high))[gone].mean() < 0.98


@pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")
def test_a_category_that_tells_about_numbers_makes_them_better():
    errors = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        city = rng.integers(0, 6, 900)
        income = 50 + 15 * rng.normal(size=6)[city] + 3 * rng.normal(size=900)
        source = rng.integers(0, 900, 1800)
        near = np.array([rng.choice(np.flatnonzero(city == city[one])) for one in source])
        target = np.where(rng.random(1800) < 0.7, near, rng.integers(0, 900, 1800))
        nodes = pd.DataFrame({"income": income, "city": np.array(list("ABCDEF"), dtype=object)[city]})
        gone = rng.random(900) < 0.4
        nodes.loc[gone, "income"] = None
        nodes.loc[rng.random(900) < 0.2, "city"] = None
        edges = np.stack([source, target])
        plain, helped = (pcfi.frames.impute(nodes, edges, categorical=names).values for names in ([], ["city"]))
        errors.append([np.sqrt(np.mean((filled["income"] - income)[gone] ** 2)) for filled in (plain, helped)])
    without, with_city = np.mean(errors, axis=0)
    assert with_city < without


def test_trust_is_the_ratio_that_makes_the_error_of_a_column_smallest():
    rng = np.random.default_rng(3)
    columns = np.repeat(np.arange(3), 400)
    levels = rng.integers(1, 4, 1200)
    wanted = rng.normal(size=1200)
    diffused = np.where(columns == 0, wanted, np.where(columns == 1, rng.normal(size=1200), 2 * wanted))
    ones, none = np.ones(1200), np.zeros(1200)
    places = Places(levels, columns, ones, ones, (LEVELS, 3))
    moments = moments_of(places, diffused, none, wanted)
    alike, apart = fit(moments), fit(moments, prior_cells=1e-6)
    assert (alike.trust == 1).all()
    kept = apart.trust * apart.kappa[1]
    assert kept[1] < 0.1
    assert min(kept[0], 1) > 0.95
    assert kept[2] == pytest.approx(0.5, abs=0.03)
    assert moments.errors(apart).sum() < 0.65 * moments.errors(alike).sum()
    errors = (wanted - places.kept(apart) * diffused) ** 2
    assert moments.errors(apart).sum() == pytest.approx(errors.sum())
    assert fit(moments, prior_cells=1e9).trust == pytest.approx(1, abs=1e-3)


def test_known_cells_stay_whatever_the_trust(truth):
    rng = np.random.default_rng(2)
    features = np.stack([truth, rng.normal(size=SIZE), rng.normal(size=SIZE)], axis=1)
    hidden = np.where(rng.random(features.shape) < 0.3, np.nan, features)
    result = pcfi.impute(hidden, EDGES.to_numpy().T)
    assert result.tuning.trust.min() < 0.5
    assert result.tuning.trust[0] > 1
    known = ~np.isnan(hidden)
    np.testing.assert_array_equal(result.values[known], hidden[known])
    with device_backend_on_cpu():
        device = pcfi.impute(torch.from_numpy(hidden), torch.from_numpy(EDGES.to_numpy().T.copy())).values.numpy()
    np.testing.assert_array_equal(device[known], hidden[known])
    np.testing.assert_allclose(device, result.values, rtol=1e-3, atol=1e-3)
    kept = np.minimum(result.tuning.kappa[result.hops] * result.tuning.trust, 1.0)
    numbers = pcfi.impute(
        hidden, EDGES.to_numpy().T, alpha=result.alpha, beta=result.beta, standardize=True, objective="representation"
    )
    means = result.tuning.means.values
    expected = np.where(known, hidden, means + kept * (numbers.values - means))
    np.testing.assert_allclose(result.values, expected, rtol=1e-6)
    new = np.where(rng.random((20, 3)) < 0.5, np.nan, features[:20])
    links = sparse.csr_array((np.ones(20), (np.arange(20), np.arange(20))), shape=(20, SIZE))
    tuned = pcfi.PCFI().fit(hidden, graph=EDGES.to_numpy().T).transform(new, graph=links)
    np.testing.assert_array_equal(tuned[~np.isnan(new)], new[~np.isnan(new)])
    assert np.abs(tuned[:, 0] - truth[:20]).max() < 15
    assert np.abs(tuned - means)[:, 1:][np.isnan(new[:, 1:])].max() < 0.5  # noise is not followed
    assert "reliability 0.00-0.98, " in repr(result.tuning)
