"""Columns of a large node table that nobody named: which hold categories, and what the others miss."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pcfi.inputs.category_columns import MAX_FOUND_CATEGORIES, are_categories, are_mostly_numbers


@dataclass
class UnfilledColumn:
    """Counts of the values of a column; None if it is not text, or has more values than categories may be."""

    counts: "Counter[str] | None"
    is_declared: bool
    n_missing: int = 0

    @classmethod
    def of(cls, kind: Any) -> "UnfilledColumn":
        """A column of a pyarrow type, before any of its rows is read."""
        from pyarrow import types

        is_declared = types.is_dictionary(kind)
        is_text = is_declared or types.is_string(kind) or types.is_large_string(kind)
        return cls(Counter() if is_text else None, is_declared)

    def add(self, values: Any, markers: Sequence[str]) -> None:
        """Count further values, a pyarrow column."""
        import pyarrow as pa
        import pyarrow.compute as pc

        n_rows = len(values)
        if self.counts is None:
            self.n_missing += values.null_count
            return
        texts = values.cast(pa.string()).drop_null()
        texts = texts.filter(pc.invert(pc.is_in(texts, value_set=pa.array(list(markers), pa.string()))))
        self.n_missing += n_rows - len(texts)
        for one in pc.value_counts(texts).to_pylist():
            self.counts[one["values"]] += one["counts"]
        if len(self.counts) > MAX_FOUND_CATEGORIES:
            self.counts = None

    @property
    def holds_categories(self) -> bool:
        """Whether its missing cells are filled with categories, as those of a table in memory."""
        if not self.counts or not self.n_missing:
            return False
        return are_categories(list(self.counts.values())) and (self.is_declared or not are_mostly_numbers(self.counts))


def count_values(schema: Any, tables: Iterable[Any], markers: Sequence[str]) -> dict[str, UnfilledColumn]:
    """The columns of a schema with the counts of their values; `tables` are the rows, some at a time."""
    columns = {field.name: UnfilledColumn.of(field.type) for field in schema}
    for table in tables:
        for name, column in columns.items():
            column.add(table[name], markers)
    return columns
