"""The chart library (Vega-Lite), as one script to be put into a page; it comes with the package vl-convert-python."""

from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from pcfi.errors import FileError
from pcfi.files.writing import write_text
from pcfi.optional import load


def chart_library() -> str:
    """The script; putting it together takes seconds, so it is kept in the user's cache."""
    cache = load("platformdirs", "a report", "cli").user_cache_path("pcfi")
    place: Path = cache / f"charts-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        return place.read_text(encoding="utf-8")
    bundle = load("vl_convert", "a report", "cli").javascript_bundle("window.vegaEmbed = vegaEmbed;")
    script = str(bundle).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    with suppress(OSError, FileError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(script, str(place), force=True)
    return script
