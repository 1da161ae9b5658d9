"""Geometry and an imputation -> `MapFacts`: simplified shapes on a grid, with the values and interval widths of each.

Coordinates are integers between 0 and `GRID`, and shapes are simplified to one unit, which is less than a pixel.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.optional import load
from pcfi.report.facts import MapFacts, MapShape
from pcfi.report.imputation_facts import FilledChannels
from pcfi.result import Imputation

GRID = 1500
MAX_SHAPES = 4000  # more would make the page slow; filled places are preferred
MAX_MAPS = 12  # columns that can be chosen, those with the most missing cells
LEVEL = 0.9


def collect_map(frame: Any, filling: FilledChannels, result: Imputation) -> MapFacts | None:
    """Facts for the map of a GeoDataFrame; None if nothing was missing."""
    n_missing = np.array([int(filling.missing(place).sum()) for place in range(len(filling.names))])
    columns = np.argsort(-n_missing, kind="stable")[:MAX_MAPS]
    columns = np.sort(columns[n_missing[columns] > 0])
    if not len(columns):
        return None
    missing = np.stack([filling.missing(column) for column in columns], axis=1)
    rows = _sample(np.asarray(missing.any(axis=1)))
    values = np.stack([filling.filled(column)[rows] for column in columns], axis=1)
    widths, n_places, missing = _widths(filling, result, columns, rows), len(missing), missing[rows]
    return MapFacts(
        columns=tuple(str(filling.names[column]) for column in columns),
        n_places=n_places,
        shapes=tuple(
            MapShape(
                name=str(filling.node_name(int(row))),
                geometry=shape,
                filled=tuple(map(bool, missing[place])),
                values=tuple(map(_number, values[place])),
                widths=tuple(
                    _number(width) if is_missing else None
                    for width, is_missing in zip(widths[place], missing[place], strict=True)
                ),
            )
            for place, (row, shape) in enumerate(zip(rows, _simplified(_on_grid(frame.iloc[rows])), strict=True))
        ),
    )


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if np.isfinite(value) else None


def _sample(has_filled: Array) -> Array:
    if len(has_filled) <= MAX_SHAPES:
        return np.arange(len(has_filled))
    order = np.random.default_rng(0).permutation(len(has_filled))
    filled_first = order[np.argsort(~has_filled[order], kind="stable")]
    return np.sort(filled_first[:MAX_SHAPES])


def _widths(filling: FilledChannels, result: Imputation, columns: Array, rows: Array) -> Array:
    """Widths of the intervals of some channels in some rows; NaN if there are none."""
    cells, errors = result.cells, result.cells.standardized_errors
    if cells.model is None or errors is None:
        return np.full((len(rows), len(columns)), np.nan)
    hops = replace(cells.host_hops, codes=cells.host_hops.codes[rows])
    values, channels = cells.host_values[rows], np.asarray(filling.places)[columns]
    low, high = cells.model.intervals(values, hops, errors[rows], LEVEL, np.float64)
    return np.asarray((high - low)[:, channels])


def _on_grid(frame: Any) -> Array:
    """Shapes with coordinates from 0 to `GRID`, y downwards; longitudes are scaled by the cosine of the latitude."""
    shapely = load("shapely", "a map", "geo")
    geometry = np.array([_without_collection(one) for one in frame.geometry.values], dtype=object)
    low_x, low_y, high_x, high_y = frame.total_bounds
    in_degrees = frame.crs is not None and frame.crs.is_geographic
    longitude_scale = float(np.cos(np.deg2rad((low_y + high_y) / 2))) if in_degrees else 1.0
    size = max((high_x - low_x) * longitude_scale, high_y - low_y) or 1.0

    def to_grid(points: Array) -> Array:
        return np.asarray((points - [low_x, high_y]) * [longitude_scale * GRID / size, -GRID / size])

    return np.asarray(shapely.transform(shapely.force_2d(geometry), to_grid))


def _without_collection(geometry: Any) -> Any:
    """The areas of a geometry collection (from repaired polygons); its centroid if it has none."""
    shapely = load("shapely", "a map", "geo")
    if geometry.geom_type != "GeometryCollection":
        return geometry
    areas = [part for part in geometry.geoms if part.area > 0]
    return shapely.union_all(areas) if areas else geometry.centroid


def _simplified(shapes: Array) -> list[dict[str, Any]]:
    import json

    shapely = load("shapely", "a map", "geo")
    simple = shapely.transform(shapely.simplify(shapes, 1.0, preserve_topology=True), np.rint)
    return [_with_integers(json.loads(text)) for text in shapely.to_geojson(simple)]


def _with_integers(geometry: dict[str, Any]) -> dict[str, Any]:
    """GeoJSON geometry with integer coordinates, which make the page smaller."""

    def integers(part: Any) -> Any:
        return [integers(one) for one in part] if isinstance(part, list) else int(part)

    return {"type": geometry["type"], "coordinates": integers(geometry["coordinates"])}
