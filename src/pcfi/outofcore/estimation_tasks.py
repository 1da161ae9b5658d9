"""Tasks that fit the value model of a run, to the sample that `pcfi.impute` would draw.

sample    a range of rows -> sums over the known values of each channel, and the rows of the sample
fit       the sample -> the value model and the report of every column; for a representation, alpha and beta
prepare   a range of rows -> statistics of each channel as it diffuses: logarithms, divided by powers of the degree
"""

import io
import json
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.channel_moments import ChannelMoments, moments_of_rows
from pcfi.estimation.channel_scale import ChannelScale, candidate_scales
from pcfi.estimation.fitting import fit_to_sample, prior_model
from pcfi.estimation.graph_origin import share_of_similar_rows
from pcfi.estimation.representation import choose_representation
from pcfi.estimation.resolution import tuning_of
from pcfi.estimation.result import ColumnReport, ColumnReports, Tried, Tuning, seed_of
from pcfi.estimation.sample import Sample, hidden_channels, max_sample_nodes, sample_nodes, sample_of_rows
from pcfi.files.atomic_output import atomic_output
from pcfi.outofcore import file_names
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.outofcore.stored_model import arrays_of
from pcfi.outofcore.tasks import WORD, channel_statistics

Entry = dict[str, Any]


def choose_sample(run: OutOfCoreRun) -> None:
    """Save the nodes of the sample and its core; of a small table, the sample is all of it."""
    nodes, core = np.arange(run.n_nodes), np.empty(0, dtype=np.int64)
    if run.settings.objective == "representation":
        nodes = core  # a rule decides, from sums over all rows
    elif run.n_nodes > max_sample_nodes(run.n_channels):
        entries = run.folder.finished("hops").values()
        levels = np.zeros(1 + max(len(entry["levels"]) for entry in entries), dtype=np.int64)
        for entry in entries:
            levels[: len(entry["levels"])] += entry["levels"]
        nodes, core = sample_nodes(run.graph, _informed(run), levels, max_sample_nodes(run.n_channels))
    run.folder.save(file_names.SAMPLE_CORE, core)
    run.folder.save(file_names.SAMPLE_NODES, nodes)


def _informed(run: OutOfCoreRun) -> Array:
    """Nodes that know a cell which may be hidden."""
    flags = np.zeros(-(-run.n_channels // WORD) * WORD, dtype=np.bool_)
    flags[hidden_channels(run.surveyed)] = True
    words = np.packbits(flags, bitorder="little").view(np.uint64)
    bits = run.folder.map(file_names.KNOWN, (len(words), run.n_nodes), np.uint64)
    informed = np.zeros(run.n_nodes, dtype=np.bool_)
    for word, chosen in zip(bits, words, strict=True):
        informed |= (word & chosen) != 0
    return informed


def sample(run: OutOfCoreRun, index: int) -> Entry:
    """Sums over the known values of a range of rows, and those of its rows that belong to the sample."""
    chosen, parts, values, known = run.folder.load(file_names.SAMPLE_NODES), [], [], []
    for start, rows, mask in run.chunks(index):
        parts.append(moments_of_rows(rows, mask, run.channels))
        first, last = np.searchsorted(chosen, (start, start + len(rows)))
        here = chosen[first:last] - start
        values.append(rows[here])
        known.append(mask[here] if len(mask) else ~np.isnan(rows[here]))
    moments = ChannelMoments.joined(parts)
    run.folder.save(file_names.sample_values(index), np.concatenate(values))
    run.folder.save(file_names.sample_known(index), np.concatenate(known))
    run.folder.save(file_names.moments(index), np.stack([*vars(moments).values()]).astype(np.float64))
    return {}


def fit(run: OutOfCoreRun, index: int) -> Entry:
    """Fit the value model to the sample, or choose the parameters of a representation."""
    del index
    settings, ranges = run.settings, range(run.n_ranges)
    names = [one.name for one in fields(ChannelMoments)]
    stored = [run.folder.load(file_names.moments(number)) for number in ranges]
    moments = ChannelMoments.joined([ChannelMoments(**dict(zip(names, part, strict=True))) for part in stored])
    entry: Entry = {}
    with np.errstate(all="ignore"):
        if settings.objective == "representation":
            tuning = choose_representation(run.channels, moments, settings)
        else:
            drawn = stored_sample(run)
            tuning = _fit_values(run, drawn, candidate_scales(run.channels, moments, run.limits))
            if drawn.core is None and run.surveyed.n_missing:  # of a sample, neighbours are most similar by its choice
                entry["similar_rows"] = float(np.nan_to_num(share_of_similar_rows(drawn.problem)))
    _save_model(run, tuning)
    return entry


def stored_sample(run: OutOfCoreRun) -> Sample:
    """The sample that the value model is fitted to."""
    values, known = (
        np.concatenate([run.folder.load(name(number)) for number in range(run.n_ranges)])
        for name in (file_names.sample_values, file_names.sample_known)
    )
    nodes, core = run.folder.load(file_names.SAMPLE_NODES), run.folder.load(file_names.SAMPLE_CORE)
    if len(core):
        return sample_of_rows(run.surveyed, nodes, core, values, known)
    return Sample(replace(run.surveyed, values=values, mask=known))


def _fit_values(run: OutOfCoreRun, drawn: Sample, scales: list[ChannelScale]) -> Tuning:
    fitted = fit_to_sample(drawn, scales, run.settings, seed_of(run.settings.random_state), run.surveyed)
    return tuning_of(run.surveyed, run.settings, fitted, lambda: prior_model(drawn, scales[0]))


def _save_model(run: OutOfCoreRun, tuning: Tuning) -> None:
    content, arrays = io.BytesIO(), arrays_of(tuning.model)
    np.savez(content, **arrays)  # type: ignore[arg-type]
    with atomic_output(run.folder.path / file_names.MODEL) as file:
        file.write(content.getbuffer())
    facts = {one.name: getattr(tuning, one.name) for one in fields(Tuning) if one.name != "model"}
    facts["tried"] = [asdict(one) for one in tuning.tried]
    facts["columns"] = [asdict(one) for one in tuning.columns]
    facts["checksum"] = run.folder.part_checksum(file_names.MODEL, 0, content.getbuffer().nbytes)
    run.folder.write(file_names.TUNING, json.loads(json.dumps(facts)))


def stored_tuning(run: OutOfCoreRun) -> Tuning:
    """What the fit of a run found, with its model."""
    facts = {name: value for name, value in run.folder.read(file_names.TUNING).items() if name != "checksum"}
    facts["tried"] = tuple(Tried(**one) for one in facts["tried"])
    facts["columns"] = ColumnReports(ColumnReport(**one) for one in facts["columns"])
    return Tuning(**facts, model=run.model)


def prepare(run: OutOfCoreRun, index: int) -> Entry:
    """Facts about the known cells of a range of rows, as they diffuse."""
    facts = channel_statistics(
        run, ((start, run.prepared_rows(start, values), mask) for start, values, mask in run.chunks(index))
    )
    run.folder.save(file_names.prepared_survey(index), facts)
    return {}
