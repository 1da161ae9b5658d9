"""Vega-Lite as one script for the page, from the package vl-convert-python."""

from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from pcfi.errors import FileError
from pcfi.files.writing import write_text
from pcfi.optional import load


def vega_script() -> str:
    """Return the script. Bundling it takes seconds, so it is cached in the user's cache folder."""
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
