"""Facts -> one HTML page that needs nothing else, neither files nor a network."""

from pcfi.optional import load
from pcfi.report.facts import Facts
from pcfi.report.imputation_charts import charts
from pcfi.report.summary import summary
from pcfi.report.vega_bundle import chart_library


def paint(facts: Facts) -> str:
    """The page."""
    jinja = load("jinja2", "a report", "cli")
    environment = jinja.Environment(
        loader=jinja.PackageLoader("pcfi.report"), autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True
    )
    template = environment.get_template("report.html")
    return str(template.render(facts=facts, sentences=summary(facts), charts=charts(facts), library=chart_library()))
