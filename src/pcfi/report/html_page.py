"""Facts -> one self-contained HTML page, which needs no other files and no network."""

from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from pcfi.errors import FileError
from pcfi.explanation.explanation_html import ways_picture
from pcfi.files.writing import write_text
from pcfi.optional import load
from pcfi.report.column_table import column_table
from pcfi.report.facts import Facts
from pcfi.report.imputation_charts import make_charts
from pcfi.report.summary import summarize


def render_page(facts: Facts) -> str:
    """Render the report."""
    jinja = load("jinja2", "a report", "cli")
    environment = jinja.Environment(
        loader=jinja.PackageLoader("pcfi.report"), autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True
    )
    template = environment.get_template("report.html")
    return str(
        template.render(
            facts=facts,
            sentences=summarize(facts),
            columns=column_table(facts),
            charts=make_charts(facts),
            pictures=[ways_picture(cell.node, cell.paths) for cell in facts.explained],
            library=vega_script(),
        )
    )


def vega_script() -> str:
    """Vega-Lite as one script. Bundling it takes seconds, so it is stored in the user's cache folder."""
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
