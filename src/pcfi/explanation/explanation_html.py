"""An explanation as HTML: the list, and a picture of the paths from the filled cell to the known ones."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from pcfi.explanation.explanation import Explanation

STEP, ROW, RADIUS, MARGIN = 56, 30, 7, 14  # of the picture, in pixels
MAX_STEPS = 6  # nodes of a way that are drawn; longer ones are cut in the middle
MAX_LABEL = 24  # characters


def explanation_html(explanation: Explanation) -> str:
    """A fragment of HTML without scripts; all names are escaped."""
    rows = "".join(
        f'<tr><td style="text-align:right;white-space:nowrap">{escape(amount)}</td>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for amount, text in explanation.lines()
    )
    table = f"<table><tbody>{rows}</tbody></table>" if rows else ""
    remarks = "".join(f"<p>{escape(remark)}</p>" for remark in explanation.remarks)
    picture = ways_picture(str(explanation.node), explanation.paths)
    return f"<div><p><strong>{escape(explanation.title)}</strong></p>{table}{picture}{remarks}</div>"


def ways_picture(node: str, ways: Iterable[Sequence[Any]]) -> str:
    """One line per way as SVG: the filled cell, the missing cells between, and the known cell at its end."""
    paths = [_shortened([str(step) for step in way]) for way in ways]
    if not paths:
        return ""
    width = 2 * MARGIN + STEP * (max(map(len, paths)) - 1) + 8 * MAX_LABEL
    height = ROW * len(paths) + MARGIN
    lines = "".join(_way(path, MARGIN + ROW * place) for place, path in enumerate(paths))
    label = escape(f"Ways from {node} to the known cells that matter most")
    return (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'style="max-width:100%;height:auto" font-family="sans-serif" font-size="12">{lines}</svg>'
    )


def _way(path: list[str], y: int) -> str:
    end = MARGIN + STEP * (len(path) - 1)
    parts = [f'<line x1="{MARGIN}" y1="{y}" x2="{end}" y2="{y}" stroke="#888"/>']
    for place, name in enumerate(path):
        fill = "#1f77b4" if place == len(path) - 1 else ("#d62728" if place == 0 else "#fff")
        title = f"<title>{escape(name)}</title>"
        circle = (
            f'<circle cx="{MARGIN + STEP * place}" cy="{y}" r="{RADIUS}" fill="{fill}" stroke="#555">{title}</circle>'
        )
        parts.append(circle)
    name = path[-1] if len(path[-1]) <= MAX_LABEL else path[-1][: MAX_LABEL - 1] + "…"
    parts.append(f'<text x="{end + 2 * RADIUS}" y="{y + 4}" fill="currentColor">{escape(name)}</text>')
    return "".join(parts)


def _shortened(path: list[str]) -> list[str]:
    if len(path) <= MAX_STEPS:
        return path
    return [*path[:2], f"{len(path) - 4} more", *path[-2:]]
