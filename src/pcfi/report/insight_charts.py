"""Charts of explained variance, of known values that contradict the others, and of nodes to measure next."""

import math

from pcfi.report.facts import Facts
from pcfi.report.vega_lite import Chart, encode, mark, percent, specification, tooltip

MAX_LABELS = 12  # with more columns, labels would overlap


def explained_columns(facts: Facts) -> Chart | None:
    """Variance of each column that the graph alone and the other columns alone explain."""
    reports = [one for one in facts.columns if one.n_missing and math.isfinite(one.r2)]
    if not reports:
        return None
    caption = (
        "Each point is a column: the share of the variance of its hidden cells that is explained by the graph alone, "
        "and by the other columns alone. Columns at the lower left are filled close to their mean."
    )

    def shown(part: float) -> float:
        return min(max(part, 0.0), 1.0) if math.isfinite(part) else 0.0

    values = [
        {"column": one.name, "graph": shown(one.r2_graph), "others": shown(one.r2_columns), "both": shown(one.r2)}
        for one in reports
    ]
    scale = {"scale": {"domain": [0, 1]}, "axis": {"format": "%", "tickCount": 5}}
    position = {
        "x": encode("graph:Q", "explained by the graph alone", **scale),
        "y": encode("others:Q", "by other columns alone", **scale),
    }
    tips = tooltip(
        column=("column", ""), graph=("graph alone", ".0%"), others=("other columns", ".0%"), both=("together", ".0%")
    )
    layers = [{"mark": mark("point", filled=True, size=70, opacity=0.75), "encoding": {**position, "tooltip": tips}}]
    if len(values) <= MAX_LABELS:
        style = {"align": "left", "dx": 6, "dy": -4, "angle": -35, "limit": 90, "color": "gray"}
        text = {"type": "text", "aria": False, **style}
        layers.append({"mark": text, "encoding": {**position, "text": {"field": "column", "type": "nominal"}}})
    rows = tuple(
        (one.name, _share(one.r2_graph), _share(one.r2_columns), _share(one.r2), _share(one.standard_error))
        for one in reports
    )
    header = ("column", "graph alone", "other columns alone", "together", "standard error")
    spec = specification(caption, values, layer=layers)
    return Chart("explained", "What explains the columns", caption, spec, header, rows)


def _share(part: float) -> str:
    return f"{part:.0%}" if math.isfinite(part) else "-"


def surprises(facts: Facts) -> Chart | None:
    """Known cells that contradict the others."""
    if not facts.surprises:
        return None
    caption = (
        "Known values that differ most from their prediction from the other cells, in units of the expected error; "
        "about 1 is normal. Some may be data errors."
    )
    values = [
        {
            "order": place,
            "cell": f"{one.column} of {one.node}",
            "surprise": one.surprise,
            "value": one.value,
            "expected": one.expected,
        }
        for place, one in enumerate(facts.surprises)
    ]
    encoding = {
        "y": encode("cell:N", None, sort={"field": "order"}, axis={"labelLimit": 160}),
        "x": encode("surprise:Q", "times the expected error", axis={"tickCount": 5}),
        "tooltip": tooltip(
            cell=("cell", ""), value=("value", ".4g"), expected=("expected", ".4g"), surprise=("surprise", ".1f")
        ),
    }
    bars = mark("bar", cornerRadiusEnd=3)
    spec = specification(caption, values, height=max(80, 20 * len(values)), mark=bars, encoding=encoding)
    rows = tuple(
        (one.node, one.column, f"{one.value:.5g}", f"{one.expected:.5g}", f"{one.surprise:.1f}")
        for one in facts.surprises
    )
    header = ("node", "column", "value", "expected", "surprise")
    return Chart("surprises", "Known values to check", caption, spec, header, rows)


def suggestions(facts: Facts) -> Chart | None:
    """Reduction of the expected error by measuring further nodes."""
    if not facts.suggestions:
        return None
    caption = (
        "Share of the total expected squared error that would remain if these nodes were measured, one after the "
        "other; the table lists them."
    )
    values = [{"measured": 0, "left": 1.0, "node": ""}] + [
        {"measured": place, "left": max(1 - one.total, 0.0), "node": one.node}
        for place, one in enumerate(facts.suggestions, start=1)
    ]
    encoding = {
        "x": encode("measured:Q", "measured nodes", axis={"tickMinStep": 1, "format": "d"}),
        "y": encode("left:Q", "expected squared error", axis={"format": "%"}, scale={"zero": False}),
        "tooltip": tooltip(measured=("nodes", "d"), node=("the last one", ""), left=("remaining error", ".1%")),
    }
    spec = specification(caption, values, mark=mark("line", point=True), encoding=encoding)
    rows = tuple((one.node, percent(one.own), percent(one.others), percent(one.total)) for one in facts.suggestions)
    header = ("node", "reduction at the node", "at other nodes", "in total")
    return Chart("suggestions", "What to measure next", caption, spec, header, rows)
