"""`pcfi.scale.impute`: features and graph in files -> results in files, within a memory budget."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pcfi.errors import PcfiWarning
from pcfi.inputs.columns import EdgeColumns, NodeColumns, Weight
from pcfi.outofcore.backend import OutOfCoreBackend, fill_run
from pcfi.outofcore.estimation_tasks import stored_tuning
from pcfi.outofcore.mapped_graph import MappedGraph
from pcfi.outofcore.node_source import NodeSource
from pcfi.outofcore.opening import (
    RunRequest,
    can_find_categories,
    draw_results,
    opened_run,
    result_path,
    run_settings,
)
from pcfi.outofcore.partitioned.backend import PartitionedBackend
from pcfi.outofcore.result import StoredImputation, report
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.outofcore.runners import runner_of
from pcfi.progress import compile_notice
from pcfi.stages.solvers import Solver, UntilSettled


def impute(
    features: str | Path | NodeSource,
    graph: str | Path | MappedGraph,
    result: str | Path,
    *,
    id: str | None = None,  # noqa: A002  as it is called everywhere
    columns: Any = None,
    categorical: Sequence[str] | None = None,
    missing_values: Sequence[Any] = (),
    source: str | None = None,
    target: str | None = None,
    weight: Weight = None,
    unknown_ids: str = "error",
    known: str | Path | None = None,
    round: bool = False,  # noqa: A002  what it does
    method: str = "pcfi",
    alpha: float | str = "auto",
    beta: float | str = "auto",
    objective: str = "values",
    solver: Solver = UntilSettled(),  # noqa: B008  a frozen value
    standardize: bool | None = None,
    unreachable: str = "mean",
    directed: bool = False,
    self_loops: bool = True,
    bounds: Any = None,
    random_state: "int | np.random.Generator | None" = None,
    confidence: str | Path | None = None,
    hops: str | Path | None = None,
    intervals: str | Path | None = None,
    coverage: float = 0.9,
    draws: int = 0,
    memory: int | float | str | None = None,
    work: str | Path | None = None,
    client: Any = None,
    partitions: int | str = "auto",
    overwrite: bool = False,
    progress: bool = False,
) -> StoredImputation:
    """Like `pcfi.impute`, for features in files: within a budget of memory, resumable, on one machine or a cluster.

    Finished tasks are recorded in a work folder. If the run is killed, the same call goes on where it stopped, and the
    result is the same to the last bit. Results appear under their names when they are complete.

    Parameters
    ----------
    features : path
        Nodes x channels: .npy, .zarr, .parquet (a file, or a folder of them), or .csv or .tsv (also .gz, .zst). Zarr
        and Parquet may be any address that fsspec opens. NaN and null are missing unless `known` is given.
    graph : path or MappedGraph
        A folder made by `pcfi.scale.build_graph`; or an edge file that it reads. Edges name nodes by row numbers, or by
        the ids of the column `id`.
    result : path
        Where the filled features go: .npy, .zarr or .parquet (a folder of files; columns of Parquet features that are
        no channels come along, and channels without a missing cell stay as they are).
    id : str, default=None
        The column of Parquet features with the ids that an edge file names nodes by. None: by the rules for all tables
        (docs/reading-tables.md): a column called "id", "node" or "node_id", and so on; else nodes are named by row
        numbers. Ids are never a channel.
    columns : list of str, default=None
        The channels among the columns of Parquet features. None: all numeric columns but the ids.
    categorical : list of str, default=None
        Further columns to fill, of categories, as in `pcfi.impute`. The table is converted first, to one channel for
        each category, and the result must be Parquet. None: the columns that `pcfi.impute` finds, if it is.
    missing_values : list, default=()
        Further values that mean missing, such as [-999, "?"].
    source, target, weight : str, default=None
        Columns of an edge file, as in `pcfi.scale.build_graph`.
    unknown_ids : {"error", "drop"}, default="error"
        What an edge means that names an id which no node has.
    known : path, default=None
        Booleans of the shape of the features, True = known, in any of the formats.
    round : bool, default=False
        Whether filled integer columns of Parquet features stay integers.
    method : {"pcfi", "fp"}, default="pcfi"
        As in `pcfi.impute`, like the other parameters of the method.
    alpha, beta : float or "auto", default="auto"
        As in `pcfi.impute`.
    objective : {"values", "representation"}, default="values"
        As in `pcfi.impute`: values are estimated by the same model, which is fitted to the same sample.
    solver : FixedSteps or UntilSettled, default=UntilSettled(rtol=1e-4, max_steps=1000)
        How long to diffuse.
    standardize : bool, default=None
        Whether stage 2 works in units of the standard deviations of the channels. None means True for values, and
        False for a representation.
    unreachable : {"mean", "zero", "nan", "error"}, default="mean"
        What a missing cell gets that no source can reach.
    directed : bool, default=False
        Whether values flow only along the direction of the edges; a directed graph folder stays directed in any case.
    self_loops : bool, default=True
        Whether each node counts as its own neighbour.
    bounds : pair of numbers, or mapping from column names to pairs, default=None
        As in `pcfi.impute`.
    random_state : int, numpy Generator or None, default=None
        Which known cells are hidden to learn from. None is a fixed seed.
    confidence : path, default=None
        Where the confidence of every cell goes, if it is to be written ("pcfi" only).
    hops : path, default=None
        Where the hops of every cell go, if they are to be written; in Parquet, null where no source can reach.
    intervals : path, default=None
        Where the ends of the interval and the expected error of every cell go, if they are to be written: Parquet with
        the ids and columns such as age_low, age_high and age_error. Values only.
    coverage : float, default=0.9
        Probability that an interval holds the true value.
    draws : int, default=0
        Number of completed tables that are plausible together, as `Imputation.draws(random_state=random_state)` gives
        them, that are written beside the result: filled.draw1.parquet, filled.draw2.parquet, ... Values only.
    memory : int, float or str, default=None
        Bytes of private memory that a process may take in all, such as "4GB"; on a cluster, each worker. Mapped files
        are not counted: the system keeps as much of them in memory as there is room. None: 70 % of what is available
        here, or the smallest limit among the workers.
    work : path, default=None
        The work folder; on a cluster all workers must see it under this path. Takes about as much space as the
        features. None: `<result>.work`. It is removed at the end.
    client : dask.distributed.Client or str, default=None
        A cluster that does the work, or the address of its scheduler. None: this process.
    partitions : int or "auto", default="auto"
        Parts that the nodes are divided into, so that no worker needs the complete graph; results do not depend on
        their number, but they may differ in rounding from those with 1, where each worker holds the graph and does
        some channels. "auto": 1 if the memory of each worker suffices for that, else one for each thread of the
        cluster.
    overwrite : bool, default=False
        Whether results that are there may be replaced.
    progress : bool, default=False
        Whether to show progress bars.

    Returns
    -------
    StoredImputation
        Where the results are, and how it went.
    """
    settings = run_settings(
        method=method,
        alpha=alpha,
        beta=beta,
        solver=solver,
        standardize=standardize,
        unreachable=unreachable,
        directed=directed,
        self_loops=self_loops,
        progress=progress,
        objective=objective,
        random_state=random_state,
    )
    results = {
        "values": result_path(result),
        "confidence": result_path(confidence),
        "hops": result_path(hops),
        "intervals": result_path(intervals),
        **draw_results(result, draws),
    }
    request = RunRequest(
        features=features,
        graph=graph,
        results=results,
        settings=settings,
        node_columns=NodeColumns(
            id=id,
            channels=columns,
            categorical=categorical or (),
            finds_categories=categorical is None and can_find_categories(results.values(), known, **vars(settings)),
            missing_values=missing_values,
        ),
        edge_columns=EdgeColumns(source=source, target=target, weight=weight, unknown_ids=unknown_ids),
        known=known,
        coverage=coverage,
        bounds=bounds,
        rounds=round,
        memory=memory,
        work=work,
        client=client,
        partitions=partitions,
        overwrite=overwrite,
    )
    with filled_run(request) as (_, stored, notices):
        pass
    for notice in notices:
        warnings.warn(notice, stacklevel=2)
    return stored


@contextmanager
def filled_run(request: RunRequest) -> Iterator[tuple[OutOfCoreRun, StoredImputation, list[PcfiWarning]]]:
    """A finished run, its result and its warnings; the work folder is there until the block ends."""
    show = request.settings.progress
    with opened_run(request) as (run, cluster):
        with compile_notice(show=show):
            backend = PartitionedBackend if run.partitioned else OutOfCoreBackend
            filled = fill_run(run, backend(run, runner_of(run, cluster, progress=show)))
        yield (run, *report(run, filled))
        del filled
        run.retire()


def error_on_hidden_cells(request: RunRequest) -> float:
    """Error of the value model on known cells that are hidden; infinite if none could be. Nothing is filled."""
    with opened_run(request) as (run, cluster):
        backend = OutOfCoreBackend(run, runner_of(run, cluster, progress=request.settings.progress))
        backend.fit(backend.read_problem())
        error = stored_tuning(run).error
        run.retire()
    return error if np.isfinite(error) else np.inf
