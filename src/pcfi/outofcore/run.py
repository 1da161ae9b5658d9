"""The data that the tasks of a run use: features, graph, settings, and results of earlier stages.

Everything is read from the work folder, so that any process with access to the folder can run any task.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends.cpu import CpuBackend
from pcfi.errors import ClusterError
from pcfi.estimation.value_model import ValueModel
from pcfi.files.paths import DRAW
from pcfi.imputation import read_bounds
from pcfi.inputs.columns import refuse_long_integers
from pcfi.inputs.containers import default_channel_name
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Channels, Problem, working_dtype
from pcfi.outofcore import file_names
from pcfi.outofcore.feature_stores import FeatureStore, ParquetStore, open_features
from pcfi.outofcore.folder import WorkFolder
from pcfi.outofcore.mapped_graph import open_graph
from pcfi.outofcore.mask_rows import MaskRows
from pcfi.outofcore.node_conversion import category_channel, column_in_words
from pcfi.outofcore.node_source import partitions_of
from pcfi.outofcore.run_settings import needs_fit, settings_of
from pcfi.outofcore.stored_model import value_of
from pcfi.pipeline import diffusion_of, propagation_of
from pcfi.settings import Settings
from pcfi.stages.channel_propagation import PropagationParameters
from pcfi.stages.diffusion import Diffusion
from pcfi.stages.hops import Hops

ROWS_IN_CACHE = 8192
CHANNEL_FACTS = ("low", "high", "mean", "patterns", "representatives", "n_known")  # in the order they are saved


@dataclass(frozen=True)
class RunPlan:
    """Division of a run into tasks: rows of a range (one task), rows in memory at a time, hop searches at a time.

    `token` identifies the call that works on the run; a call that resumes it has another.
    """

    range_rows: int
    chunk_rows: int
    searches: int
    token: str


@dataclass(frozen=True, eq=False)
class PanelLayout:
    """Which channels diffuse together, and which take part in stage 2.

    Attributes
    ----------
    panels : list of ndarray
        Channels that are kept and filled together.
    n_through_influence : int
        How many of the panels, the first ones, have one pattern each and go through its influence matrix.
    propagating : ndarray of int
        Channels of stage 2; none if there is no stage 2.
    is_product : bool
        Whether all of them go through one influence matrix, so that both stages are one product.
    """

    panels: list[Array]
    n_through_influence: int
    propagating: Array
    is_product: bool

    @property
    def places(self) -> list[slice | Array]:
        """Positions of the channels of each panel in a row."""
        return [as_slice(panel) for panel in self.panels]


class OutOfCoreRun:
    """One run of `pcfi.scale.impute`."""

    def __init__(self, folder: WorkFolder) -> None:
        job = folder.job()
        self.folder = folder
        self.settings = settings_of(job["settings"])
        self.store: FeatureStore = open_features(job["features"]["path"], "features", job["features"]["columns"])
        self.known: FeatureStore | None = None
        if job["known"] is not None:
            self.known = open_features(job["known"]["path"], "known", job["known"]["columns"], boolean=True)
        self.graph: Graph = open_graph(job["graph"]["path"])
        self.id: str | None = job["features"]["id"]
        self.has_names: bool = job["has_names"]
        self.partitions = partitions_of(self.store, job["features"]["original"])
        self.categories: dict[str, list[str]] = job["features"]["categories"]
        self.results: dict[str, str | None] = job["results"]
        self.n_draws = sum(name.startswith(DRAW) for name in self.results)
        self.coverage: float = job["coverage"]
        self.partitioned = bool(job.get("partitioned"))
        self.bounds: Any = job["bounds"]
        self.rounds: bool = job["rounds"]
        self.n_nodes, self.n_channels = self.store.shape
        self.dtype = working_dtype(self.store.dtype)

    @property
    def has_errors(self) -> bool:
        """Whether the errors to expect of all cells are computed."""
        return self.results["intervals"] is not None or self.n_draws > 0

    def retire(self) -> None:
        """Remove the work folder of a finished run.

        Its mapped files are let go of before: Windows does not remove files that are mapped.
        """
        folder = self.folder
        vars(self).clear()
        folder.retire()

    @cached_property
    def plan(self) -> RunPlan:
        """Division of the run into tasks."""
        facts = self.folder.read(file_names.PLAN)
        return RunPlan(facts["range_rows"], facts["chunk_rows"], facts["searches"], facts["token"])

    def check_owner(self) -> None:
        """Raise an error if another call has taken over the run."""
        if self.folder.read(file_names.PLAN)["token"] != self.plan.token:
            raise ClusterError("another call of pcfi.scale.impute has taken over this run")

    @property
    def n_ranges(self) -> int:
        """Number of ranges of rows."""
        return -(-self.n_nodes // self.plan.range_rows)

    def range_of(self, index: int) -> tuple[int, int]:
        """First and last row of a range."""
        first = index * self.plan.range_rows
        return first, min(first + self.plan.range_rows, self.n_nodes)

    def chunks(self, index: int) -> Iterator[tuple[int, Array, Array]]:
        """Rows of a range, some at a time: number of the first, values, known mask (without rows: NaN decides)."""
        masks = self._masks(index)
        for start, raw in self.store.chunks(*self.range_of(index), self.plan.chunk_rows):
            yield start, self.as_values(start, raw), masks.take(len(raw))

    def _masks(self, index: int) -> "MaskRows":
        if self.known is None:
            return MaskRows(None)
        return MaskRows(rows for _, rows in self.known.chunks(*self.range_of(index), self.plan.chunk_rows))

    def batches(self, index: int) -> Iterator[tuple[int, int, Any]]:
        """Some rows of a range at a time: number of the first, how many, and the record batch that holds them, if any.

        There is none if features do not come from Parquet.
        """
        if not isinstance(self.store, ParquetStore):
            yield from self.pieces(index)
            return
        for start, batch in self.store.batches(*self.range_of(index), self.plan.chunk_rows, None):
            yield start, batch.num_rows, batch

    def pieces(self, index: int) -> Iterator[tuple[int, int, None]]:
        """The same without record batches."""
        first, last = self.range_of(index)
        for start in range(first, last, self.plan.chunk_rows):
            yield start, min(self.plan.chunk_rows, last - start), None

    def chunks_with_batches(self, index: int) -> Iterator[tuple[int, Array, Array, Any]]:
        """Like `chunks`, with the record batch that the rows came in if they come from Parquet, else None."""
        if not isinstance(self.store, ParquetStore):
            for start, values, mask in self.chunks(index):
                yield start, values, mask, None
            return
        masks = self._masks(index)
        for start, _, batch in self.batches(index):
            values = self.as_values(start, self.store.rows_of(batch))
            yield start, values, masks.take(len(values)), batch

    def named(self, batch: Any) -> Any:
        """The ids and channels of a record batch; None if there are no ids."""
        if batch is None or self.id is None:
            return None
        names = {self.id, *self.store.names, *self.categories}
        return batch.select([name for name in batch.schema.names if name in names])

    def as_values(self, start: int, raw: Array) -> Array:
        """Rows in the dtype of the arithmetic."""
        if raw.dtype.kind in "iu" and raw.dtype.itemsize == 8:
            refuse_long_integers(raw.min(initial=0), raw.max(initial=0), f"features (from row {start} on)")
        return np.ascontiguousarray(raw, dtype=self.dtype)

    def prepared_rows(self, start: int, values: Array) -> Array:
        """The values of some rows as they diffuse."""
        rows = slice(start, start + len(values))
        return values if self.model is None else self.model.prepared_rows(values, rows)

    def start_values(self, start: int, values: Array, mask: Array) -> Array:
        """The known values of some rows, as they diffuse, and the channel's mean elsewhere."""
        rows = self.prepared_rows(start, values)
        return CpuBackend().start(self.part(rows, mask, self.prepared), self.prepared.mean)

    # results of earlier stages

    @cached_property
    def channels(self) -> Channels:
        """Facts about each channel."""
        return Channels(**{name: self.folder.load(file_names.channels(name)) for name in CHANNEL_FACTS})

    @cached_property
    def model(self) -> ValueModel | None:
        """The value model, once it is fitted; None for a representation and for other methods."""
        if not needs_fit(self.settings):
            return None
        with np.load(self.folder.path / file_names.MODEL, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        return value_of(ValueModel, arrays) if arrays else None

    @cached_property
    def chosen(self) -> Settings:
        """The settings with the parameters that the fit chose."""
        if not needs_fit(self.settings):
            return self.settings
        facts = self.folder.read(file_names.TUNING)
        return replace(self.settings, alpha=facts["alpha"], beta=facts["beta"])

    @cached_property
    def prepared(self) -> Channels:
        """Facts about each channel as it diffuses."""
        if self.model is None or not self.model.prepares:
            return self.channels
        return Channels(**{name: self.folder.load(file_names.prepared(name)) for name in CHANNEL_FACTS})

    @property
    def n_patterns(self) -> int:
        """Number of patterns."""
        return len(self.channels.representatives)

    @cached_property
    def surveyed(self) -> Problem:
        """The problem with its shape and the facts about its channels, without its values."""
        return self._without_values(self.channels)

    @cached_property
    def limits(self) -> Array | None:
        """Least and greatest possible value of each channel, as far as the caller names them."""
        facts = dict.fromkeys(CHANNEL_FACTS, np.zeros(self.n_channels, dtype=np.int64))
        return read_bounds(self.bounds, self._without_values(Channels(**facts)))

    def _without_values(self, channels: Channels) -> Problem:
        nothing = np.broadcast_to(self.dtype.type(0), self.store.shape)
        problem = self.part(nothing, np.empty((0, 1), dtype=np.bool_), channels)
        first, names, columns = self.first_channels, self.store.names, self.category_columns
        return replace(
            problem,
            first_channels=first,
            categorical=np.array([k for k, name in enumerate(names) if name in columns], dtype=np.int64),
            column_names=tuple(columns.get(names[k], names[k]) for k in first) if self.has_names else (),
            channel_name=self.channel_name,
        )

    @property
    def channel_name(self) -> Callable[[int], str]:
        """Names of channels in messages."""
        return column_in_words(self.store.names, self.category_columns) if self.has_names else default_channel_name

    @property
    def outline(self) -> Problem:
        """The same as it diffuses."""
        return replace(self.surveyed, channels=self.prepared)

    def part(self, values: Array, mask: Array, channels: Channels) -> Problem:
        """A problem on this graph."""
        return Problem(
            values=values,
            mask=mask,
            graph=self.graph,
            channels=channels,
            wrap_values=np.asarray,
            wrap_cells=np.asarray,
        )

    @cached_property
    def hops(self) -> Hops:
        """Hops with counts only, without the codes of the nodes."""
        facts = self.folder.read(file_names.HOPS)
        codes = np.broadcast_to(np.zeros(1, dtype=facts["dtype"]), (self.n_nodes, self.n_patterns))
        return Hops(codes, facts["n_levels"], np.array(facts["n_unreachable"]), self.channels.patterns)

    def codes_of(self, patterns: Array, nodes: Array | None = None) -> Array:
        """Hops of all nodes, or of some, in the given patterns."""
        n_rows = self.n_nodes if nodes is None else len(nodes)
        codes = np.empty((n_rows, len(patterns)), dtype=self.hops.codes.dtype)
        groups, columns = np.divmod(patterns, patterns_at_a_time())
        for group in np.unique(groups).tolist():
            shape = (self.n_nodes, self.width(group))
            stored = self.folder.map(file_names.hops(group), shape, self._code_dtypes[group])
            here, there = as_slice(np.flatnonzero(groups == group)), as_slice(columns[groups == group])
            for first in range(0, n_rows, ROWS_IN_CACHE):
                rows = slice(first, first + ROWS_IN_CACHE)
                part = stored[rows] if nodes is None else stored[nodes[rows]]
                codes[rows, here] = _widened(part[:, there], codes.dtype)
        return codes

    def hops_at(self, first: int, last: int) -> Hops:
        """Hops of some nodes in all patterns; counts are those of all nodes."""
        parts = []
        for group, dtype in enumerate(self._code_dtypes):
            rows = self.folder.read_rows(file_names.hops(group), first, last, self.width(group), dtype)
            parts.append(_widened(rows, self.hops.codes.dtype))
        return replace(self.hops, codes=np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0])

    @cached_property
    def _code_dtypes(self) -> list[str]:
        return list(self.folder.read(file_names.HOPS)["dtypes"])

    @cached_property
    def sums(self) -> tuple[Array, Array]:
        """Sum over the reachable cells of each channel once it has diffused, in its unit, and their number."""
        facts = self.prepared
        sums, counts = facts.mean * facts.n_known / facts.magnitude, facts.n_known.copy()
        for number, entry in self.folder.finished("diffuse").items():
            panel = self.layout.panels[number]
            sums[panel], counts[panel] = entry["sums"], entry["counts"]
        return sums, counts

    def width(self, group: int) -> int:
        """Number of patterns in a group."""
        return min(patterns_at_a_time(), self.n_patterns - group * patterns_at_a_time())

    @cached_property
    def diffusion(self) -> Diffusion:
        """Stage 1 of the complete run; tasks run parts of it."""
        return diffusion_of(self.outline, self.hops, self.chosen)

    @cached_property
    def propagation(self) -> PropagationParameters | None:
        """Parameters of stage 2; None if there is no stage 2."""
        return propagation_of(self.chosen)

    @cached_property
    def layout(self) -> PanelLayout:
        """Which channels diffuse together, and which take part in stage 2."""
        facts = self.folder.read(file_names.LAYOUT)
        panels = [np.array(panel, dtype=np.int64) for panel in facts["panels"]]
        propagating = np.array(facts["propagating"], dtype=np.int64)
        return PanelLayout(panels, facts["n_through_influence"], propagating, facts["is_product"])

    @cached_property
    def in_panels(self) -> bool:
        """Whether the panels hold every cell once they are filled, so that features need not be read again."""
        return sum(map(len, self.layout.panels)) == self.n_channels and not self.layout.is_product

    @property
    def first_channels(self) -> Array:
        """The first channel of every column: its cells are those that the table has."""
        others = {category_channel(name, one) for name, labels in self.categories.items() for one in labels[1:]}
        return np.array([k for k, name in enumerate(self.store.names) if name not in others], dtype=np.int64)

    @property
    def number_channels(self) -> Array:
        """The channels that are numeric columns."""
        columns = self.category_columns
        return np.array([k for k, name in enumerate(self.store.names) if name not in columns], dtype=np.int64)

    @property
    def category_columns(self) -> dict[str, str]:
        """Column of each channel that is a category."""
        return {category_channel(name, one): name for name, labels in self.categories.items() for one in labels}


def as_slice(numbers: Array) -> slice | Array:
    """Consecutive numbers as a slice, which numpy copies several times as fast."""
    if len(numbers) and np.array_equal(numbers, np.arange(numbers[0], numbers[0] + len(numbers))):
        return slice(int(numbers[0]), int(numbers[0]) + len(numbers))
    return numbers


def _widened(codes: Array, dtype: np.dtype[Any]) -> Array:
    """Codes in a wider integer; the largest one, which means unreachable, stays the largest."""
    if codes.dtype == dtype:
        return codes
    wide = codes.astype(dtype)
    wide[codes == np.iinfo(codes.dtype).max] = np.iinfo(dtype).max
    return wide


def patterns_at_a_time() -> int:
    """Patterns that are searched at once, whose hops are kept together."""
    from pcfi._kernels.hop_search import PATTERNS_AT_A_TIME

    return PATTERNS_AT_A_TIME
