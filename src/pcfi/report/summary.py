"""Facts -> the summary of a report, in sentences."""

from pcfi.errors import counted
from pcfi.report.facts import Facts

METHODS = {
    "pcfi": "PCFI",
    "fp": "Feature Propagation",
    "neighbors": "the mean of the known neighbours",
    "mean": "the mean of the channel",
    "zero": "zero",
}


def summarize(facts: Facts) -> list[str]:
    """Describe the result, most important first."""
    graph = facts.graph
    kind = ("directed " if facts.graph.directed else "") + ("weighted " if graph.weighted else "")
    size = (
        f"The {kind}graph has {counted(graph.n_nodes, 'node')}, {counted(graph.n_edges, 'edge')} and "
        f"{counted(graph.n_components, 'component')}."
    )
    if facts.n_missing == 0:
        return [f"None of the {counted(facts.n_cells, 'cell')} was missing.", size]
    filled = (
        f"{facts.n_missing:,} of {counted(facts.n_cells, 'cell')} ({facts.n_missing / facts.n_cells:.1%}) were missing "
        f"and are now filled by {METHODS.get(facts.method, facts.method)}."
    )
    return [
        filled,
        *_columns(facts),
        *_evaluation(facts),
        *_distances(facts),
        *_unreachable(facts),
        facts.convergence.status,
        size,
        *_isolated(facts),
    ]


def _columns(facts: Facts) -> list[str]:
    reports = [one for one in facts.columns if one.n_missing and one.n_hidden]
    if not reports:
        return []
    n_hidden = sum(one.n_hidden for one in reports)
    better = sum(one.rmse < one.rmse_of_mean for one in reports)
    covered = sum(one.coverage * one.n_hidden for one in reports) / n_hidden
    columns = "column is" if len(reports) == 1 else "columns are"
    return [
        f"{better:,} of {len(reports):,} incomplete {columns} estimated better than by the mean; the 90% intervals "
        f"covered {covered:.1%} of {counted(n_hidden, 'hidden cell')}."
    ]


def _distances(facts: Facts) -> list[str]:
    reached = [one for one in facts.hops if one.hops is not None]
    total = sum(one.n_cells for one in reached)
    if not total:
        return []
    near = sum(one.n_cells for one in reached if one.hops == 1)
    far = max((one.hops or 0 for one in reached if one.n_cells), default=0)
    text = (
        f"{near / total:.0%} of the reachable missing cells are one hop from a known value; the farthest are "
        f"{counted(far, 'hop')} away"
    )
    if facts.has_confidence:
        mean = sum(one.n_cells * (one.confidence or 0.0) for one in reached) / total
        text += f". The mean confidence is {mean:.2f}, which is a measure of distance, not a probability"
    return [f"{text}."]


def _evaluation(facts: Facts) -> list[str]:
    if facts.evaluation is None or not facts.evaluation.methods:
        return []
    best = min(facts.evaluation.methods, key=lambda one: one.rmse)
    equal = [one.method for one in facts.evaluation.methods if f"{one.rmse:.3g}" == f"{best.rmse:.3g}"]
    *others, last = [METHODS.get(method, method) for method in equal]
    name = f"{', '.join(others)} and {last}" if others else last
    name = f"{name[:1].upper()}{name[1:]}" if len(equal) > 1 else name
    n_hidden, n_categories = facts.evaluation.n_hidden, facts.evaluation.n_categories
    n_scored = n_hidden - n_categories if n_hidden > n_categories else n_hidden
    scored = counted(n_scored, "hidden number" if n_categories else "hidden cell")
    error = f"{best.rmse:.3g} (RMSE) in {facts.evaluation.unit}"
    sentences = [
        f"On {scored}, {name} had the smallest error: {error}."
        if len(equal) == 1
        else f"{name} had the same, smallest error on {scored}: {error}."
    ]
    if best.accuracy is not None:
        sentences.append(f"It assigned the correct category to {best.accuracy:.1%} of the hidden categories.")
    return sentences + [
        f"The {one.coverage:.0%} intervals covered {one.covered:.1%} of the hidden numbers."
        for one in facts.evaluation.reliability[:1]
    ]


def _unreachable(facts: Facts) -> list[str]:
    if not facts.n_unreachable:
        return ["Every missing cell is reachable from a known one."] if facts.hops else []
    channels = [channel for channel in facts.channels if channel.n_unreachable]
    return [
        f"{counted(facts.n_unreachable, 'missing cell')} in {counted(len(channels), 'channel')} cannot be reached "
        "from any known cell: their values are not estimates from the graph, and their confidence is 0."
    ]


def _isolated(facts: Facts) -> list[str]:
    n_isolated = facts.graph.n_isolated
    return [f"{counted(n_isolated, 'node')} {'has' if n_isolated == 1 else 'have'} no edge."] if n_isolated else []
