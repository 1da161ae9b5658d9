"""Verify the checksums of an interrupted run, and remove damaged files so that their tasks run again.

A task whose files have changed is removed from the journal, and a gathered file that has changed is deleted, so that
the run makes them again.
"""

from typing import Any

from pcfi.files.paths import remove
from pcfi.outofcore import file_names
from pcfi.outofcore.run import CHANNEL_FACTS, OutOfCoreRun
from pcfi.outofcore.run_sinks import sinks_of

RELATIONS = (file_names.RELATION_ROOTS, file_names.RELATION_SHARES)


def drop_damaged(run: OutOfCoreRun) -> list[str]:
    """Remove damaged files from the work folder and the journal; return their names."""
    damaged = _drop_gathered(run)
    damaged += _drop_tasks(run, "survey", lambda index, entry: _survey_damage(run, index, entry))
    damaged += _drop_tasks(run, "order", lambda _, entry: _changed(run, entry) + _lost(run, file_names.GROUP_COSTS))
    divided = run.folder.has(file_names.PARTITIONS)  # else the graph may be divided in another way
    damaged += _drop_tasks(run, "partition", lambda _, entry: _changed(run, entry) or ["partitions"] * (not divided))
    damaged += _drop_tasks(run, "hops", lambda _, entry: _changed(run, entry))
    damaged += _drop_tasks(run, "fit", lambda *_: _model_damage(run))
    damaged += _drop_tasks(run, "relate", lambda *_: _lost(run, *RELATIONS))
    if not run.folder.finished("fit") or (run.n_draws and not run.folder.finished("relate")):
        damaged += _drop_tasks(run, "sample", lambda index, _: _lost(run, *_sample_files(index)))
    if not run.folder.has(file_names.prepared(CHANNEL_FACTS[-1])):
        damaged += _drop_tasks(run, "prepare", lambda index, _: _lost(run, file_names.prepared_survey(index)))
    damaged += _drop_tasks(run, "spread", lambda _, entry: _changed(run, entry))
    for stage in ("scale", "field"):
        damaged += _drop_tasks(run, stage, lambda _, entry: _changed(run, entry))
    damaged += _drop_tasks(run, "diffuse", lambda _, entry: _changed(run, entry) or _product_damage(run))
    diffused = {file_names.panel(number) for number in run.folder.finished("diffuse")}
    damaged += _drop_splits(run, diffused)
    return sorted({*damaged, *_drop_results(run)})


def _drop_gathered(run: OutOfCoreRun) -> list[str]:
    folder = run.folder
    groups = [
        [file_names.channels(name) for name in CHANNEL_FACTS],
        [file_names.prepared(name) for name in CHANNEL_FACTS],
        [file_names.SAMPLE_CORE, file_names.SAMPLE_NODES],
        [file_names.HOPS],
        [file_names.PARTITIONS],
        [file_names.LAYOUT],
        [file_names.MATRIX],
        [file_names.SINKS],
    ]
    damaged = []
    for names in groups:
        if not folder.has(names[-1]):
            continue
        wrong = [name for name in names if not folder.has(name) or not folder.is_intact(name)]
        if wrong:
            damaged += wrong
            remove(folder.path / names[-1])  # the last file of a group says that all are there
            if names[-1] == file_names.channels(CHANNEL_FACTS[-1]):  # read through these facts
                remove(folder.path / file_names.HOPS)
                remove(folder.path / file_names.LAYOUT)
    return damaged


def _drop_tasks(run: OutOfCoreRun, stage: str, damage: Any) -> list[str]:
    damaged = []
    for index, entry in run.folder.finished(stage).items():
        names = damage(index, entry)
        if names:
            damaged += names
            run.folder.forget(stage, index)
    return damaged


def _changed(run: OutOfCoreRun, entry: dict[str, Any]) -> list[str]:
    return [part[0] for part in entry["checksums"] if not run.folder.is_same(part)]


def _survey_damage(run: OutOfCoreRun, index: int, entry: dict[str, Any]) -> list[str]:
    name, folder = file_names.survey(index), run.folder
    gathered = folder.has(file_names.channels(CHANNEL_FACTS[-1]))
    return _changed(run, entry) + ([] if gathered else _lost(run, name))


def _sample_files(index: int) -> tuple[str, ...]:
    return file_names.moments(index), file_names.sample_values(index), file_names.sample_known(index)


def _lost(run: OutOfCoreRun, *names: str) -> list[str]:
    """Small files that are not there or not as they were written."""
    return [name for name in names if not (run.folder.has(name) and run.folder.is_intact(name))]


def _model_damage(run: OutOfCoreRun) -> list[str]:
    """The files of the fitted model that are damaged."""
    damaged = _lost(run, file_names.TUNING)
    if damaged:
        return damaged
    return [] if run.folder.is_same(run.folder.read(file_names.TUNING)["checksum"]) else [file_names.MODEL]


def _product_damage(run: OutOfCoreRun) -> list[str]:
    """Factors that are damaged, if all channels are one product."""
    from pcfi.outofcore.filled_rows import FACTORS

    folder = run.folder
    if not folder.has(file_names.INFLUENCE):
        return []
    return _lost(run, *map(file_names.product, FACTORS))


def _drop_splits(run: OutOfCoreRun, diffused: set[str]) -> list[str]:
    """Ranges of a panel that has not diffused must be as they were split, unless its diffusion has begun."""
    damaged = []
    for index, entry in run.folder.finished("split").items():
        waiting = [part for part in entry["checksums"] if part[0] not in diffused]
        changed = [part[0] for part in waiting if not run.folder.is_same(part)]
        if changed or _is_incomplete(run, entry, diffused):
            damaged += [name for name in changed if not _has_begun(run, name)]
            run.folder.forget("split", index)
    return damaged


def _is_incomplete(run: OutOfCoreRun, entry: dict[str, Any], diffused: set[str]) -> bool:
    """Whether a panel that has to diffuse again was left out when this range was split."""
    if not run.folder.has(file_names.LAYOUT):
        return False
    names = {file_names.panel(number) for number in range(len(run.layout.panels))}
    return not names - diffused <= {part[0] for part in entry["checksums"]}


def _has_begun(run: OutOfCoreRun, panel: str) -> bool:
    number = int(panel.removesuffix(".raw").rpartition("-")[2])
    return run.folder.has(file_names.begun(number))


def _drop_results(run: OutOfCoreRun) -> list[str]:
    """Results that are gone are begun anew; ranges of them that have changed are written again."""
    folder, sinks = run.folder, sinks_of(run)
    entries = folder.finished("write")
    identities = folder.read(file_names.SINKS) if folder.has(file_names.SINKS) else {}
    lost = [sink.partial for name, sink in sinks.items() if not sink.is_there(identities.get(name))]
    if lost:
        remove(folder.path / file_names.SINKS)
        for index in entries:
            folder.forget("write", index)
        return lost if identities else []
    damaged = []
    for index, entry in entries.items():
        bounds = run.range_of(index)
        changed = [
            sink.partial for name, sink in sinks.items() if sink.checksum(index, *bounds) != entry["results"].get(name)
        ]
        if changed:
            damaged += changed
            folder.forget("write", index)
    return damaged
