"""`pcfi audit`: measure how well a withheld attribute can be recovered from the graph and the other columns."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command
from pcfi.cli.loading import fill_loaded
from pcfi.cli.session import open_session
from pcfi.errors import ParameterError
from pcfi.inputs.cell_names import CellNames


@dataclass(frozen=True)
class AuditOptions:
    """What to audit."""

    column: str = o.filling_option("--column", "COLUMN", "Attribute that some nodes withhold.", default=...)
    group: str | None = o.filling_option("--group", "COLUMN", "Node column; its groups are reported separately.")
    most: int = o.filling_option("--most", "NUMBER", "Number of most exposed nodes to print.", default=10)


def audit(
    inputs: o.InputOptions, audited: AuditOptions, estimation: o.EstimationOptions, running: o.RunOptions
) -> None:
    """Measure how well an attribute can be recovered for nodes that withhold it (missing cells).

    Known cells are hidden in the same pattern as the missing cells, estimated, and compared with their true values. No
    files are written.

    Example: pcfi audit nodes.csv edges.csv --column income --group region
    """
    with open_session(**vars(running)) as session:
        parameters = estimation.parameters(directed=inputs.directed)
        loaded = inputs.load(session)
        CellNames.of_table(loaded.table).column(audited.column, len(loaded.table.columns))
        groups = None
        if audited.group is not None:
            if audited.group not in loaded.nodes.table.column_names:
                raise ParameterError(f"--group {audited.group!r} is not a column of {inputs.nodes}")
            groups = loaded.nodes.table[audited.group].to_pylist()
        result = fill_loaded(session, loaded, parameters)
        with session.stage("audit"):
            from pcfi.explanation.exposure import find_exposure

            exposure = find_exposure(result.cells, audited.column, groups, audited.most)
        if running.as_json:
            from pcfi.report.facts import finite

            typer.echo(json.dumps(finite(asdict(exposure)), default=str))
        session.answer("\n".join(_lines(exposure)))


def _lines(exposure: Any) -> list[str]:
    from pcfi.explanation.explanation import number

    overall = exposure.recovery[0]
    unit = "share wrong" if exposure.is_category else "rmse"
    lines = [
        f"{exposure.column} is withheld at {exposure.n_withheld:,} nodes. {_verdict(overall, exposure.is_category)}",
        f"{'':<20} {'hidden':>7} {unit:>12} {'baseline':>12} {'recovered':>10}",
    ]
    lines += [
        f"{one.group:<20} {one.n_hidden:>7,} {number(one.error):>12} {number(one.error_of_mean):>12} "
        f"{one.explained:>10.0%}"
        for one in exposure.recovery
    ]
    if not exposure.is_category:
        width, usual = number(exposure.interval_width), number(exposure.usual_width)
        lines.append(f"Half of the 90 % intervals are narrower than {width}; 90 % of the known values span {usual}.")
        lines += ["Most exposed, by the width of the interval:"]
        lines += [f"{number(width):>12}  {node}" for node, width in exposure.most_exposed]
    return lines


def _verdict(overall: Any, is_category: bool) -> str:
    if not overall.explained > 0 or 100 * overall.explained < 2 * overall.standard_error:
        return "It cannot clearly be recovered: estimates are not clearly better than the baseline."
    part = f"{overall.explained:.0%} +- {overall.standard_error:.0f} %"
    kind = "wrong categories" if is_category else "squared error"
    return f"It can partly be recovered: {part} of the {kind} of the baseline {'are' if is_category else 'is'} avoided."


command = grouped_command(audit)
