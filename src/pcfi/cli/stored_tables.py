"""Results of a run on disk -> the tables that `pcfi impute` writes, in blocks of rows.

The run has written values, confidence, hops and intervals as Parquet. The same functions as for a table in memory
convert them to the final tables: original text, confidence columns, map columns and position columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.cli.loading import Loaded
from pcfi.cli.output_tables import ERROR, HIGH, LOW, delimiter, fitting, geometry_for, tables_of
from pcfi.cli.outputs import OutputOptions, content_of, is_draw
from pcfi.files.atomic_output import Publication
from pcfi.files.formats import Format
from pcfi.files.geo_files import GeometryColumn, geometry_of
from pcfi.files.node_files import NodeFileContents
from pcfi.files.opening import InputFile
from pcfi.files.text import empty_as_null
from pcfi.files.text_batches import TextBatches
from pcfi.files.writing import check_columns, write_tables
from pcfi.files.written_cells import WrittenCells
from pcfi.inputs.columns import NodeColumns
from pcfi.inputs.ids import Ids
from pcfi.inputs.node_columns import NodeColumn
from pcfi.inputs.node_tables import NodeTable
from pcfi.inputs.position_columns import append_to_table

ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredRows:
    """A block of rows of the results, with the attributes of an `Imputation` that the tables need."""

    values: Any
    confidence: Any
    hops: Any
    sides: Any
    position: Array | None
    method: str
    id: str | None

    @property
    def representation(self) -> Any:
        """Values with position channels."""
        return self.values if self.position is None else append_to_table(self.values, self.position)

    @property
    def expected_error(self) -> Any:
        """Expected errors by column; None if there are none."""
        return None if self.sides is None else self._side(ERROR)

    def interval(self, coverage: float) -> tuple[Any, Any]:  # noqa: ARG002  the run has computed it for one coverage
        """Lower and upper bounds by column."""
        return self._side(LOW), self._side(HIGH)

    def _side(self, ending: str) -> Any:
        import pyarrow as pa

        names = [name for name in self.sides.column_names if name.endswith(ending)]
        ids = {} if self.id is None else {self.id: self.values[self.id]}
        return pa.table(ids | {name.removesuffix(ending): self.sides[name] for name in names})


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredTables:
    """Writes the tables of a finished run.

    Attributes
    ----------
    run : OutOfCoreRun
    source : str
        The node file.
    columns : NodeColumns
        The user's choices.
    outputs : OutputOptions
    parts : dict of str
        Parquet files of values, confidence, hops and intervals.
    position : ndarray or None
        Position channels of all nodes.
    """

    run: Any
    source: str
    columns: NodeColumns
    outputs: OutputOptions
    parts: dict[str, str]
    position: Array | None = None

    def write(self, formats: dict[str, Format], publication: Publication) -> None:
        """Write every table in its format."""
        for what, path in self.outputs.tables().items():
            if what not in self.parts:
                continue
            steps = self._steps(what, formats[what])
            first = next(steps)
            if content_of(what) == "values":
                check_columns(first[0].nodes.table.schema, path, formats[what])
            write_tables(
                self._tables(what, formats[what], first, steps),
                self.run.n_nodes,
                path,
                formats[what],
                force=True,  # existing files were checked before the run
                publication=publication,
                delimiter=delimiter(formats[what], first[0]),
                geometry=geometry_for(what, first[0]),
                partitions=self.run.partitions if content_of(what) == "values" else (),
            )

    def _tables(self, what: str, form: Format, first: Any, others: Iterator[Any]) -> Iterator[Any]:
        if is_draw(what):
            for loaded, rows in (pair for pairs in ([first], others) for pair in pairs):
                yield fitting(what, rows.values, form, loaded)
            return
        outputs = self.outputs.written([what])
        outputs = outputs if what == "values" else replace(outputs, confidence_columns=False)
        for loaded, rows in (pair for pairs in ([first], others) for pair in pairs):
            yield fitting(what, tables_of(loaded, rows, outputs)[what], form, loaded)

    def _steps(self, what: str, form: Format) -> Iterator[tuple[Loaded, StoredRows]]:
        """The node file and the results, in blocks of rows."""
        needed = [name for name in self.parts if name == what or (what == "values" and not is_draw(name))]
        sources: list[Iterator[Any]] = [self._features(), *(_read_parts(self.parts[name]) for name in needed)]
        written = self._written if form.is_text else None
        if written is not None:
            sources.append(part.cells for part in WrittenCells.parts_of(written))
        common = None if written is None else next(WrittenCells.parts_of(written))
        start = 0
        for features, *tables in _in_step(sources):
            cells = None if common is None else replace(common, cells=tables.pop())
            stored = dict(zip(needed, tables, strict=True))
            values = stored.get(what) if content_of(what) == "values" else self._own_columns(features)
            values = values if cells is None else self._with_text(values, cells)
            position = None if self.position is None else self.position[start : start + features.num_rows]
            rows = StoredRows(
                values=values,
                confidence=stored.get("confidence"),
                hops=stored.get("hops"),
                sides=stored.get("intervals"),
                position=position,
                method=self.run.chosen.method,
                id=self.run.id,
            )
            yield self._loaded(features, cells), rows
            start += features.num_rows

    @cached_property
    def _written(self) -> TextBatches | None:
        """The node file as text, if it is text."""
        file = InputFile.of_table(self.source) if _is_table(self.source) else None
        return TextBatches(file, self.columns) if file is not None and file.format.is_text else None

    def _with_text(self, values: Any, cells: WrittenCells) -> Any:
        """Values with the original text of the columns that are not filled."""
        texts, filled = empty_as_null(cells.cells), {*self._filled_columns, *self.run.categories}
        for place, name in enumerate(values.column_names):
            if name not in filled:
                values = values.set_column(place, name, texts[name])
        return values

    @cached_property
    def _filled_columns(self) -> list[str]:
        return [name for name in self.run.store.names if name not in self.run.category_columns]

    def _features(self) -> Iterator[Any]:
        """The features, with the column names of the results."""
        import pyarrow as pa

        store, count = self.run.store, self.run.n_nodes
        if hasattr(store, "schema"):
            for _, batch in store.batches(0, count, ROWS_AT_A_TIME, None):
                yield pa.Table.from_batches([batch])
            return
        for _, rows in store.chunks(0, count, ROWS_AT_A_TIME):
            yield pa.table(dict(zip(store.names, np.ascontiguousarray(rows.T), strict=True)))

    @cached_property
    def _geometry(self) -> GeometryColumn | None:
        store = self.run.store
        if not hasattr(store, "schema"):
            return None
        return geometry_of(store.schema.empty_table(), InputFile(self.source, Format("parquet")))[1]

    def _own_columns(self, features: Any) -> Any:
        """The features without the channels of categories."""
        return features.select([name for name in features.column_names if name not in self.run.category_columns])

    def _loaded(self, features: Any, cells: WrittenCells | None) -> Loaded:
        table = self._own_columns(features)
        columns = tuple(
            NodeColumn(
                name=name,
                missing=_missing(table[name]),
                codes=np.zeros(0, dtype=np.int64) if name in self.run.categories else None,
            )
            for name in table.column_names
            if name in self._filled_columns or name in self.run.categories
        )
        nodes = NodeFileContents(
            table=table,
            id=self.run.id,
            channels=self._filled_columns,
            categorical=list(self.run.categories),
            written=cells,
            geometry=self._geometry,
        )
        rows = NodeTable(native=table, columns=columns, ids=Ids(None, self.run.id, ""))
        return Loaded(nodes, rows, self.run.graph, incomplete=self._incomplete)

    @cached_property
    def _incomplete(self) -> frozenset[str]:
        run = self.run
        channels = np.flatnonzero(run.channels.n_known < run.n_nodes).tolist()
        return frozenset(run.category_columns.get(name, name) for name in (run.store.names[k] for k in channels))


def _is_table(path: str) -> bool:
    from pcfi.files.paths import table_suffix
    from pcfi.outofcore.edge_tables import SUFFIXES

    return table_suffix(path) in SUFFIXES


def _missing(column: Any) -> Array:
    import pyarrow.compute as pc

    return np.asarray(pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False))


def _read_parts(path: str) -> Iterator[Any]:
    """Tables of a folder of Parquet files, in the order of its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcfi.outofcore.feature_stores import parquet_files

    for part in parquet_files(path):
        with pq.ParquetFile(part) as file:
            for batch in file.iter_batches(batch_size=ROWS_AT_A_TIME):
                yield pa.Table.from_batches([batch])


def _in_step(sources: Sequence[Iterator[Any]]) -> Iterator[list[Any]]:
    """Tables of several sources, split so that each step has the same rows of all of them."""
    rest: list[Any] = [None] * len(sources)
    while True:
        for place, source in enumerate(sources):
            while rest[place] is None or not rest[place].num_rows:
                rest[place] = next(source, None)
                if rest[place] is None:
                    return
        count = min(table.num_rows for table in rest)
        yield [table.slice(0, count) for table in rest]
        rest = [table.slice(count) for table in rest]
