"""GeoDataFrames: a table of places with missing cells -> the GeoDataFrame filled from neighbouring places."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import GraphWarning, ParameterError
from pcfi.imputation import impute as impute_features
from pcfi.inputs.category_columns import finds_categories
from pcfi.inputs.code_columns import code_columns, warn_of_columns
from pcfi.inputs.columns import EdgeColumns, NodeColumns
from pcfi.inputs.graphs import Graph
from pcfi.inputs.node_tables import read_table
from pcfi.integrations.geo_graphs import Neighborhood, centroids, find_neighbors
from pcfi.result import Imputation

__all__ = ["build_graph", "impute"]

WEIGHTS = ("auto", "equal", "distance")


def impute(
    gdf: Any,
    *,
    contiguity: str | None = None,
    k: int | None = None,
    distance: float | None = None,
    graph: Any = None,
    islands: str = "nearest",
    weights: str = "auto",
    coordinates: bool = False,
    id: str | None = None,  # noqa: A002
    channels: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    missing_values: Sequence[Any] = (),
    round: bool = False,  # noqa: A002
    **options: Any,
) -> Imputation:
    """Fill the missing cells of a GeoDataFrame from neighbouring places and from the other columns.

    Parameters
    ----------
    gdf : GeoDataFrame
        One row per place. Not modified.
    contiguity : {"queen", "rook"}, default=None
        Neighbours share at least a corner, or a border segment. The default for polygons is "queen".
    k : int, default=None
        Neighbours are the k nearest places by their centroids. The default for points and lines is 8.
    distance : float, default=None
        Neighbours are at most this far apart, in the unit of the CRS, or in metres if the CRS is in degrees.
    graph : any graph that `pcfi.impute` accepts, default=None
        Replaces the three options above: a libpysal `Graph` or `W`, an adjacency matrix, an edge table, ...
    islands : {"nearest", "alone"}, default="nearest"
        Whether places without a neighbour are linked to the three nearest places, or filled without neighbours. A
        warning counts them.
    weights : {"auto", "equal", "distance"}, default="auto"
        Weights of the neighbours: equal, or 1 / distance. "auto" uses the one with the smaller error on hidden cells.
    coordinates : bool, default=False
        Whether to use the coordinates of the centroids as two more columns, which models a trend over the whole map.
        Covariates such as elevation are used if they are columns of the table.
    id : str, default=None
        The id column, if `graph` refers to rows by id.
    channels : list of str, default=None
        The columns to use and fill. None: all numeric and boolean columns. Other columns are returned unchanged.
    categorical : list of str, default=None
        Categorical columns to fill. None: if `channels` is None, the text columns that `pcfi.impute` finds.
    missing_values : list, default=()
        Additional values that mean missing, such as [-999].
    round : bool, default=False
        Whether filled integer columns stay integers; boolean columns always stay boolean.
    **options
        Further parameters of `pcfi.impute`, such as `bounds` and `random_state`.

    Returns
    -------
    Imputation
        `values` is a GeoDataFrame with the same geometry, CRS, index and column order; `interval()` returns two.

    Examples
    --------
    Five places on a line; the middle one lies nearer to its left neighbour.

    >>> import geopandas, pcfi
    >>> places = geopandas.GeoSeries.from_xy([0, 1, 2, 4, 5], [0, 0, 0, 0, 0], crs=3857)
    >>> gdf = geopandas.GeoDataFrame({"rain": [10.0, 12, None, 18, 20]}, geometry=places)
    >>> result = pcfi.geo.impute(gdf, k=2, weights="distance", alpha=1, objective="representation")
    >>> result.values["rain"].tolist()
    [10.0, 12.0, 14.0, 18.0, 20.0]
    """
    if weights not in WEIGHTS:
        raise ParameterError(f"must be one of {', '.join(map(repr, WEIGHTS))}, got {weights!r}", parameter="weights")
    rule = Neighborhood(contiguity, k, distance, islands)
    if graph is not None and (rule != Neighborhood(islands=islands) or weights == "distance"):
        raise ParameterError("graph already defines the neighbours: leave out contiguity, k, distance and weights")
    edges = find_neighbors(gdf, rule) if graph is None else None
    extra = _coordinate_columns(gdf) if coordinates else {}
    columns = NodeColumns(
        id=id,
        channels=None if channels is None else [*channels, *extra],
        categorical=categorical or (),
        finds_categories=categorical is None and finds_categories(**options),
        missing_values=missing_values,
    )
    table = read_table(gdf.assign(**extra) if extra else gdf, columns, graph=graph, round=round)
    if channels is None:
        codes = [name for name in code_columns(table, graph) if name not in extra]
        warn_of_columns(table, codes, "name the columns to use with channels=[...]", stacklevel=2)
    if edges is None:
        candidates = [table.number_nodes(graph, EdgeColumns())]
    else:
        candidates = [edges.graph(one) for one in _candidates(weights, options)]
    result = impute_best(table, candidates, from_geometry=edges is not None, **options)
    return _without(result, list(extra)) if extra else result


def build_graph(
    gdf: Any,
    *,
    contiguity: str | None = None,
    k: int | None = None,
    distance: float | None = None,
    islands: str = "nearest",
    weights: str = "equal",
) -> Graph:
    """Return the graph of neighbouring places, to use it for several calls or with `pcfi.evaluate`.

    Parameters
    ----------
    gdf : GeoDataFrame
    contiguity : {"queen", "rook"}, default=None
    k : int, default=None
    distance : float, default=None
    islands : {"nearest", "alone"}, default="nearest"
        As in `impute`.
    weights : {"equal", "distance"}, default="equal"

    Examples
    --------
    >>> import geopandas, pcfi
    >>> gdf = geopandas.GeoDataFrame(geometry=geopandas.GeoSeries.from_xy([0, 1, 3], [0, 0, 0], crs=3857))
    >>> pcfi.geo.build_graph(gdf, k=1)
    Graph(3 nodes, 2 edges, undirected, unweighted)
    """
    if weights not in WEIGHTS[1:]:
        raise ParameterError(f"must be 'equal' or 'distance', got {weights!r}", parameter="weights")
    return find_neighbors(gdf, Neighborhood(contiguity, k, distance, islands)).graph(weights)


def impute_best(table: Any, graphs: Sequence[Any], *, from_geometry: bool, **options: Any) -> Imputation:
    """Fill with the graph that gives the smallest error on hidden known cells.

    A graph built from geometry is not built from the table, even if columns such as coordinates suggest it.
    """
    with warnings.catch_warnings():
        if from_geometry:
            warnings.simplefilter("ignore", GraphWarning)
        return min((impute_features(table, graph, **options) for graph in graphs), key=_error_on_hidden_cells)


def _candidates(weights: str, options: dict[str, Any]) -> tuple[str, ...]:
    learns = options.get("objective", "values") == "values" and options.get("method", "pcfi") == "pcfi"
    return (
        ("equal", "distance") if weights == "auto" and learns else ("distance" if weights == "distance" else "equal",)
    )


def _error_on_hidden_cells(result: Imputation) -> float:
    """The error to compare candidates by; infinite if no cell was hidden, so that the first one is chosen."""
    error = np.nan if result.tuning is None else result.tuning.error
    return float(error) if np.isfinite(error) else np.inf


def _coordinate_columns(gdf: Any) -> dict[str, Array]:
    """Coordinates of the centroids, with names that are not columns of the table."""
    places = centroids(np.asarray(gdf.geometry.values))
    taken, named = set(map(str, gdf.columns)), {}
    for name, values in zip("xy", places.T, strict=True):
        while name in taken:
            name = f"_{name}"
        named[name] = values
    return named


@dataclass(frozen=True)
class WithoutColumns:
    """Wraps cells in the caller's table, without the columns that were added to it."""

    wrap: Any
    added: list[str]

    def __call__(self, cells: Any) -> Any:
        """The table of these cells."""
        return self.wrap(cells).drop(columns=self.added)


def _without(result: Imputation, added: list[str]) -> Imputation:
    cells = replace(result.cells, wrap=WithoutColumns(result.cells.wrap, added))
    return replace(result, values=result.values.drop(columns=added), cells=cells)
