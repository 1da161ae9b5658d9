"""Draws: known cells stay, spread agrees with intervals, covariance with a dense posterior; Rubin's rules."""

import numpy as np
import pandas as pd
import pytest

import pcfi
from pcfi.explanation.draws import Drawing
from pcfi.explanation.error_fields import FieldSampler


def _path(n=60, rate=0.3, seed=0):
    rng = np.random.default_rng(seed)
    base = np.cumsum(rng.normal(size=n))
    table = np.stack([3 * base + rng.normal(size=n), np.exp(base / 4 + rng.normal(size=n) / 9)], axis=1)
    return np.where(rng.random(table.shape) < rate, np.nan, table), np.stack([np.arange(n - 1), np.arange(1, n)])


def test_draws_keep_known_cells_and_spread_as_intervals_say():
    table, path = _path()
    result = pcfi.impute(table, path)
    drawn = np.stack(list(result.draws(300, random_state=1)))
    known = np.isfinite(table)
    assert (drawn[:, known] == table[known]).all()
    low, high = result.interval(0.9)
    inside = (drawn >= low) & (drawn <= high)
    assert inside[:, ~known].mean() == pytest.approx(0.9, abs=0.02)
    again = np.stack(list(result.draws(2, random_state=1)))
    np.testing.assert_array_equal(again, drawn[:2])
    assert not np.array_equal(next(result.draws(1, random_state=2)), drawn[0])
    assert (drawn[:, :, 1] >= 0).all()


@pytest.mark.parametrize("n_pilots", [512, 1024])  # of 660 missing nodes: estimated, and exact
@pytest.mark.parametrize("alpha", [0.5, 1.0])
@pytest.mark.parametrize("directed", [False, True])
def test_fields_have_the_covariance_of_the_dense_posterior(n_pilots, alpha, directed, monkeypatch):
    monkeypatch.setattr("pcfi.explanation.error_fields.MAX_PILOTS", n_pilots)
    rng = np.random.default_rng(0)
    n, copies = 14, 60
    edges, weights = np.stack([np.arange(n - 1), np.arange(1, n)]), rng.random(n - 1) + 0.5
    edges, weights = np.append(edges, [[0, 3], [7, 12]], axis=1), np.append(weights, [1.0, 2.0])
    hops = np.array([0, 1, 2, 2, 1, 0, 1, 1, 0, 1, 2, 2, 2, 3])
    adjacency = pcfi.prepare_graph((edges, weights), n, directed=directed).matrix().toarray()
    # a directed graph: both ends of an edge alike, whatever the hops
    adjacency, power = (adjacency + adjacency.T, 1.0) if directed else (adjacency, alpha)
    conductance = adjacency * power ** (hops[:, None] + hops[None, :])
    laplacian = np.diag(conductance.sum(axis=1)) - conductance
    free = hops > 0
    covariance = np.linalg.inv(laplacian[np.ix_(free, free)])
    wanted = covariance / np.sqrt(np.outer(np.diagonal(covariance), np.diagonal(covariance)))
    all_edges = np.concatenate([edges + n * copy for copy in range(copies)], axis=1)
    graph = pcfi.prepare_graph((all_edges, np.tile(weights, copies)), n * copies, directed=directed)
    sampler = FieldSampler(graph)
    scale = sampler.scale(np.tile(hops, copies).astype(np.uint8), 3, alpha)

    def sampled(share):
        shares = np.full(sampler.lanes, share)
        streams = [[[0, draw, lane] for lane in range(sampler.lanes)] for draw in range(5)]
        drawn = [sampler.draw([scale] * sampler.lanes, shares, part).T for part in streams]
        return np.concatenate(drawn).reshape(-1, n)[:, free]

    field = sampled(1.0)
    np.testing.assert_allclose(np.corrcoef(field.T), wanted, atol=0.06)
    np.testing.assert_allclose(field.std(axis=0), 1.0, atol=0.06)
    off = ~np.eye(free.sum(), dtype=bool)
    np.testing.assert_allclose(np.corrcoef(sampled(0.5).T)[off], 0.5 * wanted[off], atol=0.06)


def test_a_field_does_not_depend_on_its_lane_nor_on_the_number_of_threads():
    import numba

    rng = np.random.default_rng(0)
    edges = rng.integers(30_000, size=(2, 120_000))
    sampler = FieldSampler(pcfi.prepare_graph(edges, 30_000))
    codes = rng.integers(2, size=30_000).astype(np.uint8)
    scale, other = (sampler.scale(one, 1, 0.5) for one in (codes, 1 - codes))
    both = sampler.draw([other, scale], np.array([0.5, 1.0]), [[0, 0, 0], [3, 4, 5]])
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        again = sampler.scale(codes, 1, 0.5)
        alone = sampler.draw([again], np.array([1.0]), [[3, 4, 5]])
    finally:
        numba.set_num_threads(threads)
    np.testing.assert_array_equal(again.spread, scale.spread)
    np.testing.assert_array_equal(alone[:, 0], both[:, 1])


def test_errors_within_a_row_follow_the_factors():
    rng = np.random.default_rng(0)
    common = rng.normal(size=300)
    table = np.stack([common + 0.3 * rng.normal(size=300) for _ in range(3)], axis=1)
    table[rng.random(table.shape) < 0.3] = np.nan
    result = pcfi.impute(table, [np.arange(299), np.arange(1, 300)])
    model = result.cells.model.cells.factors
    assert model.rank > 0
    drawing = Drawing(result.cells, result.cells.model, 0)
    row = int(np.flatnonzero(np.isnan(table).all(axis=1))[0])
    known = np.isfinite(table)[row : row + 1]
    fields = np.stack([drawing.fields(draw)[row : row + 1] for draw in range(1500)])
    errors = drawing.rows.errors(known, fields)[:, 0]
    covariance = model.loadings @ model.loadings.T + np.diag(model.noise)
    wanted = covariance / np.sqrt(np.outer(np.diagonal(covariance), np.diagonal(covariance)))
    np.testing.assert_allclose(np.corrcoef(errors.T), wanted, atol=0.08)


def test_a_column_that_ignores_the_graph_has_independent_errors():
    rng = np.random.default_rng(0)
    table = np.where(rng.random((400, 1)) < 0.3, np.nan, rng.normal(size=(400, 1)))
    result = pcfi.impute(table, [np.arange(399), np.arange(1, 400)])
    assert Drawing(result.cells, result.cells.model, 0).rows.relations.shares[0] < 0.3


def test_tables_and_categories_come_back_as_tables():
    nodes = pd.DataFrame(
        {"id": [f"n{row}" for row in range(40)], "x": np.sin(np.arange(40) / 5), "kind": list("uuvv" * 10)}
    )
    nodes.loc[[3, 9, 20], "x"] = None
    nodes.loc[[5, 6, 30], "kind"] = None
    edges = pd.DataFrame({"source": nodes["id"][:-1].to_numpy(), "target": nodes["id"][1:].to_numpy()})
    result = pcfi.frames.impute(nodes, edges, categorical=["kind"])
    drawn = list(result.draws(30, random_state=0))
    assert all(isinstance(one, pd.DataFrame) and not one.isna().any().any() for one in drawn)
    assert {one.loc[5, "kind"] for one in drawn} == {"u", "v"}
    assert len({one.loc[3, "x"] for one in drawn}) == 30
    assert all((one.loc[[0, 1], "kind"] == ["u", "u"]).all() for one in drawn)


def test_draws_refuse_what_they_cannot_do():
    table, path = _path()
    for m in (0, 1.5, True):
        with pytest.raises(pcfi.ParameterError, match="at least 1"):
            pcfi.impute(table, path).draws(m)
    with pytest.raises(pcfi.ParameterError, match="need the model"):
        pcfi.impute(table, path, method="mean").draws(2)
    with pytest.warns(pcfi.TuningWarning):
        few = pcfi.impute(np.array([[1.0], [np.nan], [3.0]]), [[0, 1], [1, 2]])
    with pytest.raises(pcfi.ParameterError, match="too few cells"):
        few.draws(2)


def test_rubins_rules_by_hand():
    # 2, 3, 4 with variance 1: within 1, between 1, total 1 + 4/3, share (4/3)/(7/3) = 4/7, 2 / (4/7)^2 = 6.125
    pooled = pcfi.pool([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])
    assert (pooled.estimate, pooled.within, pooled.between) == (3.0, 1.0, 1.0)
    assert pooled.variance == pytest.approx(7 / 3)
    assert pooled.degrees_of_freedom == pytest.approx(6.125)
    # Barnard and Rubin with 20: observed 21/23 * 20 * 3/7
    small = pcfi.pool([2.0, 3.0, 4.0], [1.0, 1.0, 1.0], complete_degrees_of_freedom=20)
    assert small.degrees_of_freedom == pytest.approx(1 / (1 / 6.125 + 1 / (21 / 23 * 20 * 3 / 7)))
    low, high = pooled.interval(0.95)
    assert high - low == pytest.approx(2 * 2.4345 * np.sqrt(7 / 3), rel=1e-3)
    both = pcfi.pool([[1.0, 2.0], [1.0, 4.0]], [[1.0, 1.0], [1.0, 1.0]])
    assert both.variance.tolist() == [1.0, 4.0]
    assert np.isinf(both.degrees_of_freedom[0])
    for wrong in (
        ([1.0], [1.0]),
        ([1.0, 2.0], [1.0]),
        ([1.0, 2.0], [1.0, -1.0]),
        ([1.0, np.nan], [1.0, 1.0]),
        ("a", "b"),
    ):
        with pytest.raises(pcfi.ParameterError):
            pcfi.pool(*wrong)


def test_pooling_gives_published_numbers():
    # SAS/STAT User's Guide, PROC MIANALYZE, first example; docs/howto/multiple-imputation.md has it. Its five
    # means and standard errors are rounded, so the last digits of what it makes of them are not to be had
    means, errors = [47.0120, 47.2407, 47.4995, 47.1485, 47.0042], [0.95984, 0.93540, 1.00766, 0.95439, 0.96528]
    pooled = pcfi.pool(means, np.square(errors), complete_degrees_of_freedom=30)
    assert pooled.estimate == pytest.approx(47.180993, abs=3e-5)
    assert pooled.between == pytest.approx(0.041478, abs=2e-5)
    assert pooled.within == pytest.approx(0.930853, abs=1e-5)
    assert pooled.variance == pytest.approx(0.980626, abs=2e-5)
    assert pooled.degrees_of_freedom == pytest.approx(26.298, abs=2e-3)
    np.testing.assert_allclose(pooled.interval(0.95), [45.1466, 49.2154], atol=1e-4)
    # IBM SPSS Amos 21 User's Guide, example 31, p. 472: ten tables
    estimates = 1.172 + np.sqrt(0.0085 * 9 / 10) * np.array([1.0, -1.0] * 5)
    pooled = pcfi.pool(estimates, np.full(10, 0.0233))
    assert pooled.between == pytest.approx(0.0085)
    assert pooled.variance == pytest.approx(0.0326, abs=6e-5)
    assert pooled.standard_error == pytest.approx(0.1807, abs=2e-4)  # the square root of the rounded variance
    assert pooled.estimate / pooled.standard_error == pytest.approx(6.49, abs=6e-3)
    assert int(pooled.degrees_of_freedom) == 109
    # SAS/STAT User's Guide, PROC MI: 5 tables, variance increased by a tenth
    spread = np.sqrt(0.1 / 1.2 / 2.5) * np.arange(-2, 3)
    assert pcfi.pool(spread, np.ones(5)).degrees_of_freedom == pytest.approx(484)


def test_pooling_agrees_with_statsmodels():
    pytest.importorskip("statsmodels", reason="compares with the pooling of statsmodels")
    from types import SimpleNamespace

    from statsmodels.imputation.mice import MICE
    from statsmodels.regression.linear_model import OLS

    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(50), rng.normal(size=50)])
    fits = [OLS(x @ [1.0, 2.0] + rng.normal(size=50), x).fit() for _ in range(7)]
    names = {"exog_names": ["one", "x"], "endog_names": "y", "model_class": OLS}
    theirs = MICE.combine(SimpleNamespace(results_list=fits, **names))
    ours = pcfi.pool([fit.params for fit in fits], [fit.bse**2 for fit in fits])
    np.testing.assert_allclose(ours.estimate, theirs.params)
    np.testing.assert_allclose(ours.standard_error, theirs.bse)
    np.testing.assert_allclose(ours.missing_information, theirs.frac_miss_info)
