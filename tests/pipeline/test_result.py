"""What comes out: the report a person reads, progress, and interruption."""

import copy
import os
import pickle
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import pcfi

PATH = [[0, 1, 2], [1, 2, 3]]
FEATURES = np.array([[0.0, 1.0], [np.nan, np.nan], [np.nan, 4.0], [3.0, np.nan]])


def test_repr_reads_like_a_report():
    text = repr(pcfi.impute(FEATURES, PATH, alpha=0.25, beta=0.1, objective="representation"))
    assert text.startswith("Imputation\n")
    assert "4 nodes x 2 channels" in text
    assert "4 cells (50.0%)" in text
    assert "alpha=0.25, beta=0.1" in text
    assert re.search(r"Settled after \d+ steps?: one further step would move no cell by more than", text)


def test_html_repr_is_a_table_with_escaped_text():
    html = pcfi.impute(FEATURES, PATH, alpha=0.5, beta=0.1, objective="representation")._repr_html_()
    assert html.startswith("<table>")
    assert "channel&#x27;s range" in html


@pytest.mark.parametrize(
    ("method", "status"),
    [
        ("zero", "A missing cell holds 0."),
        ("mean", "A missing cell holds its channel's mean."),
        ("neighbors", "A missing cell holds the mean of its known neighbours, or of its channel if it has none."),
    ],
)
def test_plain_fills_do_what_they_say(method, status):
    result = pcfi.impute(FEATURES, PATH, method=method, alpha=0.5, beta=0.1, objective="representation")
    filled = {
        "zero": [[0, 1], [0, 0], [0, 4], [3, 0]],
        "mean": [[0, 1], [1.5, 2.5], [1.5, 4], [3, 2.5]],
        "neighbors": [[0, 1], [0, 2.5], [3, 4], [3, 4]],
    }[method]
    np.testing.assert_allclose(result.values, filled)
    assert result.status == status
    assert result.alpha is result.beta is result.hops is result.confidence is None


def test_fixed_steps_say_how_far_from_settled_they_are():
    result = pcfi.impute(FEATURES, PATH, solver=pcfi.FixedSteps(3), alpha=0.5, beta=0.1, objective="representation")
    assert result.status.startswith("Took 3 steps, as asked: one further step would move")
    assert result.converged
    assert result.residual > 0


def test_hops_are_kept_per_pattern_and_expanded_on_demand():
    rng = np.random.default_rng(0)
    features = np.where(rng.random((50, 1)) < 0.3, rng.normal(size=(50, 400)), np.nan)
    ring = np.stack([np.arange(50), (np.arange(50) + 1) % 50])
    result = pcfi.impute(features, ring, alpha=0.5, beta=0.1, objective="representation")
    assert result.cells.hops.codes.shape == (50, 1)
    assert result.cells.hops.codes.dtype == np.uint8
    assert result.hops.shape == result.confidence.shape == (50, 400)
    assert result.hops is result.hops


def test_results_can_be_copied_and_pickled():
    result = pcfi.impute(FEATURES, PATH, alpha=0.5, beta=0.1, objective="representation")
    for copied in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        np.testing.assert_array_equal(copied.values, result.values)
        np.testing.assert_array_equal(copied.confidence, result.confidence)


def test_progress_names_the_stages(capsys):
    pcfi.impute(FEATURES, PATH, progress=True, alpha=0.5, beta=0.1, objective="representation")
    shown = capsys.readouterr().err
    for stage in ("hops", "diffuse", "channels"):
        assert f"{stage}: 100%" in shown
    pcfi.impute(FEATURES, PATH, alpha=0.5, beta=0.1, objective="representation")
    assert capsys.readouterr().err == ""


# A path with its ends known: no machine settles it within the steps that are allowed.
LONG_RUN = """
import numpy as np, pcfi
rng = np.random.default_rng(0)
n = 200_000
graph = pcfi.prepare_graph([[*range(n - 1)], [*range(1, n)]], n)
features = np.full((n, 64), np.nan); features[[0, -1]] = rng.normal(size=(2, 64))
small = np.where(rng.random((50, 3)) < 0.5, 1.0, np.nan); small[0] = 2
exact = pcfi.UntilSettled(1e-12)
pcfi.impute(small, [[*range(49)], [*range(1, 50)]], alpha=0.5, beta=0.1, solver=exact, objective="representation")
print("go", flush=True)
exact = pcfi.UntilSettled(1e-12, max_steps=10**6)
pcfi.impute(features, graph, alpha=1, beta=0, solver=exact, objective="representation")
print("finished")
"""


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_interrupt_stops_a_long_run():
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", LONG_RUN], stdout=-1, stderr=-1, text=True)
    assert process.stdout.readline().strip() == "go"
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)  # all of the work takes longer
    assert "KeyboardInterrupt" in errors
    assert "finished" not in output


@pytest.mark.parametrize("coverage", ["0.9", None, True, 0, 1, float("nan"), [0.9]])
def test_what_is_no_probability_is_refused_as_coverage(coverage):
    values = np.where(np.arange(120).reshape(40, 3) % 4 == 0, np.nan, np.sin(np.arange(120).reshape(40, 3)))
    result = pcfi.impute(values, np.stack([np.arange(39), np.arange(1, 40)]))
    with pytest.raises(pcfi.ParameterError, match="coverage must be a number between 0 and 1"):
        result.interval(coverage)


def test_an_interval_that_too_few_hidden_cells_can_tell_has_no_end():
    rng = np.random.default_rng(0)
    values = np.where(rng.random((200, 3)) < 0.6, rng.normal(size=(200, 3)), np.nan)
    result = pcfi.impute(values, np.stack([np.arange(200), (np.arange(200) + 1) % 200]))
    missing = np.isnan(values)
    assert np.isfinite(np.stack(result.interval(0.9))).all()
    low, high = result.interval(0.999)  # about 360 cells could be hidden: no quantile of a thousand
    assert np.isinf(low[missing]).all()
    assert np.isinf(high[missing]).all()
