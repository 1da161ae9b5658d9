"""Would blocks be done sooner if channels that need as many steps shared a block, and can one tell them beforehand?"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from common import answer, hide, load

import pcfi
from pcfi._kernels.blocks import lane_count
from pcfi.stages.diffusion import channel_blocks

LANES = lane_count(np.float32)


def steps_of_channels(features: np.ndarray, edge_index: np.ndarray) -> tuple[pcfi.Imputation, np.ndarray, np.ndarray]:
    """The result, and pattern and steps of every channel that was solved, in the order of the blocks."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    usual = channel_blocks.solve

    def watched(job: Any, links: Any, block: Any, opening: Any, *rest: Any) -> Any:
        solved = usual(job, links, block, opening, *rest)
        found.append((opening.patterns, solved.steps[: len(opening.patterns)].copy()))
        return solved

    channel_blocks.solve = watched
    try:
        result = pcfi.impute(features, edge_index, alpha=0.5, beta=0.0, objective="representation")
    finally:
        channel_blocks.solve = usual
    return result, *(np.concatenate(part) for part in zip(*found, strict=True))


def steps_of_blocks(steps: np.ndarray, order: np.ndarray) -> float:
    """Mean number of steps of a block if the channels are packed in the given order."""
    ordered = steps[order]
    return float(np.mean([ordered[start : start + LANES].max() for start in range(0, len(steps), LANES)]))


def rows() -> Iterator[dict[str, Any]]:
    for name in ("Cora", "PubMed", "Photo"):
        features, edge_index = load(name)
        for rate in (0.995, 0.9):
            result, patterns, steps = steps_of_channels(hide(features, "uniform", rate), edge_index)
            codes = result.cells.hops.codes[:, patterns]
            reached = np.where(codes <= result.cells.hops.n_levels, codes, 0)
            orders = {
                "as they come": np.arange(len(steps)),
                "by known cells": np.argsort((codes == 0).sum(axis=0), kind="stable"),
                "by mean hops": np.argsort(reached.mean(axis=0), kind="stable"),
                "by steps, as if known": np.argsort(steps, kind="stable"),
            }
            means = {f"steps of a block, {order}": steps_of_blocks(steps, places) for order, places in orders.items()}
            yield {"dataset": name, "rate": rate, "channels": len(steps), **means}


if __name__ == "__main__":
    answer("lanes", rows())
