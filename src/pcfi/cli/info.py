"""`pcfi info`: sizes, missing rates and hops of two files, what explains their columns, and memory and time needed."""

import json
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command, printable
from pcfi.cli.loading import Loaded
from pcfi.cli.requirements import FileSizes, Requirements, read_sizes, requirements
from pcfi.cli.session import Session, open_session
from pcfi.errors import counted
from pcfi.estimation.result import ColumnReport
from pcfi.inputs.missing_markers import marker_text, missing_markers
from pcfi.report.facts import GraphFacts, HopFacts, finite
from pcfi.system_memory import size_in_words

if TYPE_CHECKING:
    from pcfi.inputs.node_columns import NodeColumn
    from pcfi.inputs.problem import Problem

MAX_CHANNELS_SHOWN = 30
MAX_HOPS_SHOWN = 10
MAX_RANGE_RATIO = 100  # of the widest to the narrowest channel; above, the narrow ones hardly count


@dataclass(frozen=True)
class ChannelSummary:
    """Cell counts and range of a channel; a categorical column has no range."""

    name: str
    n_known: int
    n_missing: int
    low: float | None
    high: float | None

    @property
    def spread(self) -> float | None:
        """Range of the known values; None without numbers."""
        return None if self.low is None or self.high is None else self.high - self.low


@dataclass(frozen=True)
class Info:
    """Output of `pcfi info`; the field names are the keys of its JSON."""

    graph: GraphFacts
    n_missing: int
    n_patterns: int
    channels: tuple[ChannelSummary, ...]
    hops: tuple[HopFacts, ...]
    memory: dict[str, int]
    job: Requirements
    remarks: tuple[str, ...]
    columns: tuple[ColumnReport, ...] = ()
    n_judged: int = 0


def info(inputs: o.InputOptions, running: o.RunOptions) -> None:
    """Print sizes, missing rates and hops of two files, what explains their columns, and the memory and time needed.

    No files are written.
    """
    with open_session(**vars(running)) as session:
        sizes = _sizes_on_disk(session, inputs)
        if sizes is not None:
            summary: Info | FileSizes = sizes
        else:
            loaded = inputs.load(session)
            with session.stage("summarise"):
                summary = summarize(loaded)
            with session.stage("evaluate columns"):
                summary = with_column_reports(summary, loaded)
        if running.as_json:
            typer.echo(json.dumps(finite(asdict(summary))))
        if isinstance(summary, Info):
            _show(session, summary)
        else:
            _show_sizes(session, summary)


def _sizes_on_disk(session: Session, inputs: o.InputOptions) -> FileSizes | None:
    """Sizes from the metadata of files that are larger than memory; None for others."""
    if not isinstance(inputs.sources[1], str):
        return None
    columns = inputs.node_columns(), inputs.edge_columns()
    return read_sizes(session, inputs.paths, *columns, directed=bool(inputs.directed))


def summarize(loaded: Loaded) -> Info:
    """Summarise the contents of the files."""
    from pcfi.inputs.problem import read_problem
    from pcfi.memory import estimate_memory
    from pcfi.report.imputation_facts import graph_facts, hop_facts
    from pcfi.settings import Settings
    from pcfi.stages.hops import count_hops

    problem = read_problem(loaded.table, loaded.graph, directed=loaded.graph.directed)
    facts = graph_facts(loaded.graph)
    needed = estimate_memory(problem, Settings())
    known = problem.channels
    channels = tuple(
        _channel(problem, column, int(place))
        for column, place in zip(loaded.table.columns, problem.first_channels, strict=True)
    )
    job = requirements(
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
        remarks=(*_remarks(facts, channels), *_markers(problem), *job.remarks()),
    )


def with_column_reports(summary: Info, loaded: Loaded) -> Info:
    """The summary with the errors on hidden known cells of each column."""
    from pcfi.cli.suitability import judge_columns
    from pcfi.inputs.problem import read_problem

    problem = read_problem(loaded.table, loaded.graph_like, directed=loaded.graph.directed)
    columns, n_judged = judge_columns(problem)
    return replace(summary, columns=tuple(columns), n_judged=n_judged)


def _channel(problem: "Problem", column: "NodeColumn", place: int) -> ChannelSummary:
    known = problem.channels
    n_known = int(known.n_known[place])
    low, high = (None, None) if column.codes is not None else (float(known.low[place]), float(known.high[place]))
    return ChannelSummary(column.name, n_known, len(problem.values) - n_known, low, high)


def _remarks(graph: GraphFacts, channels: tuple[ChannelSummary, ...]) -> list[str]:
    """Notes about possible problems."""
    empty = [channel.name for channel in channels if channel.n_known == 0]
    constant = [one.name for one in channels if one.n_known and one.n_missing and one.spread == 0]
    spread = [channel.spread for channel in channels if channel.spread]
    remarks = []
    if graph.n_isolated:
        remarks.append(f"{counted(graph.n_isolated, 'node')} without any edge: the graph cannot be used to fill them.")
    if empty:
        remarks.append(f"{counted(len(empty), 'channel')} without any known value, first {empty[0]!r}.")
    if constant:
        remarks.append(f"{counted(len(constant), 'channel')} whose known values are all equal, first {constant[0]!r}.")
    if spread and max(spread) > MAX_RANGE_RATIO * min(spread):
        remarks.append(
            "The channels have very different ranges: with --objective representation, add --standardize, so that "
            "wide channels do not dominate."
        )
    if not any(channel.n_missing for channel in channels):
        remarks.append("No cell is missing. If a value such as -999 marks missing cells, name it with --missing-value.")
    return remarks


def _markers(problem: "Problem") -> list[str]:
    """Notes on values that look like markers of missing cells."""
    return [
        f"{marker_text(value, names)}: if it means missing, add --missing-value {value:g}."
        for value, names in missing_markers(problem).items()
    ]


def _show_sizes(session: Session, summary: FileSizes) -> None:
    rows = {
        "nodes": f"{summary.n_nodes:,}",
        "edges": f"about {summary.n_edges:,}",
        "channels": f"{summary.n_channels:,}",
        "memory": f"about {size_in_words(summary.job.in_memory)} to fill at once; "
        f"{size_in_words(summary.job.available)} available",
    }
    _show_rows(session, rows | summary.job.rows())
    for remark in ("The files are processed on disk, so only their metadata was read.", *summary.job.remarks()):
        session.answer(f"Note: {remark}")


def _show_rows(session: Session, rows: dict[str, str]) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, text in rows.items():
        table.add_row(name, text)
    session.answer(table)


def _show(session: Session, summary: Info) -> None:
    graph = summary.graph
    n_cells = graph.n_nodes * len(summary.channels)
    kind = ("directed" if graph.directed else "undirected") + (", weighted" if graph.weighted else "")
    filling, tables, available = (size_in_words(summary.memory[name]) for name in ("filling", "tables", "available"))
    rows = {
        "nodes": f"{graph.n_nodes:,}",
        "edges": f"{graph.n_edges:,} ({kind})",
        "components": f"{graph.n_components:,}, the largest of {counted(graph.largest_component, 'node')}",
        "channels": f"{len(summary.channels):,} in {counted(summary.n_patterns, 'pattern')}",
        "missing": f"{summary.n_missing:,} of {counted(n_cells, 'cell')} ({summary.n_missing / max(1, n_cells):.1%})",
        "memory": f"about {filling} to fill, plus {tables} for the table; {available} available",
    }
    _show_rows(session, rows | summary.job.rows())
    _show_channels(session, summary)
    _show_hops(session, summary)
    _show_columns(session, summary)
    for remark in summary.remarks:
        session.answer(f"Note: {remark}")


def _show_channels(session: Session, summary: Info) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Channels, most missing cells first", title_justify="left", title_style="bold")
    for name in ("channel", "known", "missing", "lowest", "highest"):
        table.add_column(name, justify="left" if name == "channel" else "right")
    ordered = sorted(summary.channels, key=lambda channel: -channel.n_missing)
    for one in ordered[:MAX_CHANNELS_SHOWN]:
        rate = one.n_missing / max(1, one.n_known + one.n_missing)
        ends = ("" if end is None else f"{end:.4g}" for end in (one.low, one.high))
        table.add_row(Text(printable(one.name)), f"{one.n_known:,}", f"{rate:.1%}", *ends)
    session.answer(table)
    if len(ordered) > MAX_CHANNELS_SHOWN:
        session.answer(f"and {counted(len(ordered) - MAX_CHANNELS_SHOWN, 'further channel')}; --json lists all")


def _show_hops(session: Session, summary: Info) -> None:
    from rich.table import Table

    total = sum(one.n_cells for one in summary.hops)
    if not total:
        return
    table = Table(
        title="Missing cells by hops to the nearest known cell of the channel", title_justify="left", title_style="bold"
    )
    table.add_column("hops", justify="right")
    table.add_column("cells", justify="right")
    table.add_column("")
    most = max(one.n_cells for one in summary.hops)
    for name, n_cells in _few_hops(summary):
        table.add_row(name, f"{n_cells:,}", session.bar * max(1, round(30 * n_cells / most)) if n_cells else "")
    session.answer(table)


def _show_columns(session: Session, summary: Info) -> None:
    """Errors on hidden known cells beside those of the mean, and what explains each column."""
    from rich.table import Table
    from rich.text import Text

    reports = [one for one in summary.columns if one.n_missing]
    if not reports:
        return
    part = "" if summary.n_judged == summary.graph.n_nodes else f", on {summary.n_judged:,} nodes"
    title = f"Known cells that were hidden and estimated{part}; explained is 1 - rmse² / mean's"
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in ("column", "hidden", "rmse", "of the mean", "explained", "verdict"):
        table.add_column(name, justify="left" if name in ("column", "verdict") else "right")
    for one in reports[:MAX_CHANNELS_SHOWN]:
        errors = (f"{error:.4g}" if isfinite(error) else "-" for error in (one.rmse, one.rmse_of_mean))
        spread = f" +- {one.standard_error:.0%}" if isfinite(one.standard_error) else ""
        explained = f"{one.r2:.0%}{spread}" if isfinite(one.r2) else "-"
        table.add_row(Text(printable(one.name)), f"{one.n_hidden:,}", *errors, explained, Text(printable(one.verdict)))
    session.answer(table)


def _few_hops(summary: Info) -> list[tuple[str, int]]:
    """Counts for each of the first hops, and the sum of the others."""
    reached = [one for one in summary.hops if one.hops is not None]
    rows = [(one.words, one.n_cells) for one in reached[:MAX_HOPS_SHOWN]]
    if len(reached) > MAX_HOPS_SHOWN:
        rows.append((f"{MAX_HOPS_SHOWN + 1} or more", sum(one.n_cells for one in reached[MAX_HOPS_SHOWN:])))
    return rows + [(one.words, one.n_cells) for one in summary.hops if one.hops is None]


command = grouped_command(info)
