"""Node ids and column names <-> row and column numbers."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from pcfi.errors import ParameterError, counted
from pcfi.inputs.ids import narwhals

MAX_COMPARED = 20_000  # names that are compared with a misspelled name; more would take seconds


@dataclass(frozen=True, eq=False, kw_only=True)
class CellNames:
    """How the caller refers to nodes and columns.

    Attributes
    ----------
    ids : narwhals Series or None
        Ids of the nodes in the order of the rows; None: row numbers are used.
    columns : tuple of str
        Names of the columns; empty: column numbers are used.
    categories : mapping from column number to tuple of str
        Categories of the categorical columns, in the order of their channels.
    """

    ids: Any = None
    columns: tuple[str, ...] = ()
    categories: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def of_table(table: Any) -> "CellNames":
        """Ids, column names and categories of a `NodeTable`."""
        frame = narwhals().from_native(table.native, eager_only=True)
        categories = {
            number: tuple(map(str, frame.get_column(column.name)[column.samples.tolist()].to_list()))
            for number, column in enumerate(table.columns)
            if column.samples is not None
        }
        names = tuple(str(column.name) for column in table.columns)
        return CellNames(ids=table.ids.series, columns=names, categories=categories)

    @cached_property
    def _rows(self) -> dict[Hashable, int]:
        return {} if self.ids is None else {name: row for row, name in enumerate(self.ids.to_list())}

    def row(self, node: Any, n_nodes: int) -> int:
        """Row of a node; raises `ParameterError` with the closest name if there is none."""
        node = node.item() if isinstance(node, np.generic) else node
        if self.ids is None:
            return _number(node, n_nodes, "node", "nodes are identified by row numbers")
        if isinstance(node, Hashable) and node in self._rows:
            return self._rows[node]
        names = [str(name) for name in self._rows]
        if str(node) in names:  # as on the command line, where all ids are text
            return names.index(str(node))
        raise ParameterError(f"{node!r} is not an id of the nodes{_closest(str(node), names)}", parameter="node")

    def column(self, column: Any, n_columns: int) -> int:
        """Number of a column; raises `ParameterError` with the closest name if there is none."""
        if str(column) in self.columns:
            return self.columns.index(str(column))
        if not self.columns:
            return _number(column, n_columns, "column", "columns are identified by numbers")
        raise ParameterError(
            f"{column!r} is not a filled column{_closest(str(column), list(self.columns))}", parameter="column"
        )

    def node(self, row: int) -> Any:
        """Id of a node."""
        if self.ids is None:
            return int(row)
        name = self.ids[int(row)]
        return name.item() if isinstance(name, np.generic) else name

    def name(self, column: int) -> str:
        """Name of a column."""
        return self.columns[column] if self.columns else f"column {column}"


def _number(name: Any, count: int, what: str, rule: str) -> int:
    if isinstance(name, str) and name.strip().isdecimal():
        name = int(name)
    if isinstance(name, bool) or not isinstance(name, Integral) or not 0 <= int(name) < count:
        raise ParameterError(f"must be a number from 0 to {count - 1}, because {rule}, got {name!r}", parameter=what)
    return int(name)


def _closest(name: str, names: list[str]) -> str:
    close = get_close_matches(name, names[:MAX_COMPARED], n=1)
    if close:
        return f": the closest is {close[0]!r}"
    listed = ", ".join(map(repr, names[:5]))
    return f": there are {counted(len(names), 'name')}, such as {listed}" if len(names) > 5 else f": these are {listed}"
