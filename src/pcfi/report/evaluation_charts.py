"""Charts of an evaluation: errors of methods on hidden cells, and whether expected errors and intervals hold."""

from typing import Any

from pcfi.evaluation.reliability import Reliability
from pcfi.evaluation.result import describe_hidden
from pcfi.report.facts import Facts
from pcfi.report.vega_lite import Chart, axis, bar, layered, percent, single


def errors(facts: Facts) -> Chart | None:
    """Error of each method."""
    if facts.evaluation is None:
        return None
    methods, how, unit = facts.evaluation.methods, facts.evaluation.how, facts.evaluation.unit
    hidden = describe_hidden(facts.evaluation.n_hidden, facts.evaluation.n_categories)
    words = f"Error of each method on {hidden} ({how}), in {unit}. Smaller is better."
    values = [{"method": one.method, "error": one.rmse, "mae": one.mae} for one in methods]
    encoding = {
        "y": axis("method", "nominal", None, sort=[one.method for one in methods]),
        "x": axis("error", "quantitative", "root mean squared error"),
        "tooltip": [
            axis("method", "nominal", "method"),
            axis("error", "quantitative", "RMSE", format=".4f"),
            axis("mae", "quantitative", "MAE", format=".4f"),
        ],
    }
    head: tuple[str, ...] = ("method", "RMSE", "MAE", "time")
    rows: list[tuple[str, ...]] = [
        (one.method, f"{one.rmse:.4f}", f"{one.mae:.4f}", f"{one.seconds:.2f} s") for one in methods
    ]
    found = [percent(one.accuracy) for one in methods if one.accuracy is not None]
    if found:
        head = (*head, "categories found")
        rows = [(*row, share) for row, share in zip(rows, found, strict=True)]
    spec = single(words, values, bar(), encoding, height=34 * len(values) + 40)
    return Chart("errors", "Error on hidden cells", words, spec, head, tuple(rows))


def errors_by_hops(facts: Facts) -> Chart | None:
    """Error of each method by hops."""
    if facts.evaluation is None:
        return None
    points = [(one.method, at) for one in facts.evaluation.methods for at in one.by_hops if at.hops is not None]
    if not points:
        return None
    words = "Error on hidden cells by the number of hops to the nearest cell that was not hidden."
    values = [{"method": method, "hops": at.hops, "error": at.error, "cells": at.n_cells} for method, at in points]
    encoding = {
        "x": axis("hops", "ordinal", "hops", axis={"labelAngle": 0}),
        "y": axis("error", "quantitative", "root mean squared error"),
        "color": axis("method", "nominal", None, legend={"orient": "top"}),
        "strokeDash": axis("method", "nominal", None),
        "tooltip": [
            axis("method", "nominal", "method"),
            axis("hops", "quantitative", "hops"),
            axis("error", "quantitative", "RMSE", format=".4f"),
            axis("cells", "quantitative", "hidden cells", format=","),
        ],
    }
    rows = tuple((method, str(at.hops), f"{at.error:.4f}", f"{at.n_cells:,}") for method, at in points)
    spec = single(words, values, {"type": "line", "point": True, "tooltip": True}, encoding)
    head = ("method", "hops", "RMSE", "hidden cells")
    return Chart("errors-by-hops", "Error by hops", words, spec, head, rows)


def expected_errors(facts: Facts) -> Chart | None:
    """Expected against actual errors: the reliability diagram."""
    found = _reliability(facts)
    if found is None:
        return None
    words = (
        "Hidden cells in groups by the error that was expected of them: on the dashed line the mean error is as large "
        "as expected."
    )
    values = [{"expected": one.expected, "actual": one.actual, "cells": one.cells} for one in found.bins]
    top = max(max(one.expected, one.actual) for one in found.bins) or 1.0
    place: dict[str, Any] = {"scale": {"domain": [0, top], "nice": True}, "axis": {"tickCount": 5}}
    ends = {
        "x": axis("expected", "quantitative", "expected absolute error", **place),
        "y": axis("actual", "quantitative", "mean absolute error", **place),
    }
    encoding = ends | {
        "tooltip": [
            axis("expected", "quantitative", "expected", format=".4f"),
            axis("actual", "quantitative", "actual", format=".4f"),
            axis("cells", "quantitative", "hidden cells", format=","),
        ]
    }
    points = {"mark": {"type": "line", "point": {"size": 60}, "tooltip": True}, "encoding": encoding}
    ideal = {
        "data": {"values": [{"expected": 0, "actual": 0}, {"expected": top, "actual": top}]},
        "mark": {"type": "line", "strokeDash": [4, 4], "color": "gray", "aria": False},
        "encoding": ends,
    }
    rows = tuple((f"{one.expected:.4f}", f"{one.actual:.4f}", f"{one.cells:,}") for one in found.bins)
    head = ("expected error", "mean error", "hidden cells")
    spec = layered(words, values, [ideal, points])
    return Chart("expected-errors", "Are expected errors right?", words, spec, head, rows)


def coverage(facts: Facts) -> Chart | None:
    """What the intervals cover, by hops."""
    found = _reliability(facts)
    points = [] if found is None else [at for at in found.by_hops if at.hops >= 0]
    if found is None or not points:
        return None
    words = (
        "Share of the hidden cells whose interval holds the truth, by hops; the dashed line is the "
        f"{found.coverage:.0%} that the intervals promise. Over all hidden cells they cover {found.covered:.1%}."
    )
    values = [{"hops": at.hops, "covered": at.covered, "cells": at.cells} for at in points]
    bars = {
        "mark": bar(),
        "encoding": {
            "x": axis("hops", "ordinal", "hops", axis={"labelAngle": 0}),
            "y": axis("covered", "quantitative", "covered", axis={"format": "%"}, scale={"domain": [0, 1]}),
            "tooltip": [
                axis("hops", "quantitative", "hops"),
                axis("covered", "quantitative", "covered", format=".1%"),
                axis("cells", "quantitative", "hidden cells", format=","),
            ],
        },
    }
    promise = {
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": "gray", "aria": False},
        "encoding": {"y": {"datum": found.coverage}},
    }
    rows = tuple((str(at.hops), percent(at.covered), f"{at.cells:,}") for at in points)
    spec = layered(words, values, [bars, promise])
    return Chart("coverage", "Do intervals cover?", words, spec, ("hops", "covered", "hidden cells"), rows)


def _reliability(facts: Facts) -> Reliability | None:
    """What the first method that expects errors is worth."""
    every = () if facts.evaluation is None else facts.evaluation.reliability
    return next((one for one in every if one.bins), None)
