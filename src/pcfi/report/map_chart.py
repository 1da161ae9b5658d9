"""`MapFacts` -> one chart: a map of the values, or of the widths of the intervals, of a chosen column."""

from typing import Any

from pcfi.report.facts import Facts, MapFacts
from pcfi.report.vega_lite import Chart, encode, mark, specification, tooltip

HEIGHT = 520
POINT_RADIUS = 4


def draw_map(facts: Facts) -> Chart | None:
    """The map; None for data without geometry."""
    if facts.map is None:
        return None
    found = facts.map
    n_shown = len(found.shapes)
    part = "" if n_shown == found.n_places else f" {n_shown:,} of {found.n_places:,} places are drawn."
    caption = (
        "Values, with an outline around filled places; or widths of the 90 % intervals of filled places, with known "
        f"places in grey.{part}"
    )
    # one layer per role, because a chart drops shapes without a colour
    layers = [
        {"mark": _shape(fill="gray", fillOpacity=0.15, stroke="gray", strokeOpacity=0.4, strokeWidth=0.5)},
        {"transform": [{"filter": "isValid(datum.value)"}], "mark": _shape(strokeWidth=0), "encoding": _colors()},
        {
            "transform": [{"filter": "datum.filled && choice % 2 === 0"}],
            "mark": _shape(fillOpacity=0, stroke="#d9822b", strokeWidth=1.6),
            "encoding": _colors(outline=True),
        },
    ]
    spec = specification(
        caption,
        _features(found),
        height=HEIGHT,
        projection={"type": "identity"},
        params=[{"name": "choice", "value": 0}],
        transform=[
            {"calculate": "datum.properties.shown[choice]", "as": "value"},
            {"calculate": "datum.properties.filled[floor(choice / 2)]", "as": "filled"},
            {"calculate": "datum.properties.name", "as": "place"},
            {"calculate": "datum.filled ? 'filled' : 'known'", "as": "kind"},
        ],
        layer=layers,
        config={"view": {"stroke": None}},
        usermeta={"aspect": _aspect(found)},  # the page reduces the height of the map on narrow screens
    )
    choices = tuple(text for name in found.columns for text in (name, f"{name}: width of the interval"))
    return Chart("map", "Map", caption, spec, choices=choices, wide=True)


def _shape(**style: Any) -> dict[str, Any]:
    return mark("geoshape", pointRadius=POINT_RADIUS, **style)


def _colors(*, outline: bool = False) -> dict[str, Any]:
    tips = {"tooltip": tooltip(place=("place", ""), kind=("cell", ""), value=("value", ".4g"))}
    if outline:
        return tips
    legend = {"orient": "top", "gradientLength": 220, "format": ".4~g"}
    return tips | {"color": encode("value:Q", None, scale={"scheme": "viridis"}, legend=legend)}


def _aspect(found: MapFacts) -> float:
    """Height over width of what is drawn."""

    def points(part: Any) -> list[list[int]]:
        return [part] if not isinstance(part[0], list) else [point for one in part for point in points(one)]

    drawn = [point for shape in found.shapes for point in points(shape.geometry["coordinates"])]
    width, height = (max(axis) - min(axis) for axis in zip(*drawn, strict=True))
    return float(round(height / max(width, 1), 3))


def _features(found: MapFacts) -> list[dict[str, Any]]:
    return [
        {
            "type": "Feature",
            "geometry": shape.geometry,
            "properties": {
                "name": shape.name,
                "filled": shape.filled,
                "shown": [one for pair in zip(shape.values, shape.widths, strict=True) for one in pair],
            },
        }
        for shape in found.shapes
    ]
