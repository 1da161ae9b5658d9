"""Facts -> charts: a Vega-Lite specification each, with the words and the table that say the same without a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pcfi.report.facts import ChannelFacts, Facts, ReliabilityFacts

KNOWN, FILLED = "known before", "filled in"
MOST_BARS = 60  # channels shown one by one; more become a histogram


@dataclass(frozen=True)
class Chart:
    """A chart: its specification, what it shows in words, and its numbers as a table."""

    name: str
    title: str
    words: str
    spec: dict[str, Any]
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    choices: tuple[str, ...] = ()  # what a chart with a choice lets the reader choose
    chosen: int = 0


def charts(facts: Facts) -> list[Chart]:
    """All charts that the facts allow, in the order of the page."""
    made = (
        _missing(facts),
        _hops(facts),
        _confidence(facts),
        _distributions(facts),
        _errors(facts),
        _errors_by_hops(facts),
        _expected_errors(facts),
        _coverage(facts),
        _graph(facts),
    )
    return [chart for chart in made if chart is not None]


def _spec(
    words: str, values: Any, mark: Any, encoding: dict[str, Any], height: int = 260, **more: Any
) -> dict[str, Any]:
    """What all charts share."""
    return {
        "description": words,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": values},
        "mark": mark,
        "encoding": encoding,
        **more,
    }


def _axis(name: str, kind: str, title: str | None, **more: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "title": title, **more}


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _bar(**more: Any) -> dict[str, Any]:
    return {"type": "bar", "tooltip": True, "cornerRadiusEnd": 3, **more}


def _missing(facts: Facts) -> Chart | None:
    if not facts.channels:
        return None
    if len(facts.channels) > MOST_BARS:
        return _missing_of_many(facts)
    words = "Share of cells that were missing, one bar per channel."
    values = [
        {"order": place, "channel": one.name, "missing": one.missing_rate, "known cells": one.n_known}
        for place, one in enumerate(facts.channels)
    ]
    encoding = {
        "y": _axis("channel", "nominal", None, sort={"field": "order"}, axis={"labelLimit": 160}),
        "x": _axis("missing", "quantitative", "missing", axis={"format": "%"}, scale={"domain": [0, 1]}),
        "tooltip": [
            _axis("channel", "nominal", "channel"),
            _axis("missing", "quantitative", "missing", format=".1%"),
            _axis("known cells", "quantitative", "known cells", format=","),
        ],
    }
    spec = _spec(words, values, _bar(), encoding, height=max(80, 22 * len(values)))
    return Chart("missing", "What was missing", words, spec, *_channel_table(facts.channels))


def _channel_table(channels: Sequence[ChannelFacts]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    head = ("channel", "known", "missing", "unreachable", "mean of known", "mean of filled")
    rows = tuple(
        (
            one.name,
            f"{one.n_known:,}",
            f"{one.n_missing:,} ({_percent(one.missing_rate)})",
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
        "x": _axis("from", "quantitative", "missing", bin={"binned": True, "step": 0.05}, axis={"format": "%"}),
        "x2": {"field": "to"},
        "y": _axis("channels", "quantitative", "channels"),
    }
    return Chart(
        "missing", "What was missing", words, _spec(words, values, _bar(), encoding), *_channel_table(facts.channels)
    )


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
        "x": _axis("hops", "ordinal", "hops", sort={"field": "order"}, axis={"labelAngle": 0, "labelOverlap": True}),
        "y": _axis("cells", "quantitative", "missing cells", axis={"format": "~s"}),
        "tooltip": [
            _axis("hops", "nominal", "hops"),
            _axis("cells", "quantitative", "cells", format=","),
            _axis("share", "quantitative", "of the missing", format=".1%"),
        ],
    }
    rows = tuple((one.words, f"{one.n_cells:,}", _percent(one.n_cells / total)) for one in facts.hops)
    return Chart("hops", "How far from a known value", words, _spec(words, values, _bar(), encoding), _HOP_HEAD, rows)


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
        "x": _axis("confidence", "quantitative", "confidence of at least", scale={"domain": [0, 1]}),
        "y": _axis("share", "quantitative", "missing cells", axis={"format": "%"}, scale={"domain": [0, 1]}),
        "tooltip": [
            _axis("confidence", "quantitative", "at least", format=".3g"),
            _axis("share", "quantitative", "of the missing cells", format=".1%"),
        ],
    }
    # between two confidences that occur, the share is that of the higher one
    mark = {"type": "area", "interpolate": "step-before", "line": True, "point": True, "opacity": 0.35, "tooltip": True}
    rows = tuple((f"{one['confidence']:.3g}", _percent(one["share"])) for one in values[1:])
    head = ("confidence of at least", "missing cells")
    return Chart("confidence", "How confident", words, _spec(words, values, mark, encoding), head, rows)


def _distributions(facts: Facts) -> Chart | None:
    shown = [one for one in facts.channels if one.histogram is not None]
    if not shown:
        return None
    chosen = _most_telling(shown)
    words = "Distribution of the known values of a channel, and of the values filled in."
    if len(shown) < len(facts.channels):
        words += f" The {len(shown)} channels with the most missing cells can be chosen."
    values = [
        {"channel": place, "from": low, "to": high, "kind": kind, "share": count / max(1, sum(counts))}
        for place, one in enumerate(shown)
        for kind, counts in ((KNOWN, one.histogram.known), (FILLED, one.histogram.filled))  # type: ignore[union-attr]
        for low, high, count in zip(one.histogram.edges, one.histogram.edges[1:], counts, strict=False)  # type: ignore[union-attr]
    ]
    encoding = {
        "x": _axis("from", "quantitative", "value", bin={"binned": True}, axis={"tickCount": 6}),
        "x2": {"field": "to"},
        "y": _axis("share", "quantitative", "share of the cells", stack=None, axis={"format": "%"}),
        "color": _axis("kind", "nominal", None, sort=[KNOWN, FILLED], legend={"orient": "top"}),
        "tooltip": [
            _axis("kind", "nominal", "cells"),
            _axis("from", "quantitative", "from", format=".4g"),
            _axis("to", "quantitative", "to", format=".4g"),
            _axis("share", "quantitative", "share", format=".1%"),
        ],
    }
    spec = _spec(
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


def _errors(facts: Facts) -> Chart | None:
    if facts.evaluation is None:
        return None
    methods = facts.evaluation.methods
    words = (
        f"Error of each method on {facts.evaluation.n_hidden:,} known cells that were hidden ({facts.evaluation.how}), "
        f"in {facts.evaluation.unit}. Smaller is better."
    )
    values = [{"method": one.method, "error": one.rmse, "mae": one.mae} for one in methods]
    encoding = {
        "y": _axis("method", "nominal", None, sort=[one.method for one in methods]),
        "x": _axis("error", "quantitative", "root mean squared error"),
        "tooltip": [
            _axis("method", "nominal", "method"),
            _axis("error", "quantitative", "RMSE", format=".4f"),
            _axis("mae", "quantitative", "MAE", format=".4f"),
        ],
    }
    rows = tuple((one.method, f"{one.rmse:.4f}", f"{one.mae:.4f}", f"{one.seconds:.2f} s") for one in methods)
    spec = _spec(words, values, _bar(), encoding, height=34 * len(values) + 40)
    return Chart("errors", "Error on hidden cells", words, spec, ("method", "RMSE", "MAE", "time"), rows)


def _errors_by_hops(facts: Facts) -> Chart | None:
    if facts.evaluation is None:
        return None
    points = [(one.method, at) for one in facts.evaluation.methods for at in one.by_hops if at.hops is not None]
    if not points:
        return None
    words = "Error on hidden cells by the number of hops to the nearest cell that was not hidden."
    values = [{"method": method, "hops": at.hops, "error": at.error, "cells": at.n_cells} for method, at in points]
    encoding = {
        "x": _axis("hops", "ordinal", "hops", axis={"labelAngle": 0}),
        "y": _axis("error", "quantitative", "root mean squared error"),
        "color": _axis("method", "nominal", None, legend={"orient": "top"}),
        "strokeDash": _axis("method", "nominal", None),
        "tooltip": [
            _axis("method", "nominal", "method"),
            _axis("hops", "quantitative", "hops"),
            _axis("error", "quantitative", "RMSE", format=".4f"),
            _axis("cells", "quantitative", "hidden cells", format=","),
        ],
    }
    rows = tuple((method, str(at.hops), f"{at.error:.4f}", f"{at.n_cells:,}") for method, at in points)
    spec = _spec(words, values, {"type": "line", "point": True, "tooltip": True}, encoding)
    head = ("method", "hops", "RMSE", "hidden cells")
    return Chart("errors-by-hops", "Error by hops", words, spec, head, rows)


def _expected_errors(facts: Facts) -> Chart | None:
    found = _reliability(facts)
    if found is None:
        return None
    words = (
        "Hidden cells by the error that was expected of them, ten groups from small to large: on the dashed line the mean "
        "error is as large as expected."
    )
    values = [{"expected": one.expected, "actual": one.actual, "cells": one.n_cells} for one in found.bins]
    top = max(max(one.expected, one.actual) for one in found.bins) or 1.0
    place: dict[str, Any] = {"scale": {"domain": [0, top], "nice": True}}
    encoding = {
        "x": _axis("expected", "quantitative", "expected absolute error", **place),
        "y": _axis("actual", "quantitative", "mean absolute error", **place),
        "tooltip": [
            _axis("expected", "quantitative", "expected", format=".4f"),
            _axis("actual", "quantitative", "actual", format=".4f"),
            _axis("cells", "quantitative", "hidden cells", format=","),
        ],
    }
    points = {"mark": {"type": "line", "point": {"size": 60}, "tooltip": True}, "encoding": encoding}
    ends = {"x": _axis("expected", "quantitative", None), "y": _axis("actual", "quantitative", None)}
    ideal = {
        "data": {"values": [{"expected": 0, "actual": 0}, {"expected": top, "actual": top}]},
        "mark": {"type": "line", "strokeDash": [4, 4], "color": "gray", "aria": False},
        "encoding": ends,
    }
    rows = tuple((f"{one.expected:.4f}", f"{one.actual:.4f}", f"{one.n_cells:,}") for one in found.bins)
    head = ("expected error", "mean error", "hidden cells")
    spec = _layered(words, values, [ideal, points])
    return Chart("expected-errors", "Are expected errors right?", words, spec, head, rows)


def _coverage(facts: Facts) -> Chart | None:
    found = _reliability(facts)
    points = [] if found is None else [at for at in found.by_hops if at.hops is not None]
    if found is None or not points:
        return None
    words = (
        f"Share of the hidden cells whose interval holds the truth, by hops; the dashed line is the {found.coverage:.0%} that "
        f"the intervals promise. Over all hidden cells they cover {found.covered:.1%}."
    )
    values = [{"hops": at.hops, "covered": at.covered, "cells": at.n_cells} for at in points]
    bars = {
        "mark": _bar(),
        "encoding": {
            "x": _axis("hops", "ordinal", "hops", axis={"labelAngle": 0}),
            "y": _axis("covered", "quantitative", "covered", axis={"format": "%"}, scale={"domain": [0, 1]}),
            "tooltip": [
                _axis("hops", "quantitative", "hops"),
                _axis("covered", "quantitative", "covered", format=".1%"),
                _axis("cells", "quantitative", "hidden cells", format=","),
            ],
        },
    }
    promise = {
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": "gray", "aria": False},
        "encoding": {"y": {"datum": found.coverage}},
    }
    rows = tuple((str(at.hops), _percent(at.covered), f"{at.n_cells:,}") for at in points)
    spec = _layered(words, values, [bars, promise])
    return Chart("coverage", "Do intervals cover?", words, spec, ("hops", "covered", "hidden cells"), rows)


def _reliability(facts: Facts) -> ReliabilityFacts | None:
    """What the first method that expects errors is worth."""
    every = () if facts.evaluation is None else facts.evaluation.reliability
    return next((one for one in every if one.bins), None)


def _layered(words: str, values: Any, layers: list[dict[str, Any]], height: int = 260) -> dict[str, Any]:
    """A chart of several layers, most of which draw the same values."""
    return {
        "description": words,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": values},
        "layer": layers,
    }


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
    dots = [
        {"x": dot.x, "y": dot.y, "confidence": dot.confidence, "node": dot.name, "all known": dot.confidence is None}
        for dot in picture.dots
    ]
    ends: dict[str, Any] = {"x": {"field": "x", **place}, "y": {"field": "y", **place}}
    colour = _axis(
        "confidence",
        "quantitative",
        "confidence",
        scale={"scheme": "viridis", "domain": [0, 1]},
        legend={"orient": "top", "gradientLength": 160},
    )
    nodes: dict[str, Any] = {
        "data": {"values": dots},
        "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "tooltip": True},
        "encoding": {
            **ends,
            "color": {"condition": {"test": "datum['all known']", "value": "transparent"}, **colour},
            "stroke": {"value": "gray"},
            "strokeWidth": {"value": 0.8},
            "tooltip": [
                _axis("node", "nominal", "node"),
                _axis("confidence", "quantitative", "confidence", format=".3g"),
            ],
        },
    }
    links = {
        "data": {"values": edges},
        "mark": {"type": "rule", "color": "gray", "opacity": 0.35, "aria": False},
        "encoding": {**ends, "x2": {"field": "x2"}, "y2": {"field": "y2"}},
    }
    spec = _layered(words, [], [links, nodes], height=420) | {"config": {"view": {"stroke": None}}}
    return Chart("graph", "The graph", words, spec)
