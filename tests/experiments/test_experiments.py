"""Experiments: the runs behind tables and figures, the scores of cells, expected durations."""

import math
import re

import pytest

from pcfi.errors import ParameterError
from pcfi.experiments.paper import PrintedScore, Score
from pcfi.experiments.run import Record
from pcfi.experiments.runs.durations import RunDurations, format_duration
from pcfi.experiments.runs.store import RunStore
from pcfi.experiments.tables.cells import Condition, TableCell, count_failures, mean_score
from pcfi.experiments.tables.comparison import comparison_table, paired_table, resistance_table, system_pairs
from pcfi.experiments.tables.experiment import Selection
from pcfi.experiments.tables.hops import pooled_by_hops
from pcfi.experiments.tables.paper_experiments import EXPERIMENTS, find_experiments
from pcfi.experiments.tables.text_tables import (
    TextTable,
    full_table,
    heatmap_tables,
    hops_tables,
    selected_parameters_table,
    wide_tables,
)

pytestmark = pytest.mark.slow

CORA = Condition("classification", "Cora", "structural", 0.995)


def done(run, seconds=1.0, **metrics):
    return Record(run, "done", metrics, seconds=seconds)


def stored(tmp_path, records):
    store = RunStore(tmp_path / "runs.jsonl")
    for record in records:
        store.append(record)
    return store


def cell_of(name, label, **place):
    (found,) = [
        cell
        for cell in find_experiments(name)[0].cells
        if cell.label == label and all(getattr(cell.condition, key) == value for key, value in place.items())
    ]
    return found


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_valid_runs_each_once(name):
    (only,) = find_experiments(name)
    assert only.runs
    assert len({run.key for run in only.runs}) == len(only.runs)


def test_table1_asks_for_what_the_paper_ran():
    (table,) = find_experiments("table1")
    assert len(table.cells) == 5 * 2 * 12
    pcfi = cell_of("table1", "PCFI", dataset="Cora", missing="structural")
    assert [run.seed for run in pcfi.runs] == list(range(10))
    assert dict(pcfi.runs[0].parameters) == {"alpha": 0.9, "beta": 1.0}
    assert pcfi.paper["accuracy"] == PrintedScore(75.49, 2.1, 10)
    steps = [
        dict(cell_of("table1", f"FP, {n} steps", dataset="Cora", missing="uniform").runs[0].parameters)
        for n in (40, 100)
    ]
    assert steps == [{"steps": 40}, {"steps": 100}]


def test_table2_compares_both_metrics_with_the_paper():
    pcfi = cell_of("table2", "PCFI", dataset="PubMed", missing="uniform")
    assert pcfi.paper == {"auc": PrintedScore(85.26, 0.36, 10), "ap": PrintedScore(88.52, 0.2, 10)}
    full = cell_of("table2", "Full features", dataset="PubMed", missing="uniform")
    assert full.paper["auc"] == PrintedScore(95.82, 0.27, 10)


def test_equal_computations_are_one_run():
    table, rates = find_experiments("table1")[0], find_experiments("rates")[0]
    lp = [cell for cell in rates.cells if cell.label == "Label propagation" and cell.condition.dataset == "Cora"]
    assert len(lp) == 8
    assert len({run.key for cell in lp for run in cell.runs}) == 10  # it sees no features
    nothing_missing = [cell for cell in rates.cells if cell.condition.rate == 0 and cell.condition.dataset == "Cora"]
    imputing = [cell for cell in nothing_missing if cell.label not in ("Label propagation", "PaGNN, 2 layers")]
    assert {run.system for cell in imputing for run in cell.runs} == {"full"}
    assert len({run.key for cell in imputing for run in cell.runs}) == 10
    shared = {run.key for run in table.runs} & {run.key for run in rates.runs}
    assert {run.system for run in table.runs if run.key in shared} == {"zero", "lp", "pagnn", "fp", "pcfi"}


def test_the_ablation_stands_next_to_the_papers_and_only_at_its_rate():
    row = cell_of("ablation", "row-stochastic", dataset="CiteSeer")
    assert row.paper == {"accuracy": PrintedScore(64.8, 2.6, 10)}
    assert dict(row.runs[0].parameters) == {"alpha": 1.0, "beta": 0.0}
    (rates,) = find_experiments(
        "rates", Selection(datasets=("CiteSeer",), systems=("fp",), rates=(0.5, 0.995), missing=("structural",))
    )
    assert [cell.paper.get("accuracy") for cell in rates.cells] == [None, None, *[PrintedScore(59.76, 2.47, 10)] * 2]


def test_the_solver_experiment_compares_five_configurations():
    cells = [cell for cell in find_experiments("solver")[0].cells if cell.condition[1:3] == ("Cora", "structural")]
    paper = {"alpha": 0.9, "beta": 1.0}
    settled = {"solver": "settled", "alpha": 0.9, "beta": 0.0}
    assert [dict(cell.runs[0].parameters) for cell in cells] == [
        paper,
        {**paper, "solver": "settled"},
        settled,
        {**settled, "center": True},
        {**settled, "alpha": 1.0},
    ]


def test_the_heatmap_spans_the_papers_grid():
    cells = find_experiments("heatmap")[0].cells
    assert sum(cell.condition.task == "classification" for cell in cells) == 9 * 13
    assert sum(cell.condition.task == "links" for cell in cells) == 9 * 7
    assert {round(math.log10(cell.grid_point["beta"]), 6) for cell in cells if cell.condition.task == "links"} == set(
        range(-6, 1)
    )
    assert cells[0].runs[0].key in {run.key for cell in find_experiments("search")[0].cells for run in cell.runs}


def test_a_grid_replaces_the_searchs_and_keeps_the_heatmaps_axes():
    selection = Selection(
        grid={"alpha": (0.5,)}, splits=1, tasks=("links",), systems=("pcfi",), missing=("structural",)
    )
    assert [cell.grid_point["alpha"] for cell in find_experiments("heatmap", selection)[0].cells] == [0.5] * 7
    assert all(len(cell.candidates) == 1 for cell in find_experiments("search", selection)[0].cells)


def test_a_grid_leaves_systems_alone_that_do_not_take_its_parameters():
    selection = Selection(grid={"alpha": (0.5, 0.9)}, systems=("zero", "pcfi"), splits=1, tasks=("classification",))
    zero, pcfi = find_experiments("search", selection)[0].cells[:2]
    assert (len(zero.candidates), len(pcfi.candidates)) == (4 * 3, 2)


def test_parameters_equal_to_the_defaults_do_not_make_another_run():
    two, three = (cell_of("table1", f"PaGNN, {n} layers", dataset="Cora", missing="uniform").runs[0] for n in (2, 3))
    assert [dict(run.parameters) for run in (two, three)] == [{}, {"layers": 3}]


def test_whole_numbers_do_not_make_another_run():
    whole, broken = (
        find_experiments("heatmap", Selection(grid={"alpha": [one], "beta": [one]}))[0] for one in (1, 1.0)
    )
    assert whole.runs == broken.runs
    assert whole.runs[0].key == broken.runs[0].key


def test_all_is_every_experiment_except_the_search():
    assert {one.name for one in find_experiments("all")} == set(EXPERIMENTS) - {"search"}


def test_a_selection_replaces_what_the_paper_ran():
    selection = Selection(
        datasets=("Photo",),
        systems=("mean", "fp"),
        rates=(0.5,),
        missing=("block",),
        splits=2,
        parameters={"epochs": 3, "steps": 7},
    )
    (table,) = find_experiments("table1", selection)
    assert [cell.label for cell in table.cells] == ["Channel mean", "FP, 40 steps", "FP, 100 steps"]
    assert {(run.dataset, run.missing, run.rate, run.seed) for run in table.runs} == {
        ("Photo", "block", 0.5, s) for s in (0, 1)
    }
    assert dict(table.runs[0].parameters) == {"epochs": 3}
    assert dict(table.cells[1].runs[0].parameters) == {"epochs": 3, "steps": 40}  # what a row is about is not overruled


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ({"systems": ("fpp",)}, "unknown system 'fpp': choose from zero, mean"),
        ({"datasets": ("Coral",)}, "unknown data set 'Coral': choose from Cora, CiteSeer"),
        ({"missing": ("none",)}, "unknown kind of missing 'none'"),
        ({"tasks": ("regression",)}, "unknown task 'regression': choose from classification, links"),
        ({"splits": 0}, "splits must be at least 1, got 0"),
        ({"rates": (1.5,)}, "rate must be"),
        ({"parameters": {"epochs": 0}}, "epochs must be"),
        ({"tasks": ("links",)}, "nothing to run"),
    ],
)
def test_wrong_names_list_the_known_ones(selection, words):
    with pytest.raises(ParameterError, match=re.escape(words)):
        find_experiments("table1", Selection(**selection))


def test_an_unknown_experiment_lists_the_known_ones():
    with pytest.raises(ParameterError, match="unknown experiment 'table3': choose from table1, table2"):
        find_experiments("table3")


def test_a_score_is_the_mean_and_the_sample_standard_deviation():
    records = [done(CORA.run("zero", {}, seed), accuracy=value) for seed, value in enumerate((1.0, 2.0, 6.0))]
    assert mean_score(records, "accuracy") == Score(3.0, math.sqrt((4 + 1 + 9) / 2), 3)
    assert mean_score(records[:1], "accuracy") == Score(1.0, None, 1)
    assert mean_score(records, "auc") is None


def test_missing_runs_are_those_without_a_record(tmp_path):
    runs = find_experiments(
        "table1", Selection(datasets=("Cora",), systems=("zero",), splits=3, missing=("structural",))
    )[0].runs
    store = stored(tmp_path, [done(runs[0], accuracy=1.0), Record(runs[1], "failed", message="no")])
    assert store.missing(runs) == [runs[2]]
    assert store.missing(runs, retry=True) == [runs[1], runs[2]]


def test_tables_show_ours_the_papers_their_difference_and_the_splits(tmp_path):
    (table,) = find_experiments(
        "table1", Selection(datasets=("Cora",), systems=("pcfi", "srmgcnn"), splits=3, missing=("structural",))
    )
    pcfi, srmgcnn, _ = table.cells
    ours = [done(run, accuracy=value) for run, value in zip(pcfi.runs, (74.0, 76.0, 78.0), strict=True)]
    store = stored(tmp_path, [*ours, *(Record(run, "out of memory") for run in srmgcnn.runs)])
    full = full_table(table, store)
    assert full.head == ("data set", "missing", "system", "metric", "ours", "paper", "difference", "z", "splits")
    assert full.rows == (
        ("Cora", "structural", "PCFI", "accuracy", "76.00 ± 2.00", "75.49 ± 2.10", "+0.51", "+0.4", "3"),
        ("Cora", "structural", "sRMGCNN", "accuracy", "-", "29.31 ± 0.71", "-", "-", "0, 3 out of memory"),
    )
    (wide,) = wide_tables(table, store)
    assert wide.rows == (("PCFI", "76.00 ± 1.15 [3] (75.49)"), ("sRMGCNN", "out of memory (29.31)"))


def test_wide_tables_average_what_is_complete(tmp_path):
    (table,) = find_experiments(
        "table1", Selection(datasets=("Cora", "CiteSeer"), systems=("pcfi", "zero"), splits=1, missing=("uniform",))
    )
    values = {("pcfi", "Cora"): 78.0, ("pcfi", "CiteSeer"): 70.0, ("zero", "Cora"): 60.0}
    records = [done(run, accuracy=value) for run in table.runs if (value := values.get((run.system, run.dataset)))]
    (wide,) = wide_tables(table, stored(tmp_path, records))
    assert wide.head == ("system", "Cora", "CiteSeer", "average")
    assert wide.rows == (
        ("PCFI", "78.00 [1] (78.53)", "70.00 [1] (69.40)", "74.00 (73.97)"),
        ("Zero", "60.00 [1] (62.63)", "- (63.19)", "- (62.91)"),
    )


def test_an_average_over_unequal_numbers_of_splits_is_marked(tmp_path):
    (table,) = find_experiments(
        "table1", Selection(datasets=("Cora", "CiteSeer"), systems=("pcfi",), splits=3, missing=("uniform",))
    )
    values = {"Cora": (76.0, 78.0, 80.0), "CiteSeer": (69.0, 71.0)}
    records = [
        done(run, accuracy=value)
        for cell in table.cells
        for run, value in zip(cell.runs, values[cell.condition.dataset], strict=False)
    ]
    (wide,) = wide_tables(table, stored(tmp_path, records))
    assert wide.rows[0][3] == f"74.00 ± {math.hypot(2 / math.sqrt(3), 1.0) / 2:.2f}* (73.97)"


def test_nothing_is_chosen_before_every_candidate_was_tried(tmp_path):
    selection = Selection(
        datasets=("Cora",),
        systems=("pcfi",),
        tasks=("classification",),
        missing=("uniform",),
        grid={"alpha": [0.1, 0.5, 0.9], "beta": [0.1]},
    )
    (search,) = find_experiments("search", selection)
    records = [done(run, accuracy=80.0, validation_accuracy=70.0 + place) for place, run in enumerate(search.runs)]
    store = stored(tmp_path, records[:2])
    assert search.cells[0].records(store) == []
    assert full_table(search, store).rows[0][4:] == ("2 of 3 tried", "78.53 ± 1.39", "-", "-", "-")
    assert wide_tables(search, store)[0].rows == (("PCFI", "2 of 3 tried (78.53)"),)
    head = ("classification", "Cora", "uniform", "0.995", "PCFI")
    assert selected_parameters_table(search, store).rows == ((*head, "-", "2 of 3 tried", "0"),)
    store.append(records[2])
    assert selected_parameters_table(search, store).rows == ((*head, "alpha 0.9, beta 0.1", "all 3", "1"),)
    assert wide_tables(search, store)[0].rows == (("PCFI", "80.00 [1] (78.53)"),)


def test_heatmap_tables_have_a_row_per_alpha(tmp_path):
    grid = {"alpha": [0.5, 0.9], "beta": [0.01, 1.0]}
    (heat,) = find_experiments("heatmap", Selection(grid=grid, splits=1, tasks=("classification",)))
    records = [done(run, accuracy=10 * place) for place, run in enumerate(heat.runs[:3])]
    (table,) = heatmap_tables(heat, stored(tmp_path, records))
    assert table.rows == (("0.5", "0.00", "10.00"), ("0.9", "20.00", "-"))


def test_tables_are_escaped_in_every_format():
    table = TextTable("50 % & <b>", ("a|b", "n"), (("<script>", "-1.5"), ("x_y", "+2 ± 1")), text_columns=1)
    assert table.markdown() == "| a\\|b | n |\n| --- | ---: |\n| <script> | -1.5 |\n| x_y | +2 ± 1 |\n"
    assert "<script>" not in table.html()
    assert "&lt;script&gt;" in table.html()
    assert '<td class="number">-1.5</td>' in table.html()
    latex = table.latex()
    assert r"\caption{50 \% \& <b>}" in latex
    assert r"x\_y & $+$2 $\pm$ 1 \\" in latex
    assert r"<script> & $-$1.5 \\" in latex


def test_validation_chooses_among_parameters_and_the_test_metric_does_not(tmp_path):
    candidates = tuple(
        tuple(CORA.run("pcfi", {"alpha": alpha, "beta": 0.1}, seed) for seed in (0, 1)) for alpha in (0.1, 0.5, 0.9)
    )
    cell = TableCell(CORA, "PCFI", candidates)
    validation, test = [[60, 70], [72, 70], [80, 50]], [[99, 99], [71, 73], [0, 0]]
    records = [
        done(run, validation_accuracy=float(validation[i][j]), accuracy=float(test[i][j]))
        for i, runs in enumerate(candidates)
        for j, run in enumerate(runs)
    ]
    store = stored(tmp_path, records)
    best = cell.records(store)
    assert dict(best[0].run.parameters)["alpha"] == 0.5
    assert cell.score(store, "accuracy") == Score(72.0, math.sqrt(2), 2)


def test_choices_are_compared_on_the_splits_that_all_have(tmp_path):
    easy_only = tuple(CORA.run("pcfi", {"alpha": 0.1, "beta": 0.1}, seed) for seed in (0, 1))
    both = tuple(CORA.run("pcfi", {"alpha": 0.9, "beta": 0.1}, seed) for seed in (0, 1))
    records = [
        done(easy_only[0], validation_accuracy=80.0, accuracy=80.0),
        Record(easy_only[1], "failed"),
        done(both[0], validation_accuracy=85.0, accuracy=85.0),
        done(both[1], validation_accuracy=40.0, accuracy=40.0),
    ]
    best = TableCell(CORA, "PCFI", (easy_only, both)).records(stored(tmp_path, records))
    assert [dict(record.run.parameters)["alpha"] for record in best] == [0.9]


def test_failures_are_counted_by_status():
    runs = [CORA.run("zero", {}, seed) for seed in range(4)]
    records = [done(runs[0]), Record(runs[1], "failed"), Record(runs[2], "out of memory"), Record(runs[3], "failed")]
    assert count_failures(records) == "2 failed, 1 out of memory"
    assert count_failures(records[:1]) == ""


def test_hops_are_pooled_over_splits(tmp_path):
    rows = [
        [{"hops": 1, "nodes": 10, "cosine": 0.5, "tested": 4, "correct": 3}],
        [
            {"hops": 1, "nodes": 30, "cosine": 0.1, "tested": 6, "correct": 3},
            {"hops": 2, "nodes": 5, "tested": 0, "correct": 0},
        ],
    ]
    (cells,) = find_experiments("hops-accuracy", Selection(datasets=("Cora",), systems=("gcnmf",), splits=2))
    records = [Record(run, "done", {"accuracy": 1.0}, {"hops": row}) for run, row in zip(cells.runs, rows, strict=True)]
    near, far = pooled_by_hops(records)
    assert (near.accuracy, near.cosine) == (60.0, pytest.approx(0.2))
    assert (far.accuracy, far.cosine) == (None, None)
    (table,) = hops_tables(cells, stored(tmp_path, records), "accuracy")
    assert table.rows == (("GCNMF", "60", "-", "2"),)


def test_expected_durations_come_from_the_most_similar_runs():
    def run(**changes):
        return CORA._replace(**{k: v for k, v in changes.items() if k in CORA._fields}).run(
            "pcfi", {"alpha": 0.5}, changes.get("seed", 0)
        )

    durations = RunDurations([done(run(seed=1), 2.0), done(run(seed=2), 4.0), done(run(missing="uniform"), 50.0)])
    assert durations.expected(run(seed=9)) == 3.0
    assert durations.expected(run(rate=0.5)) == 3.0
    assert durations.expected(run(missing="uniform", rate=0.1)) == 50.0
    assert durations.expected(run(missing="block")) == 4.0
    assert durations.expected(run(dataset="Photo")) is None
    runs = [run(seed=9), run(seed=8), run(dataset="Photo")]
    assert durations.total(runs) == (6.0, 1)
    sentence = "about 3 s, and unknown for 1 (no earlier run of the system on the data set)"
    assert durations.estimate(runs, jobs=2) == sentence
    assert [format_duration(s) for s in (0.2, 40, 700, 12_000)] == ["1 s", "40 s", "12 min", "3 h 20 min"]


def test_an_empty_store_makes_empty_tables(tmp_path):
    for one in find_experiments("all"):
        assert full_table(one, RunStore(tmp_path / "none.jsonl")).rows == ()


def pcfi_records(selection, values):
    (table,) = find_experiments("table1", selection)
    return table, [done(run, accuracy=value) for run, value in zip(table.cells[0].runs, values, strict=True)]


def test_our_draws_and_the_published_ones_stand_beside_the_papers(tmp_path):
    choice = {"datasets": ("Cora",), "missing": ("uniform",), "splits": 2}
    tables, records = zip(
        *(
            pcfi_records(Selection(**choice, systems=(system,), draw=draw), values)
            for system, draw, values in (
                ("pcfi", "own", (78.0, 80.0)),
                ("pcfi", "published", (77.0, 79.0)),
                ("zero", "own", (60.0, 61.0)),
                ("zero", "published", (62.0, 62.0)),
            )
        ),
        strict=True,
    )
    store = stored(tmp_path, [record for part in records for record in part])
    pcfi, zero = list(system_pairs(*tables[:2], "PCFI")), list(system_pairs(*tables[2:], "Zero"))
    error = math.hypot(1.0, 1.39 / 3)
    scores = ("79.00 ± 1.00 [2]", "78.00 ± 1.00 [2]", "78.53 ± 0.46")
    z_scores = (f"{(79 - 78.53) / error:+.1f}", f"{(78 - 78.53) / error:+.1f}")
    assert comparison_table("", pcfi, store).rows == (("Cora", "uniform", "accuracy", *scores, *z_scores),)
    assert paired_table("", zip(pcfi, zero, strict=True), store).rows == (
        ("Cora", "uniform", "accuracy", "18.50 ± 0.50 [2]", "16.00 ± 1.00 [2]", "15.90"),
    )


def test_resistance_is_the_change_of_the_average_from_full_features(tmp_path):
    selection = Selection(datasets=("Cora", "CiteSeer"), missing=("uniform",), rates=(0.0, 0.9), splits=1)
    (table,) = find_experiments("resistance", selection)
    values = {("Cora", 0.0): 82.0, ("Cora", 0.9): 80.0, ("CiteSeer", 0.0): 70.0, ("CiteSeer", 0.9): 69.0}
    store = stored(tmp_path, [done(run, accuracy=values[run.dataset, run.rate]) for run in table.runs])
    full, rest = (82.35 + 70.98) / 2, (79.55 + 69.92) / 2
    texts = f"76.00 ({full:.2f})", f"74.50, -1.50 ({rest:.2f}, {rest - full:+.2f})"
    assert resistance_table(table, store).rows == (("uniform", *texts),)
