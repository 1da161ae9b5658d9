"""Geometry -> edges between neighbours: shared borders, nearest places, or places within a distance.

Distances are between centroids. In a geographic CRS (degrees) they are measured on the globe, in metres; in any other
CRS they are in the unit of the coordinates. Weights by distance are 1 / length: along a line of places, the steady
state of the diffusion is then linear interpolation.
"""

import warnings
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, ParameterError, PcfiWarning, UnsupportedTypeError, counted
from pcfi.inputs.columns import shortened
from pcfi.inputs.graphs import Graph, prepare_graph
from pcfi.optional import load

CONTIGUITIES = ("queen", "rook")
ISLAND_POLICIES = ("nearest", "alone")
MAX_LONGITUDE = 360  # degrees: some files use 0 to 360
DEFAULT_K = 8  # neighbours of a point, about as many as polygons have
ISLAND_NEIGHBORS = 3  # places that an island is linked to; three points define a plane
EARTH_RADIUS = 6_371_008.8  # metres, mean
AREAS, LINES = (3, 6), (1, 5, 2)  # geometry types of shapely
MIN_LENGTH_SHARE = 1e-3  # smallest length relative to the median, for coincident points


@dataclass(frozen=True)
class Neighborhood:
    """Which places are neighbours: a kind of shared border, `k` nearest places, or those within `distance`.

    At most one of the three is not None; if none is, polygons share borders ("queen") and others have 8 neighbours.
    """

    contiguity: str | None = None
    k: int | None = None
    distance: float | None = None
    islands: str = "nearest"

    def __post_init__(self) -> None:
        chosen = [name for name in ("contiguity", "k", "distance") if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise ParameterError(f"{' and '.join(chosen)} are alternative definitions of neighbours: give only one")
        if self.contiguity not in (None, *CONTIGUITIES):
            raise ParameterError(f"must be 'queen' or 'rook', got {self.contiguity!r}", parameter="contiguity")
        if self.k is not None and (isinstance(self.k, bool) or not isinstance(self.k, Integral) or self.k < 1):
            raise ParameterError(f"must be an integer of at least 1, got {self.k!r}", parameter="k")
        if self.distance is not None and not _is_positive(self.distance):
            raise ParameterError(f"must be a number above 0, got {self.distance!r}", parameter="distance")
        if self.islands not in ISLAND_POLICIES:
            raise ParameterError(f"must be 'nearest' or 'alone', got {self.islands!r}", parameter="islands")


def _is_positive(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < np.inf


@dataclass(frozen=True, eq=False)
class SpatialEdges:
    """Pairs of neighbours, each pair once or twice, and their distances.

    Attributes
    ----------
    ends : ndarray of shape (2, n_edges)
    lengths : ndarray
    n_nodes : int
    """

    ends: Array
    lengths: Array
    n_nodes: int

    def pairs(self) -> tuple[Array, Array]:
        """Each pair of neighbours once, and its length."""
        low, high = np.minimum(*self.ends), np.maximum(*self.ends)
        codes, first = np.unique(low * np.int64(self.n_nodes) + high, return_index=True)
        return np.stack(np.divmod(codes, self.n_nodes)), self.lengths[first]

    def graph(self, weights: str) -> Graph:
        """The graph with weights "equal" or by "distance"."""
        ends, by_distance = self.weighted_pairs()
        is_equal = weights == "equal" or not len(by_distance)
        return prepare_graph(ends if is_equal else (ends, by_distance), self.n_nodes)

    def weighted_pairs(self) -> tuple[Array, Array]:
        """Each pair of neighbours once, and its weight by distance."""
        ends, lengths = self.pairs()
        typical = (float(np.median(lengths)) if len(lengths) else 0.0) or 1.0
        return ends, typical / np.maximum(lengths, MIN_LENGTH_SHARE * typical)


def find_neighbors(frame: Any, rule: Neighborhood) -> SpatialEdges:
    """Edges between the rows of a GeoDataFrame."""
    geometry = _read_geometry(frame)
    rule = _with_default(rule, geometry)
    places = _centroid_positions(frame, geometry, rule)
    if rule.contiguity is not None:
        _check_borders(frame, geometry)
        ends = _shared_borders(geometry, rule.contiguity)
    elif rule.k is not None:
        ends = _nearest(places, np.arange(len(places)), int(rule.k))
    else:
        ends = _within(places, _chord_length(float(rule.distance or 0), places))
    ends = np.concatenate([ends, _island_edges(frame, places, ends, rule)], axis=1)
    lengths = np.sqrt(((places[ends[0]] - places[ends[1]]) ** 2).sum(axis=1))
    return SpatialEdges(ends, lengths, len(places))


def _read_geometry(frame: Any) -> Array:
    geopandas = load("geopandas", "pcfi.geo", "geo")
    if not isinstance(frame, geopandas.GeoDataFrame):
        raise UnsupportedTypeError(
            f"gdf is a {type(frame).__module__}.{type(frame).__qualname__}, but must be a GeoDataFrame of geopandas"
        )
    if frame._geometry_column_name not in frame.columns:
        raise FeatureError("the GeoDataFrame has no active geometry: set one with gdf.set_geometry(...)")
    geometry = np.asarray(frame.geometry.values)
    if len(geometry) == 0:
        raise FeatureError("the GeoDataFrame has no rows: one row per place is needed")
    gone = np.asarray(frame.geometry.isna() | frame.geometry.is_empty)
    _refuse_rows(frame, gone, "missing or empty geometry", "drop these rows, or use a graph of your own")
    return geometry


def _refuse_rows(frame: Any, rows: Array, what: str, remedy: str) -> None:
    if rows.any():
        names = shortened([repr(name) for name in frame.index[rows].tolist()], 4)
        raise FeatureError(f"{counted(int(rows.sum()), 'row')} with {what} (index {names})", remedy=remedy)


def _with_default(rule: Neighborhood, geometry: Array) -> Neighborhood:
    """The rule, or the default: shared borders for polygons, nearest places for other geometry."""
    if rule.contiguity is not None or rule.k is not None or rule.distance is not None:
        return rule
    shapely = load("shapely", "pcfi.geo", "geo")
    are_areas = bool(np.isin(shapely.get_type_id(geometry), AREAS).all())
    return replace(rule, contiguity="queen") if are_areas else replace(rule, k=DEFAULT_K)


def _centroid_positions(frame: Any, geometry: Array, rule: Neighborhood) -> Array:
    """Coordinates of the centroids in a space with Euclidean distances: the plane, or 3-D for the globe."""
    plane = centroids(geometry)
    if frame.crs is None:
        in_degrees = bool((np.abs(plane) <= (180, 90)).all() and np.abs(plane).max() > 1)
        if in_degrees and rule.contiguity is None:
            text = "the places have no CRS, so distances are measured in the plane: if the coordinates are degrees, "
            warnings.warn(text + "set the CRS EPSG:4326, as in gdf.set_crs(4326)", PcfiWarning, stacklevel=4)
        return plane
    if not frame.crs.is_geographic:
        return plane
    beyond = np.any(np.abs(plane) > (MAX_LONGITUDE, 90), axis=1)
    remedy = "set the correct CRS, or correct the coordinates"
    _refuse_rows(frame, beyond, f"coordinates that are not degrees, although the CRS is {frame.crs.name!r},", remedy)
    if rule.distance is not None:
        text = f"the CRS {frame.crs.name!r} is in degrees, so the distance {rule.distance:g} is in metres on the globe"
        warnings.warn(
            text + ": transform the places for another unit, as in gdf.to_crs(...)", PcfiWarning, stacklevel=4
        )
    longitude, latitude = np.deg2rad(plane).T
    around = np.cos(latitude)
    globe = [around * np.cos(longitude), around * np.sin(longitude), np.sin(latitude)]
    return EARTH_RADIUS * np.stack(globe, axis=1)


def centroids(geometry: Array) -> Array:
    """Coordinates of the centroids."""
    shapely = load("shapely", "pcfi.geo", "geo")
    middle = shapely.centroid(geometry)
    return np.stack([shapely.get_x(middle), shapely.get_y(middle)], axis=1)


def _check_borders(frame: Any, geometry: Array) -> None:
    shapely = load("shapely", "pcfi.geo", "geo")
    kinds = shapely.get_type_id(geometry)
    n_areas, n_lines = (np.isin(kinds, some).sum() for some in (AREAS, LINES))
    expected, what = (AREAS, "polygons") if n_areas * 2 >= len(kinds) or not n_lines else (LINES, "lines")
    remedy = "link places by distance instead, such as {k=8}"
    _refuse_rows(frame, ~np.isin(kinds, expected), f"geometry other than {what}, without borders in common", remedy)
    remedy = "repair it with gdf.set_geometry(gdf.make_valid()), or use {k=8}"
    _refuse_rows(frame, ~shapely.is_valid(geometry), "invalid geometry", remedy)


def _shared_borders(geometry: Array, contiguity: str) -> Array:
    libpysal = load("libpysal.graph", "contiguity", "geo")
    geopandas = load("geopandas", "pcfi.geo", "geo")
    edges = libpysal.Graph.build_contiguity(geopandas.GeoSeries(geometry), rook=contiguity == "rook").sparse.tocoo()
    ends = np.stack(edges.coords if hasattr(edges, "coords") else (edges.row, edges.col)).astype(np.int64)
    return ends[:, ends[0] != ends[1]]


def _nearest(places: Array, rows: Array, k: int) -> Array:
    """Edges from some places to the `k` nearest others."""
    from scipy.spatial import cKDTree

    count = min(k + 1, len(places))
    near = cKDTree(places).query(places[rows], k=count, workers=-1)[1].reshape(len(rows), count)
    ends = np.stack([np.repeat(rows, count), near.ravel()]).astype(np.int64)
    # a place is its own nearest; among coincident places it may be missing from the list: then drop the last one
    own = near == rows[:, None]
    own[~own.any(axis=1), -1] = True
    return ends[:, ~own.ravel()]


def _within(places: Array, distance: float) -> Array:
    from scipy.spatial import cKDTree

    return np.ascontiguousarray(cKDTree(places).query_pairs(distance, output_type="ndarray").T).astype(np.int64)


def _chord_length(distance: float, places: Array) -> float:
    """Chord length of an arc on the globe; in the plane, the distance itself."""
    on_globe = places.shape[1] == 3
    return 2 * EARTH_RADIUS * np.sin(min(distance / (2 * EARTH_RADIUS), np.pi / 2)) if on_globe else distance


def _island_edges(frame: Any, places: Array, ends: Array, rule: Neighborhood) -> Array:
    """Edges from places without a neighbour to the nearest places, if `rule.islands` says so."""
    linked = np.zeros(len(places), dtype=bool)
    linked[ends.ravel()] = True
    islands = np.flatnonzero(~linked)
    if not len(islands) or len(places) == 1:
        return np.empty((2, 0), dtype=np.int64)
    names = shortened([repr(name) for name in frame.index[islands][:6].tolist()], 4)
    verb = ("is", "stays") if len(islands) == 1 else ("are", "stay")
    linked_to = f"{verb[0]} linked to the {ISLAND_NEIGHBORS} nearest"
    done = linked_to if rule.islands == "nearest" else f"{verb[1]} unlinked"
    text = f"{counted(len(islands), 'place')} without a neighbour (index {names}) {done}"
    warnings.warn(PcfiWarning(text, remedy="set {islands} to change this"), stacklevel=4)
    return _nearest(places, islands, ISLAND_NEIGHBORS) if rule.islands == "nearest" else np.empty((2, 0), np.int64)
