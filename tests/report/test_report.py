"""The report: facts are right and survive JSON, the page is whole, small and safe; Chromium draws it in silence."""

import dataclasses
import json
import shutil

import numpy as np
import platformdirs
import pytest

import pcfi
from command_line import features, ring
from pcfi.errors import FileError
from pcfi.report.column_table import column_table
from pcfi.report.evaluation_facts import evaluation_facts, method_errors
from pcfi.report.facts import Facts
from pcfi.report.graph_drawing import MAX_NODES, _clip_outliers, lay_out_graph
from pcfi.report.html_page import render_page, vega_script
from pcfi.report.imputation_charts import make_charts
from pcfi.report.imputation_facts import FilledChannels, RunDetails, collect_facts
from pcfi.report.summary import summarize

pytestmark = pytest.mark.slow

EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
NAMES = [EVIL, 'income & "wealth"', "</script><b>height</b>"]


def make_facts(values=None, edges=None, names=NAMES, **options):
    values = features() if values is None else values
    graph = pcfi.prepare_graph(ring(len(values)) if edges is None else edges, len(values))
    result = pcfi.impute(values, graph, **options)
    evaluation = evaluation_facts(pcfi.evaluate(values, graph, folds=2))
    filling = FilledChannels.of_arrays(values, result.values, names=names, node_name=lambda node: f"{EVIL} {node}")
    details = RunDetails(EVIL, f"pcfi impute {EVIL}", {"solver": pcfi.UntilSettled()}, {"nodes": EVIL}, {"read": 0.5})
    return collect_facts(filling, result, graph, dataclasses.replace(details, warnings=(EVIL,), evaluation=evaluation))


@pytest.fixture(scope="module")
def facts():
    return make_facts(alpha=0.6)


def test_facts_are_those_of_the_imputation(facts):
    values, result = features(), pcfi.impute(features(), ring(), alpha=0.6)
    missing = np.isnan(values)
    assert [channel.n_missing for channel in facts.channels] == missing.sum(axis=0).tolist()
    assert facts.n_missing == result.n_missing
    assert facts.channels[1].mean_known == pytest.approx(np.nanmean(values[:, 1]))
    assert facts.channels[1].mean_filled == pytest.approx(result.values[:, 1][missing[:, 1]].mean())
    assert {one.hops: one.n_cells for one in facts.hops} == dict(
        zip(*(part.tolist() for part in np.unique(result.hops[missing], return_counts=True)), strict=True)
    )
    assert [one.confidence for one in facts.hops] == [result.alpha**one.hops for one in facts.hops]
    for channel in facts.channels:
        assert (sum(channel.histogram.known), sum(channel.histogram.filled)) == (channel.n_known, channel.n_missing)
    shown = [dot.confidence for dot in facts.picture.dots]
    mean = [result.confidence[row][missing[row]].mean() if missing[row].any() else None for row in range(len(values))]
    assert shown == [None if one is None else pytest.approx(one, abs=1e-4) for one in mean]
    assert sorted(facts.picture.edges) == sorted((min(a, b), max(a, b)) for a, b in ring().T.tolist())


def test_the_chart_of_confidence_says_how_many_cells_have_at_least_that_much(facts):
    result, missing = pcfi.impute(features(), ring(), alpha=0.6), np.isnan(features())
    shown = next(chart for chart in make_charts(facts) if chart.name == "confidence").spec["data"]["values"]
    for point in shown:
        share = (result.confidence[missing] >= point["confidence"]).mean()
        assert point["share"] == pytest.approx(share)
    assert (shown[0]["confidence"], shown[-1]["confidence"]) == (1.0, 0.0)


def test_confidence_is_not_shown_where_it_is_the_same_everywhere():
    made = make_facts(alpha=1.0)
    assert "confidence" not in [chart.name for chart in make_charts(made)]
    assert "mean confidence" not in " ".join(summarize(made))


def test_every_mention_of_confidence_says_that_it_is_not_a_probability(facts):
    said = [chart.caption for chart in make_charts(facts)] + summarize(facts)
    said = [text for text in said if "confidence" in text]
    assert len(said) == 3
    assert all("not a probability" in text for text in said)


def test_the_table_of_columns_shows_what_hidden_cells_say():
    facts = make_facts()
    reports = pcfi.impute(features(), ring()).columns
    assert facts.columns == tuple(reports)
    evil = dataclasses.replace(reports[0], name=EVIL, rmse=float("nan"))
    complete = dataclasses.replace(reports[1], name="whole", n_missing=0)
    table = column_table(dataclasses.replace(facts, columns=(evil, complete, reports[2])))
    assert table.header == (
        "column",
        "missing",
        "root mean squared error",
        "of the mean",
        "R²",
        "covered by 90% intervals",
        "what explains it",
    )
    assert [row[0] for row in table.rows] == [EVIL, reports[2].name]
    assert table.rows[0][2] == "-"
    third = reports[2]
    assert table.rows[1][1:4] == (str(third.n_missing), f"{third.rmse:.4g}", f"{third.rmse_of_mean:.4g}")
    assert table.rows[1][4:] == (f"{third.r2:.2f}", f"{third.coverage:.0%}", third.verdict)
    page = render_page(dataclasses.replace(facts, columns=(evil,)))
    assert '<h2 id="columns">Columns</h2>' in page
    assert "<script>window.hacked" not in page
    covered = sum(one.coverage * one.n_hidden for one in reports) / sum(one.n_hidden for one in reports)
    assert f"the 90% intervals covered {covered:.1%} of" in summarize(facts)[1]


def test_the_report_explains_telling_cells_and_says_what_to_check_and_measure():
    values = features()
    wrong = int(np.flatnonzero(np.isfinite(values[:, 1]))[3])
    values[wrong, 1] *= 10
    made, result = make_facts(values), pcfi.impute(values, ring())
    missing = np.isnan(values)
    expected = np.where(missing, result.cells.standardized_errors, -1.0)
    uncertain = np.unravel_index(np.argmax(expected), values.shape)
    (first,) = [cell for cell in made.explained if "least certain" in cell.reason]
    assert first.title == result.explain(int(uncertain[0]), int(uncertain[1])).title
    assert any("mean of the column" in text for _, text in first.lines)
    assert (made.surprises[0].node, made.surprises[0].column) == (str(wrong), "column 1")
    assert [one.node for one in made.suggestions] == [str(node) for node in pcfi.suggest(result, 20).nodes]
    charts = {chart.name: chart for chart in make_charts(made)}
    assert charts["surprises"].rows[0][:2] == (str(wrong), "column 1")
    assert charts["suggestions"].spec["data"]["values"][1]["left"] == pytest.approx(1 - made.suggestions[0].total)
    assert [row[0] for row in charts["explained"].rows] == [one.name for one in result.columns]
    page = render_page(made)
    assert "Explanations of filled values" in page
    assert page.count("<details><summary>") > len(charts)  # folded until asked for
    nothing = dataclasses.replace(made, explained=(), surprises=(), suggestions=())
    assert "Explanations of filled values" not in render_page(nothing)
    assert not {"surprises", "suggestions"} & {chart.name for chart in make_charts(nothing)}
    assert made.explained == Facts.from_json(made.to_json()).explained


def test_facts_of_a_version_without_reports_of_columns_render(facts):
    data = json.loads(facts.to_json())
    del data["columns"]
    assert '<h2 id="columns">' not in render_page(Facts.from_json(json.dumps(data)))


def test_facts_survive_json(facts):
    assert Facts.from_json(facts.to_json()) == facts


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.update(layout=99), "layout 99"),
        (lambda data: data.pop("channels"), "incomplete"),
        (lambda data: data.update(channels=3), "facts.channels must be a list"),
        (lambda data: data["graph"].update(n_nodes="many"), "facts.graph.n_nodes must be int"),
        (lambda data: data.update(nonsense=1), "nonsense"),
    ],
)
def test_facts_that_are_none_are_refused(facts, change, words):
    data = json.loads(facts.to_json())
    change(data)
    with pytest.raises(FileError, match=words):
        Facts.from_json(json.dumps(data))


def test_the_page_is_one_small_file_without_foreign_html(facts):
    page = render_page(facts)
    assert len(page.encode()) < 2_000_000
    assert "<script>window.hacked" not in page
    assert "<img src=x" not in page
    assert "</script><b>height" not in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert not any(f'{attribute}="http' in page for attribute in ("src", "href"))


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda _name: tmp_path)
    script = vega_script()
    (kept,) = tmp_path.iterdir()
    assert kept.read_text(encoding="utf-8") == script
    kept.unlink()
    kept.mkdir()
    assert vega_script() == script
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")
def test_summary_says_what_happened(facts):
    said = " ".join(summarize(facts))
    assert f"{facts.n_missing:,} of 120 cells" in said
    assert "40 nodes, 40 edges and 1 component." in said
    assert "Every missing cell is reachable" in said
    cut = make_facts(edges=ring()[:, :10], unreachable="zero")
    assert "cannot be reached from any known cell" in " ".join(summarize(cut))
    assert "have no edge." in " ".join(summarize(cut))


@pytest.mark.filterwarnings("ignore::pcfi.PcfiWarning")
@pytest.mark.parametrize("method", ["fp", "mean"])
def test_methods_without_confidence_have_a_report_too(method):
    page = render_page(make_facts(method=method))
    assert "Confidence of filled cells" not in page
    assert "Missing cells by channel" in page


@pytest.mark.filterwarnings("ignore::pcfi.PcfiWarning")
def test_odd_features_have_a_report():
    values = np.full((40, 3), np.nan)
    values[:, 0] = 5.0
    values[0, 1] = values[1, 1] = 1e300
    values[3, 1] = -1e300
    made = make_facts(values)
    assert made.channels[2].mean_known is None
    assert made.channels[0].n_missing == 0
    assert Facts.from_json(made.to_json()).n_unreachable == 40
    assert len(make_charts(made)) >= 5
    render_page(made)


def test_many_channels_and_nodes_are_summed_up():
    rng = np.random.default_rng(0)
    values = np.where(rng.random((2000, 100)) < 0.5, rng.normal(size=(2000, 100)), np.nan)
    made = make_facts(values, rng.integers(0, 2000, size=(2, 9000)), [f"c{place}" for place in range(100)])
    assert sum(channel.histogram is not None for channel in made.channels) == 40
    assert len(made.picture.dots) == 300
    missing = next(chart for chart in make_charts(made) if chart.name == "missing")
    assert sum(one["channels"] for one in missing.spec["data"]["values"]) == 100
    assert len(render_page(made)) < 2_000_000


def test_errors_of_an_evaluation_are_in_the_facts():
    found = pcfi.evaluate(features(), ring(), methods=("mean", "pcfi"), folds=2, unit="deviation")
    made = evaluation_facts(found)
    assert [one.rmse for one in made.methods] == [one.scores["rmse"] for one in found.methods]
    for one in made.methods:
        assert sum(at.n_cells for at in one.by_hops) == made.n_hidden == found.n_hidden
    assert [one.method for one in made.reliability] == ["pcfi"]
    assert sum(one.cells for one in made.reliability[0].bins) == found.n_hidden


def test_the_charts_of_reliability_show_what_was_found(facts):
    made = {chart.name: chart for chart in make_charts(facts)}
    found = facts.evaluation.reliability[0]
    shown = made["coverage"].spec["data"]["values"]
    assert [one["covered"] for one in shown] == [at.covered for at in found.by_hops if at.hops >= 0]
    pairs = [(one["expected"], one["actual"]) for one in made["expected-errors"].spec["data"]["values"]]
    assert pairs == [(one.expected, one.actual) for one in found.bins]
    assert f"covered {found.covered:.1%} of the hidden numbers" in " ".join(summarize(facts))


def test_many_small_components_fill_the_sample():
    pairs = pcfi.prepare_graph(np.arange(4000).reshape(2, 2000))
    drawing = lay_out_graph(pairs, np.ones(4000), str)
    assert len(drawing.dots) == MAX_NODES
    assert len(drawing.edges) >= MAX_NODES // 2 - 1


def test_an_outlying_node_does_not_squeeze_the_picture():
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.normal(size=(100, 2)), [[500.0, -500.0]]])
    drawn = _clip_outliers(places)
    near = drawn[:100]
    assert (np.ptp(near, axis=0) > 0.6 * np.ptp(drawn, axis=0)).all()
    middle = np.abs(places) < 1
    np.testing.assert_array_equal(drawn[middle], places[middle])


def test_a_tie_has_no_winner(facts):
    methods = [dataclasses.replace(one, rmse=1.0) for one in facts.evaluation.methods[:2]]
    tie = dataclasses.replace(facts, evaluation=dataclasses.replace(facts.evaluation, methods=tuple(methods)))
    text = " ".join(summarize(tie))
    assert "had the same, smallest error on" in text
    assert "had the smallest error" not in text


def test_every_chart_has_a_table(facts):
    for chart in make_charts(facts):
        assert chart.rows, chart.name
        assert {len(row) for row in chart.rows} == {len(chart.header)}


def test_errors_against_a_known_truth_are_counted_by_hops():
    values, result = features(), pcfi.impute(features(), ring(), alpha=0.5, beta=0.0, objective="representation")
    truth = features(rate=0.0)
    removed = np.isnan(values)
    one = method_errors({"pcfi": result.values - truth}, {"pcfi": 1.5}, removed, result.cells.hops)[0]
    wrong = (result.values - truth)[removed]
    assert one.rmse == pytest.approx(np.sqrt(np.mean(wrong**2)))
    assert one.mae == pytest.approx(np.abs(wrong).mean())
    for at in one.by_hops:
        assert at.error == pytest.approx(np.sqrt(np.mean(wrong[result.hops[removed] == at.hops] ** 2)))


# In a browser.


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory, facts):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_page(facts), encoding="utf-8")
    return path


def visit(browser, path, width, scheme):
    """The page when its charts are drawn, with all that it said and asked for."""
    tab = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    said, asked = [], []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-charts=drawn], html[data-charts=failed]", timeout=60_000)
    return tab, said, asked


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_chromium_draws_every_chart_without_a_word_or_a_request(browser, page_file, facts, width, scheme):
    tab, said, asked = visit(browser, page_file, width, scheme)
    assert said == []
    assert asked == [page_file.as_uri()]
    assert tab.evaluate("document.documentElement.dataset.charts") == "drawn"
    drawn = tab.evaluate("[...document.querySelectorAll('.chart')].map(c => c.querySelectorAll('svg path').length)")
    assert len(drawn) == len(make_charts(facts)) >= 11
    assert min(drawn) > 2
    nodes = "document.querySelectorAll('#chart-graph path[aria-roledescription=point]').length"
    assert tab.evaluate(nodes) == len(facts.picture.dots)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.filterwarnings("ignore::pcfi.PcfiWarning")
def test_bars_of_many_channels_have_a_width(browser, tmp_path):
    rng = np.random.default_rng(1)
    values = np.where(rng.random((40, 70)) < 0.6, rng.normal(size=(40, 70)), np.nan)
    path = tmp_path / "many.html"
    path.write_text(render_page(make_facts(values, names=[f"c{place}" for place in range(70)])), encoding="utf-8")
    tab, said, _ = visit(browser, path, 1280, "light")
    bars = "[...document.querySelectorAll('#chart-missing path[aria-roledescription=bar]')].map(b => b.getBBox().width)"
    assert min(tab.evaluate(bars)) > 5
    assert said == []


def test_names_do_not_become_html(browser, page_file):
    tab, _, _ = visit(browser, page_file, 1280, "light")
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.querySelectorAll('img, main b').length") == 0
    assert tab.inner_text("h1") == EVIL
    assert tab.evaluate("[...document.querySelectorAll('option')].map(o => o.textContent)") == NAMES
    tab.hover("#chart-graph path[aria-roledescription=point] >> nth=0")
    tab.wait_for_selector("#vg-tooltip-element.visible")
    assert EVIL in tab.inner_text("#vg-tooltip-element")
    assert tab.evaluate("window.hacked") is None


def test_the_page_can_be_used_by_keyboard_and_heard(browser, page_file):
    tab, said, _ = visit(browser, page_file, 1280, "light")
    before = tab.inner_html("#chart-distributions svg")
    tab.focus("#choice-distributions")
    tab.keyboard.press("ArrowDown")
    tab.wait_for_function("html => document.querySelector('#chart-distributions svg').innerHTML !== html", arg=before)
    tab.focus("#theme")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("html[data-theme=dark][data-charts=drawn]")
    assert tab.get_attribute("#theme", "aria-pressed") == "true"
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 27)"
    assert tab.evaluate("[...document.querySelectorAll('.chart svg')].every(svg => svg.querySelector('[aria-label]'))")
    assert tab.evaluate("document.querySelectorAll('h1').length") == 1
    titles = tab.evaluate("[...document.querySelectorAll('section')].map(s => s.getAttribute('aria-labelledby'))")
    assert all(tab.inner_text(f"#{title}") for title in titles)
    assert said == []
