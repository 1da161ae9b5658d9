"""The outputs of `pcfi impute`: options, and checks before any computation."""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pcfi.cli.arguments import option
from pcfi.errors import FileError, ParameterError
from pcfi.files.duckdb_files import DuckdbPlace
from pcfi.files.formats import INTERVAL_FORMATS, OUTPUT_FORMATS, STANDARD, STREAM_FORMATS, Format, format_of
from pcfi.files.paths import DRAW, draw_name, numbered_path
from pcfi.files.writing import check_folder, check_output


def is_draw(what: str) -> bool:
    """Whether a table is a draw."""
    return what.startswith(DRAW)


def content_of(what: str) -> str:
    """What a table holds: a draw holds values."""
    return "values" if is_draw(what) else what


output_option = partial(option, "Output")


@dataclass(frozen=True)
class OutputOptions:
    """What `pcfi impute` writes."""

    values: str = output_option("--output -o", "FILE", "File for the filled table; - is standard output.", default=...)
    stream_format: str = output_option(
        "--to", "FORMAT", f"Format of standard output: {', '.join(STREAM_FORMATS)}.", default="csv"
    )
    confidence: str | None = output_option(
        "--confidence",
        "FILE",
        "File for the confidence of every cell: alpha^hops, not a probability. For expected errors, use --intervals.",
    )
    confidence_columns: bool = output_option(
        "--confidence-columns", None, "Add the confidence, alpha^hops, as columns of the filled table.", default=False
    )
    hops: str | None = output_option(
        "--hops", "FILE", "File for the number of hops from every cell to the nearest known one."
    )
    intervals: str | None = output_option(
        "--intervals",
        "FILE",
        "File for the interval and the expected error of every cell: columns age_low, age_high, age_error.",
    )
    coverage: float = output_option(
        "--coverage", "NUMBER", "Probability that an interval contains the true value.", default=0.9
    )
    draws: int = output_option(
        "--draws",
        "NUMBER",
        "Write this many further completed tables that are plausible together, for multiple imputation: "
        "filled.draw1.csv, filled.draw2.csv, ...",
        default=0,
    )
    report: str | None = output_option("--report", "FILE", "File for the HTML report.")
    facts: str | None = output_option(
        "--facts", "FILE", "File for the numbers of the report, as JSON; pcfi report renders it again."
    )
    force: bool = output_option("--force -f", None, "Overwrite existing files.", default=False)

    @property
    def to_stdout(self) -> bool:
        """Whether a table goes to standard output."""
        return STANDARD in self.tables().values()

    @property
    def work_base(self) -> str:
        """Path that the work folder is named after: that of the values; for a DuckDB table, next to the database."""
        place = DuckdbPlace.of(self.values)
        return self.values if place is None else f"{place.file}.{place.table}"

    def tables(self) -> dict[str, str]:
        """Paths of the table files, by content."""
        named = {
            "values": self.values,
            "confidence": self.confidence,
            "hops": self.hops,
            "intervals": self.intervals,
        }
        named |= {draw_name(number): numbered_path(self.values, number) for number in range(1, self.draws + 1)}
        return {what: path for what, path in named.items() if path is not None}

    def written(self, tables: Collection[str]) -> "OutputOptions":
        """The same without the tables that were not written."""
        return replace(
            self,
            confidence=self.confidence if "confidence" in tables else None,
            hops=self.hops if "hops" in tables else None,
            intervals=self.intervals if "intervals" in tables else None,
            draws=self.draws if draw_name(1) in tables else 0,
        )

    def check(self, parameters: dict[str, Any]) -> dict[str, Format]:
        """Raise an error if something cannot be written; return the formats by content.

        `parameters` are the parameters of `pcfi.impute`.
        """
        for path in self._paths():
            check_output(path, force=self.force)
        self._check_method(parameters)
        return self.formats(self.tables())

    def _check_method(self, parameters: dict[str, Any]) -> None:
        method = parameters.get("method", "pcfi")
        if (self.confidence or self.confidence_columns) and method not in ("pcfi", "auto"):
            raise ParameterError(f"--confidence needs --method pcfi: the method {method} has no confidence")
        if self.hops and method not in ("pcfi", "fp", "auto"):
            raise ParameterError(f"--hops needs --method pcfi or fp: the method {method} does not count hops")
        if self.intervals is not None:
            self._check_intervals(parameters)
        if self.draws:
            self._check_draws(parameters)

    def check_stored(self, parameters: dict[str, Any], *, resumes: bool) -> None:
        """The same for a run larger than memory; a resumed run may find its own results."""
        from pcfi.files.paths import is_address, suffix_of
        from pcfi.outofcore.feature_stores import SUFFIXES

        self._check_method(parameters)
        for path in self._paths():
            if is_address(path):
                continue
            if DuckdbPlace.of(path) is not None:
                check_output(path, force=self.force or resumes)
                continue
            check_folder(path)
            if Path(path).exists() and not self.force and not resumes:
                raise FileError(f"{path} exists already: choose another name, or overwrite it with --force")
        self.formats({what for what, path in self.tables().items() if suffix_of(path) not in SUFFIXES})

    def formats(self, tables: Collection[str]) -> dict[str, Format]:
        """Formats of some of the tables."""
        return {what: self._format(what, path) for what, path in self.tables().items() if what in tables}

    def _paths(self) -> list[str]:
        """Paths of all outputs, which must be different."""
        paths = [path for path in (*self.tables().values(), self.report, self.facts) if path is not None]
        places = list(map(os.path.realpath, paths))
        twice = [path for path, place in zip(paths, places, strict=True) if places.count(place) > 1]
        if twice:
            raise ParameterError(f"two outputs have the path {twice[0]}: choose different paths")
        return paths

    def _check_intervals(self, parameters: dict[str, Any]) -> None:
        if not 0 < self.coverage < 1:
            raise ParameterError(f"--coverage must be a number between 0 and 1 (both excluded), got {self.coverage:g}")
        if parameters.get("method", "pcfi") not in ("pcfi", "auto"):
            raise ParameterError(f"--intervals needs --method pcfi: the method {parameters['method']} has no intervals")
        if parameters.get("objective", "values") != "values":
            raise ParameterError("--intervals needs --objective values: a representation has no intervals")

    def _check_draws(self, parameters: dict[str, Any]) -> None:
        if self.draws < 0:
            raise ParameterError(f"--draws must be an integer of at least 0, got {self.draws}")
        if self.values == STANDARD:
            raise ParameterError("--draws are written beside the table: name a file with --output")
        if parameters.get("method", "pcfi") not in ("pcfi", "auto"):
            raise ParameterError(f"--draws: the method {parameters['method']} has none; pcfi has")
        if parameters.get("objective", "values") != "values" or parameters.get("unreachable", "mean") != "mean":
            raise ParameterError("--draws belong to --objective values and --unreachable mean")

    def _format(self, what: str, path: str) -> Format:
        if path != STANDARD:
            return format_of(path, INTERVAL_FORMATS if what == "intervals" else OUTPUT_FORMATS, f"the {what}")
        if self.stream_format not in STREAM_FORMATS:
            raise ParameterError(f"--to must be one of {', '.join(STREAM_FORMATS)}, got {self.stream_format!r}")
        return Format(self.stream_format)
