"""Checkpoints of a batch of panels: blocks of all partitions, and the state of the solver, in two slots by turns.

A checkpoint counts when the file that names its slot is written, which happens after its blocks are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcfi._kernels.conjugate_gradients import LaneState
from pcfi.files.paths import remove
from pcfi.outofcore import file_names
from pcfi.outofcore.partitioned import part_tasks
from pcfi.outofcore.partitioned.exchange import Partitions, PerPartition
from pcfi.outofcore.partitioned.layout import PartitionLayout
from pcfi.outofcore.run import OutOfCoreRun


@dataclass(eq=False)
class Progress:
    """How far a batch has come: steps taken, panels that are not settled yet, and the lanes of each panel."""

    steps: int = 0
    running: list[int] = field(default_factory=list)
    lanes: list[LaneState] = field(default_factory=list)


def save(run: OutOfCoreRun, parts: Partitions, panels: list[int], progress: Progress, blocks: PerPartition) -> int:
    """Write a checkpoint; returns its slot."""
    before = run.folder.read(file_names.CHECKPOINT) if run.folder.has(file_names.CHECKPOINT) else {"slot": 1}
    slot = 1 - before["slot"]
    checksums = parts.fetch(parts.on_each(part_tasks.save_blocks, parts.graphs, parts.where, slot, blocks))
    facts = {
        "slot": slot,
        "panels": panels,
        "bounds": PartitionLayout.of_run(run).bounds.tolist(),
        "steps": progress.steps,
        "running": progress.running,
        "lanes": [{name: getattr(one, name).tolist() for name in LaneState._fields} for one in progress.lanes],
        "checksums": checksums,
    }
    run.folder.write(file_names.CHECKPOINT, facts)
    return slot


def load(run: OutOfCoreRun, unfinished: Iterable[int]) -> dict[str, Any] | None:
    """The facts of the last checkpoint; None if there is none, or none that is of use."""
    folder = run.folder
    if not folder.has(file_names.CHECKPOINT) or not folder.is_intact(file_names.CHECKPOINT):
        return None
    facts: dict[str, Any] = folder.read(file_names.CHECKPOINT)
    fits = facts["bounds"] == PartitionLayout.of_run(run).bounds.tolist() and set(facts["panels"]) <= set(unfinished)
    usable = fits and all(map(folder.is_same, facts["checksums"]))
    return facts if usable else None


def progress_of(facts: dict[str, Any], like: list[LaneState]) -> Progress:
    """The state of the solver at a checkpoint."""
    lanes = [
        LaneState(**{name: np.array(one[name], dtype=getattr(lane, name).dtype) for name in LaneState._fields})
        for one, lane in zip(facts["lanes"], like, strict=True)
    ]
    return Progress(facts["steps"], list(facts["running"]), lanes)


def discard(run: OutOfCoreRun) -> None:
    """Remove the checkpoint of a batch that is finished."""
    remove(run.folder.path / file_names.CHECKPOINT)
    for path in run.folder.path.glob("checkpoint-*.raw"):
        remove(path)
