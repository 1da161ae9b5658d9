"""How well methods fill hidden cells: scores against other implementations, and what is reported."""

import numpy as np
import pytest
from sklearn.metrics import ndcg_score, r2_score, roc_auc_score

import pcfi
from pcfi.evaluation.scores import score, score_binary
from smooth_features import hidden_at, ring, smooth


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    nodes = np.repeat(np.arange(7), 30)
    truth = (rng.random(210) < 0.15).astype(float)
    truth[:30] = 0
    filled = 0.3 * truth + rng.random(210)
    found = score_binary(truth, filled, nodes)
    with_ones = [node for node in range(7) if truth[nodes == node].any()]
    rows = [(truth[nodes == node], filled[nodes == node]) for node in with_ones]
    assert found["auc"] == pytest.approx(roc_auc_score(truth, filled))
    assert found["ndcg@10"] == pytest.approx(np.mean([ndcg_score([one], [other], k=10) for one, other in rows]))
    recalls = [one[np.argsort(-other)[:10]].sum() / min(10, one.sum()) for one, other in rows]
    assert found["recall@10"] == pytest.approx(np.mean(recalls))
    plain = score(truth, filled, np.full(210, truth.mean()), nodes)
    assert plain["r2"] == pytest.approx(r2_score(truth, filled))
    assert plain["rmse"] == pytest.approx(np.sqrt(np.mean((truth - filled) ** 2)))
    assert plain["mae"] == pytest.approx(np.mean(np.abs(truth - filled)))


def test_equal_guesses_have_an_auc_of_one_half():
    assert score_binary(np.array([0.0, 1, 0, 1]), np.zeros(4), np.array([0, 0, 1, 1]))["auc"] == 0.5


@pytest.fixture(scope="module")
def evaluation():
    rng = np.random.default_rng(1)
    features = hidden_at(rng, smooth(rng))
    methods = {
        "mean": {"method": "mean"},
        "paper": {"alpha": 0.5, "beta": 0.1, "objective": "representation"},
        "tuned": {},
    }
    return features, pcfi.evaluate(features, ring(200), methods=methods)


def test_an_evaluation_finds_the_better_method_and_adds_up(evaluation):
    features, found = evaluation
    assert found.best == "tuned"
    assert [row["method"] for row in found.to_rows()] == ["mean", "paper", "tuned"]
    for one in found.methods:
        rows = [row for row in found.by_hops if row.method == one.method]
        assert sum(row.cells for row in rows) == found.n_hidden
        by_hops = np.sqrt(sum(row.cells * row.rmse**2 for row in rows) / found.n_hidden)
        assert by_hops == pytest.approx(one.scores["rmse"])
        # all channels have as many hidden cells here, since whole nodes were hidden
        assert np.sqrt(np.mean(found.by_channel[one.method] ** 2)) == pytest.approx(one.scores["rmse"])
        assert one.standard_errors["rmse"] > 0
    assert found.n_hidden <= (~np.isnan(features)).sum()


def test_an_evaluation_prints_and_becomes_a_frame(evaluation):
    text = repr(evaluation[1])
    assert text.startswith("Evaluation on ")
    assert "RMSE by hops" in text
    frame = evaluation[1].to_frame()
    assert list(frame.index) == ["mean", "paper", "tuned"]
    assert frame.loc["tuned", "rmse"] == evaluation[1].methods[2].scores["rmse"]


def test_binary_channels_are_also_ranked():
    rng = np.random.default_rng(2)
    features = hidden_at(rng, (smooth(rng) > 5).astype(float), "uniform")
    found = pcfi.evaluate(features, ring(200), methods="mean", folds=2)
    assert {"recall@10", "ndcg@10", "auc"} <= set(found.methods[0].scores)


def test_auto_takes_the_method_that_fills_hidden_cells_best():
    rng = np.random.default_rng(3)
    chosen = set()
    for features in (
        hidden_at(rng, rng.normal(size=(200, 3))),
        hidden_at(rng, smooth(rng, noise=0.05)),
        hidden_at(rng, smooth(rng, noise=1.0), "uniform"),
    ):
        tuning = pcfi.tune(features, ring(200))
        method = pcfi.impute(features, ring(200), method="auto").method
        better = tuning.error < tuning.error_of_mean
        assert method != "mean" or not better
        chosen.add(method)
    assert len(chosen) > 1


def test_errors_in_deviations_do_not_depend_on_the_scales_of_channels():
    rng = np.random.default_rng(4)
    features = hidden_at(rng, smooth(rng), "uniform")
    scale = np.array([1.0, 2.0**-20, 2.0**20, 1.0, 0.5, 3.0])
    options = {"methods": ("mean", "fp", "pcfi"), "folds": 2, "unit": "deviation"}
    found = [pcfi.evaluate(values, ring(200), **options) for values in (features, features * scale)]
    for one, other in zip(*(each.methods for each in found), strict=True):
        assert one.scores["rmse"] == pytest.approx(other.scores["rmse"], rel=1e-6)
    spread = np.nanstd(features, axis=0)
    plain = pcfi.evaluate(features, ring(200), methods="mean", folds=2, unit="data")
    errors = found[0].by_channel["mean"] * spread
    assert errors == pytest.approx(plain.by_channel["mean"])
    assert "standard deviations" in repr(found[0])


def test_reliability_says_what_intervals_and_expected_errors_were_worth(evaluation):
    _, found = evaluation
    (one,) = found.reliability
    assert one.method == "tuned"
    assert sum(at.cells for at in one.by_hops) == sum(part.cells for part in one.bins) == found.n_hidden
    assert one.covered == pytest.approx(sum(at.cells * at.covered for at in one.by_hops) / found.n_hidden)
    assert 0.8 < one.covered <= 1
    expected = [part.expected for part in one.bins]
    assert (np.diff(expected) > 0).all()  # equal ones are together
    actual = sum(part.cells * part.actual for part in one.bins) / found.n_hidden
    assert actual == pytest.approx(found.methods[2].scores["mae"])
    assert "intervals for 90% cover" in repr(found)


def test_a_complete_table_can_be_evaluated_too():
    rng = np.random.default_rng(5)
    values = smooth(rng)
    found = pcfi.evaluate(values, ring(200), methods=("mean", "fp"), folds=5)
    assert found.n_hidden == values.size
    assert found.best == "fp"


def test_numbers_of_a_printed_evaluation_do_not_touch():
    rng = np.random.default_rng(6)
    found = pcfi.evaluate(hidden_at(rng, smooth(rng)) * 1e4, ring(200), methods=("neighbors", "mean"), unit="data")
    lines = repr(found).splitlines()
    rows = lines[lines.index(next(line for line in lines if "RMSE by hops" in line)) + 1 :]
    assert [len(row.split()) for row in rows[:2]] == [1 + len({at.hops for at in found.by_hops})] * 2


def test_one_cell_in_a_fold_has_no_standard_error_and_no_warning():
    found = pcfi.evaluate(np.array([[1.0], [2.0], [np.nan]]), ring(3), methods="mean")
    assert found.n_hidden == 2


@pytest.mark.parametrize(
    ("known", "folds", "made"), [(50, 2, 2), (50, 4, 4), (50, 9, 5), (40, 2, 2), (3, 2, 2), (3, 5, 3)]
)
def test_a_fold_hides_a_fifth_of_the_known_cells(known, folds, made):
    scattered = np.random.default_rng(0).permutation(60) < known
    features = np.where(scattered, np.sin(np.arange(60)), np.nan)[:, None]
    found = pcfi.evaluate(features, ring(60), methods="mean", folds=folds)
    assert (found.n_folds, found.n_hidden) == (made, made * max(known // 5, 1))


def test_bad_calls_are_refused():
    features = np.array([[1.0], [np.nan], [2.0]])
    with pytest.raises(pcfi.FeatureError, match="too few known cells"):
        pcfi.evaluate(np.array([[1.0], [np.nan], [np.nan]]), ring(3))
    with pytest.raises(pcfi.ParameterError, match="folds must be"):
        pcfi.evaluate(features, ring(3), folds=1)
    with pytest.raises(pcfi.ParameterError, match="unit must be one of"):
        pcfi.evaluate(features, ring(3), unit="metres")
    with pytest.raises(pcfi.ParameterError, match="methods must be names of methods"):
        pcfi.evaluate(features, ring(3), methods={"mine": None})
    with pytest.raises(pcfi.ParameterError, match="leaves some of them NaN"):
        pcfi.evaluate(features, ring(3), methods={"mine": {"unreachable": "nan"}})
    with pytest.raises(pcfi.ParameterError, match="unknown option gamma: evaluate takes method"):
        pcfi.evaluate(features, ring(3), methods={"mine": {"gamma": 1}})
    for option in ("directed", "progress"):
        with pytest.raises(pcfi.ParameterError, match=f"{option} is the same for all methods: pass {option}=True to"):
            pcfi.evaluate(features, ring(3), methods={"mine": {option: True}})
    with pytest.raises(pcfi.ParameterError, match="methods is empty"):
        pcfi.evaluate(features, ring(3), methods=())


def test_unreachable_cells_have_errors_and_coverage_of_their_own():
    """Isolated nodes were left out of the table by hops."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 2))
    features[rng.random(features.shape) < 0.2] = np.nan
    found = pcfi.evaluate(features, [np.arange(99), np.arange(1, 100)], methods=("mean", "pcfi"))
    lines = repr(found).splitlines()
    assert next(line for line in lines if "RMSE by hops" in line).split()[-1] == "unreachable"
    [at] = [one for one in found.by_hops if one.hops < 0 and one.method == "pcfi"]
    [covered] = [one for one in found.reliability[0].by_hops if one.hops < 0]
    assert at.cells == covered.cells > 50
    assert f"{at.rmse:.4g}" in lines[-2]
    assert f"{covered.covered:.1%} of unreachable cells" in lines[-1]
