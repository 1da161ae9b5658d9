"""The filled features of a run, assembled some rows at a time from the files of the work folder."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends.cpu import CpuBackend
from pcfi.estimation.value_model import ValueModel
from pcfi.inputs.problem import Problem
from pcfi.outofcore import file_names
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.stages.channel_propagation import ChannelPropagation, ProductPropagation, PropagationParameters
from pcfi.stages.diffusion import InfluenceProduct
from pcfi.stages.hops import Hops

FACTORS = ("known", "shift", "bounds", "mean", "received")  # of a product, besides the influence matrix

Refine = Callable[[int, Array, Hops], None]


class FilledRows:
    """The `out` of a run in files: its rows after stage 1, and after all stages."""

    def __init__(self, run: OutOfCoreRun) -> None:
        self._run = run

    def diffused(self, index: int) -> Iterator[tuple[int, Array]]:
        """Rows of a range after stage 1, each part with the number of its first row."""
        for start, rows, *_ in self._started(index, batches=False):
            self._put_panels(start, rows)
            yield start, rows

    def final(
        self, index: int, other: ValueModel | None = None
    ) -> Iterator[tuple[int, Array, Hops, Any, Array | None]]:
        """Rows of a range after all stages, with their hops, and the record batch that they were read from, if any.

        Then what another value model makes of them, if one is given.
        """
        run, refine = self._run, self._refinement()
        unreachable = run.folder.load(file_names.UNREACHABLE) if run.folder.has(file_names.UNREACHABLE) else None
        for start, rows, batch, known in self._started(index, batches=True):
            hops = run.hops_at(start, start + len(rows))
            refine(start, rows, hops)
            if unreachable is not None:
                CpuBackend().place_unreachable(hops, unreachable, rows)
            others = None if other is None else rows.copy()
            for model, out in ((run.model, rows), (other, others)):
                if model is not None and out is not None and known is not None:
                    self._estimate(model, known, hops, start, out)
            yield start, rows, hops, batch, others

    def _estimate(self, model: ValueModel, known: Problem, hops: Hops, start: int, out: Array) -> None:
        """Turn diffused rows into estimates."""
        with np.errstate(all="ignore"):
            model.of_rows(slice(start, start + len(out))).apply(
                known, hops, out, fill_unreachable=self._run.settings.unreachable == "mean"
            )

    def propagation(self) -> ChannelPropagation:
        """Stage 2, from the sums over the channels of all panels."""
        run, channels = self._run, self._run.layout.propagating
        (sums, counts), units = run.sums, run.prepared.magnitude[channels]
        return ChannelPropagation.from_sums(
            run.hops, channels, units, run.chosen.alpha, sums[channels], counts[channels], run.dtype
        )

    def _started(self, index: int, *, batches: bool) -> Iterator[tuple[int, Array, Any, Problem | None]]:
        """Rows of a range before stage 1, the record batch they come from, and the features that they were read as.

        If the panels hold every cell, rows are not initialised; features are only read if something needs them.
        """
        run = self._run
        if run.in_panels and (run.model is None or not batches):
            for start, count, batch in run.batches(index) if batches else run.pieces(index):
                yield start, np.empty((count, run.n_channels), dtype=run.dtype), batch, None
            return
        for start, values, mask, batch in run.chunks_with_batches(index):
            features = run.part(values, mask, run.channels)
            rows = np.empty_like(values) if run.in_panels else run.start_values(start, values, mask)
            yield start, rows, batch, features

    def _put_panels(self, start: int, out: Array) -> None:
        """Copy the channels of the panels into `out`, whose first row is `start`."""
        run, end = self._run, start + len(out)
        for number, (panel, place) in enumerate(zip(run.layout.panels, run.layout.places, strict=True)):
            out[:, place] = run.folder.read_rows(file_names.panel(number), start, end, len(panel), run.dtype)

    def _refinement(self) -> Refine:
        """The function that fills rows which hold their known values."""
        run = self._run
        if run.propagation is not None and run.folder.has(file_names.INFLUENCE):
            return self._product_refinement(run.propagation)
        if not run.folder.has(file_names.MATRIX):
            return lambda start, rows, _: self._put_panels(start, rows)
        matrix, stage = run.folder.load(file_names.MATRIX), self.propagation()

        def refine(start: int, rows: Array, hops: Hops) -> None:
            self._put_panels(start, rows)
            stage.refine(rows, hops.codes, matrix)

        return refine

    def _product_refinement(self, parameters: PropagationParameters) -> Refine:
        run = self._run
        known, shift, bounds, mean, received = (run.folder.load(file_names.product(name)) for name in FACTORS)
        channels, stage = run.layout.propagating, ProductPropagation(mean, received)
        pattern = int(run.channels.patterns[channels[0]])
        product = InfluenceProduct(
            pattern=pattern, channels=channels, influence=known[:0], known=known, shift=shift, bounds=bounds
        )

        def refine(start: int, rows: Array, hops: Hops) -> None:
            end = start + len(rows)
            influence = run.folder.read_rows(file_names.INFLUENCE, start, end, len(known), known.dtype)
            part = replace(product, influence=influence)
            stage.fill(part, hops.codes[:, pattern], hops.n_levels, parameters, rows)

        return refine
