"""The chart library (Vega-Lite), as one script to be put into a page; it comes with the package vl-convert-python."""

import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from pcfi.optional import load


def chart_library() -> str:
    """The script; putting it together takes seconds, so it is kept in the user's cache."""
    cache = load("platformdirs", "a report", "cli").user_cache_path("pcfi")
    place: Path = cache / f"charts-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        return place.read_text(encoding="utf-8")
    bundle = load("vl_convert", "a report", "cli").javascript_bundle("window.vegaEmbed = vegaEmbed;")
    script = str(bundle).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    with suppress(OSError):
        _keep(script, place)
    return script


def _keep(script: str, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    scratch.write_text(script, encoding="utf-8")
    scratch.replace(place)
