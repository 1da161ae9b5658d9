"""Explanations: parts add up to the value, weights are derivatives, and odd cells are explained as what they are."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pcfi
from pcfi.backends import backend_for
from pcfi.explanation.source_weights import PatternWalk
from pcfi.pipeline import fill

EXACT = pcfi.UntilSettled(rtol=1e-12, max_steps=100_000)


def _table(seed=0, n=60):
    """Three columns that follow a path and each other; the second one is log-normal."""
    rng = np.random.default_rng(seed)
    base = np.cumsum(rng.normal(size=n))
    table = pd.DataFrame(
        {
            "age": 3 * base + rng.normal(size=n),
            "income": np.exp(10 + base / 4 + rng.normal(size=n) / 9),
            "height": 2 * base + rng.normal(size=n),
        },
        index=[f"p{row}" for row in range(n)],
    )
    missing = rng.random(table.shape) < 0.3
    names = np.array(table.index)
    return table.mask(missing), pd.DataFrame({"source": names[:-1], "target": names[1:]}), missing


def _total(explanation):
    return sum(part["contribution"] for part in explanation.to_rows())


def _refilled(cells, node, channel, step):
    """The values if one known value were larger, with the parameters that were fitted."""
    problem = cells.problem
    values = problem.values.copy()
    values[node, channel] += step
    changed = replace(problem, values=values)
    return fill(changed, cells.settings, backend_for(changed), cells.model).values


@pytest.mark.parametrize("solver", [EXACT, pcfi.FixedSteps(30)])
def test_parts_add_up_and_weights_are_derivatives(solver):
    table, edges, missing = _table()
    result = pcfi.impute(table, edges, solver=solver)
    names, cells = list(table.columns), result.cells
    assert cells.model.scale.logarithmic.tolist() == [False, True, False]
    for row, channel in np.argwhere(missing)[::6]:
        explanation = result.explain(f"p{row}", names[channel])
        assert abs(explanation.rest) < 1e-6
        value = result.values.iloc[row, channel]
        assert _total(explanation) == pytest.approx(np.log(value) if explanation.logarithmic else value, abs=1e-9)
        for place in (0, len(explanation.known) - 1):
            known, step = explanation.known, 1e-4 * abs(explanation.known.values[place])
            source, other = int(known.nodes[place][1:]), names.index(known.columns[place])
            high, low = (_refilled(cells, source, other, sign * step)[row, channel] for sign in (1, -1))
            slope = (np.log(high) - np.log(low) if explanation.logarithmic else high - low) / (2 * step)
            slope *= known.values[place] if cells.model.scale.logarithmic[other] else 1.0
            assert known.weights[place] == pytest.approx(slope, rel=1e-3, abs=1e-9)


@pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("alpha", [0.1, 0.9])
@pytest.mark.parametrize("direct", [0, 10_000])
def test_weights_of_sources_are_rows_of_the_dense_inverse(directed, alpha, direct, monkeypatch):
    monkeypatch.setattr("pcfi.explanation.source_weights.MAX_DIRECT", direct)
    rng = np.random.default_rng(3)
    n = 80
    edges, weights = rng.integers(n, size=(2, 240)), rng.random(240) + 0.1
    values = np.where(rng.random((n, 1)) < 0.15, rng.normal(size=(n, 1)), np.nan)
    graph = pcfi.prepare_graph((edges, weights), n, directed=directed)
    result = pcfi.impute(
        values,
        graph,
        alpha=alpha,
        beta=0,
        objective="representation",
        directed=directed,
        solver=EXACT,
        unreachable="nan",
    )
    hops = result.cells.host_hops
    codes = hops.codes[:, 0].astype(int)
    reachable = hops.is_reachable(codes)
    dense = np.zeros((n, n))
    for node in range(n):
        for place in range(graph.indptr[node], graph.indptr[node + 1]):
            dense[node, graph.indices[place]] = graph.weights[place]
    dense *= np.where(reachable, alpha ** codes.clip(max=50), 0.0)
    free, known = np.flatnonzero(reachable & (codes > 0)), np.flatnonzero(codes == 0)
    steps = dense[free] / dense[free].sum(axis=1, keepdims=True)
    influence = np.linalg.solve(np.eye(len(free)) - steps[:, free], steps[:, known])
    walk = PatternWalk(graph=graph, hops=codes, reachable=reachable, alpha=alpha, solver=EXACT)
    for place in range(0, len(free), 7):
        solved = walk.weights_of(int(free[place]))
        row = np.zeros(n)
        row[solved.nodes] = solved.weights
        np.testing.assert_allclose(row[known], influence[place], atol=1e-9)
        path = solved.path(solved.nodes[0])
        assert (path[0], path[-1], len(path) - 1) == (free[place], solved.nodes[0], solved.hops[0])


def test_values_that_grow_with_the_degree_add_up():
    rng = np.random.default_rng(0)
    n = 200
    source = rng.integers(n, size=900)
    target = (n * rng.random(900) ** 3).astype(int)
    graph = pcfi.prepare_graph(np.stack([source, target]), n)
    degree = np.maximum(np.diff(graph.indptr), 1)
    values = (np.sqrt(degree) * (3 + 0.2 * rng.normal(size=n)))[:, None]
    values[rng.random((n, 1)) < 0.3] = np.nan
    result = pcfi.impute(values, graph, solver=EXACT)
    assert result.tuning.by_degree
    explanations = result.explain(np.flatnonzero(np.isnan(values[:, 0]))[:10].tolist(), 0)
    assert all(abs(one.rest) < 1e-6 for one in explanations)
    assert any("root of the degree" in repr(one) for one in explanations)


def test_a_value_that_was_cut_says_so():
    table, edges, missing = _table()
    free = pcfi.impute(table, edges, solver=EXACT)
    row = int(np.flatnonzero(missing[:, 0])[0])
    bound = float(free.values.iloc[row, 0]) - 1
    cut = pcfi.impute(
        table.where(table["age"].isna() | (table["age"] < bound), np.nan), edges, bounds={"age": (None, bound)}
    )
    explanations = cut.explain([f"p{row}" for row in np.flatnonzero(missing[:, 0])], "age")
    assert any(one.bounds < 0 and "cut off" in repr(one) for one in explanations)


def test_known_unreachable_and_categories():
    nodes = pd.DataFrame(
        {
            "id": list("abcdefghij"),
            "x": [1.0, None, 3.0, 4.0, None, 6.0, 7.0, 8.0, 9.0, None],
            "kind": ["u", "u", "u", None, "u", "v", "v", None, "v", "v"],
        }
    )
    edges = pd.DataFrame({"source": list("abcdefgh"), "target": list("bcdefghi")})
    with pytest.warns(pcfi.UnreachableWarning):
        result = pcfi.frames.impute(nodes, edges, categorical=["kind"])
    assert "was known" in repr(result.explain("a", "x"))
    assert result.explain("a", "x").to_rows() == []
    explanation = result.explain("h", "kind")
    assert explanation.category == result.values["kind"][7] == "v"
    assert explanation.value == pytest.approx(result.probabilities("kind")["v"][7])
    assert _total(explanation) == pytest.approx(explanation.value)
    text = repr(explanation)
    assert f"kind of 'h': v, with a probability of {100 * explanation.value:.0f} %" in text
    assert "'g' is v, 1 hop" in text
    assert "is not u" not in text  # the other channels of the column are summed up
    assert "to make it a probability" in text
    lonely = result.explain("j", "x")
    assert "No known cell of the column can be reached" in repr(lonely)
    with pytest.warns(pcfi.UnreachableWarning):
        alone = pcfi.frames.impute(nodes[["id", "x"]], edges)
    assert "only the mean speaks" in repr(alone.explain("j", "x"))
    assert _total(alone.explain("j", "x")) == pytest.approx(alone.values["x"][9])
    with pytest.warns(pcfi.UnreachableWarning):
        zero = pcfi.frames.impute(nodes[["id", "x"]], edges, unreachable="zero")
    assert "unreachable='zero'" in repr(zero.explain("j", "x"))


def test_the_text_of_a_logarithm_multiplies_a_geometric_mean_by_factors():
    rng = np.random.default_rng(0)
    values = np.exp(np.cumsum(rng.normal(size=(60, 1)), axis=0) / 2)
    values[[5, 6, 20, 40]] = np.nan
    explanation = pcfi.impute(values, [np.arange(59), np.arange(1, 60)]).explain(20, 0)
    assert explanation.logarithmic
    known = explanation.known
    weighted = known.weights @ np.log(known.values) + explanation.weight_of_mean * explanation.mean
    amounts = [amount for amount, _ in explanation.lines()]
    factors = [float(amount.removeprefix("times ")) for amount in amounts if amount.startswith("times")]
    assert np.exp(weighted) * np.prod(factors) == pytest.approx(explanation.value, rel=1e-3)
    assert "the geometric mean of the column" in repr(explanation)


def test_wrong_names_and_results_without_a_model():
    table, edges, _ = _table()
    result = pcfi.impute(table, edges)
    with pytest.raises(pcfi.ParameterError, match="closest is 'income'"):
        result.explain("p1", "incom")
    with pytest.raises(pcfi.ParameterError, match="closest is 'p1"):
        result.explain("p111", "age")
    with pytest.raises(pcfi.ParameterError, match="same length"):
        result.explain(["p1", "p2"], ["age"])
    by_mean = pcfi.impute(table, edges, method="mean")
    with pytest.raises(pcfi.ParameterError, match="explain needs the model"):
        by_mean.explain("p1", "age")
    numbers = pcfi.impute(table.to_numpy(), [np.arange(59), np.arange(1, 60)])
    for node in (60, -1, 1.5, True, "x"):
        with pytest.raises(pcfi.ParameterError, match="from 0 to 59"):
            numbers.explain(node, 0)


def test_html_is_escaped_and_results_are_picklable():
    table, edges, missing = _table()
    table.index = [f"<b>{name}</b>" for name in table.index]
    edges = "<b>" + edges + "</b>"
    result = pickle.loads(pickle.dumps(pcfi.impute(table, edges)))
    row = int(np.flatnonzero(missing[:, 0])[0])
    page = result.explain(f"<b>p{row}</b>", "age")._repr_html_()
    assert "<svg" in page
    assert "<b>" not in page
    frame = result.explain(f"<b>p{row}</b>", "age").to_frame()
    assert frame["contribution"].sum() == pytest.approx(result.values.iloc[row, 0])


def test_tensors_and_float32():
    torch = pytest.importorskip("torch")
    table, _, missing = _table()
    features = torch.tensor(table.to_numpy(), dtype=torch.float32)
    result = pcfi.impute(features, [np.arange(59), np.arange(1, 60)])
    row = int(np.flatnonzero(missing[:, 0])[0])
    assert _total(result.explain(row, 0)) == pytest.approx(float(result.values[row, 0]), rel=1e-6)
