"""The summary of a report, in sentences made from its facts."""

from pcfi.errors import counted
from pcfi.report.facts import Facts

METHODS = {
    "pcfi": "PCFI",
    "fp": "Feature Propagation",
    "neighbors": "the mean of the known neighbours",
    "mean": "the channel's mean",
    "zero": "zero",
}


def summarize(facts: Facts) -> list[str]:
    """What happened, most important first."""
    graph = facts.graph
    kind = ("directed " if facts.graph.directed else "") + ("weighted " if graph.weighted else "")
    size = (
        f"The {kind}graph has {counted(graph.n_nodes, 'node')}, {counted(graph.n_edges, 'edge')} and "
        f"{counted(graph.n_components, 'component')}."
    )
    if facts.n_missing == 0:
        return [f"Nothing was missing in {counted(facts.n_cells, 'cell')}.", size]
    filled = (
        f"{facts.n_missing:,} of {counted(facts.n_cells, 'cell')} ({facts.n_missing / facts.n_cells:.1%}) were missing "
        f"and have been filled by {METHODS.get(facts.method, facts.method)}."
    )
    trust = [*_trust(facts), *_tested(facts)]
    return [filled, *trust, facts.convergence.status, *_unreachable(facts), size, *_isolated(facts)]


def _trust(facts: Facts) -> list[str]:
    reached = [one for one in facts.hops if one.hops is not None]
    total = sum(one.n_cells for one in reached)
    if not total:
        return []
    near = sum(one.n_cells for one in reached if one.hops == 1)
    far = max((one.hops or 0 for one in reached if one.n_cells), default=0)
    text = (
        f"{near / total:.0%} of the cells that could be reached are one hop from a known value; the farthest are "
        f"{counted(far, 'hop')} away"
    )
    if all(one.confidence is not None for one in reached):
        mean = sum(one.n_cells * (one.confidence or 0.0) for one in reached) / total
        text += f", and the confidence is {mean:.2f} on average"
    return [f"{text}."]


def _tested(facts: Facts) -> list[str]:
    if facts.evaluation is None or not facts.evaluation.methods:
        return []
    best = min(facts.evaluation.methods, key=lambda one: one.rmse)
    name = METHODS.get(best.method, best.method)
    n_hidden, n_categories = facts.evaluation.n_hidden, facts.evaluation.n_categories
    judged = n_hidden - n_categories if n_hidden > n_categories else n_hidden
    said = [
        f"On {counted(judged, 'hidden number' if n_categories else 'hidden cell')} {name} came closest to the truth."
    ]
    if best.accuracy is not None:
        said.append(f"It found {best.accuracy:.1%} of the hidden categories.")
    return said + [
        f"Intervals that promise to cover {one.coverage:.0%} covered {one.covered:.1%} of the numbers that were hidden."
        for one in facts.evaluation.reliability[:1]
    ]


def _unreachable(facts: Facts) -> list[str]:
    if not facts.n_unreachable:
        return ["Every missing cell could be reached from a known one."] if facts.hops else []
    channels = [channel for channel in facts.channels if channel.n_unreachable]
    return [
        f"{counted(facts.n_unreachable, 'missing cell')} in {counted(len(channels), 'channel')} could not be reached "
        "from any known cell: what they hold is no estimate, and their confidence is 0."
    ]


def _isolated(facts: Facts) -> list[str]:
    alone = facts.graph.n_isolated
    return [f"{counted(alone, 'node')} {'has' if alone == 1 else 'have'} no edge at all."] if alone else []
