"""Which parts of the value model pay, and how much does each constant matter? One change at a time, on small tables.

`error` is the root mean squared error relative to the model as it is, on average over the cases; `worst` is that of the
case that loses most; `coverage` is that of 90 % intervals. A part is switched off, a constant is a third or three times
as large.
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
from common import answer
from values import LEVEL, hide, table_of

import pcfi
from pcfi.estimation import (
    cell_model,
    channel_scale,
    conformal_scores,
    error_fitting,
    error_model,
    factor_model,
    fitting,
    graph_estimates,
    graph_link,
    training,
)

TABLES = ("columbus", "us_income", "mexico", "wine", "baltim", "iris")
CASES = (("cells", 0.1), ("cells", 0.5), ("cells", 0.9), ("rows", 0.3))
SEEDS = (0, 1)

PARTS: dict[str, list[tuple[Any, str, Any]]] = {
    "no regression": [(fitting, "has_regression", lambda _: False)],
    "no factors": [(fitting, "RANKS", ())],
    "no other columns": [(fitting, "has_regression", lambda _: False), (fitting, "RANKS", ())],
    "no log scale": [
        (channel_scale, "_log_fits_better", lambda channels, *_: np.zeros(len(channels.n_known), dtype=bool))
    ],
    "log scale wherever a column looks log-normal": [
        (fitting, "_relative_errors", lambda fitted: np.zeros(len(fitted.column_errors.unit)))
    ],
    "folds see each other": [(fitting, "with_pairs", lambda hidden, *_: hidden)],
    "hidden cells see what their fold leaves of their row": [
        (training.TrainingRows, "seen", training.TrainingRows.without)
    ],
    "known neighbours as folds leave them": [(error_fitting, "_known_left", lambda part, _: np.ones(len(part.shift)))],
    "alpha 0.6 always": [(graph_estimates, "ALPHAS", (0.6,))],
    "scores in units of all known cells": [
        (error_fitting, "_relative_units", lambda _, scale, __: np.ones(len(scale.unit)))
    ],
}
CONSTANTS: tuple[tuple[Any, str], ...] = (
    (cell_model, "PRIOR_CELLS"),
    (factor_model, "LOADING_RIDGE"),
    (factor_model, "NOISE_PRIOR_CELLS"),
    (factor_model, "PAIR_PRIOR"),
    (graph_link, "WEIGHT_VARIANCE"),
    (graph_link, "FACTOR_RIDGE"),
    (graph_estimates, "SCORE_PRIOR"),
    (error_model, "SLOPE_RIDGE"),
    (error_model, "SPREAD_PRIOR_CELLS"),
    (error_model, "MIN_RELATIVE_VARIANCE"),
    (error_model, "ERROR_POWER"),
    (conformal_scores, "MIN_POOLED_SCORES"),
    (channel_scale, "MARGIN"),
    (fitting, "REGRESSION_UNITS"),
    (fitting, "ENOUGH_CELLS"),
)


def run_cases() -> np.ndarray:
    """Error in standard deviations and coverage of every case."""
    results = []
    for name in TABLES:
        truth, graph = table_of(name)
        deviation = truth.std(axis=0)
        for kind, rate in CASES:
            for seed in SEEDS:
                missing = hide(truth, kind, rate, seed)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", pcfi.PcfiWarning)
                    result = pcfi.impute(np.where(missing, np.nan, truth), graph)
                low, high = result.interval(LEVEL)
                error = np.sqrt(np.mean(((result.values - truth) / deviation)[missing] ** 2))
                results.append((error, ((low <= truth) & (truth <= high))[missing].mean()))
    return np.array(results)


def changes() -> Iterator[tuple[str, list[tuple[Any, str, Any]]]]:
    yield from PARTS.items()
    for module, name in CONSTANTS:
        for factor in (1 / 3, 3.0):
            where = module.__name__.rpartition(".")[2]
            yield f"{where}.{name} x {factor:.2g}", [(module, name, factor * getattr(module, name))]


def rows() -> Iterator[dict[str, Any]]:
    base = run_cases()
    yield {"change": "none", "error": 1.0, "worst": 1.0, "coverage": float(base[:, 1].mean())}
    for name, patches in changes():
        with ExitStack() as stack:
            for target, attribute, value in patches:
                stack.enter_context(mock.patch.object(target, attribute, value))
            changed = run_cases()
        ratio = changed[:, 0] / base[:, 0]
        yield {
            "change": name,
            "error": float(ratio.mean()),
            "worst": float(ratio.max()),
            "coverage": float(changed[:, 1].mean()),
        }


if __name__ == "__main__":
    answer("values_ablation", rows())
