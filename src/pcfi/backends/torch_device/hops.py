"""Hops on a device: breadth-first search from the sources of many patterns at once, by matrix products."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcfi._typing import Array
from pcfi.backends.torch_device.adjacency import Adjacency
from pcfi.inputs import tensors
from pcfi.inputs.problem import Problem
from pcfi.progress import progress_bar
from pcfi.stages.hops import Hops


class DeviceHops(Hops):
    """Hops whose codes, and tables derived from them, are tensors."""

    def look_up(self, table: Array) -> Any:
        """See `Hops.look_up`."""
        codes: Tensor = self.codes
        if table.dtype == np.float64:
            entries = torch.as_tensor(table).to(codes.device, tensors.wide_dtype(codes.device))
        else:
            entries = torch.as_tensor(table, device=codes.device)
        per_pattern = entries[codes.int()]
        patterns = torch.as_tensor(self.patterns, device=codes.device)
        return per_pattern.index_select(1, patterns)


def count_hops(problem: Problem, *, progress: bool) -> DeviceHops:
    """Hops from the sources of every pattern, along the direction of the edges."""
    values: Tensor = problem.values
    known: Tensor = problem.mask
    representatives = torch.as_tensor(problem.channels.representatives, device=values.device)
    links = Adjacency.of(problem.graph, None, values.device, torch.float32)
    width = max(1, tensors.CELLS_AT_A_TIME // len(values))
    parts = []
    with progress_bar("hops", len(representatives), show=progress) as advance:
        for chosen in representatives.split(width):
            mask = known.index_select(1, chosen) if len(known) else known
            parts.append(_search(links, tensors.known_cells(values.index_select(1, chosen), mask)))
            advance(len(chosen))
    codes = torch.cat(parts, dim=1)
    n_levels = max(0, int(codes.max()))
    unreached = codes < 0
    codes[unreached] = n_levels + 1
    return DeviceHops(codes, n_levels, unreached.sum(dim=0).cpu().numpy(), problem.channels.patterns)


def _search(links: Adjacency, frontier: Tensor) -> Tensor:
    """Hops from the cells of `frontier`, column by column; -1 where no cell of `frontier` reaches."""
    hops = torch.where(frontier, 0, -1).int()
    level = 0
    while bool(frontier.any()):
        level += 1
        frontier = (links @ frontier.to(torch.float32) > 0) & (hops < 0)
        hops[frontier] = level
    return hops.short() if level < torch.iinfo(torch.int16).max else hops
