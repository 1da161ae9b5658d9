"""The task that writes results.

write     a range of rows -> its part of the results: values, confidence, hops, intervals, draws
"""

from contextlib import ExitStack
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends.cpu import CpuBackend
from pcfi.files.paths import draw_name
from pcfi.imputation import mixes_units
from pcfi.inputs.problem import to_half
from pcfi.outofcore.draw_tasks import RunDraws
from pcfi.outofcore.filled_rows import FilledRows
from pcfi.outofcore.interval_tasks import interval_rows
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.outofcore.run_sinks import sinks_of
from pcfi.pipeline.policies import refuse_non_finite

Entry = dict[str, Any]


def as_truth_values(rows: Array, channels: Array) -> Array:
    """Rows with the truth value, 0 or 1, that is nearest in some channels."""
    if not len(channels):
        return rows
    rows = rows.copy()
    filled = rows[:, channels]
    rows[:, channels] = np.where(np.isnan(filled), filled, filled > 0.5)
    return rows


def write(run: OutOfCoreRun, index: int) -> Entry:
    """Write a range of rows of every result."""
    sinks, draws, ranges = sinks_of(run), RunDraws(run) if run.n_draws else None, []
    half = sinks["values"].dtype == np.float16
    with ExitStack() as stack:
        writers = {name: stack.enter_context(sink.range(index)) for name, sink in sinks.items()}

        def write_values(name: str, start: int, rows: Array, batch: Any) -> None:
            with np.errstate(all="ignore"):
                least, most = CpuBackend().channel_ranges(rows)
            refuse_non_finite(least, most, run.surveyed)
            ranges.append((least, most))
            values = as_truth_values(rows, run.store.truth_values)
            writers[name](start, to_half(values) if half else values, batch)

        centre_model = None if draws is None else draws.centre_model
        for start, rows, row_hops, batch, estimates in FilledRows(run).final(index, centre_model):
            write_values("values", start, rows, batch)
            named = run.named(batch)
            if "confidence" in writers:
                writers["confidence"](start, row_hops.confidence(run.chosen.alpha, run.dtype), named)
            if "intervals" in writers:
                ids = None if batch is None or run.id is None else batch.select([run.id])
                writers["intervals"](start, interval_rows(run, start, rows, row_hops), ids)
            if "hops" in writers:
                writers["hops"](start, row_hops.expand(), named)
            if draws is not None and estimates is not None:
                for number, drawn in enumerate(draws.rows(start, rows, estimates, row_hops), 1):
                    write_values(draw_name(number), start, drawn.astype(run.dtype), batch)
    entry: Entry = {"results": {name: sink.checksum(index, *run.range_of(index)) for name, sink in sinks.items()}}
    if mixes_units(run.surveyed, run.chosen):
        entry["least"] = np.min([least for least, _ in ranges], axis=0).astype(float).tolist()
        entry["most"] = np.max([most for _, most in ranges], axis=0).astype(float).tolist()
    return entry
