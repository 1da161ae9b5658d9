"""A run -> the sinks of its results: values, and confidence, hops, intervals and draws if they were asked for."""

import numpy as np
import numpy.typing as npt

from pcfi.files.paths import draw_name
from pcfi.outofcore import file_names
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.outofcore.sinks import ParquetSink, ResultSink, open_sink


def sinks_of(run: OutOfCoreRun) -> dict[str, ResultSink]:
    """What is written: values, and confidence, hops, intervals and draws if they were asked for."""
    half = run.store.dtype.kind == "f" and run.store.dtype.itemsize == 2
    dtypes: dict[str, npt.DTypeLike] = {
        "values": np.dtype(np.float16) if half else run.dtype,
        "confidence": run.dtype,
        "hops": np.int32,
        "intervals": run.dtype,
    }
    draws = [draw_name(number) for number in range(1, run.n_draws + 1)]
    dtypes |= dict.fromkeys(draws, dtypes["values"])
    names = run.store.names
    numbers = [names[k] for k in run.number_channels]
    found = {
        name: open_sink(path, name, run.store.shape, dtypes[name], numbers if name == "intervals" else names)
        for name, path in run.results.items()
        if path is not None
    }
    for sink in (found[name] for name in ("values", *draws)):
        if isinstance(sink, ParquetSink) and run.folder.has(file_names.channels("n_known")):
            complete = np.flatnonzero(run.channels.n_known == run.n_nodes)
            sink.kept = frozenset(run.store.names[k] for k in complete)
            if run.rounds and run.folder.has(file_names.HOPS):
                sink.rounded = frozenset(run.store.names[k] for k in _finite_channels(run))
    for sink in found.values():
        if isinstance(sink, ParquetSink):
            sink.categories = run.categories
    return found


def _finite_channels(run: OutOfCoreRun) -> list[int]:
    """Channels whose cells all get a value."""
    if run.settings.unreachable != "nan":
        return list(range(run.n_channels))
    return [int(k) for k in np.flatnonzero(run.hops.n_unreachable[run.channels.patterns] == 0)]
