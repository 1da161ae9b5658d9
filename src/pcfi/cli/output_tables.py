"""The tables that `pcfi impute` writes: values, confidence, hops, intervals."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pcfi
from pcfi.cli.loading import Loaded
from pcfi.cli.outputs import OutputOptions, content_of
from pcfi.errors import FileError, TuningWarning
from pcfi.files.formats import Format
from pcfi.files.geo_files import GeometryColumn
from pcfi.files.paths import draw_name, numbered_path
from pcfi.files.text import each_column
from pcfi.inputs.position_columns import position_names

ROWS_AT_A_TIME = 1 << 16  # of a table that is turned into text
CONFIDENCE = "_confidence"
FILLED, LOW, HIGH, ERROR = "_filled", "_low", "_high", "_error"


def tables_of(loaded: Loaded, result: Any, outputs: OutputOptions) -> dict[str, Any]:
    """The requested tables, by their content: values, confidence, hops, intervals."""
    channels = [column.name for column in loaded.table.columns]
    ids_and_channels = [name for name in result.values.column_names if name in {loaded.nodes.id, *channels}]
    tables = {"values": result.values if result.position is None else result.representation}
    if loaded.nodes.geometry is not None:
        tables["values"] = _with_map_columns(loaded, tables["values"], result, outputs.coverage)
    confidence = result.confidence if outputs.confidence or outputs.confidence_columns else None
    if confidence is not None:
        if outputs.confidence_columns:
            tables["values"] = _with_confidence(tables["values"], confidence, channels)
        if outputs.confidence:
            tables["confidence"] = confidence.select(ids_and_channels)
    elif outputs.confidence or outputs.confidence_columns:
        _left_out(outputs.confidence or "the confidence", f"the method {result.method} was best, and it has none")
    if outputs.hops and result.hops is not None:
        tables["hops"] = _null_where_unreachable(result.hops.select(ids_and_channels), channels)
    elif outputs.hops:
        _left_out(outputs.hops, f"the method {result.method} was best, and it does not count hops")
    if outputs.intervals and result.expected_error is not None:
        tables["intervals"] = _intervals(loaded, result, outputs.coverage)
    elif outputs.intervals:
        _left_out(outputs.intervals, f"the method {result.method} was best, and it has no intervals")
    return tables


def draws_of(result: Any, outputs: OutputOptions, seed: int) -> Iterator[tuple[str, Any]]:
    """Names and tables of the draws, made one at a time; what prevents them is said at once."""
    if not outputs.draws:
        return iter(())
    if result.expected_error is None:
        _left_out(numbered_path(outputs.values, 1), f"the method {result.method} was best, and it has no draws")
        return iter(())
    drawn = result.draws(outputs.draws, random_state=seed)
    return ((draw_name(number), table) for number, table in enumerate(drawn, 1))


def _left_out(what: str, why: str) -> None:
    warnings.warn(f"{what} was not written: {why}", TuningWarning, stacklevel=3)


def fitting(what: str, table: Any, form: Format, loaded: Loaded) -> Any:
    """The table in the form of its format: original text, typed columns, or only the channels for arrays."""
    geometry = loaded.nodes.geometry
    if form.is_text:
        table = table if geometry is None else geometry.as_text(table)
        return as_written(what, table, loaded)
    if not form.is_array:
        return loaded.nodes.typed(table)
    if loaded.nodes.categorical:
        raise FileError(f"a .{form.name} file can hold only numbers: write categories to .parquet or .csv")
    added = set(position_names(table.num_columns)).difference(loaded.nodes.table.column_names)
    names = added.union(loaded.names)
    return table.select([name for name in table.column_names if name.removesuffix(CONFIDENCE) in names])


def fitting_parts(what: str, table: Any, form: Format, loaded: Loaded) -> Iterator[Any]:
    """The same in parts, if it is text that was read as text: known cells are held as text once, not twice."""
    written, count = loaded.nodes.written, ROWS_AT_A_TIME
    if not form.is_text or written is None:
        yield fitting(what, table, form, loaded)
        return
    for start in range(0, table.num_rows, count):
        columns = tuple(replace(one, missing=one.missing[start : start + count]) for one in loaded.table.columns)
        nodes = replace(loaded.nodes, written=written.rows(start, count))
        part = replace(loaded, nodes=nodes, table=replace(loaded.table, columns=columns))
        yield fitting(what, table.slice(start, count), form, part)


def as_written(what: str, table: Any, loaded: Loaded) -> Any:
    """Numbers with the decimal mark of a text node file; known cells keep their original text."""
    import pyarrow as pa

    written = loaded.nodes.written
    if written is None:
        return table
    is_filled = content_of(what) == "values"
    missing = {one.name: one.missing for one in loaded.table.columns if one.codes is None} if is_filled else {}
    fields = [one for one in table.schema if pa.types.is_floating(one.type) or one.name in missing]
    names = [one.name for one in fields]
    columns = each_column(lambda name: written.as_written(table[name], name, missing.get(name)), names, table.num_rows)
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def delimiter(form: Format, loaded: Loaded) -> str | None:
    """Delimiter of a text file: that of the node file if the suffix is the same."""
    written = loaded.nodes.written
    if not form.is_text or written is None or written.format != form.name:
        return None
    return written.dialect.delimiter


def geometry_for(what: str, loaded: Loaded) -> GeometryColumn | None:
    """The geometry to write with a table; only the values of a map have one."""
    return loaded.nodes.geometry if content_of(what) == "values" else None


def _with_confidence(table: Any, confidence: Any, channels: Sequence[str]) -> Any:
    for name in channels:
        if name + CONFIDENCE in table.column_names:
            raise FileError(f"the node file already has a column {name + CONFIDENCE!r}: use --confidence FILE instead")
        table = table.append_column(name + CONFIDENCE, confidence[name])
    return table


def _with_map_columns(loaded: Loaded, table: Any, result: Any, coverage: float) -> Any:
    """Add to a map, for each column that had missing cells, whether a cell was filled, and its interval."""
    import pyarrow as pa

    low, high = (None, None) if result.expected_error is None else result.interval(coverage)
    for column in loaded.table.columns:
        if not loaded.is_incomplete(column):
            continue
        added = {FILLED: pa.array(column.missing)}
        if low is not None and high is not None and column.codes is None:
            added |= {LOW: low[column.name], HIGH: high[column.name]}
        for ending, cells in added.items():
            if column.name + ending in table.column_names:
                raise FileError(f"the node file already has a column {column.name + ending!r}: rename it")
            table = table.append_column(column.name + ending, cells)
    return table


def _null_where_unreachable(table: Any, channels: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in channels:
        column = table[name]
        hops = pc.if_else(pc.equal(column, pcfi.UNREACHABLE), pa.scalar(None, column.type), column)
        table = table.set_column(table.column_names.index(name), name, hops)
    return table


def _intervals(loaded: Loaded, result: Any, coverage: float) -> Any:
    """Ids, and for each numeric channel the ends of its intervals and the expected error."""
    low, high = result.interval(coverage)
    table = low.select([] if loaded.nodes.id is None else [loaded.nodes.id])
    for name in loaded.names:
        for ending, part in ((LOW, low), (HIGH, high), (ERROR, result.expected_error)):
            table = table.append_column(name + ending, part[name])
    return table.replace_schema_metadata(None)  # of a map: it describes a geometry that is not there
