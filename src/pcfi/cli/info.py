"""`pcfi info`: what is in these files, and what filling them would take."""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import GroupedCommand, names
from pcfi.cli.loading import EdgeColumns, Loaded, load
from pcfi.cli.requirements import Job, Outline, job_of, outline
from pcfi.cli.session import Session, session
from pcfi.errors import counted
from pcfi.files.node_files import Wanted
from pcfi.files.sizes import size_of
from pcfi.report.facts import GraphFacts, HopFacts

if TYPE_CHECKING:
    from pcfi.inputs.node_tables import NodeColumn
    from pcfi.inputs.problem import Problem

MOST_ROWS = 30  # channels shown one by one
MOST_HOPS = 10
MARKS = (-999.0, -9999.0, -99999.0, 9999.0, 99999.0)  # that often stand for missing cells


@dataclass(frozen=True)
class Channel:
    """What a channel holds, or a column of categories, which has no least and no most value."""

    name: str
    n_known: int
    n_missing: int
    low: float | None
    high: float | None

    @property
    def spread(self) -> float | None:
        """Range of the known values, if there is one."""
        return None if self.low is None or self.high is None else self.high - self.low


@dataclass(frozen=True)
class Info:
    """What is in the files."""

    graph: GraphFacts
    n_missing: int
    n_patterns: int
    channels: tuple[Channel, ...]
    hops: tuple[HopFacts, ...]
    memory: dict[str, int]
    job: Job
    remarks: tuple[str, ...]


def info(
    nodes: o.NodesFile,
    edges: o.EdgesFile,
    id: o.Id = None,  # noqa: A002  the word of the domain
    columns: o.Columns = None,
    exclude: o.Exclude = None,
    categorical: o.Categorical = None,
    missing_value: o.MissingValue = None,
    source: o.SourceColumn = None,
    target: o.TargetColumn = None,
    weight: o.WeightColumn = None,
    unknown_ids: o.UnknownIds = "error",
    directed: o.Directed = None,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """What is in these files: sizes, missing rates, hops, warnings, and the memory that filling them would take."""
    with session(quiet=quiet, as_json=as_json, debug=debug, threads=threads) as told:
        wanted = Wanted(id, names(columns), names(exclude), names(categorical), tuple(missing_value or ()))
        ends = EdgeColumns(source, target, weight, unknown_ids)
        larger = outline(told, (nodes, edges), wanted, ends, directed=bool(directed))
        if larger is not None:
            if as_json:
                typer.echo(json.dumps(asdict(larger)))
            _show_outline(told, larger)
            return
        loaded = load(told, (nodes, edges), wanted, ends, directed=bool(directed))
        with told.stage("look"):
            found = look(loaded)
        if as_json:
            typer.echo(json.dumps(asdict(found)))
        _show(told, found)


def look(loaded: Loaded) -> Info:
    """Gather what is in the files."""
    from pcfi.inputs.problem import read_problem
    from pcfi.memory import needs
    from pcfi.report.imputation_facts import graph_facts, hop_facts
    from pcfi.settings import Settings
    from pcfi.stages.hops import count_hops

    problem = read_problem(loaded.table, loaded.graph, directed=loaded.graph.directed)
    facts = graph_facts(loaded.graph)
    needed = needs(problem, Settings())
    known = problem.channels
    channels = tuple(
        _channel(problem, column, int(place))
        for column, place in zip(loaded.table.columns, problem.first_channels, strict=True)
    )
    job = job_of(
        problem.values.shape,
        facts.n_edges,
        needed.total,
        n_patterns=len(known.representatives),
        dtype=problem.values.dtype,
        weighted=facts.weighted,
        directed=facts.directed,
    )
    return Info(
        graph=facts,
        n_missing=problem.n_missing,
        n_patterns=len(known.representatives),
        channels=channels,
        hops=hop_facts(count_hops(problem), None, problem.first_channels),
        memory={"filling": needed.total, "tables": int(loaded.nodes.table.nbytes), "available": job.available},
        job=job,
        remarks=(*_remarks(facts, channels), *_markers(problem, channels), *job.remarks()),
    )


def _channel(problem: "Problem", column: "NodeColumn", place: int) -> Channel:
    known = problem.channels
    n_known = int(known.n_known[place])
    low, high = (None, None) if column.codes is not None else (float(known.low[place]), float(known.high[place]))
    return Channel(column.name, n_known, len(problem.values) - n_known, low, high)


def _remarks(graph: GraphFacts, channels: tuple[Channel, ...]) -> list[str]:
    """What the user should know before filling anything."""
    empty = [channel.name for channel in channels if channel.n_known == 0]
    constant = [one.name for one in channels if one.n_known and one.n_missing and one.spread == 0]
    spread = [channel.spread for channel in channels if channel.spread]
    found = []
    if graph.n_isolated:
        found.append(f"{counted(graph.n_isolated, 'node')} without any edge: nothing can flow into them.")
    if empty:
        found.append(f"{counted(len(empty), 'channel')} without any known value, first {empty[0]!r}.")
    if constant:
        found.append(f"{counted(len(constant), 'channel')} whose known values are all equal, first {constant[0]!r}.")
    if spread and max(spread) > 100 * min(spread):
        found.append(
            "The channels have very different ranges: with --alpha and --beta as numbers, add --standardize, so that "
            "none drowns the others."
        )
    if not any(channel.n_missing for channel in channels):
        found.append("Nothing is missing; a marker such as -999 is named with --missing-value.")
    return found


def _markers(problem: "Problem", channels: tuple[Channel, ...]) -> list[str]:
    """Extremes that stand repeatedly and look like marks of missing cells."""
    found: dict[float, list[str]] = {}
    for place, channel in zip(problem.first_channels, channels, strict=True):
        for value in set(MARKS).intersection({channel.low, channel.high}):
            if (problem.values[:, place] == value).sum() > 1:
                found.setdefault(value, []).append(channel.name)
    return [
        f"{value:g} stands repeatedly in {counted(len(names), 'channel')}, first {names[0]!r}: if it means missing, "
        f"add --missing-value {value:g}."
        for value, names in found.items()
    ]


def _show_outline(told: Session, found: Outline) -> None:
    rows = {
        "nodes": f"{found.n_nodes:,}",
        "edges": f"about {found.n_edges:,}",
        "channels": f"{found.n_channels:,}",
        "memory": f"about {size_of(found.job.in_memory)} to fill at once; {size_of(found.job.available)} available",
    }
    _show_rows(told, rows | found.job.rows())
    for remark in ("The files are larger than memory: only their heads were read.", *found.job.remarks()):
        told.answer(f"Note: {remark}")


def _show_rows(told: Session, rows: dict[str, str]) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, text in rows.items():
        table.add_row(name, text)
    told.answer(table)


def _show(told: Session, found: Info) -> None:
    graph = found.graph
    n_cells = graph.n_nodes * len(found.channels)
    kind = ("directed" if graph.directed else "undirected") + (", weighted" if graph.weighted else "")
    rows = {
        "nodes": f"{graph.n_nodes:,}",
        "edges": f"{graph.n_edges:,} ({kind})",
        "components": f"{graph.n_components:,}, the largest of {counted(graph.largest_component, 'node')}",
        "channels": f"{len(found.channels):,} in {counted(found.n_patterns, 'pattern')}",
        "missing": f"{found.n_missing:,} of {counted(n_cells, 'cell')} ({found.n_missing / max(1, n_cells):.1%})",
        "memory": f"about {size_of(found.memory['filling'])} to fill, besides {size_of(found.memory['tables'])} for "
        f"the table; {size_of(found.memory['available'])} available",
    }
    _show_rows(told, rows | found.job.rows())
    _show_channels(told, found)
    _show_hops(told, found)
    for remark in found.remarks:
        told.answer(f"Note: {remark}")


def _show_channels(told: Session, found: Info) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Channels, most missing first", title_justify="left", title_style="bold")
    for name in ("channel", "known", "missing", "least", "most"):
        table.add_column(name, justify="left" if name == "channel" else "right")
    ordered = sorted(found.channels, key=lambda channel: -channel.n_missing)
    for one in ordered[:MOST_ROWS]:
        rate = one.n_missing / max(1, one.n_known + one.n_missing)
        ends = ("" if end is None else f"{end:.4g}" for end in (one.low, one.high))
        table.add_row(Text(one.name), f"{one.n_known:,}", f"{rate:.1%}", *ends)
    told.answer(table)
    if len(ordered) > MOST_ROWS:
        told.answer(f"and {counted(len(ordered) - MOST_ROWS, 'further channel')}; --json lists all")


def _show_hops(told: Session, found: Info) -> None:
    from rich.table import Table

    total = sum(one.n_cells for one in found.hops)
    if not total:
        return
    table = Table(title="Missing cells by hops to the nearest known one", title_justify="left", title_style="bold")
    table.add_column("hops", justify="right")
    table.add_column("cells", justify="right")
    table.add_column("")
    most = max(one.n_cells for one in found.hops)
    for name, n_cells in _few_hops(found):
        table.add_row(name, f"{n_cells:,}", "█" * max(1, round(30 * n_cells / most)) if n_cells else "")
    told.answer(table)


def _few_hops(found: Info) -> list[tuple[str, int]]:
    """The first hops one by one, the others summed up."""
    reached = [one for one in found.hops if one.hops is not None]
    rows = [(one.words, one.n_cells) for one in reached[:MOST_HOPS]]
    if len(reached) > MOST_HOPS:
        rows.append((f"{MOST_HOPS + 1} or more", sum(one.n_cells for one in reached[MOST_HOPS:])))
    return rows + [(one.words, one.n_cells) for one in found.hops if one.hops is None]


command: tuple[Any, dict[str, Any]] = info, {"cls": GroupedCommand}
