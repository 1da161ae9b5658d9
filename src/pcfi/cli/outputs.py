"""What `pcfi impute` writes and where, checked before any work is done."""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pcfi.errors import FileError, ParameterError
from pcfi.files.duckdb_files import DuckdbPlace
from pcfi.files.formats import INTERVAL_FORMATS, OUTPUT_FORMATS, STANDARD, STREAM_FORMATS, Format, format_of
from pcfi.files.paths import numbered_path
from pcfi.files.writing import check_folder, check_output
from pcfi.outofcore.file_names import DRAW, draw_name


def is_draw(what: str) -> bool:
    """Whether a table is a draw."""
    return what.startswith(DRAW)


def content_of(what: str) -> str:
    """What a table holds: a draw holds values."""
    return "values" if is_draw(what) else what


@dataclass(frozen=True)
class Outputs:
    """What is to be written, and where."""

    values: str
    stream_format: str
    confidence: str | None
    confidence_columns: bool
    hops: str | None
    intervals: str | None
    coverage: float
    draws: int
    report: str | None
    facts: str | None
    force: bool

    @staticmethod
    def nothing(values: str) -> "Outputs":
        """Values at a place of the program's own, and nothing else."""
        return Outputs(
            values=values,
            stream_format="csv",
            confidence=None,
            confidence_columns=False,
            hops=None,
            intervals=None,
            coverage=0.9,
            draws=0,
            report=None,
            facts=None,
            force=True,
        )

    @property
    def work_base(self) -> str:
        """What a work folder is named after: the path of the values, beside the database for a table in one."""
        place = DuckdbPlace.of(self.values)
        return self.values if place is None else f"{place.file}.{place.table}"

    def tables(self) -> dict[str, str]:
        """The files of tables, by what they hold."""
        named = {
            "values": self.values,
            "confidence": self.confidence,
            "hops": self.hops,
            "intervals": self.intervals,
        }
        named |= {draw_name(number): numbered_path(self.values, number) for number in range(1, self.draws + 1)}
        return {what: path for what, path in named.items() if path is not None}

    def written(self, tables: Collection[str]) -> "Outputs":
        """Without the tables that there was nothing to write to."""
        return replace(
            self,
            confidence=self.confidence if "confidence" in tables else None,
            hops=self.hops if "hops" in tables else None,
            intervals=self.intervals if "intervals" in tables else None,
            draws=self.draws if draw_name(1) in tables else 0,
        )

    def check(self, parameters: dict[str, Any]) -> dict[str, Format]:
        """Refuse what cannot be written before any work is done; formats by what is written.

        `parameters` are the parameters of `pcfi.impute`.
        """
        for path in self._paths():
            check_output(path, force=self.force)
        self._check_method(parameters)
        return self.formats(self.tables())

    def _check_method(self, parameters: dict[str, Any]) -> None:
        method = parameters.get("method", "pcfi")
        if (self.confidence or self.confidence_columns) and method not in ("pcfi", "auto"):
            raise ParameterError(f"--confidence: the method {method} has no confidence; pcfi has")
        if self.hops and method not in ("pcfi", "fp", "auto"):
            raise ParameterError(f"--hops: the method {method} does not search the graph; pcfi and fp do")
        if self.intervals is not None:
            self._check_intervals(parameters)
        if self.draws:
            self._check_draws(parameters)

    def check_stored(self, parameters: dict[str, Any], *, resumes: bool) -> None:
        """The same for a run larger than memory, which may go on and find some of its own results."""
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
        """Everything that is written."""
        paths = [path for path in (*self.tables().values(), self.report, self.facts) if path is not None]
        places = list(map(os.path.realpath, paths))
        twice = [path for path, place in zip(paths, places, strict=True) if places.count(place) > 1]
        if twice:
            raise ParameterError(f"two outputs would go to {twice[0]}: give each a name of its own")
        return paths

    def _check_intervals(self, parameters: dict[str, Any]) -> None:
        if not 0 < self.coverage < 1:
            raise ParameterError(f"--coverage must be a number between 0 and 1 (both excluded), got {self.coverage:g}")
        if parameters.get("method", "pcfi") not in ("pcfi", "auto"):
            raise ParameterError(f"--intervals: the method {parameters['method']} has none; pcfi has")
        if parameters.get("objective", "values") != "values":
            raise ParameterError("--intervals belong to --objective values, and a representation has none")

    def _check_draws(self, parameters: dict[str, Any]) -> None:
        if self.draws < 0:
            raise ParameterError(f"--draws must be a whole number of at least 0, got {self.draws}")
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
