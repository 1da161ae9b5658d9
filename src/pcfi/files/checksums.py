"""CRC-32 checksums of files and of parts of files, and of text and arrays that end with their checksum."""

import zlib
from pathlib import Path

BLOCK = 1 << 20  # bytes read at a time
MARK = "crc32 "  # begins the last line of a text that carries its checksum
TRAILER = 4  # bytes of the checksum at the end of an array


def checksum(path: Path, first: int = 0, length: int | None = None, value: int = 0) -> int:
    """CRC-32 of `length` bytes from `first` on, or to the end, continued from `value`."""
    with path.open("rb") as file:
        file.seek(first)
        left = path.stat().st_size - first if length is None else length
        while left > 0 and (block := file.read(min(BLOCK, left))):
            value = zlib.crc32(block, value)
            left -= len(block)
    return value if left == 0 else ~value  # a file that is too short has no checksum that fits


def with_checksum(text: str) -> bytes:
    """The text with a last line that holds its checksum."""
    return f"{text}\n{MARK}{zlib.crc32(text.encode()):08x}\n".encode()


def without_checksum(content: bytes) -> str | None:
    """The text that `with_checksum` was given; None if it is damaged."""
    body, mark, end = content.rpartition(f"\n{MARK}".encode())
    if not mark or end.strip() != f"{zlib.crc32(body):08x}".encode():
        return None
    return body.decode()


def has_trailer(path: Path) -> bool:
    """Whether a file ends with the checksum of what stands before it."""
    size = path.stat().st_size - TRAILER
    if size < 0:
        return False
    with path.open("rb") as file:
        file.seek(size)
        end = file.read(TRAILER)
    return int.from_bytes(end, "little") == checksum(path, 0, size)
