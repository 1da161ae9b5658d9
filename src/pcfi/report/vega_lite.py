"""What all charts of a report share."""

from dataclasses import dataclass
from typing import Any


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


def single(
    words: str, values: Any, mark: Any, encoding: dict[str, Any], height: int = 260, **more: Any
) -> dict[str, Any]:
    """A chart of one layer."""
    return _frame(words, values, height) | {"mark": mark, "encoding": encoding, **more}


def layered(words: str, values: Any, layers: list[dict[str, Any]], height: int = 260) -> dict[str, Any]:
    """A chart of several layers, which draw the same values unless they bring their own."""
    return _frame(words, values, height) | {"layer": layers}


def _frame(words: str, values: Any, height: int) -> dict[str, Any]:
    return {
        "description": words,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": values},
    }


def axis(name: str, kind: str, title: str | None, **more: Any) -> dict[str, Any]:
    """An encoding of a field on an axis, or in a tooltip."""
    return {"field": name, "type": kind, "title": title, **more}


def percent(share: float) -> str:
    """A share in words."""
    return f"{share:.1%}"


def bar(**more: Any) -> dict[str, Any]:
    """Bars with a tooltip."""
    return {"type": "bar", "tooltip": True, "cornerRadiusEnd": 3, **more}
