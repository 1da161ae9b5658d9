"""A finished run -> an `Imputation` whose arrays are mapped files, so that explanations and reports work on it as well.

Arrays are kept column by column: reports read columns, explanations read single cells.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.cell_info import CellInfo
from pcfi.estimation.value_model import row_blocks
from pcfi.inputs.cell_names import CellNames
from pcfi.inputs.ids import narwhals
from pcfi.outofcore import file_names
from pcfi.outofcore.feature_stores import ParquetStore
from pcfi.outofcore.filled_rows import FilledRows
from pcfi.outofcore.interval_tasks import error_rows
from pcfi.outofcore.result import StoredImputation
from pcfi.outofcore.run import OutOfCoreRun, patterns_at_a_time
from pcfi.result import Imputation
from pcfi.stages.hops import Hops


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredCells(CellInfo):
    """Facts in mapped files; `errors` are the expected errors if the run has computed them."""

    errors: Array | None = None

    @cached_property
    def standardized_errors(self) -> Array | None:
        """As in `CellInfo`."""
        return super().standardized_errors if self.errors is None else self.errors


def stored_imputation(run: OutOfCoreRun, stored: StoredImputation, id_bytes: int) -> Imputation:
    """The result of a run whose work folder is there; ids may take `id_bytes`, everything else is mapped."""
    facts = {name: getattr(stored, name) for name in Imputation.__dataclass_fields__ if hasattr(stored, name)}
    columns = run.surveyed.column_names
    more: dict[str, Any] = {"column_names": columns, "center": None, "position": None, "parameters": {}}
    return Imputation(**facts | more | {"values": None, "cells": stored_cells(run, id_bytes)})


def stored_cells(run: OutOfCoreRun, id_bytes: int) -> CellInfo:
    """Facts about every cell of a run, in mapped arrays."""
    problem, filled = run.surveyed, filled_values(run)
    return StoredCells(
        filled=filled,
        hops=_hops(run),
        empty_channels=run.channels.n_known == 0,
        dtype=run.dtype,
        wrap=np.asarray,
        append=problem.append,
        wrap_values=np.asarray,
        first_channels=run.first_channels,
        categorical=problem.categorical,
        columns=problem.columns,
        wrap_categories=None,
        graph=run.graph,
        model=run.model,
        settings=run.chosen,
        names=_names(run, id_bytes),
        errors=None if run.model is None or not run.has_errors else _errors(run, filled),
    )


def _mapped(run: OutOfCoreRun, name: str, shape: tuple[int, int], dtype: npt.DTypeLike) -> Array:
    """An array of (rows, columns) in the work folder that is kept column by column."""
    run.folder.create(name, shape, dtype)
    return run.folder.map(name, shape[::-1], dtype).T


def filled_values(run: OutOfCoreRun) -> Array:
    """All filled values, mapped."""
    values = _mapped(run, file_names.FILLED, run.store.shape, np.float64)
    for index in range(run.n_ranges):
        for start, rows, *_ in FilledRows(run).final(index):
            values[start : start + len(rows)] = rows
    return values


def _hops(run: OutOfCoreRun) -> Hops:
    hops = run.hops
    codes = _mapped(run, file_names.CODES, (run.n_nodes, run.n_patterns), hops.codes.dtype)
    for first in range(0, run.n_patterns, patterns_at_a_time()):
        patterns = np.arange(first, min(first + patterns_at_a_time(), run.n_patterns))
        codes[:, patterns] = run.codes_of(patterns)
    return Hops(codes, hops.n_levels, hops.n_unreachable, hops.patterns)


def _errors(run: OutOfCoreRun, filled: Array) -> Array:
    errors = _mapped(run, file_names.ERRORS, run.store.shape, np.float64)
    for rows in row_blocks(*run.store.shape):
        hops = run.hops_at(rows.start, rows.stop)
        errors[rows] = error_rows(run, rows.start, filled[rows], hops)
    return errors


def _as_in_memory(labels: list[str], kind: Any) -> tuple[str, ...]:
    """Categories as Python writes them: True, not true."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return tuple(map(str, pa.array(labels).cast(kind).to_pylist()))


def _names(run: OutOfCoreRun, id_bytes: int) -> CellNames:
    columns = run.surveyed.column_names
    if not isinstance(run.store, ParquetStore):
        return CellNames(columns=columns)
    ids = None if run.id is None else run.store.column(run.id, id_bytes)
    kinds = {one.name: one.type for one in run.store.schema}
    return CellNames(
        ids=None if ids is None else narwhals().from_native(ids, series_only=True),
        columns=columns,
        categories={columns.index(name): _as_in_memory(run.categories[name], kinds[name]) for name in run.categories},
    )
