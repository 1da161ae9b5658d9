"""An evaluation -> facts of a report."""

from collections.abc import Mapping

import numpy as np

from pcfi._typing import Array
from pcfi.errors import counted
from pcfi.evaluation import Evaluation
from pcfi.report.facts import ErrorAtHops, EvaluationFacts, MethodError
from pcfi.stages.hops import Hops

UNITS = {
    "data": "the units of the data",
    "deviation": "standard deviations of the channel (1 is about as good as its mean)",
}


def evaluation_facts(evaluation: Evaluation) -> EvaluationFacts:
    """Facts of an evaluation on hidden known cells."""
    methods = tuple(
        MethodError(
            one.method,
            one.scores["rmse"],
            one.scores["mae"],
            one.seconds,
            tuple(
                ErrorAtHops(_hops(at.hops), at.cells, at.rmse) for at in evaluation.by_hops if at.method == one.method
            ),
            one.scores.get("accuracy"),
        )
        for one in evaluation.methods
    )
    how = f"{counted(evaluation.n_folds, 'fold')}, hidden in the same pattern as the missing cells"
    return EvaluationFacts(
        evaluation.n_hidden, how, UNITS[evaluation.unit], methods, evaluation.reliability, evaluation.n_categories
    )


def _hops(hops: int) -> int | None:
    return None if hops < 0 else hops


def method_errors(
    errors: Mapping[str, Array], seconds: Mapping[str, float], removed: Array, hops: Hops
) -> tuple[MethodError, ...]:
    """Errors of each method on the `removed` cells, whose true values are known.

    `errors` holds filled minus true values of all cells, by method.
    """
    codes = np.minimum(hops.codes, hops.n_levels + 1)[:, hops.patterns][removed]
    counts = np.bincount(codes)

    def one(method: str) -> MethodError:
        wrong = errors[method][removed].astype(np.float64)
        squares = np.bincount(codes, weights=wrong**2)
        by_hops = tuple(
            ErrorAtHops(code if code <= hops.n_levels else None, int(counts[code]), float(rmse))
            for code in np.flatnonzero(counts).tolist()
            for rmse in [np.sqrt(squares[code] / counts[code])]
        )
        total = float(np.sqrt(np.mean(wrong**2)))
        return MethodError(method, total, float(np.abs(wrong).mean()), seconds[method], by_hops)

    return tuple(one(method) for method in errors)
