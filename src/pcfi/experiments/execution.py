"""`execute`: a run -> its outcome."""

import numpy as np

from pcfi._typing import Array
from pcfi.errors import PcfiError
from pcfi.experiments.catalog import DATASETS, MASKS, SYSTEMS, validate
from pcfi.experiments.dataset import INSTALL
from pcfi.experiments.runs import Outcome, Run

__all__ = ["DATASETS", "MASKS", "SYSTEMS", "execute", "validate"]


def execute(run: Run) -> Outcome:
    """Do one run: load the data, hide cells, let the system answer, score it.

    Metrics are in percent (accuracy, auc, ap and their validation counterparts), seconds by part, and the number of
    epochs. Details hold the parameters that were used, and, where nodes miss all channels or none, by hops: the number
    of test nodes and how many were classified correctly, the number of missing nodes and the mean cosine similarity of
    their original and filled features.

    Raises
    ------
    ParameterError
        A name or a parameter is not known; the known ones are listed.
    DatasetError
        The data set is not there and cannot be downloaded.
    """
    validate(run)
    try:
        from pcfi.experiments.setting import make_setting
        from pcfi.experiments.systems import system
    except ImportError as error:
        raise PcfiError(INSTALL) from error
    setting = make_setting(run)
    answer = system(run.system).solve(setting)
    metrics = dict(answer.metrics)
    details = {"parameters": setting.parameters, "missing_rate": float(1 - setting.known.mean()), **answer.details}
    correct = None
    if answer.predicted is not None:
        correct = answer.predicted == setting.dataset.labels
        metrics["accuracy"] = 100 * float(correct[setting.split.test].mean())
    if setting.hops is not None:
        details["hops"] = by_hops(setting.hops, setting.dataset.features, answer.filled, setting.split.test, correct)
    return Outcome(metrics, details)


def by_hops(
    hops: Array, original: Array, filled: Array | None, tested: Array, correct: Array | None
) -> list[dict[str, float]]:
    """Per number of hops: test nodes and how many are correct; nodes and their mean cosine similarity."""
    similar = None if filled is None else cosine_similarity(original, filled)
    rows = []
    for distance in np.unique(hops[np.isfinite(hops)]):
        at = hops == distance
        row: dict[str, float] = {"hops": int(distance), "nodes": int(at.sum())}
        if similar is not None:
            row["cosine"] = float(similar[at].mean())
        if correct is not None:
            row["tested"] = int(at[tested].sum())
            row["correct"] = int((at & correct)[tested].sum())
        rows.append(row)
    return rows


def cosine_similarity(left: Array, right: Array) -> Array:
    """Cosine of the angle between the rows of two arrays; 0 where one of them is 0."""
    sizes = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = np.einsum("ij,ij->i", left, right, dtype=np.float64)
    return np.asarray(np.divide(products, sizes, out=np.zeros(len(left)), where=sizes > 0))
