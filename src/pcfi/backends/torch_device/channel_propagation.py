"""Stage 2 on a device: sums over blocks of rows for the correlation, then the correction; see `channel_propagation`."""

import numpy as np
import torch
from torch import Tensor

from pcfi._typing import Array
from pcfi.inputs import tensors
from pcfi.progress import progress_bar
from pcfi.stages.channel_propagation import PropagationParameters, propagation_matrix, refuse_non_finite
from pcfi.stages.diffusion import Diffusion


def propagate(diffusion: Diffusion, parameters: PropagationParameters, out: Tensor) -> None:
    """Refine the missing reachable cells of the channels that vary, in place."""
    stage, hops, n_channels = _Stage(diffusion, parameters, out), diffusion.hops, len(diffusion.varying)
    blocks = list(tensors.row_blocks(len(out), n_channels))
    with progress_bar("channels", 2 * len(out), show=diffusion.progress) as advance:
        means, counts = stage.means(blocks)
        scatter = torch.zeros((n_channels, n_channels), dtype=stage.units.dtype, device=out.device)
        for rows in blocks:
            values, codes = stage.rows(rows)
            part = torch.where(hops.is_reachable(codes), (values - means) / stage.units, 0)
            scatter += part.T @ part
            advance(len(part))
        matrix = stage.matrix(scatter, counts, diffusion.problem.dtype)
        finite = True
        for rows in blocks:
            values, codes = stage.rows(rows)
            confidence, filled = stage.confidence[codes.int()], hops.is_filled(codes)
            received = (confidence * (values - means)) @ matrix
            refined = torch.where(filled, values + (1 - confidence) * received, values)
            finite = finite and bool(refined[filled].isfinite().all())
            out[rows] = out[rows].index_copy(1, stage.channels, refined)
            advance(len(values))
    refuse_non_finite(finite)


class _Stage:
    """The features being refined, and the data that every block of rows needs."""

    def __init__(self, diffusion: Diffusion, parameters: PropagationParameters, out: Tensor) -> None:
        chosen, hops = diffusion.varying, diffusion.hops
        self._out, self._parameters, self._hops = out, parameters, hops
        self.channels = tensors.beside(out, chosen)
        self._patterns = tensors.beside(out, hops.patterns[chosen])
        self._wide = tensors.wide_dtype(out.device)
        self.units = self._move(diffusion.problem.channels.magnitude[chosen])
        self.confidence = self._move(hops.confidence_by_code(parameters.alpha, np.float64)).to(out.dtype)

    def _move(self, array: Array) -> Tensor:
        return torch.as_tensor(array).to(self._wide).to(self._out.device)

    def rows(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Values and hops of the channels in a block of rows."""
        codes: Tensor = self._hops.codes
        return self._out[rows].index_select(1, self.channels), codes[rows].index_select(1, self._patterns)

    def means(self, blocks: list[slice]) -> tuple[Tensor, Tensor]:
        """Mean of the reachable cells of each channel, and their number."""
        total, counts = torch.zeros_like(self.units), torch.zeros_like(self.units)
        for rows in blocks:
            values, codes = self.rows(rows)
            reachable = self._hops.is_reachable(codes)
            total += torch.where(reachable, values.to(self._wide) / self.units, 0).sum(dim=0)
            counts += reachable.sum(dim=0)
        return (total * self.units / counts.clamp(min=1)).to(self._out.dtype), counts

    def matrix(self, scatter: Tensor, counts: Tensor, dtype: "np.dtype[np.floating]") -> Tensor:
        """The propagation matrix (channels x channels), computed on the CPU."""
        units = tensors.to_array(self.units / counts.clamp(min=1).sqrt(), "units")
        matrix = propagation_matrix(tensors.to_array(scatter, "scatter"), units, self._parameters, dtype)
        return self._move(matrix).to(self._out.dtype)
