"""Partitioned datasets: folders such as year=2024/month=5 with Parquet files, whose names are columns of the table."""

from collections.abc import Iterable, Iterator, Sequence
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pcfi.errors import FileError
from pcfi.files.paths import is_address, remove, scratch_of


def dataset_files(paths: Iterable[str], root: str) -> list[str]:
    """The Parquet files among the files of a folder, in the order of their names; names with _ or . are not data."""
    inner = {path: _inner_names(path, root) for path in paths if path.endswith(".parquet")}
    return sorted(path for path, names in inner.items() if not any(name[0] in "_." for name in names if name))


def partition_columns(files: Sequence[str], root: str) -> dict[str, Any]:
    """Names and types of the columns that the folders of a dataset hold; integers if all values are.

    >>> {name: str(kind) for name, kind in partition_columns(["a/y=1/p.parquet", "a/y=2/p.parquet"], "a").items()}
    {'y': 'int64'}
    """
    import pyarrow as pa

    found = [values_of(file, root) for file in files]
    names = list(found[0]) if found else []
    for file, values in zip(files, found, strict=True):
        if list(values) != names:
            raise FileError(
                f"{root}: {file} is in folders of {list(values) or 'no columns'}, others in folders of "
                f"{names or 'no columns'}: all files of a dataset need the same"
            )
    whole = {name: all(values[name].lstrip("-").isdecimal() for values in found) for name in names}
    return {name: pa.int64() if whole[name] else pa.string() for name in names}


def values_of(file: str, root: str) -> dict[str, str]:
    """What the folders of a file say, by column."""
    pairs = [part.partition("=") for part in _inner_names(file, root)[:-1] if "=" in part]
    return {unquote(name): unquote(value) for name, _, value in pairs}


def _inner_names(file: str, root: str) -> list[str]:
    """Names of the folders of a file within the dataset, and its own."""
    start = root.rstrip("/") if is_address(root) else Path(root).as_posix()
    path = file if is_address(file) else Path(file).as_posix()
    return path[len(start) :].strip("/").split("/")


def with_partition(rows: Any, values: dict[str, str], kinds: dict[str, Any], names: Sequence[str] | None = None) -> Any:
    """A table or record batch with the columns of its folders, or those of them that are named."""
    import pyarrow as pa

    for name, kind in kinds.items():
        if names is None or name in names:
            value = int(values[name]) if pa.types.is_integer(kind) else values[name]
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), rows.num_rows))
    return rows


_IN_ORDER: dict[str, Any] = {"preserve_order": True}  # batches may overtake each other without threads, too; pyarrow 21


def write_partitioned(tables: Iterator[Any], path: str, names: Sequence[str]) -> None:
    """Write tables as a dataset whose folders hold some columns; it appears under its name when it is complete."""
    import pyarrow as pa
    from pyarrow import dataset

    first = next(tables)
    batches = (batch for table in chain([first], tables) for batch in table.to_batches())
    scratch = scratch_of(Path(path).absolute())
    try:
        dataset.write_dataset(
            batches,
            scratch,
            schema=first.schema,
            format="parquet",
            partitioning=dataset.partitioning(pa.schema([first.schema.field(name) for name in names]), flavor="hive"),
            use_threads=False,
            **_IN_ORDER if "preserve_order" in signature(dataset.write_dataset).parameters else {},
        )
        remove(Path(path))
        scratch.rename(path)
    finally:
        remove(scratch)
