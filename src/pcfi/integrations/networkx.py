"""NetworkX: a graph with attributes on some nodes -> a copy with these attributes on all nodes."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from numbers import Real
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ColumnWarning, FeatureError, GraphError, UnsupportedTypeError
from pcfi.imputation import impute as impute_features
from pcfi.inputs.category_columns import gaps_text
from pcfi.inputs.columns import NodeColumns
from pcfi.inputs.graphs import is_networkx, networkx_adjacency
from pcfi.inputs.ids import narwhals
from pcfi.inputs.node_tables import read_table

__all__ = ["impute"]


def impute(
    G: Any,  # noqa: N803  as networkx calls it
    attributes: str | Sequence[str] | None = None,
    *,
    weight: str | None = None,
    confidence: bool = False,
    **options: Any,
) -> Any:
    """Fill missing node attributes.

    Parameters
    ----------
    G : networkx Graph, DiGraph, MultiGraph or MultiDiGraph
        Not modified. An attribute of a node is missing if the node does not have it, or if it is None or NaN.
    attributes : str or list of str, default=None
        The attributes to fill: numbers, booleans, vectors of equal length (NaN marks a missing component), or text,
        which is filled with the most likely category (this needs narwhals and pandas, polars or pyarrow). None: all
        numeric attributes. Booleans stay booleans, integers are filled with floats.
    weight : str, default=None
        The edge attribute with the weights: similarities, not distances. None: all edges have weight 1. Weights of
        parallel edges are added.
    confidence : bool, default=False
        Whether each node also gets `<attribute>_confidence`.
    **options
        Further parameters of `pcfi.impute`, such as `alpha`, `beta`, and `directed=True` to let values flow only along
        the direction of a DiGraph's edges.

    Returns
    -------
    A copy of G. Known attributes are unchanged.

    Examples
    --------
    >>> import networkx as nx, pcfi
    >>> G = nx.path_graph(3)
    >>> nx.set_node_attributes(G, {0: 1.0, 2: 3.0}, "height")
    >>> pcfi.networkx.impute(G, confidence=True, alpha=0.5, beta=0.1, objective="representation").nodes[1]
    {'height': 2.0, 'height_confidence': 0.5}
    """
    if not is_networkx(G):
        raise UnsupportedTypeError(f"G is a {type(G).__qualname__}, but must be a graph of networkx")
    if weight is not None:
        _check_weight(G, weight)
    columns = [_NodeAttribute.read(G, name) for name in _select_names(G, attributes)]
    result = impute_features(_features(columns), networkx_adjacency(G, weight), **options)
    filled = G.copy()
    first = 0
    for column in columns:
        part = slice(first, first + column.values.shape[1])
        column.write(filled, column.name, _columns(result.values, part), np.flatnonzero(column.incomplete))
        if confidence and result.confidence is not None:
            numbers = replace(column, kind=float) if column.kind in (bool, str) else column
            of_cells = _columns(result.confidence, part).astype(np.float64)
            numbers.write(filled, f"{column.name}_confidence", of_cells, np.arange(len(G)))
        first = part.stop
    return filled


def _features(columns: "list[_NodeAttribute]") -> Any:
    """The attributes as an array, or as a table if some are text; its columns are called "0", "1", ..."""
    if not any(column.kind is str for column in columns):
        return np.concatenate([column.values for column in columns], axis=1)
    backend = next((name for name in ("pyarrow", "pandas", "polars") if find_spec(name) is not None), None)
    if backend is None:
        raise FeatureError("attributes of text need a library of tables: pip install pandas, polars or pyarrow")
    parts = [(values, column.kind) for column in columns for values in column.values.T]
    table = {str(number): values.tolist() for number, (values, _) in enumerate(parts)}
    categorical = [str(number) for number, (_, kind) in enumerate(parts) if kind is str]
    numeric = [name for name in table if name not in categorical]
    frame = narwhals().from_dict(table, backend=backend)
    return read_table(frame.to_native(), NodeColumns(channels=numeric, categorical=categorical))


def _columns(filled: Any, part: slice) -> Array:
    """Some columns of filled features."""
    if isinstance(filled, np.ndarray):
        return filled[:, part]
    frame = narwhals().from_native(filled, eager_only=True)
    return np.column_stack([frame.get_column(str(number)).to_numpy() for number in range(part.start, part.stop)])


def _check_weight(graph: Any, weight: str) -> None:
    values = [value for *_, value in graph.edges(data=weight)]
    if values and all(value is None for value in values):
        names = sorted({str(name) for *_, data in graph.edges(data=True) for name in data})
        present = ", ".join(map(repr, names)) or "none"
        raise GraphError(f"no edge has the weight attribute {weight!r}: the edges' attributes are {present}")
    wrong = next((value for value in values if value is not None and not isinstance(value, Real)), None)
    if wrong is not None:
        raise GraphError(f"edge weights must be real numbers, but the attribute {weight!r} holds {wrong!r}")


def _select_names(graph: Any, attributes: str | Sequence[str] | None) -> list[str]:
    """Return the names of the attributes to fill."""
    first_values: dict[str, Any] = {}
    for _, data in graph.nodes(data=True):
        for name, value in data.items():
            if first_values.get(name) is None:
                first_values[name] = value
    present = ", ".join(map(repr, first_values)) or "none"
    if attributes is None:
        names = [name for name, value in first_values.items() if _vector(value) is not None]
        if not names:
            raise FeatureError(
                f"no node has a numeric attribute: the nodes' attributes are {present}; name those that hold categories"
            )
        texts = [name for name, value in first_values.items() if isinstance(value, str)]
        counts = {name: sum(value is None for _, value in graph.nodes(data=name)) for name in texts}
        text = gaps_text(counts, "attributes=[...]", "attribute")
        if text:
            warnings.warn(text, ColumnWarning, stacklevel=3)
        return names
    names = [attributes] if isinstance(attributes, str) else list(attributes)
    absent = [name for name in names if name not in first_values]
    if absent or not names:
        what = f"no node has an attribute {absent[0]!r}" if absent else "attributes is empty"
        raise FeatureError(f"{what}: the nodes' attributes are {present}")
    return names


def _vector(value: Any) -> Array | None:
    """Return a number or a vector of numbers as a 1-D array; None for anything else."""
    if isinstance(value, Real | np.bool_):
        return np.array([value], dtype=np.float64)
    if isinstance(value, np.ndarray | list | tuple):
        try:
            array = np.asarray(value)
        except ValueError:
            return None
        if array.ndim == 1 and array.size and array.dtype.kind in "iufb":
            return array.astype(np.float64)
    return None


@dataclass(frozen=True, eq=False)
class _NodeAttribute:
    """An attribute: its name, the type of its values, and a table of them (nodes x components).

    Missing numbers are NaN, missing text is None.
    """

    name: str
    kind: type
    values: Array

    @property
    def incomplete(self) -> Array:
        """Nodes that lack some of it."""
        if self.kind is str:
            return np.array([value is None for value in self.values[:, 0]])
        return np.asarray(np.isnan(self.values).any(axis=1))

    @staticmethod
    def read(graph: Any, name: str) -> "_NodeAttribute":
        rows: dict[int, Array] = {}
        first: Any = None
        for row, (node, value) in enumerate(graph.nodes(data=name)):
            if value is None:
                continue
            vector = np.array([value], dtype=object) if isinstance(value, str) else _vector(value)
            if vector is None:
                raise FeatureError(
                    f"the attribute {name!r} of node {node!r} is {value!r}, but must be a number, a vector or text"
                )
            first = (node, value, len(vector), _kind(value)) if first is None else first
            if first[2:] != (len(vector), _kind(value)):
                raise FeatureError(
                    f"the attribute {name!r} is {value!r} on node {node!r}, but {first[1]!r} on node {first[0]!r}: all "
                    "must be numbers, or text, or vectors of the same type and length"
                )
            rows[row] = vector
        if first is None:
            raise FeatureError(f"the attribute {name!r} is None on every node: at least one value is needed")
        values = np.full((len(graph), first[2]), *((None, object) if first[3] is str else (np.nan,)))
        values[list(rows)] = list(rows.values())
        return _NodeAttribute(name, first[3], values)

    def write(self, graph: Any, name: str, values: Array, rows: Array) -> None:
        """Set attribute `name` of the nodes numbered `rows` to the rows of `values`."""
        data = [data for _, data in graph.nodes(data=True)]
        for row in rows:
            data[row][name] = _as_kind(values[row], self.kind)


def _kind(value: Any) -> type:
    kinds = (np.ndarray, list, tuple, bool, np.bool_, str)
    kind = next((kind for kind in kinds if isinstance(value, kind)), float)
    return bool if kind is np.bool_ else kind


def _as_kind(vector: Array, kind: type) -> Any:
    if kind is np.ndarray:
        return vector.copy()
    if kind is bool:
        return bool(vector.item() > 0.5)  # the more probable value
    return vector.item() if kind in (float, str) else kind(vector.tolist())
