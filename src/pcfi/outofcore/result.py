"""The result of `pcfi.scale.impute`: paths of the files, and convergence diagnostics."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcfi.errors import ParameterError, PcfiWarning
from pcfi.estimation.result import ColumnReports, Tuning, tuning_warnings
from pcfi.files.paths import DRAW, draw_name, suffix_of
from pcfi.imputation import mixes_units, scale_warnings, similar_rows_warnings
from pcfi.optional import load
from pcfi.outofcore.estimation_tasks import stored_tuning
from pcfi.outofcore.feature_stores import open_zarr
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.outofcore.run_settings import needs_fit
from pcfi.outofcore.runners import TASKS
from pcfi.pipeline import Filled
from pcfi.pipeline.policies import has_converged, status_of, unreachable_by_column, usual_warnings
from pcfi.stages.diffusion import DiffusionOutcome


@dataclass(frozen=True)
class StoredImputation:
    """Filled features in files, with convergence diagnostics.

    Attributes
    ----------
    values, confidence, hops, intervals : str or None
        Where they are; None if they were not asked for.
    draws : tuple of str
        Where the draws are.
    method : str
        The method used.
    alpha, beta : float or None
        The parameters used; None for methods that have none.
    objective : {"values", "representation"} or None
        What the result is for; None for methods other than "pcfi".
    steps : int
        Diffusion steps taken by the channel that took the most.
    residual : float
        The most that one further diffusion step would move any missing cell, relative to its channel's range.
    status : str
        How it went, in a sentence.
    converged : bool
        Whether the solver reached its goal.
    n_missing : int
        Number of cells that were missing.
    n_unreachable : int
        Number of missing cells that no source can reach.
    shape : tuple of int
        Number of nodes and channels.
    tuning : Tuning or None
        What "auto" chose, and the evidence.
    seconds : dict of float
        Time that the tasks of each stage took; on a cluster, of all workers together.
    """

    values: str
    confidence: str | None
    hops: str | None
    intervals: str | None
    draws: tuple[str, ...]
    method: str
    alpha: float | None
    beta: float | None
    objective: str | None
    steps: int
    residual: float
    status: str
    converged: bool
    n_missing: int
    n_unreachable: int
    shape: tuple[int, int]
    tuning: Tuning | None
    seconds: dict[str, float]

    @property
    def columns(self) -> ColumnReports:
        """Errors on hidden cells, predictors and a verdict for each column, as in `Imputation`."""
        return ColumnReports() if self.tuning is None else self.tuning.columns

    def open(self, name: str = "values") -> Any:
        """Open "values", "confidence", "hops", "intervals", "draw1", ...: a mapped array, a Zarr array or a Dataset."""
        paths = {"values": self.values, "confidence": self.confidence, "hops": self.hops, "intervals": self.intervals}
        paths |= {draw_name(number): path for number, path in enumerate(self.draws, 1)}
        if name not in paths:
            raise ParameterError(f"there is no {name!r} to open: the results are {', '.join(paths)}")
        path = paths[name]
        if path is None:
            raise ParameterError(f"{name} was not written: pass {name}= and a path to pcfi.scale.impute")
        if suffix_of(path) == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        if suffix_of(path) == ".zarr":
            return open_zarr(path)
        from pyarrow import dataset

        fs, root = load("fsspec", "opening Parquet", "scale").core.url_to_fs(path)
        return dataset.dataset(root, format="parquet", filesystem=fs)


def report(run: OutOfCoreRun, filled: Filled) -> tuple[StoredImputation, list[PcfiWarning]]:
    """The result of a finished run, and its warnings."""
    settings, problem, hops = run.chosen, run.surveyed, run.hops
    tuning = replace(stored_tuning(run), model=None) if needs_fit(run.settings) else None
    if tuning is not None:
        of_columns = unreachable_by_column(hops, problem)
        tuning = replace(tuning, columns=tuning.columns.with_unreachable(of_columns.tolist()))
    n_missing, n_unreachable = problem.n_missing, hops.unreachable_cells(problem.first_channels)
    outcome = filled.outcome or DiffusionOutcome()
    status, converged = status_of(problem, settings, outcome, hops), has_converged(settings, outcome)
    notices = usual_warnings(problem, settings, status, converged=converged, n_unreachable=n_unreachable)
    notices += tuning_warnings(tuning) if n_missing else []
    for entry in run.folder.finished("fit").values() if run.model is not None else ():
        notices += similar_rows_warnings(entry.get("similar_rows", 0.0))
    if mixes_units(problem, settings):
        written = run.folder.finished("write").values()
        least, most = (np.array([entry[name] for entry in written]) for name in ("least", "most"))
        notices += scale_warnings(problem, settings, least.min(axis=0), most.max(axis=0))
    is_pcfi = settings.method == "pcfi"
    found = StoredImputation(
        values=str(run.results["values"]),
        confidence=run.results["confidence"],
        hops=run.results["hops"],
        intervals=run.results["intervals"],
        draws=tuple(str(path) for name, path in run.results.items() if name.startswith(DRAW)),
        method=settings.method,
        alpha=settings.alpha if is_pcfi else None,
        beta=settings.beta if is_pcfi else None,
        objective=settings.objective if is_pcfi else None,
        steps=outcome.steps,
        residual=outcome.residual,
        status=status,
        converged=converged,
        n_missing=n_missing,
        n_unreachable=n_unreachable,
        shape=(run.n_nodes, len(run.first_channels)),
        tuning=tuning,
        seconds={stage: sum(entry["seconds"] for entry in run.folder.finished(stage).values()) for stage in TASKS},
    )
    return found, notices
