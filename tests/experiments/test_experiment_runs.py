"""Runs: names and parameters are checked, records carry what tables and figures need."""

import subprocess
import sys

import numpy as np
import pytest

from pcfi.errors import ParameterError
from pcfi.experiments.catalog import SYSTEMS, default_parameters, parameters_of, validate
from pcfi.experiments.paper import METRICS, paper_ablations, paper_parameters, paper_value
from pcfi.experiments.run import Run
from pcfi.experiments.runs.execution import cosine_similarity, execute, scores_by_hops

pytestmark = pytest.mark.slow


def run(**changes):
    return Run(
        **{
            "task": "classification",
            "dataset": "Cora",
            "missing": "structural",
            "rate": 0.995,
            "system": "pcfi",
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "clustering"}, "task must be one of classification, links, got 'clustering'"),
        ({"dataset": "Kora"}, "dataset must be one of Cora, .* or homophily-<homophily>-scale-<scale>"),
        (
            {"missing": "random"},
            "missing must be one of structural, uniform, block, degree, value, class, got 'random'",
        ),
        ({"system": "magic"}, "system must be one of zero, mean, .*pcfi, .*full, got 'magic'"),
        (
            {"system": "lp", "task": "links"},
            "'lp' does not support task 'links': choose one of zero, mean, neighbors, srmgcnn",
        ),
        ({"rate": 1.0}, "rate must be a number of at least 0 and less than 1, got 1.0"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        (
            {"parameters": (("gamma", 1),)},
            "a parameter of system 'pcfi' in task 'classification' must be one of .*alpha",
        ),
        ({"parameters": (("alpha", 0),)}, "alpha must be a number greater than 0 and at most 1, got 0"),
        ({"parameters": (("epochs", 2.5),)}, "epochs must be an integer of at least 1, got 2.5"),
        ({"parameters": (("solver", "magic"),)}, "solver must be one of 'fixed', 'settled', got 'magic'"),
    ],
)
def test_unknown_names_and_values_are_refused_with_the_known_ones(changes, message):
    with pytest.raises(ParameterError, match=message):
        validate(run(**changes))
    with pytest.raises(ParameterError, match=message):
        execute(run(**changes))


def test_checking_runs_loads_neither_torch_nor_scipy():
    code = (
        "import sys; from pcfi.experiments.catalog import validate; import pcfi.experiments.runs.execution;"
        "from pcfi.experiments.run import Run;"
        "validate(Run('links', 'homophily-0.3-scale-2', 'value', 0.5, 'gcnmf'));"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "torch_geometric", "scipy", "sklearn", "numba", "pyarrow"} & set(loaded)


def test_defaults_are_complete_and_allowed():
    for name, system in SYSTEMS.items():
        for task in system.tasks:
            for dataset in ("Cora", "OGBN-Arxiv", "homophily-0.3-scale-2"):
                default_run = run(system=name, task=task, dataset=dataset)
                validate(default_run)
                defaults = default_parameters(default_run)
                chosen_later = {"lp": {"alpha"}, "srmgcnn": {"gamma"}}.get(name, set())
                for parameter, known in parameters_of(default_run).items():
                    assert parameter in chosen_later or known.rule.accepts(defaults[parameter]), parameter


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"alpha": 0.9, "beta": 1.0, "steps": 100, "self_loops": True, "learning_rate": 0.005, "hidden": 64}),
        ({"rate": 0.6, "missing": "uniform"}, {"alpha": 0.5, "beta": 1.0}),
        ({"rate": 0.9, "missing": "degree"}, {"alpha": 0.9, "beta": 0.1}),
        ({"dataset": "homophily-0.3-scale-2"}, {"alpha": 0.5, "beta": 0.1}),
        ({"dataset": "Photo", "task": "links"}, {"alpha": 0.1, "learning_rate": 0.001, "self_loops": False}),
        ({"dataset": "OGBN-Arxiv"}, {"hidden": 256, "jumping": True}),
        ({"system": "gcnmf"}, {"hidden": 16, "layers": 2, "weight_decay": 0.01, "patience": 100}),
        ({"system": "gcnmf", "task": "links"}, {"hidden": 32, "latent": 16, "learning_rate": 0.005}),
        ({"system": "fp"}, {"steps": 40}),
        ({"system": "full", "task": "links"}, {"learning_rate": 0.001}),
        ({"system": "full", "task": "links", "dataset": "PubMed"}, {"learning_rate": 0.01}),
    ],
)
def test_defaults_are_the_papers(changes, expected):
    defaults = default_parameters(run(**changes))
    assert {name: defaults[name] for name in expected} == expected


def test_the_papers_facts_can_be_asked_for():
    assert paper_parameters("classification", "Photo", "uniform", 0.5)["beta"] == pytest.approx(10**-4.5)
    assert paper_parameters("links", "Cora", "structural", 0.5) is None
    assert paper_value("classification", "Cora", "uniform", 0.9, "pcfi", "accuracy").mean == 79.55
    assert paper_value("classification", "Cora", "uniform", 0.9, "fp", "accuracy") is None
    assert paper_value("classification", "Cora", "uniform", 0.5, "lp", "accuracy").mean == 74.52
    assert paper_value("links", "Photo", "uniform", 0.0, "full", "ap").mean == 95.34
    assert ("links", "PubMed", "uniform") in paper_ablations()
    with pytest.raises(ParameterError, match="must be one of 'auc', 'ap', got 'accuracy'"):
        paper_value("links", "Cora", "uniform", 0.995, "fp", "accuracy")


def test_the_papers_facts_are_those_beside_the_repo(shared):
    import json

    tables = json.loads((shared / "paper" / "tables.json").read_text())
    names = {"label_propagation": "lp"}

    def scores(score):
        return (None, None) if score == "out of memory" else (score.mean, score.std)

    for missing, by_dataset in tables["node_classification_accuracy_at_0.995"].items():
        for dataset, by_system in by_dataset.items():
            for system, cell in by_system.items():
                ours = paper_value("classification", dataset, missing, 0.995, names.get(system, system), "accuracy")
                assert scores(ours) == (cell.get("mean"), cell.get("std"))
    for dataset, by_metric in tables["link_prediction_at_0.995"].items():
        for metric in METRICS["links"]:
            for missing in ("structural", "uniform"):
                for system, cell in by_metric[metric][missing].items():
                    ours = paper_value("links", dataset, missing, 0.995, system, metric)
                    assert scores(ours) == (cell.get("mean"), cell.get("std"))


def test_cosine_similarity_of_worked_rows():
    left = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    right = np.array([[2.0, 0.0], [1.0, -1.0], [1.0, 0.0]])
    assert cosine_similarity(left, right).tolist() == [1.0, 0.0, 0.0]


def test_by_hops_counts_test_nodes_and_averages_all():
    hops = np.array([0, 1, 1, 2, np.inf])
    original = np.eye(5)
    filled = np.eye(5)
    filled[1] = filled[0]
    correct = np.array([True, True, False, True, True])
    rows = scores_by_hops(hops, original, filled, np.array([1, 2, 4]), correct)
    assert rows == [
        {"hops": 0, "nodes": 1, "cosine": 1.0, "tested": 0, "correct": 0},
        {"hops": 1, "nodes": 2, "cosine": 0.5, "tested": 2, "correct": 1},
        {"hops": 2, "nodes": 1, "cosine": 1.0, "tested": 0, "correct": 0},
    ]


def test_runs_on_cora_reach_the_papers_numbers(data_folder):
    pytest.importorskip("torch_geometric")
    record = execute(run(seed=0))
    paper = paper_value("classification", "Cora", "structural", 0.995, "pcfi", "accuracy")
    assert record.metrics["accuracy"] == pytest.approx(paper.mean, abs=3 * paper.std)
    assert record.details["parameters"]["alpha"] == 0.9
    assert {"imputing_seconds", "training_seconds", "epochs", "validation_accuracy"} <= set(record.metrics)
    rows = record.details["hops"]
    tested = sum(row["tested"] for row in rows)
    assert tested == 2485 - 1500
    assert 100 * sum(row["correct"] for row in rows) / tested == pytest.approx(record.metrics["accuracy"])
    assert rows[0]["cosine"] == pytest.approx(1)
    assert rows[1]["cosine"] > rows[4]["cosine"]
    again = execute(run(seed=0))
    assert again.metrics["accuracy"] == record.metrics["accuracy"]
    links = execute(run(task="links", missing="uniform", seed=0))
    paper = paper_value("links", "Cora", "uniform", 0.995, "pcfi", "auc")
    assert links.metrics["auc"] == pytest.approx(paper.mean, abs=3 * paper.std)
    assert "hops" not in links.details
