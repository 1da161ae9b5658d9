"""Open files and standard input, and turn failures to read them into one-line errors."""

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcfi.errors import FileError, PcfiError, TooLargeError
from pcfi.files.duckdb_files import DuckdbPlace
from pcfi.files.formats import STANDARD, TABLE_FORMATS, Format, format_of, sniff
from pcfi.files.hive import dataset_files
from pcfi.files.paths import is_address, opened
from pcfi.files.sizes import Metered


@dataclass(frozen=True, eq=False)
class InputFile:
    """Something to read: a file, or the bytes of standard input.

    Attributes
    ----------
    path : str
        As it was given; errors speak of it so.
    format : Format
    data : bytes or None
        What standard input held; None for a file.
    """

    path: str
    format: Format
    data: bytes | None = None

    @property
    def words(self) -> str:
        """Name of the input in errors."""
        return "standard input" if self.data is not None else self.path

    @staticmethod
    def of_table(path: str) -> "InputFile":
        """A table at a path or an address, Parquet or text, by its suffix."""
        return InputFile(path, format_of(path.rstrip("/"), TABLE_FORMATS, "a table"))

    def open(self) -> Any:
        """A binary file object that can seek."""
        return io.BytesIO(self.data) if self.data is not None else Path(self.path).open("rb")

    def parts(self) -> list["InputFile"]:
        """The Parquet files of a folder in the order of their names; else this one alone."""
        if self.data is not None or not Path(self.path).is_dir():
            return [self]
        found = dataset_files(map(str, Path(self.path).rglob("*.parquet")), self.path)
        files = [InputFile(path, self.format) for path in found]
        if not files:
            raise FileError(f"{self.path} is a folder without a file .parquet in it")
        return files

    @contextmanager
    def arrow(self) -> Iterator[Any]:
        """The bytes for pyarrow: decompressed where the format is wrapped in a compression."""
        import pyarrow as pa

        with self._raw() as raw:
            if self.format.compression is None:
                yield raw
            else:
                with pa.CompressedInputStream(raw, self.format.compression) as unpacked:
                    yield pa.PythonFile(Metered(unpacked, self.words), mode="r")

    def _raw(self) -> Any:
        import pyarrow as pa

        if self.data is not None:
            return pa.BufferReader(self.data)
        # pyarrow takes no names that are not valid UTF-8, which the system allows
        is_plain = not is_address(self.path) and self.path.isprintable()
        return pa.OSFile(self.path, "rb") if is_plain else pa.PythonFile(opened(self.path), "r")


def open_input(path: str, allowed: Sequence[str], what: str) -> InputFile:
    """Check that a file exists, or read all of standard input."""
    if path == STANDARD:
        data = sys.stdin.buffer.read()
        return InputFile(path, _checked(sniff(data[:65536]), allowed), data)
    form = format_of(path, allowed, what)
    database = DuckdbPlace.of(path)
    place = Path(path if database is None else database.file)
    if not place.exists():
        raise FileError(f"{path} does not exist: check the name of the file of {what}")
    if not place.is_file() and not (form.name == "parquet" and place.is_dir()):
        raise FileError(f"{path} is not a file: name the file of {what}, not a folder")
    if place.stat().st_size == 0:
        raise FileError(f"{path} is empty, but must contain {what}")
    return InputFile(path, form)


def _checked(form: Format, allowed: Sequence[str]) -> Format:
    if form.name not in allowed:
        raise FileError(f"standard input holds {form.name}, which is not supported here: use {', '.join(allowed)}")
    return form


@contextmanager
def clear_errors(source: InputFile) -> Iterator[None]:
    """Turn any exception of a reading library into a one-line error that names the file."""
    try:
        yield
    except (PcfiError, ModuleNotFoundError, NameError, AttributeError):  # the last two would be bugs of pcfi
        raise
    except MemoryError as error:
        raise TooLargeError(f"{source.words} needs more memory than is available: {_first_line(error)}") from error
    except PermissionError:
        raise FileError(f"{source.words} cannot be read: check its permissions") from None
    except Exception as error:
        kind = source.format.name
        raise FileError(
            f"{source.words} cannot be read as {kind}: {_first_line(error)}; is it complete, and really {kind}?"
        ) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = lines[0].strip() if lines else type(error).__name__
    return (text if len(text) <= 300 else text[:297] + "...").rstrip(".;: ")
