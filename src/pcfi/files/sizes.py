"""Check the memory that a file needs before or while it is read: a small file may decompress to a large table."""

from typing import Any

from pcfi.errors import TooLargeError
from pcfi.system_memory import available, two_sizes_in_words


def limit() -> int:
    """Bytes that a file may take: what is available."""
    return available()


def refuse_beyond_memory(n_bytes: int, path: str, most: int | None = None) -> None:
    """Raise `TooLargeError` if a file unpacks to more than `most` bytes, by default the memory that is available."""
    most = limit() if most is None else most
    if n_bytes > most:
        needed, left = two_sizes_in_words(n_bytes, most)
        raise TooLargeError(
            f"{path} decompresses to {needed} or more, but only {left} of memory is available: split the file, leave "
            "columns out of it, or work within a budget, as in --memory 4GB"
        )


def row_bytes(schema: Any) -> int:
    """Bytes that a row takes at least, by the types of the columns of fixed width."""
    widths = (getattr(field.type, "bit_width", 0) for field in schema if _is_fixed(field.type))
    return -(-sum(widths) // 8)


def _is_fixed(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_temporal(kind))


class Metered:
    """A binary stream that raises an error if it yields more bytes than the available memory; for decompression."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream, self._path, self._seen = stream, path, 0
        self._most = limit()  # before the table that grows beside it takes its share
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        data = bytes(self._stream.read(size))
        self._seen += len(data)
        refuse_beyond_memory(self._seen, self._path, self._most)
        return data

    def close(self) -> None:
        """Close the stream below."""
        self._stream.close()
        self.closed = True

    def readable(self) -> bool:
        """True: the stream can be read."""
        return True

    def writable(self) -> bool:
        """No."""
        return False

    def seekable(self) -> bool:
        """No: the compressed stream is read once."""
        return False
