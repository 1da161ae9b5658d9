"""Charts of an evaluation: errors of the methods on hidden cells, and reliability of expected errors and intervals."""

from pcfi.evaluation.reliability import Reliability
from pcfi.evaluation.result import describe_hidden
from pcfi.report.facts import Facts
from pcfi.report.vega_lite import DASHED, PERCENT_SCALE, Chart, encode, mark, percent, specification, tooltip


def errors(facts: Facts) -> Chart | None:
    """Error of each method."""
    if facts.evaluation is None:
        return None
    methods, how, unit = facts.evaluation.methods, facts.evaluation.how, facts.evaluation.unit
    hidden = describe_hidden(facts.evaluation.n_hidden, facts.evaluation.n_categories)
    caption = f"Error of each method on {hidden} ({how}), in {unit}. Smaller is better."
    values = [{"method": one.method, "error": one.rmse, "mae": one.mae} for one in methods]
    encoding = {
        "y": encode("method:N", None, sort=[one.method for one in methods]),
        "x": encode("error:Q", "root mean squared error", axis={"tickCount": 5}),
        "tooltip": tooltip(method=("method", ""), error=("RMSE", ".4f"), mae=("MAE", ".4f")),
    }
    header: tuple[str, ...] = ("method", "RMSE", "MAE", "time")
    rows: list[tuple[str, ...]] = [
        (one.method, f"{one.rmse:.4f}", f"{one.mae:.4f}", f"{one.seconds:.2f} s") for one in methods
    ]
    accuracies = [percent(one.accuracy) for one in methods if one.accuracy is not None]
    if accuracies:
        header = (*header, "correct categories")
        rows = [(*row, share) for row, share in zip(rows, accuracies, strict=True)]
    bars = mark("bar", cornerRadiusEnd=3)
    spec = specification(caption, values, height=34 * len(values) + 40, mark=bars, encoding=encoding)
    return Chart("errors", "Error on hidden cells", caption, spec, header, tuple(rows))


def errors_by_hops(facts: Facts) -> Chart | None:
    """Error of each method by hops."""
    if facts.evaluation is None:
        return None
    points = [(one.method, at) for one in facts.evaluation.methods for at in one.by_hops if at.hops is not None]
    if not points:
        return None
    caption = "Error on hidden cells by the number of hops to the nearest cell that was not hidden."
    values = [{"method": method, "hops": at.hops, "error": at.error, "cells": at.n_cells} for method, at in points]
    encoding = {
        "x": encode("hops:O", "hops", axis={"labelAngle": 0}),
        "y": encode("error:Q", "root mean squared error"),
        "color": encode("method:N", None, legend={"orient": "top"}),
        "strokeDash": encode("method:N", None),
        "tooltip": tooltip(
            method=("method", ""), hops=("hops", "d"), error=("RMSE", ".4f"), cells=("hidden cells", ",")
        ),
    }
    points += [(one.method, at) for one in facts.evaluation.methods for at in one.by_hops if at.hops is None]
    rows = tuple(
        (method, "unreachable" if at.hops is None else str(at.hops), f"{at.error:.4f}", f"{at.n_cells:,}")
        for method, at in points
    )
    spec = specification(caption, values, mark=mark("line", point=True), encoding=encoding)
    return Chart("errors-by-hops", "Error by hops", caption, spec, ("method", "hops", "RMSE", "hidden cells"), rows)


def expected_errors(facts: Facts) -> Chart | None:
    """Expected against actual errors: the reliability diagram."""
    reliability = _reliability(facts)
    if reliability is None:
        return None
    caption = "Hidden cells grouped by expected error. On the dashed line, the mean error equals the expected error."
    bins = reliability.bins
    values = [{"expected": one.expected, "actual": one.actual, "cells": one.cells} for one in bins]
    top = max(max(one.expected, one.actual) for one in bins) or 1.0
    place = {"scale": {"domain": [0, top], "nice": True}, "axis": {"tickCount": 5}}
    position = {
        "x": encode("expected:Q", "expected absolute error", **place),
        "y": encode("actual:Q", "mean absolute error", **place),
    }
    tips = tooltip(expected=("expected", ".4f"), actual=("actual", ".4f"), cells=("hidden cells", ","))
    points = {"mark": mark("line", point={"size": 60}), "encoding": {**position, "tooltip": tips}}
    diagonal = {
        "data": {"values": [{"expected": 0, "actual": 0}, {"expected": top, "actual": top}]},
        "mark": {"type": "line", **DASHED},
        "encoding": position,
    }
    rows = tuple((f"{one.expected:.4f}", f"{one.actual:.4f}", f"{one.cells:,}") for one in bins)
    spec = specification(caption, values, layer=[diagonal, points])
    header = ("expected error", "mean error", "hidden cells")
    return Chart("expected-errors", "Expected and actual errors", caption, spec, header, rows)


def coverage(facts: Facts) -> Chart | None:
    """Coverage of the intervals by hops."""
    reliability = _reliability(facts)
    points = [] if reliability is None else [at for at in reliability.by_hops if at.hops >= 0]
    if reliability is None or not points:
        return None
    caption = (
        "Share of the hidden cells whose interval contains the true value, by hops; the dashed line is the nominal "
        f"{reliability.coverage:.0%}. Over all hidden cells the share is {reliability.covered:.1%}."
    )
    values = [{"hops": at.hops, "covered": at.covered, "cells": at.cells} for at in points]
    encoding = {
        "x": encode("hops:O", "hops", axis={"labelAngle": 0}),
        "y": encode("covered:Q", "covered", **PERCENT_SCALE),
        "tooltip": tooltip(hops=("hops", "d"), covered=("covered", ".1%"), cells=("hidden cells", ",")),
    }
    bars = {"mark": mark("bar", cornerRadiusEnd=3), "encoding": encoding}
    nominal = {"mark": {"type": "rule", **DASHED}, "encoding": {"y": {"datum": reliability.coverage}}}
    points += [at for at in reliability.by_hops if at.hops < 0]
    rows = tuple(
        ("unreachable" if at.hops < 0 else str(at.hops), percent(at.covered), f"{at.cells:,}") for at in points
    )
    spec = specification(caption, values, layer=[bars, nominal])
    return Chart("coverage", "Coverage of the intervals", caption, spec, ("hops", "covered", "hidden cells"), rows)


def _reliability(facts: Facts) -> Reliability | None:
    """Reliability of the first method that has expected errors."""
    every = () if facts.evaluation is None else facts.evaluation.reliability
    return next((one for one in every if one.bins), None)
