"""`execute`: a run -> its metrics and details, as a record."""

import numpy as np

from pcfi._typing import Array
from pcfi.errors import PcfiError
from pcfi.experiments.catalog import validate
from pcfi.experiments.data.dataset import INSTALL
from pcfi.experiments.run import Record, Run


def execute(run: Run) -> Record:
    """Load the data, hide cells, run the system and score its output.

    Metrics are in percent (accuracy, auc, ap and their validation counterparts), seconds by part, and the number of
    epochs. Details hold the parameters, and, if every node misses all of its channels or none, by hops: the number of
    test nodes and how many of them are classified correctly, the number of nodes and the mean cosine similarity of
    their original and filled features.

    Raises
    ------
    ParameterError
        A name or a parameter is unknown or not allowed; the message lists what is.
    DatasetError
        The data set is not there and cannot be downloaded.
    """
    validate(run)
    try:
        from pcfi.experiments.data.run_input import load_run_input
        from pcfi.experiments.systems import system
    except ImportError as error:
        raise PcfiError(INSTALL) from error
    run_input = load_run_input(run)
    output = system(run.system)(run_input)
    metrics, dataset, test = dict(output.metrics), run_input.dataset, run_input.split.test
    missing_rate = float(1 - run_input.known.mean())
    details = {"parameters": run_input.parameters, "missing_rate": missing_rate, **output.details}
    correct = None
    if output.labels is not None:
        correct = output.labels == dataset.labels
        metrics["accuracy"] = 100 * float(correct[test].mean())
    if run_input.hops is not None:
        details["hops"] = scores_by_hops(run_input.hops, dataset.features, output.filled, test, correct)
    return Record(run, "done", metrics, details)


def scores_by_hops(
    hops: Array, original: Array, filled: Array | None, test: Array, correct: Array | None
) -> list[dict[str, float]]:
    """For each number of hops: test nodes and how many are correct; nodes and their mean cosine similarity."""
    cosine = None if filled is None else cosine_similarity(original, filled)
    rows = []
    for distance in np.unique(hops[np.isfinite(hops)]):
        selected = hops == distance
        row: dict[str, float] = {"hops": int(distance), "nodes": int(selected.sum())}
        if cosine is not None:
            row["cosine"] = float(cosine[selected].mean())
        if correct is not None:
            row["tested"] = int(selected[test].sum())
            row["correct"] = int((selected & correct)[test].sum())
        rows.append(row)
    return rows


def cosine_similarity(left: Array, right: Array) -> Array:
    """Cosine similarity of the rows of two arrays; 0 where a row is 0."""
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = np.einsum("ij,ij->i", left, right, dtype=np.float64)
    return np.asarray(np.divide(products, norms, out=np.zeros(len(left)), where=norms > 0))
