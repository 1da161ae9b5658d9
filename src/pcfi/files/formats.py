"""Detect the format of a file from its suffix or its first bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from pcfi.errors import FileError
from pcfi.files.duckdb_files import DuckdbPlace
from pcfi.files.paths import compression_of

STANDARD = "-"  # standard input or output

SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".geoparquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".duckdb": "duckdb",
    ".npy": "npy",
    ".npz": "npz",
    ".h5ad": "h5ad",
    ".mtx": "mtx",
    ".gpkg": "gpkg",
    ".geojson": "geojson",
}
DELIMITERS = {"csv": ",", "tsv": "\t"}

EDGE_FORMATS = ("parquet", "csv", "tsv", "arrow", "duckdb", "npy", "npz", "h5ad", "mtx")
GEO_FORMATS = ("gpkg", "geojson")
NODE_FORMATS = (*EDGE_FORMATS[:-1], *GEO_FORMATS)
OUTPUT_FORMATS = ("parquet", "csv", "tsv", "arrow", "duckdb", "npy", "npz", *GEO_FORMATS)
TABLE_FORMATS = ("parquet", "csv", "tsv")
STREAM_FORMATS = ("csv", "tsv", "parquet", "arrow")
INTERVAL_FORMATS = (*STREAM_FORMATS, "duckdb")

_MAGIC = {
    b"PAR1": ("parquet", None),
    b"ARROW1": ("arrow", None),
    b"\xff\xff\xff\xff": ("arrow", None),
    b"\x93NUMPY": ("npy", None),
    b"PK\x03\x04": ("npz", None),
    b"\x89HDF\r\n": ("h5ad", None),
    b"%%MatrixMarket": ("mtx", None),
    b"\x1f\x8b": ("csv", "gzip"),
    b"\x28\xb5\x2f\xfd": ("csv", "zstd"),
}


@dataclass(frozen=True)
class Format:
    """A format by name, and how the file is compressed around it."""

    name: str
    compression: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether the format is text, so that types must be detected."""
        return self.name in DELIMITERS

    @property
    def is_array(self) -> bool:
        """Whether the file holds numbers only, without names of columns."""
        return self.name in ("npy", "npz")

    @property
    def is_geo(self) -> bool:
        """Whether the file is for tables with geometry only."""
        return self.name in GEO_FORMATS


def format_of(path: str, allowed: Sequence[str], what: str) -> Format:
    """The format that the suffix of `path` stands for.

    >>> format_of("nodes.csv.gz", NODE_FORMATS, "nodes")
    Format(name='csv', compression='gzip')
    """
    place = DuckdbPlace.of(path)
    suffixes = [suffix.lower() for suffix in PurePath(path if place is None else place.file).suffixes]
    compression = None if place is not None else compression_of(path)
    inner = suffixes[:-1] if compression else suffixes
    name = SUFFIXES.get(inner[-1], "") if inner else ""
    if name not in allowed or (compression and name not in DELIMITERS):
        suffix = "".join(suffixes[-2:] if compression else suffixes[-1:]) or "no suffix"
        raise FileError(f"{path}: the suffix {suffix} of {what} is not supported: use one of {listed(allowed)}")
    return Format(name, compression)


def listed(names: Sequence[str]) -> str:
    """The suffixes of these formats.

    >>> listed(["csv", "parquet"])
    '.parquet, .pq, .geoparquet, .csv (also .gz, .zst)'
    """
    texts = [
        f"{suffix} (also .gz, .zst)" if name in DELIMITERS else suffix
        for suffix, name in SUFFIXES.items()
        if name in names
    ]
    return ", ".join(texts)


def sniff(start: bytes) -> Format:
    """The format of what begins with these bytes; text unless they say otherwise.

    >>> sniff(b"id,age").name
    'csv'
    """
    for magic, (name, compression) in _MAGIC.items():
        if start.startswith(magic):
            return Format(name, compression)
    line = start.partition(b"\n")[0]
    return Format("tsv" if line.count(b"\t") > line.count(b",") else "csv")
