"""Columns of text -> the type that fits all values of each column, and its decimal mark; for files of any size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pcfi.errors import FileError
from pcfi.inputs.columns import TEXT_MARKERS

NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
PATTERNS = {".": NUMBER, ",": NUMBER.replace(r"\.", ",")}  # numbers, by their decimal mark
GROUPED = {mark: rf"^\s*[-+]?[1-9]\d{{0,2}}\{mark}\d{{3}}\s*$" for mark in PATTERNS}  # 1.234, which may be 1234
CODE = r"^\s*[-+]?0\d"  # 007
HEXADECIMAL = r"^\s*[-+]?0[xX]"
WHOLE = r"^\s*[-+]?\d+\s*$"
OFFSET_BYTES = 4  # of a value of an array of strings
MAX_TEXTS = 4  # values of a column of numbers that an error lists because they are text
SAMPLE = 1000  # values that usually tell the decimal mark of a column


@dataclass(frozen=True)
class ColumnType:
    """The type of a column, a type of pyarrow, and its decimal mark."""

    kind: Any
    decimal: str = "."


class _FilledValues:
    """The values of a text column that are not missing: a sample first, then all, which often are not needed."""

    def __init__(self, column: Any, *, is_plain: bool) -> None:
        self._column, self._is_plain = column, is_plain

    def __iter__(self) -> Iterator[Any]:
        yield self._filled(self._column.slice(0, SAMPLE))
        yield self.all

    @cached_property
    def all(self) -> Any:
        return self._filled(self._column)

    def _filled(self, column: Any) -> Any:
        values = column.filter(_is_filled(column))
        return values if self._is_plain else _plain(values)


@dataclass
class ColumnScan:
    """Common properties of the values of a text column, over all parts read so far."""

    n_rows: int = 0
    n_filled: int = 0
    n_numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PATTERNS, 0))  # by decimal mark
    texts: dict[str, dict[str, int]] = field(default_factory=lambda: {mark: {} for mark in PATTERNS})
    # the first different values that are not numbers, and their first rows, by decimal mark
    types: list[Any] = field(default_factory=list)  # that fit all values so far
    has_codes: bool = False  # whether a value begins with 0, such as 007, or is hexadecimal
    is_whole: bool = True  # whether all values are digits only
    decided: dict[str, str] = field(default_factory=dict)  # a value that shows that a mark is the decimal mark
    grouped: dict[str, str] = field(default_factory=dict)  # a value in which it could separate thousands as well

    @staticmethod
    def of_numbers() -> "ColumnScan":
        """A scan of a column that may hold numbers or truth values."""
        import pyarrow as pa

        return ColumnScan(types=[pa.int64(), pa.bool_(), pa.float64()])

    def add(self, column: Any, numbers: Any = None) -> None:
        """Take the next values of the column into account; null is missing. `numbers` is what `plain_numbers` says."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = _FilledValues(column, is_plain=numbers is not None)
        before, n_filled = self.n_rows, len(values.all) if numbers is None else len(numbers) - numbers.null_count
        self.n_rows, self.n_filled = self.n_rows + len(column), self.n_filled + n_filled
        if not n_filled:
            return
        known = [] if numbers is None else [pa.float64()]
        self.types = [kind for kind in self.types if kind in known or all(_casts(_plain(one), kind) for one in values)]
        self.is_whole = self.is_whole and all(pc.all(_matches(part, WHOLE)).as_py() for part in values)
        if self.is_whole or pa.int64() in self.types:
            self.has_codes = self.has_codes or any(_any_match(values.all, pattern) for pattern in (CODE, HEXADECIMAL))
        self._count_numbers(column if numbers is not None else values.all, n_filled)
        if self.n_numbers["."] < self.n_filled:
            self._note_texts(column, before)
        for mark in PATTERNS if numbers is None else ".":
            self._look_at_mark(values, mark)

    def _count_numbers(self, values: Any, n_filled: int) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.float64() in self.types:
            points = pc.sum(pc.match_substring(values, ".")).as_py()
            counts = {".": n_filled, ",": n_filled - points}
        else:
            counts = {mark: pc.sum(pc.match_substring_regex(values, one)).as_py() for mark, one in PATTERNS.items()}
        self.n_numbers = {mark: self.n_numbers[mark] + count for mark, count in counts.items()}

    def _note_texts(self, column: Any, before: int) -> None:
        """Note the first different values that are not numbers; there are `before` rows before this part."""
        import pyarrow.compute as pc

        for mark, pattern in PATTERNS.items():
            texts = self.texts[mark]
            if len(texts) < MAX_TEXTS:
                numeric = pc.fill_null(_matches(column, pattern), False)
                values = column.filter(pc.and_(_is_filled(column), pc.invert(numeric)))
                for text in pc.unique(values)[:MAX_TEXTS].to_pylist():
                    texts.setdefault(text, before + pc.index(column, text).as_py())

    def _look_at_mark(self, values: "_FilledValues", mark: str) -> None:
        """Find a value that determines the meaning of a mark, first in a sample; else an ambiguous one."""
        import pyarrow.compute as pc

        for part in values if mark not in self.decided else ():
            marked = part.filter(pc.match_substring(part, mark))
            marked = marked.filter(_matches(marked, PATTERNS[mark]))
            grouped = _matches(marked, GROUPED[mark])
            for key, chosen in ((self.grouped, marked.filter(grouped)), (self.decided, _without(marked, grouped))):
                if len(chosen):
                    key.setdefault(mark, chosen[0].as_py())
            if mark in self.decided:
                return

    def keep_text(self) -> None:
        """Treat the column as text, because it holds codes such as 007 or 0xFF."""
        self.types, self.n_numbers = [], dict.fromkeys(PATTERNS, 0)
        self.decided, self.grouped = {}, {}

    def is_decimal(self, mark: str) -> bool:
        """Whether all values are numbers with this decimal mark, and some have it."""
        return 0 < self.n_filled == self.n_numbers[mark] and (mark in self.decided or mark in self.grouped)

    @property
    def mark(self) -> str:
        """The decimal mark of the values that are numbers: a comma if it is before fractions in some of them."""
        return "," if "," in self.decided and self.n_numbers[","] > self.n_numbers["."] else "."

    @property
    def type(self) -> Any:
        """The type that fits all values as they are written; numbers if there are none."""
        import pyarrow as pa

        if not self.n_filled:
            return pa.float64()
        return self.types[0] if self.types else pa.string()


def decide_types(
    scans: Mapping[str, ColumnScan], what: str, delimiter: str, decimal: str | None = None
) -> dict[str, ColumnType]:
    """The type and the decimal mark of each column; `decimal` is the mark that the user names.

    Raises `FileError` where numbers could be read in two ways.
    """
    import pyarrow as pa

    marks = {mark: [one for one in scans.values() if one.is_decimal(mark) and mark in one.decided] for mark in PATTERNS}
    types = {}
    for name, scan in scans.items():
        kind = ColumnType(scan.type)
        if scan.types == [pa.float64()] and scan.n_filled and scan.is_whole:
            kind = ColumnType(pa.string())  # integers that no type holds
        if decimal is None:
            _refuse_two_marks(name, scan, what)
            _refuse_grouped(name, scan, what, marks, delimiter)
        if decimal == "," and ("." in scan.decided or "." in scan.grouped):
            kind = ColumnType(pa.string())
        is_comma = scan.is_decimal(",") and decimal != "."
        if is_comma and (decimal or delimiter != "," or "," in scan.decided or marks[","]):
            kind = ColumnType(pa.float64(), ",")
        types[name] = kind
    return types


def _refuse_two_marks(name: str, scan: ColumnScan, what: str) -> None:
    if len(scan.decided) == len(PATTERNS):
        raise FileError(
            f"{what}: the column {name!r} holds both {scan.decided['.']!r} and {scan.decided[',']!r}, two decimal "
            "marks: write all its numbers in one way",
            remedy="or name the mark of its numbers with {decimal}; others then are text",
        )


def _refuse_grouped(name: str, scan: ColumnScan, what: str, marks: dict[str, list[ColumnScan]], delimiter: str) -> None:
    """Raise an error for 1.234 if it may mean 1234: all values look like it, and the file has decimal commas."""
    if not scan.is_decimal(".") or "." in scan.decided or marks["."]:
        return
    if marks[","] or delimiter == ";":
        value = scan.grouped["."]
        elsewhere = (
            f"other columns hold {marks[','][0].decided[',']!r}" if marks[","] else "columns are separated by ';'"
        )
        raise FileError(
            f"{what}: the column {name!r} holds {value!r}, which may be {value.replace('.', '')} or {value}, since "
            f"{elsewhere}: write it without separators of thousands",
            remedy="or say which mark is before fractions, {decimal='.'} or {decimal=','}",
        )


def cast_text(column: Any, kind: Any, decimal: str = ".") -> Any:
    """A text column in another type, with null for the usual markers of missing cells; text stays as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(kind):
        return column
    column = _plain(without_markers(column, TEXT_MARKERS))
    return (pc.replace_substring(column, ",", ".") if decimal == "," else column).cast(kind)


def without_markers(column: Any, markers: Sequence[str]) -> Any:
    """A text column with null where a cell holds one of the markers, with or without spaces around it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    marked = pc.is_in(pc.utf8_trim_whitespace(column), value_set=pa.array(markers, pa.string()))
    return pc.if_else(marked, pa.scalar(None, pa.string()), column)


def _plain(values: Any) -> Any:
    """Values without spaces around them, and without a plus, which pyarrow does not take for a part of a number."""
    import pyarrow.compute as pc

    values = pc.utf8_trim_whitespace(values)
    return pc.replace_substring_regex(values, r"^\+", "") if pc.any(pc.starts_with(values, "+")).as_py() else values


def plain_numbers(column: Any) -> Any:
    """The numbers of a text column, null where a cell is empty; None if a cell is neither a number nor empty.

    Nor if a cell is a marker such as nan, or has spaces around it: then more has to be found out about the column.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        numbers = _empty_as_null(column).cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    return None if pc.any(pc.is_nan(numbers)).as_py() else numbers


def _empty_as_null(column: Any) -> Any:
    """A text column with null where a cell is empty; the text is not copied."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_empty_as_null(chunk) for chunk in column.chunks], type=column.type)
    _, offsets, data = column.buffers()
    if offsets is None:  # there are no rows
        return column
    valid = pc.fill_null(pc.greater(pc.binary_length(column), 0), False)
    offsets = offsets.slice(OFFSET_BYTES * column.offset)
    return pa.Array.from_buffers(column.type, len(column), [valid.buffers()[1], offsets, data])


def _is_filled(column: Any) -> Any:
    import pyarrow.compute as pc

    return pc.fill_null(pc.not_equal(column, ""), False)


def _casts(values: Any, kind: Any) -> bool:
    import pyarrow as pa

    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _matches(values: Any, pattern: str) -> Any:
    import pyarrow.compute as pc

    return pc.match_substring_regex(values, pattern)


def _any_match(values: Any, pattern: str) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(_matches(values, pattern)).as_py())


def _without(values: Any, flags: Any) -> Any:
    import pyarrow.compute as pc

    return values.filter(pc.invert(flags))
