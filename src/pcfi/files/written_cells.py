"""The original text of the cells of a text file, so that known cells are written back byte for byte."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pcfi.files.text import DelimitedTable, Dialect, dialect_of
from pcfi.files.text_batches import TextBatches
from pcfi.files.text_types import ColumnType
from pcfi.inputs.node_tables import kind_of_arrow


@dataclass(frozen=True, eq=False)
class WrittenCells:
    """Some rows of a text file as they are written, and how the file is written.

    Attributes
    ----------
    cells : pyarrow.Table of strings
    format : str
        "csv" or "tsv", by the suffix.
    dialect : Dialect
    decimal : str
        The decimal mark of the file: a comma if all numeric columns that have a mark have it.
    decimals : dict of str
        The decimal mark of each numeric column; that of the file if the column has none.
    spellings : dict of str
        The first truth value of columns that hold some.
    """

    cells: Any
    format: str
    dialect: Dialect
    decimal: str
    decimals: dict[str, str]
    spellings: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(texts: DelimitedTable, types: dict[str, ColumnType]) -> "WrittenCells":
        """The cells of a text file whose columns have these types."""
        marks = _decimal_marks(types, texts.decimal, lambda name: _has_point(texts.without_markers(name)))
        flags = [name for name, one in types.items() if str(one.kind) == "bool"]
        spellings = {name: known[0].as_py() for name in flags if len(known := texts.without_markers(name).drop_null())}
        return WrittenCells(texts.cells, texts.source.format.name, dialect_of(texts.source), *marks, spellings)

    @staticmethod
    def parts_of(batches: TextBatches) -> Iterator["WrittenCells"]:
        """The same some rows at a time; the file is read once more if numbers or truth values have to be compared."""
        import pyarrow as pa

        points, spellings = _marks_of_batches(batches)
        marks = _decimal_marks(batches.types, batches.decimal, points.__contains__)
        empty = batches.schema.empty_table()
        common = WrittenCells(empty, batches.file.format.name, dialect_of(batches.file), *marks, spellings)
        for batch in batches.read():
            yield replace(common, cells=pa.Table.from_batches([batch]))

    @property
    def words(self) -> str:
        """How the file is written, if not as its suffix says."""
        return self.dialect.words(set(self.decimals.values()))

    def as_written(self, column: Any, name: str, missing: Any = None) -> Any:
        """Numbers as text with the decimal mark of the file, and truth values as it spells them.

        Known cells are as they were written.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if missing is not None:
            column, mask = column.filter(pa.array(missing)), pa.array(missing)
        texts = column.cast(pa.string())
        decimal = self.decimal if missing is None else self.decimals.get(name, self.decimal)
        if decimal == "," and kind_of_arrow(column.type).is_number:
            texts = pc.replace_substring(texts, ".", ",")
        if missing is None:
            return texts
        if pa.types.is_boolean(column.type):
            texts = _spelled_as(texts, self.spellings.get(name, ""))
        return pc.replace_with_mask(self.cells[name].combine_chunks(), mask, texts.combine_chunks())

    def rows(self, start: int, count: int) -> "WrittenCells":
        """Some of the rows."""
        return replace(self, cells=self.cells.slice(start, count))


def _decimal_marks(
    types: Mapping[str, ColumnType], named: str | None, has_point: Callable[[str], bool]
) -> tuple[str, dict[str, str]]:
    """The decimal mark of the file, and that of each numeric column."""
    decimals = {name: one.decimal for name, one in types.items() if str(one.kind) != "string"}
    decimal = named or "."
    if "," in (named, *decimals.values()):
        points = [name for name, one in decimals.items() if one == "."]
        without = [name for name in points if not has_point(name)]
        decimal = "," if len(without) == len(points) else "."
        decimals |= dict.fromkeys(without, decimal)
    return decimal, decimals


def _has_point(column: Any) -> bool:
    """Whether a value has a point in it; markers of missing cells, such as n.a., must be null."""
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring(column, ".")).as_py())


def _marks_of_batches(batches: TextBatches) -> tuple[set[str], dict[str, str]]:
    """Columns with a point in a cell, and the first truth value of columns of truth values."""
    import pyarrow as pa

    with_comma = "," in (batches.decimal, *(one.decimal for one in batches.types.values()))
    flags = [name for name, one in batches.types.items() if pa.types.is_boolean(one.kind)]
    points: set[str] = set()
    spellings: dict[str, str] = {}
    for batch in batches.read(nulls=True) if with_comma or flags else ():
        if with_comma:
            points |= {name for name in batches.types if _has_point(batches.without_markers(batch, name))}
        for name in flags:
            known = batch.column(name).drop_null()
            if name not in spellings and len(known):
                spellings[name] = known[0].as_py()
    return points, spellings


def _spelled_as(texts: Any, first: str) -> Any:
    """Truth values in the case of one in the file: True and FALSE are spelled in two ways."""
    import pyarrow.compute as pc

    if first.strip().isupper():
        return pc.utf8_upper(texts)
    return pc.utf8_capitalize(texts) if first.strip()[:1].isupper() else texts
