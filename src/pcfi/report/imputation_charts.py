"""Facts -> charts: a Vega-Lite specification each, with the words and the table that say the same without a picture."""

from collections.abc import Sequence
from typing import Any

from pcfi.errors import counted
from pcfi.report.evaluation_charts import coverage, errors, errors_by_hops, expected_errors
from pcfi.report.facts import ChannelFacts, Facts, GraphDrawing
from pcfi.report.vega_lite import Chart, axis, bar, layered, percent, single

KNOWN, FILLED = "known before", "filled in"
MAX_BARS = 60  # channels shown one by one; more become a histogram


def make_charts(facts: Facts) -> list[Chart]:
    """All charts that the facts allow, in the order of the page."""
    made = (
        _missing(facts),
        _hops(facts),
        _confidence(facts),
        _distributions(facts),
        errors(facts),
        errors_by_hops(facts),
        expected_errors(facts),
        coverage(facts),
        _graph(facts),
    )
    return [chart for chart in made if chart is not None]


def _missing(facts: Facts) -> Chart | None:
    if not facts.channels:
        return None
    if len(facts.channels) > MAX_BARS:
        return _missing_of_many(facts)
    words = "Share of cells that were missing, one bar per channel."
    values = [
        {"order": place, "channel": one.name, "missing": one.missing_rate, "known cells": one.n_known}
        for place, one in enumerate(facts.channels)
    ]
    encoding = {
        "y": axis("channel", "nominal", None, sort={"field": "order"}, axis={"labelLimit": 160}),
        "x": axis("missing", "quantitative", "missing", axis={"format": "%"}, scale={"domain": [0, 1]}),
        "tooltip": [
            axis("channel", "nominal", "channel"),
            axis("missing", "quantitative", "missing", format=".1%"),
            axis("known cells", "quantitative", "known cells", format=","),
        ],
    }
    spec = single(words, values, bar(), encoding, height=max(80, 22 * len(values)))
    return Chart("missing", "What was missing", words, spec, *_channel_table(facts.channels))


def _channel_table(channels: Sequence[ChannelFacts]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    head = ("channel", "known", "missing", "unreachable", "mean of known", "mean of filled")
    rows = tuple(
        (
            one.name,
            f"{one.n_known:,}",
            f"{one.n_missing:,} ({percent(one.missing_rate)})",
            f"{one.n_unreachable:,}",
            _number(one.mean_known),
            _number(one.mean_filled),
        )
        for one in channels[:2000]
    )
    return head, rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _missing_of_many(facts: Facts) -> Chart:
    words = f"How many of the {len(facts.channels):,} channels miss which share of their cells."
    counts = [0] * 20
    for one in facts.channels:
        counts[min(19, int(20 * one.missing_rate))] += 1
    values = [{"from": place / 20, "to": (place + 1) / 20, "channels": count} for place, count in enumerate(counts)]
    encoding = {
        "x": axis("from", "quantitative", "missing", bin={"binned": True}, axis={"format": "%"}),
        "x2": {"field": "to"},
        "y": axis("channels", "quantitative", "channels"),
    }
    spec = single(words, values, {"type": "bar", "tooltip": True}, encoding)  # with round corners they lose their width
    return Chart("missing", "What was missing", words, spec, *_channel_table(facts.channels))


def _hops(facts: Facts) -> Chart | None:
    total = sum(one.n_cells for one in facts.hops)
    if not total:
        return None
    words = "How many hops missing cells are away from the nearest known cell of their channel."
    values = [
        {"order": place, "hops": one.words, "cells": one.n_cells, "share": one.n_cells / total}
        for place, one in enumerate(facts.hops)
    ]
    encoding = {
        "x": axis("hops", "ordinal", "hops", sort={"field": "order"}, axis={"labelAngle": 0, "labelOverlap": True}),
        "y": axis("cells", "quantitative", "missing cells", axis={"format": "~s"}),
        "tooltip": [
            axis("hops", "nominal", "hops"),
            axis("cells", "quantitative", "cells", format=","),
            axis("share", "quantitative", "of the missing", format=".1%"),
        ],
    }
    rows = tuple((one.words, f"{one.n_cells:,}", percent(one.n_cells / total)) for one in facts.hops)
    return Chart("hops", "How far from a known value", words, single(words, values, bar(), encoding), _HOP_HEAD, rows)


_HOP_HEAD = ("hops", "missing cells", "share")


def _confidence(facts: Facts) -> Chart | None:
    having = [one for one in facts.hops if one.confidence is not None]
    total = sum(one.n_cells for one in having)
    if not total:
        return None
    words = "Share of the missing cells that are filled with at least a given confidence."
    reached, values = 0, [{"confidence": 1.0, "share": 0.0}]
    for one in having:
        reached += one.n_cells
        values.append({"confidence": one.confidence or 0.0, "share": reached / total})
    if values[-1]["confidence"] > 0:
        values.append({"confidence": 0.0, "share": 1.0})
    encoding = {
        "x": axis("confidence", "quantitative", "confidence of at least", scale={"domain": [0, 1]}),
        "y": axis("share", "quantitative", "missing cells", axis={"format": "%"}, scale={"domain": [0, 1]}),
        "tooltip": [
            axis("confidence", "quantitative", "at least", format=".3g"),
            axis("share", "quantitative", "of the missing cells", format=".1%"),
        ],
    }
    # between two confidences that occur, the share is that of the higher one
    mark = {"type": "area", "interpolate": "step-before", "line": True, "point": True, "opacity": 0.35, "tooltip": True}
    rows = tuple((f"{one['confidence']:.3g}", percent(one["share"])) for one in values[1:])
    head = ("confidence of at least", "missing cells")
    return Chart("confidence", "How confident", words, single(words, values, mark, encoding), head, rows)


def _distributions(facts: Facts) -> Chart | None:
    shown = [one for one in facts.channels if one.histogram is not None]
    if not shown:
        return None
    chosen = _most_telling(shown)
    words = "Distribution of the known values of a channel, and of the values filled in."
    if len(shown) < len(facts.channels):
        words += f" To choose from: {counted(len(shown), 'channel')} of numbers with the most missing cells."
    values = [
        {"channel": place, "from": low, "to": high, "kind": kind, "share": count / max(1, sum(counts))}
        for place, one in enumerate(shown)
        for kind, counts in ((KNOWN, one.histogram.known), (FILLED, one.histogram.filled))  # type: ignore[union-attr]
        for low, high, count in zip(one.histogram.edges, one.histogram.edges[1:], counts, strict=False)  # type: ignore[union-attr]
    ]
    encoding = {
        "x": axis("from", "quantitative", "value", bin={"binned": True}, axis={"tickCount": 6}),
        "x2": {"field": "to"},
        "y": axis("share", "quantitative", "share of the cells", stack=None, axis={"format": "%"}),
        "color": axis("kind", "nominal", None, sort=[KNOWN, FILLED], legend={"orient": "top"}),
        "tooltip": [
            axis("kind", "nominal", "cells"),
            axis("from", "quantitative", "from", format=".4g"),
            axis("to", "quantitative", "to", format=".4g"),
            axis("share", "quantitative", "share", format=".1%"),
        ],
    }
    spec = single(
        words,
        values,
        {"type": "bar", "opacity": 0.6, "tooltip": True},
        encoding,
        params=[{"name": "choice", "value": chosen}],
        transform=[{"filter": "datum.channel === choice"}],
    )
    return Chart(
        "distributions", "Before and after", words, spec, choices=tuple(one.name for one in shown), chosen=chosen
    )


def _most_telling(channels: Sequence[ChannelFacts]) -> int:
    """The first channel that fills the most bins: a constant one shows nothing."""
    bins = [sum(count > 0 for count in one.histogram.known) if one.histogram else 0 for one in channels]
    return bins.index(max(bins))


def _graph(facts: Facts) -> Chart | None:
    picture = facts.picture
    if picture is None:
        return None
    part = "All" if len(picture.dots) == picture.n_nodes else f"A sample of {len(picture.dots):,} of the"
    words = (
        f"{part} {picture.n_nodes:,} nodes, coloured by the mean confidence of their filled cells; hollow nodes were "
        "known entirely, or have no confidence."
    )
    place: dict[str, Any] = {"type": "quantitative", "axis": None, "scale": {"zero": False, "nice": False}}
    edges = [
        {"x": picture.dots[a].x, "y": picture.dots[a].y, "x2": picture.dots[b].x, "y2": picture.dots[b].y}
        for a, b in picture.edges
    ]
    ends: dict[str, Any] = {"x": {"field": "x", **place}, "y": {"field": "y", **place}}
    colour = axis(
        "confidence",
        "quantitative",
        "confidence",
        scale={"scheme": "viridis", "domain": [0, 1]},
        legend={"orient": "top", "gradientLength": 160},
    )
    filled = _dots(picture, ends, hollow=False)
    filled["encoding"] |= {"color": colour, "stroke": {"value": "gray"}, "strokeWidth": {"value": 0.8}}
    links = {
        "data": {"values": edges},
        "mark": {"type": "rule", "color": "gray", "opacity": 0.35, "aria": False},
        "encoding": {**ends, "x2": {"field": "x2"}, "y2": {"field": "y2"}},
    }
    layers = [links, _dots(picture, ends, hollow=True), filled]
    spec = layered(words, [], [layer for layer in layers if layer["data"]["values"]], height=420)
    return Chart("graph", "The graph", words, spec | {"config": {"view": {"stroke": None}}})


def _dots(picture: GraphDrawing, ends: dict[str, Any], *, hollow: bool) -> dict[str, Any]:
    """The layer of nodes without a confidence, or of those with one; a chart would drop nodes without a colour."""
    dots = [dot for dot in picture.dots if (dot.confidence is None) == hollow]
    values = [{"x": dot.x, "y": dot.y, "confidence": dot.confidence, "node": dot.name} for dot in dots]
    tooltip = [axis("node", "nominal", "node")]
    if not hollow:
        tooltip.append(axis("confidence", "quantitative", "confidence", format=".3g"))
    mark = {"type": "point", "filled": not hollow, "size": 70, "opacity": 1, "tooltip": True}
    return {
        "data": {"values": values},
        "mark": mark | ({"color": "gray", "strokeWidth": 1.2} if hollow else {}),
        "encoding": {**ends, "tooltip": tooltip},
    }
