"""Suggestions: the field is the dense posterior, gains are those of the definition, choices cover the graph."""

import numpy as np
import pandas as pd
import pytest

import pcfi
from pcfi.explanation import suggestion
from pcfi.explanation.node_field import PERSISTENCE, NodeField, fit_node_field, normalized_adjacency

# members of a clique are alike, as rows are in a graph that was made from the table
pytestmark = pytest.mark.filterwarnings("ignore::pcfi.GraphWarning")


def _cliques(n_cliques=6, size=8):
    """Values that are alike within cliques, which a path joins; the first clique is known."""
    rng = np.random.default_rng(0)
    level = np.repeat(3.0 * rng.normal(size=n_cliques), size)
    table = level[:, None] + 0.3 * rng.normal(size=(n_cliques * size, 2))
    edges = [(a + c, b + c) for c in range(0, n_cliques * size, size) for a in range(size) for b in range(a)]
    edges += [(c, c + size) for c in range(0, (n_cliques - 1) * size, size)]
    return table, np.array(edges).T


def _partly_known(table, size=8):
    known = np.zeros(len(table), dtype=bool)
    known[: 2 * size] = True
    return np.where(known[:, None], table, np.nan)


def test_the_field_has_the_covariance_of_the_dense_posterior(monkeypatch):
    monkeypatch.setattr("pcfi.explanation.node_field.RTOL", 1e-6)
    table, edges = _cliques()
    graph = pcfi.prepare_graph(edges, len(table))
    mask = np.zeros(table.shape, dtype=bool)
    mask[::2], mask[5, 0] = True, True
    known = mask.mean(axis=1)
    field, _ = fit_node_field(graph, table, mask, np.ones(2))
    np.testing.assert_allclose(field.known, known)
    smooth = np.linalg.inv(np.eye(len(table)) - PERSISTENCE * normalized_adjacency(graph).toarray())
    spread = np.sqrt(np.diagonal(smooth))
    np.testing.assert_allclose(field.spread, spread, rtol=0.5)  # estimated from random signs
    exact = NodeField(step=field.step, spread=spread, signal=0.6, known=known)
    # the mean is a field of its own, of a variance without bound
    prior = 0.6 * smooth / spread / spread[:, None] + 1e6
    rows = np.flatnonzero(known)
    measured = prior[np.ix_(rows, rows)] + np.diag(0.4 / known[rows])
    wanted = prior - prior[:, rows] @ np.linalg.solve(measured, prior[rows])
    np.testing.assert_allclose(exact.covariance(np.eye(len(table))), wanted, atol=1e-4)
    np.testing.assert_allclose(exact.variances, np.diagonal(wanted), atol=0.25)  # estimated from random signs


@pytest.mark.parametrize("signal", [0.1, 0.5, 0.9])
def test_the_signal_of_a_drawn_field_is_found(signal):
    rng = np.random.default_rng(1)
    side = 40
    number = np.arange(side**2).reshape(side, side)
    edges = np.concatenate(
        [[number[1:].ravel(), number[:-1].ravel()], [number[:, 1:].ravel(), number[:, :-1].ravel()]], 1
    )
    graph = pcfi.prepare_graph(edges, side**2)
    smooth = np.linalg.inv(np.eye(side**2) - PERSISTENCE * normalized_adjacency(graph).toarray())
    spread = np.sqrt(np.diagonal(smooth))
    correlated = np.linalg.cholesky(smooth / spread / spread[:, None]) @ rng.normal(size=(side**2, 4))
    table = np.sqrt(signal) * correlated + np.sqrt(1 - signal) * rng.normal(size=correlated.shape)
    table[:, 3] = rng.normal(size=side**2)  # a column that ignores the graph
    field, signals = fit_node_field(graph, table, rng.random(table.shape) < 0.5, np.ones(4))
    np.testing.assert_allclose(signals[:3], signal, atol=0.2)
    assert signals[3] < 0.15
    assert field.signal == pytest.approx(signals.mean())


def test_nodes_far_from_known_ones_do_not_come_first_if_the_graph_explains_nothing():
    # the error of hidden cells was once extrapolated to hops that no hidden cell had
    rng = np.random.default_rng(0)
    table = np.full((400, 20), np.nan)
    table[:60] = rng.normal(size=(60, 20))
    result = pcfi.impute(table, [np.arange(399), np.arange(1, 400)])
    found = pcfi.suggest(result, 300)
    assert found.own.max() < 1.2 * found.own.min()


def test_every_unknown_clique_is_measured_before_any_is_measured_twice():
    table, edges = _cliques()
    table = _partly_known(table)
    result = pcfi.impute(table, edges)
    found = pcfi.suggest(result, 4)
    assert sorted(row // 8 for row in found.rows) == [2, 3, 4, 5]
    assert found.nodes == found.rows.tolist()
    assert (found.others > 0).all()
    assert ((found.own + found.others)[:-1] >= (found.own + found.others)[1:] - 1e-9).all()
    assert 0 < found.to_rows()[-1]["total"] < 1
    assert "off the expected squared error" in repr(found)
    assert found.to_frame()["node"].tolist() == found.nodes
    everything = pcfi.suggest(result, 1000)
    assert len(everything) == 32 == everything.n_candidates
    assert everything.to_rows()[-1]["total"] == pytest.approx(1.0)
    np.testing.assert_array_equal(everything.rows[:4], found.rows)


def test_lazy_choices_are_those_of_a_search_through_all_candidates(monkeypatch):
    rng = np.random.default_rng(3)
    places = rng.random((120, 2))
    near = ((places[:, None] - places[None]) ** 2).sum(axis=2) < 0.02
    edges = np.stack(np.nonzero(np.triu(near, 1)))
    table = np.stack([np.sin(5 * places[:, 0]), np.cos(4 * places[:, 1])], axis=1)
    table[rng.random(table.shape) < 0.6] = np.nan
    result = pcfi.impute(table, pcfi.prepare_graph(edges, 120))
    lazy = pcfi.suggest(result, 12)

    def all_of_them(table, rows, most):
        pool = rows.pool
        left = list(range(len(pool)))
        for _ in range(most):
            gains = [table.own(int(pool[place])) + rows.gain(place)[1].sum() for place in left]
            place = left.pop(int(np.argmax(gains)))
            node, (others, parts) = int(pool[place]), rows.gain(place)
            own, gained = table.own(node), float(table.weights[table.missing[node]].sum() / table.weights.sum())
            table.measure(node, others, rows.shares(place)[others])
            rows.condition(place, gained)
            yield node, own, float(parts.sum()), gained

    monkeypatch.setattr(suggestion, "_greedy", all_of_them)
    np.testing.assert_array_equal(pcfi.suggest(result, 12).rows, lazy.rows)


def test_a_screened_pool_chooses_as_well_as_all_candidates(monkeypatch):
    table, edges = _cliques(20, 10)
    result = pcfi.impute(_partly_known(table, 10), edges)
    exact = pcfi.suggest(result, 10)
    monkeypatch.setattr(suggestion, "MIN_POOL", 20)
    monkeypatch.setattr(suggestion, "MAX_POOL_CELLS", 30 * len(table))
    screened = pcfi.suggest(result, 10)
    assert len({row // 10 for row in screened.rows}) >= 7
    assert screened.to_rows()[-1]["total"] > 0.9 * exact.to_rows()[-1]["total"]


def test_columns_that_ignore_the_graph_tell_nothing_about_other_nodes():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(300, 2))
    table[rng.random(table.shape) < 0.5] = np.nan
    found = pcfi.suggest(pcfi.impute(table, [np.arange(299), np.arange(1, 300)]), 5)
    assert (found.others < 0.2 * found.own).all()


def test_candidates_and_names_are_the_callers():
    table, edges = _cliques()
    frame = pd.DataFrame(_partly_known(table), columns=["x", "y"], index=[f"p{row}" for row in range(len(table))])
    ends = pd.DataFrame({"source": frame.index[edges[0]], "target": frame.index[edges[1]]})
    before = frame.copy()
    result = pcfi.impute(frame, ends)
    assert pcfi.suggest(result, 2, candidates=["p40", "p17", "p3"]).nodes in (["p40", "p17"], ["p17", "p40"])
    assert len(pcfi.suggest(result, 2, candidates=["p3"])) == 0
    assert "Nothing to measure" in repr(pcfi.suggest(result, 2, candidates=["p3"]))
    pd.testing.assert_frame_equal(frame, before)
    with pytest.raises(pcfi.ParameterError, match="closest is 'p4"):
        pcfi.suggest(result, 2, candidates=["p4o"])


def test_unreachable_components_and_isolated_nodes_can_be_chosen():
    table, edges = _cliques(4, 6)
    table = _partly_known(table, 6)
    apart = edges[:, (edges[0] // 6) == (edges[1] // 6)]
    table = np.vstack([table, [[np.nan, np.nan]]])
    with pytest.warns(pcfi.UnreachableWarning):
        result = pcfi.impute(table, pcfi.prepare_graph(apart, len(table)))
    found = pcfi.suggest(result, 13)
    assert {row // 6 for row in found.rows[:2]} == {2, 3}
    assert 24 in found.rows


def test_wrong_input_says_what_to_do():
    table, edges = _cliques()
    result = pcfi.impute(_partly_known(table), edges)
    for k in (0, 1.5, True):
        with pytest.raises(pcfi.ParameterError, match="at least 1"):
            pcfi.suggest(result, k)
    with pytest.raises(pcfi.ParameterError, match="suggest needs the model"):
        pcfi.suggest(pcfi.impute(_partly_known(table), edges, method="mean"), 2)
    with pytest.warns(pcfi.TuningWarning):
        few = pcfi.impute(np.array([[1.0], [np.nan], [3.0]]), [[0, 1], [1, 2]])
    with pytest.raises(pcfi.FeatureError, match="too few cells"):
        pcfi.suggest(few, 2)
