"""Facts -> charts: Vega-Lite specifications with captions and tables."""

from collections.abc import Sequence
from typing import Any

from pcfi.errors import counted
from pcfi.report.evaluation_charts import coverage, errors, errors_by_hops, expected_errors
from pcfi.report.facts import ChannelFacts, DrawnNode, Facts
from pcfi.report.insight_charts import explained_columns, suggestions, surprises
from pcfi.report.map_chart import draw_map
from pcfi.report.vega_lite import PERCENT_SCALE, Chart, encode, mark, percent, specification, tooltip

KNOWN, FILLED = "known before", "filled"
MAX_BARS = 60  # channels with their own bar; more are shown as a histogram
MAX_TABLE_ROWS = 2000
HISTOGRAM_BINS = 20


def make_charts(facts: Facts) -> list[Chart]:
    """All charts that the facts allow, in the order of the page."""
    charts = (
        draw_map(facts),
        explained_columns(facts),
        errors(facts),
        errors_by_hops(facts),
        expected_errors(facts),
        coverage(facts),
        _hops(facts),
        _confidence(facts),
        _distributions(facts),
        _graph(facts),
        surprises(facts),
        suggestions(facts),
        _missing(facts),
    )
    return [chart for chart in charts if chart is not None]


def _missing(facts: Facts) -> Chart | None:
    channels = facts.channels
    if not channels:
        return None
    header = ("channel", "known", "missing", "unreachable", "mean of known", "mean of filled")
    rows = tuple(map(_channel_row, channels[:MAX_TABLE_ROWS]))
    if len(channels) > MAX_BARS:
        caption = f"Number of channels by their share of missing cells, of {len(channels):,} channels."
        spec = _missing_histogram(channels, caption)
    else:
        caption = "Share of cells that were missing, one bar per channel."
        spec = _missing_bars(channels, caption)
    return Chart("missing", "Missing cells by channel", caption, spec, header, rows, wide=True)


def _channel_row(one: ChannelFacts) -> tuple[str, ...]:
    means = ("-" if mean is None else f"{mean:.4g}" for mean in (one.mean_known, one.mean_filled))
    missing = f"{one.n_missing:,} ({percent(one.missing_rate)})"
    return (one.name, f"{one.n_known:,}", missing, f"{one.n_unreachable:,}", *means)


def _missing_bars(channels: Sequence[ChannelFacts], caption: str) -> dict[str, Any]:
    values = [
        {"order": place, "channel": one.name, "missing": one.missing_rate, "known": one.n_known}
        for place, one in enumerate(channels)
    ]
    encoding = {
        "y": encode("channel:N", None, sort={"field": "order"}, axis={"labelLimit": 160}),
        "x": encode("missing:Q", "missing", **PERCENT_SCALE),
        "tooltip": tooltip(channel=("channel", ""), missing=("missing", ".1%"), known=("known cells", ",")),
    }
    bars = mark("bar", cornerRadiusEnd=3)
    return specification(caption, values, height=max(80, 22 * len(values)), mark=bars, encoding=encoding)


def _missing_histogram(channels: Sequence[ChannelFacts], caption: str) -> dict[str, Any]:
    counts = [0] * HISTOGRAM_BINS
    for one in channels:
        counts[min(HISTOGRAM_BINS - 1, int(HISTOGRAM_BINS * one.missing_rate))] += 1
    values = [
        {"from": place / HISTOGRAM_BINS, "to": (place + 1) / HISTOGRAM_BINS, "channels": count}
        for place, count in enumerate(counts)
    ]
    encoding = {
        "x": encode("from:Q", "missing", bin={"binned": True}, axis={"format": "%"}),
        "x2": {"field": "to"},
        "y": encode("channels:Q", "channels"),
    }
    return specification(caption, values, mark=mark("bar"), encoding=encoding)  # rounded corners would change the width


def _hops(facts: Facts) -> Chart | None:
    total = sum(one.n_cells for one in facts.hops)
    if not total:
        return None
    caption = "Missing cells by the number of hops to the nearest known cell of their channel."
    values = [
        {"order": place, "hops": one.words, "cells": one.n_cells, "share": one.n_cells / total}
        for place, one in enumerate(facts.hops)
    ]
    axis = {"labelAngle": 0, "labelOverlap": True}
    encoding = {
        "x": encode("hops:O", "hops", sort={"field": "order"}, axis=axis),
        "y": encode("cells:Q", "missing cells", axis={"format": "~s"}),
        "tooltip": tooltip(hops=("hops", ""), cells=("cells", ","), share=("of the missing cells", ".1%")),
    }
    rows = tuple((one.words, f"{one.n_cells:,}", percent(one.n_cells / total)) for one in facts.hops)
    spec = specification(caption, values, mark=mark("bar", cornerRadiusEnd=3), encoding=encoding)
    return Chart("hops", "Distance to known values", caption, spec, ("hops", "missing cells", "share"), rows)


def _confidence(facts: Facts) -> Chart | None:
    levels = [one for one in facts.hops if one.confidence is not None]
    total = sum(one.n_cells for one in levels)
    if not total or not facts.has_confidence:
        return None
    caption = (
        "Share of the missing cells that are filled with at least a given confidence, alpha to the power of the hops. "
        "It measures distance and is not a probability."
    )
    reached, values = 0, [{"confidence": 1.0, "share": 0.0}]
    for one in levels:
        reached += one.n_cells
        values.append({"confidence": one.confidence or 0.0, "share": reached / total})
    if values[-1]["confidence"] > 0:
        values.append({"confidence": 0.0, "share": 1.0})
    encoding = {
        "x": encode("confidence:Q", "confidence of at least", scale={"domain": [0, 1]}),
        "y": encode("share:Q", "missing cells", **PERCENT_SCALE),
        "tooltip": tooltip(confidence=("at least", ".3g"), share=("of the missing cells", ".1%")),
    }
    # between two confidences, the share is that of the higher one
    area = mark("area", interpolate="step-before", line=True, point=True, opacity=0.35)
    rows = tuple((f"{one['confidence']:.3g}", percent(one["share"])) for one in values[1:])
    header = ("confidence of at least", "missing cells")
    spec = specification(caption, values, mark=area, encoding=encoding)
    return Chart("confidence", "Confidence of filled cells", caption, spec, header, rows)


def _distributions(facts: Facts) -> Chart | None:
    histograms = [(one.name, one.histogram) for one in facts.channels if one.histogram is not None]
    if not histograms:
        return None
    caption = "Distribution of the known values of a channel, and of its filled values."
    if len(histograms) < len(facts.channels):
        caption += f" Available for the {counted(len(histograms), 'numeric channel')} with the most missing cells."
    values = [
        {"channel": place, "from": low, "to": high, "kind": kind, "share": count / max(1, sum(counts))}
        for place, (_, one) in enumerate(histograms)
        for kind, counts in ((KNOWN, one.known), (FILLED, one.filled))
        for low, high, count in zip(one.edges, one.edges[1:], counts, strict=False)
    ]
    tips = {"kind": ("cells", ""), "from": ("from", ".4g"), "to": ("to", ".4g"), "share": ("share", ".1%")}
    encoding = {
        "x": encode("from:Q", "value", bin={"binned": True}, axis={"tickCount": 6}),
        "x2": {"field": "to"},
        "y": encode("share:Q", "share of the cells", stack=None, axis={"format": "%"}),
        "color": encode("kind:N", None, sort=[KNOWN, FILLED], legend={"orient": "top"}),
        "tooltip": tooltip(**tips),
    }
    # choose a channel with filled cells that is not constant
    shown = [(any(one.filled), sum(count > 0 for count in one.known)) for _, one in histograms]
    chosen = shown.index(max(shown))
    spec = specification(
        caption,
        values,
        mark=mark("bar", opacity=0.6),
        encoding=encoding,
        params=[{"name": "choice", "value": chosen}],
        transform=[{"filter": "datum.channel === choice"}],
    )
    return Chart(
        "distributions",
        "Known and filled values",
        caption,
        spec,
        choices=tuple(name for name, _ in histograms),
        chosen=chosen,
        wide=True,
        header=("channel", "from", "to", KNOWN, FILLED),
        rows=_histogram_rows(histograms),
    )


def _histogram_rows(histograms: Sequence[tuple[str, Any]]) -> tuple[tuple[str, ...], ...]:
    rows = [
        (name, f"{low:.4g}", f"{high:.4g}", f"{known:,}", f"{filled:,}")
        for name, one in histograms
        for low, high, known, filled in zip(one.edges, one.edges[1:], one.known, one.filled, strict=False)
    ]
    return tuple(rows[:MAX_TABLE_ROWS])


def _graph(facts: Facts) -> Chart | None:
    drawing = facts.picture
    if drawing is None:
        return None
    part = "All" if len(drawing.dots) == drawing.n_nodes else f"A sample of {len(drawing.dots):,} of the"
    caption = (
        f"{part} {drawing.n_nodes:,} nodes, coloured by the mean confidence of their filled cells (distance, not a "
        "probability). Hollow nodes had no missing cell, or have no confidence."
    )
    edges = [
        {"x": drawing.dots[a].x, "y": drawing.dots[a].y, "x2": drawing.dots[b].x, "y2": drawing.dots[b].y}
        for a, b in drawing.edges
    ]
    place = {"axis": None, "scale": {"zero": False, "nice": False}}
    position = {"x": encode("x:Q", None, **place), "y": encode("y:Q", None, **place)}
    links: dict[str, Any] = {
        "data": {"values": edges},
        "mark": {"type": "rule", "color": "gray", "opacity": 0.35, "aria": False},
        "encoding": {**position, "x2": {"field": "x2"}, "y2": {"field": "y2"}},
    }
    # two layers of nodes, because a chart drops nodes without a colour
    hollow = _node_layer([dot for dot in drawing.dots if dot.confidence is None], position, filled=False)
    filled = _node_layer([dot for dot in drawing.dots if dot.confidence is not None], position, filled=True)
    layers = [layer for layer in (links, hollow, filled) if layer["data"]["values"]]
    spec = specification(caption, [], height=420, layer=layers, config={"view": {"stroke": None}})
    rows = tuple((dot.name, "-" if dot.confidence is None else f"{dot.confidence:.3g}") for dot in drawing.dots)
    return Chart("graph", "Graph", caption, spec, ("node", "mean confidence"), rows[:MAX_TABLE_ROWS], wide=True)


def _node_layer(nodes: list[DrawnNode], position: dict[str, Any], *, filled: bool) -> dict[str, Any]:
    style: dict[str, Any] = {} if filled else {"color": "gray", "strokeWidth": 1.2}
    tips = {"node": ("node", ""), "confidence": ("confidence", ".3g")} if filled else {"node": ("node", "")}
    encoding = {**position, "tooltip": tooltip(**tips)}
    if filled:
        scale, legend = {"scheme": "viridis", "domain": [0, 1]}, {"orient": "top", "gradientLength": 160}
        encoding["color"] = encode("confidence:Q", "confidence", scale=scale, legend=legend)
        encoding |= {"stroke": {"value": "gray"}, "strokeWidth": {"value": 0.8}}
    return {
        "data": {"values": [{"x": one.x, "y": one.y, "confidence": one.confidence, "node": one.name} for one in nodes]},
        "mark": mark("point", filled=filled, size=70, opacity=1, **style),
        "encoding": encoding,
    }
