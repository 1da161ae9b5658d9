"""Published draws: splits and masks equal to what the protocol of the authors' code gives, by slow formulas and PyG."""

import re
from unittest.mock import ANY

import numpy as np
import pytest

from pcfi.errors import ParameterError
from pcfi.experiments.catalog import default_parameters, validate
from pcfi.experiments.data.published import published_edges, published_mask, published_nodes, unlinked_pairs
from pcfi.experiments.data.run_input import load_run_input
from pcfi.experiments.paper import PUBLISHED_SEEDS
from pcfi.experiments.run import Record, Run
from pcfi.experiments.runs.execution import execute
from pcfi.experiments.tables.experiment import Selection
from pcfi.experiments.tables.paper_experiments import find_experiments
from small_run_inputs import small_dataset

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
SEED = PUBLISHED_SEEDS[0]


def test_development_nodes_and_training_nodes_come_from_one_legacy_generator():
    data = small_dataset(2000)
    split = published_nodes(data, SEED)
    rng = np.random.RandomState(SEED)
    development = rng.choice(2000, 1500, replace=False)
    train = []
    for label in range(3):
        train += list(rng.choice([node for node in development if data.labels[node] == label], 20, replace=False))
    assert split.train.tolist() == sorted(train)
    assert split.validation.tolist() == sorted(set(development) - set(train))
    assert split.test.tolist() == sorted(set(range(2000)) - set(development))


@pytest.mark.filterwarnings("ignore:'train_test_split_edges' is deprecated")
def test_edges_are_split_as_pyg_splits_them():
    data_module = pytest.importorskip("torch_geometric.data")
    from torch_geometric.utils import train_test_split_edges

    data = small_dataset()
    torch.manual_seed(SEED)
    graph = data_module.Data(edge_index=torch.tensor(data.edges), num_nodes=data.n_nodes)
    theirs = train_test_split_edges(graph, val_ratio=0.05, test_ratio=0.1)
    ours = published_edges(data, SEED)
    assert np.array_equal(ours.validation, theirs.val_pos_edge_index)
    assert np.array_equal(ours.test, theirs.test_pos_edge_index)
    assert np.array_equal(ours.validation_negative, theirs.val_neg_edge_index)
    assert np.array_equal(ours.test_negative, theirs.test_neg_edge_index)
    both = np.concatenate([ours.train, ours.train[::-1]], axis=1)
    assert sorted(zip(*both.tolist(), strict=True)) == sorted(zip(*theirs.train_pos_edge_index.tolist(), strict=True))


def test_numbers_of_pairs_that_are_not_edges_are_counted_row_by_row():
    edges = np.array([[0, 0, 1, 3], [1, 4, 2, 4]])
    pairs = [[0, 2], [0, 3], [1, 3], [1, 4], [2, 3], [2, 4]]
    assert unlinked_pairs(np.arange(6), edges, 5).T.tolist() == pairs


@pytest.mark.parametrize("kind", ["structural", "uniform"])
def test_masks_are_bernoulli_draws_of_torch(kind):
    torch.manual_seed(SEED)
    if kind == "structural":
        expected = torch.bernoulli(torch.Tensor([1 - 0.9]).repeat(50)).bool().unsqueeze(1).repeat(1, 7)
    else:
        expected = torch.bernoulli(torch.Tensor([1 - 0.9]).repeat(50, 7)).bool()
    known = published_mask(kind, (50, 7), 0.9, SEED)
    assert np.array_equal(known, expected.numpy())
    assert known.any()


def test_the_number_of_known_nodes_varies_from_draw_to_draw():
    counts = [int(published_mask("structural", (7487, 1), 0.995, seed).sum()) for seed in PUBLISHED_SEEDS]
    assert (min(counts), max(counts)) == (25, 49)  # nodes of Photo


def test_drawing_does_not_touch_the_global_generators():
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    data = small_dataset(1600)
    published_nodes(data, SEED), published_edges(small_dataset(), SEED), published_mask("uniform", (5, 5), 0.5, SEED)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_a_run_with_published_draws_has_its_own_key_and_own_draws_keep_theirs():
    run = Run("links", "Cora", "structural", 0.995, "pcfi", (("alpha", 0.9),), 5)
    published = Run(*[getattr(run, name) for name in run.__dataclass_fields__ if name != "draw"], draw="published")
    assert "draw" not in run.key
    assert '"draw": "published"' in published.key
    for one in (run, published):
        assert Record.from_line(Record(one, "done").to_line()).run == one
    assert [default_parameters(one)["negatives"] for one in (run, published)] == [1, 2]


def test_the_published_seeds_are_the_splits():
    (table,) = find_experiments("table1", Selection(datasets=("Cora",), systems=("pcfi",), draw="published"))
    assert [run.seed for run in table.cells[0].runs] == list(PUBLISHED_SEEDS)
    assert {run.draw for run in table.runs} == {"published"}


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"draw": "random"}, "unknown draw 'random': choose from own, published"),
        ({"draw": "published", "splits": 11}, "splits must be at most 10 published ones, got 11"),
        ({"draw": "published", "missing": ("block",)}, "published draws exist for structural and uniform masks"),
        ({"draw": "published", "datasets": ("homophily-0.3-scale-1",)}, "published draws exist for"),
    ],
)
def test_published_draws_that_do_not_exist_are_refused(choice, words):
    with pytest.raises(ParameterError, match=re.escape(words)):
        find_experiments("table1", Selection(**choice))


def test_an_unknown_draw_is_refused():
    with pytest.raises(ParameterError, match="draw must be one of own, published"):
        validate(Run("links", "Cora", "structural", 0.5, "zero", draw="other"))


@pytest.mark.parametrize(("task", "weights_seed"), [("classification", 0), ("links", SEED)])
def test_a_run_takes_the_published_split_mask_and_weights(data_folder, task, weights_seed):
    run = Run(task, "Cora", "uniform", 0.995, "zero", (("epochs", 2),), SEED, "published")
    run_input = load_run_input(run)
    assert run_input.weights_seed == weights_seed
    assert np.array_equal(run_input.known, published_mask("uniform", (2485, 1433), 0.995, SEED))
    published = (published_nodes if task == "classification" else published_edges)(run_input.dataset, SEED)
    assert np.array_equal(run_input.split.train, published.train)
    assert execute(run).metrics == execute(run).metrics | {"training_seconds": ANY, "imputing_seconds": ANY}
