"""A node table with text, categories or markers of missing cells -> a Parquet file of plain channels.

Each category becomes a channel of 0 and 1, as in memory; the result puts the filled category back.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pcfi.errors import FeatureError, counted
from pcfi.files.node_files import mark_missing
from pcfi.files.writing import atomic_file
from pcfi.inputs.columns import TEXT_MARKERS, NodeColumns
from pcfi.inputs.node_columns import MAX_CATEGORIES

METADATA = b"pcfi"

Tables = Callable[[], Iterator[Any]]
"""Returns the rows of a node file from the start, as tables of some rows each."""


def category_channel(column: str, category: str) -> str:
    """The name of the channel of a category."""
    return f"{column}={category}"


def column_in_words(names: Sequence[str], categories: Mapping[str, str]) -> Callable[[int], str]:
    """Names of channels in messages; `categories` has the column of each channel that is a category."""
    return lambda channel: f"the column {categories.get(names[channel], names[channel])!r}"


def convert_nodes(
    tables: Tables, target: Path, columns: NodeColumns, id_column: str | None, channels: Sequence[str], *, is_text: bool
) -> None:
    """Write a node table with its channels and categories; the file appears when it is complete."""
    import pyarrow.parquet as pq

    def marked() -> Iterator[Any]:
        for table in tables():
            plain = mark_missing(table, channels, columns.missing_values)
            markers = [*columns.missing_values, *(TEXT_MARKERS if is_text else ())]
            yield mark_missing(plain, columns.categorical, markers)

    categories = _categories(marked, columns.categorical)
    filled = {*channels, *columns.categorical}
    with atomic_file(str(target), force=True) as file:
        writer = None
        for table in marked():
            names = [name for name in table.column_names if name in filled]
            order = [one for name in names for one in _channels_of(name, categories)]
            facts = {"id": id_column, "channels": order, "categories": categories, "n_columns": table.num_columns}
            table = _with_channels(table, categories)
            table = table.replace_schema_metadata({**(table.schema.metadata or {}), METADATA: json.dumps(facts)})
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def conversion_facts(path: Path) -> dict[str, Any]:
    """What `convert_nodes` wrote about the columns: id, channels, categories and the number of columns of the table."""
    import pyarrow.parquet as pq

    facts: dict[str, Any] = json.loads(pq.read_schema(path).metadata[METADATA])
    return facts


def _channels_of(name: str, categories: dict[str, list[str]]) -> list[str]:
    return [category_channel(name, one) for one in categories[name]] if name in categories else [name]


def _texts(column: Any) -> Any:
    """Categories as text, null where they are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return column.cast(pa.string())


def _categories(tables: Tables, names: Sequence[str]) -> dict[str, list[str]]:
    """The categories of each column, sorted as in memory."""
    import pyarrow.compute as pc

    seen: dict[str, set[str]] = {name: set() for name in names}
    for table in tables() if names else ():
        for name, labels in seen.items():
            labels.update(pc.unique(_texts(table[name]).drop_null()).to_pylist())
            if len(labels) > MAX_CATEGORIES:
                raise FeatureError(
                    f"the column {name!r} has more than {counted(MAX_CATEGORIES, 'different value')}, and each would "
                    "become a channel: is it an id?"
                )
    empty = next((name for name, labels in seen.items() if not labels), None)
    if empty is not None:
        raise FeatureError(f"the column {empty!r} has no known category", remedy="leave it out of {categorical}")
    return {name: sorted(labels) for name, labels in seen.items()}


def _with_channels(table: Any, categories: dict[str, list[str]]) -> Any:
    """The table with a column of 0 and 1 for each category, null where the category is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for column, labels in categories.items():
        texts = _texts(table[column])
        for label in labels:
            name = category_channel(column, label)
            if name in table.column_names:
                raise FeatureError(f"the node table has a column {name!r}, which is needed for a category: rename it")
            table = table.append_column(name, pc.equal(texts, label).cast(pa.int8()))
    return table
