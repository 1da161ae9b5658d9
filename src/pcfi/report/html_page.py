"""Facts -> one self-contained HTML page, which needs no other files and no network."""

from pcfi.explanation.explanation_html import ways_picture
from pcfi.optional import load
from pcfi.report.column_table import column_table
from pcfi.report.facts import Facts
from pcfi.report.imputation_charts import make_charts
from pcfi.report.summary import summarize
from pcfi.report.vega_bundle import vega_script


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
