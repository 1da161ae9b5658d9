"""Charts as Vega-Lite specifications, and shorthands to write them."""

from dataclasses import dataclass
from typing import Any

TYPES = {"Q": "quantitative", "N": "nominal", "O": "ordinal"}
DASHED = {"strokeDash": [4, 4], "color": "gray", "aria": False}  # reference line
PERCENT_SCALE = {"axis": {"format": "%"}, "scale": {"domain": [0, 1]}}


@dataclass(frozen=True)
class Chart:
    """A chart, with a caption and a table of the same data.

    Attributes
    ----------
    name : str
        Identifier in the page.
    title, caption : str
    spec : dict
        Vega-Lite specification.
    header, rows : tuple
        The table; empty if there is none.
    choices : tuple of str
        Values of the parameter `choice`, which the reader selects.
    chosen : int
        Index of the initial choice.
    wide : bool
        Whether the chart takes the full width of the page.
    """

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    choices: tuple[str, ...] = ()
    chosen: int = 0
    wide: bool = False


def specification(caption: str, values: Any, height: int = 260, **content: Any) -> dict[str, Any]:
    """A specification; `content` is a mark with its encoding, or layers, which use `values` by default."""
    return {
        "description": caption,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": values},
        **content,
    }


def encode(shorthand: str, title: str | None, **more: Any) -> dict[str, Any]:
    """Encoding of a field.

    >>> encode("hops:O", "hops")
    {'field': 'hops', 'type': 'ordinal', 'title': 'hops'}
    """
    name, _, kind = shorthand.partition(":")
    return {"field": name, "type": TYPES[kind], "title": title, **more}


def tooltip(**fields: tuple[str, str]) -> list[dict[str, Any]]:
    """Tooltip that shows fields, each with a title and a number format ("" for text)."""
    return [
        encode(f"{name}:Q", title, format=form) if form else encode(f"{name}:N", title)
        for name, (title, form) in fields.items()
    ]


def mark(kind: str, **more: Any) -> dict[str, Any]:
    """A mark that shows a tooltip."""
    return {"type": kind, "tooltip": True, **more}


def percent(share: float) -> str:
    """A share as text."""
    return f"{share:.1%}"
