"""Data sets, synthetic graphs, masks and splits of the experiments."""

import csv
import gzip
import os
from urllib.error import URLError

import numpy as np
import pytest

from pcfi.errors import DatasetError, ParameterError
from pcfi.experiments.catalog import MASKS as MASK_NAMES
from pcfi.experiments.catalog import NODE_MASKS
from pcfi.experiments.data import arxiv, dataset, loading, synthetic
from pcfi.experiments.data.masks import MASKS, calibrated_probabilities, draw_mask
from pcfi.experiments.data.splits import LinkedPairs, pair_numbers, sample_negative, split_edges, split_nodes
from pcfi.experiments.paper import paper_size
from small_run_inputs import small_dataset

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["Cora", "CiteSeer", "PubMed", "Photo", "Computers"])
def test_largest_components_have_the_sizes_of_the_papers_table(data_folder, name):
    data = loading.load(name)
    size = paper_size(name)
    assert (data.n_nodes, data.edges.shape[1] // 2, data.features.shape[1], data.n_classes) == tuple(size)
    assert (data.edges[0] != data.edges[1]).all()
    forward = set(zip(*data.edges.tolist(), strict=True))
    assert forward == {(target, source) for source, target in forward}
    assert not data.features.flags.writeable


def test_the_cached_copy_of_a_data_set_is_equal(data_folder):
    read = loading._read("Cora")
    loading.load.cache_clear()
    for _ in range(2):
        kept = loading.load("Cora")
        assert np.array_equal(kept.features, read.features)
        assert np.array_equal(kept.labels, read.labels)
        assert np.array_equal(kept.edges, read.edges)
        loading.load.cache_clear()


def test_the_cached_copy_keeps_dense_features_and_a_split(tmp_path):
    rng = np.random.default_rng(0)
    parts = {"train": np.array([0]), "validation": np.array([2]), "test": np.array([1, 3])}
    data = dataset.largest_component("dense", rng.random((4, 3)), np.arange(4), np.array([[0, 1, 2], [1, 2, 3]]), parts)
    loading._write_cached(data, tmp_path / "pcfi" / "dense.npz")
    again = loading._read_cached("dense", tmp_path / "pcfi" / "dense.npz")
    assert np.array_equal(again.features, data.features)
    assert {part: nodes.tolist() for part, nodes in again.split.items()} == {
        "train": [0],
        "validation": [2],
        "test": [1, 3],
    }


def test_the_cached_copy_can_be_read_by_others_and_a_failure_leaves_nothing(tmp_path, monkeypatch):
    data = dataset.largest_component("small", np.eye(4), np.arange(4), np.array([[0, 1, 2], [1, 2, 3]]))
    place = tmp_path / "pcfi" / "small.npz"
    before = os.umask(0o022)
    try:
        loading._write_cached(data, place)
    finally:
        os.umask(before)
    assert place.stat().st_mode & 0o777 == 0o644
    place.unlink()

    def fail(*_args, **_arrays):
        raise OSError("no space left")

    monkeypatch.setattr(loading.np, "savez", fail)
    with pytest.raises(OSError, match="no space left"):
        loading._write_cached(data, place)
    assert not list(place.parent.iterdir())


def write_arxiv(folder, features, labels, edges, split):
    for place, rows in {
        "raw/edge": edges,
        "raw/node-feat": features,
        "raw/node-label": [[label] for label in labels],
        **{f"split/time/{part}": [[node] for node in nodes] for part, nodes in split.items()},
    }.items():
        path = folder / f"{place}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", newline="") as file:
            csv.writer(file).writerows(rows)


def test_arxiv_is_read_from_its_published_layout(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    features = [[0.5, -1.0], [0.25, 3.0], [1e-3, 2.0], [7.0, 8.0]]
    split = {"train": [0, 3], "valid": [1], "test": [2]}
    write_arxiv(tmp_path / "ogbn_arxiv", features, [4, 0, 1, 2], [[0, 1], [1, 0], [2, 1], [1, 1]], split)
    monkeypatch.setenv("PCFI_DATA", str(tmp_path))
    loading.load.cache_clear()
    data = loading.load("OGBN-Arxiv")
    assert data.features.tolist() == np.float32(features[:3]).tolist()
    assert data.labels.tolist() == [4, 0, 1]
    assert data.edges.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    parts = split_nodes(data, np.random.default_rng(0))
    assert (parts.train.tolist(), parts.validation.tolist(), parts.test.tolist()) == ([0], [1], [2])
    loading.load.cache_clear()


def test_without_network_the_message_says_what_to_do(tmp_path, monkeypatch):
    def no_network(*_, **__):
        raise URLError("no network")

    monkeypatch.setenv("PCFI_DATA", str(tmp_path))
    monkeypatch.setattr(arxiv, "urlopen", no_network)
    with pytest.raises(DatasetError, match=r"OGBN-Arxiv is not in .* network once, or set PCFI_DATA"):
        loading.load("OGBN-Arxiv")
    assert not (tmp_path / "ogbn_arxiv").exists()


def test_unknown_data_sets_are_refused_with_the_known_ones():
    with pytest.raises(ParameterError, match="Cora, CiteSeer, PubMed, Photo, Computers, OGBN-Arxiv, got 'Kora'"):
        loading.load("Kora")


@pytest.mark.parametrize("homophily", [0.3, 0.5])
def test_synthetic_graphs_have_the_homophily_asked_for(homophily):
    data = synthetic.homophily_graph(homophily, 1.0)
    assert data.n_nodes == 5000
    assert np.bincount(data.labels).tolist() == [500] * 10
    same_class = data.labels[data.edges[0]] == data.labels[data.edges[1]]
    assert same_class.mean() == pytest.approx(homophily, abs=0.02)
    degrees = np.bincount(data.edges[0])
    assert degrees.max() > 10 * np.median(degrees)


def test_synthetic_features_have_the_stated_moments_and_energy_grows_with_scale():
    small, large = (synthetic.homophily_graph(0.5, scale) for scale in (0.05, 2.0))
    assert np.array_equal(small.edges, large.edges)
    for data, scale in ((small, 0.05), (large, 2.0)):
        for label, mean in enumerate(synthetic._means()):
            found = data.features[data.labels == label]
            assert np.abs(found.mean(axis=0) - mean).max() < 5 * np.sqrt(scale / 500)
        spread = data.features - synthetic._means()[data.labels]
        assert np.abs(np.cov(spread.T) / scale - synthetic._covariance()).max() < 0.1
    energies = [synthetic.dirichlet_energy(data.features, data.edges) for data in (small, large)]
    assert energies[0] < energies[1]
    again = synthetic.homophily_graph(0.5, 2.0)
    assert np.array_equal(again.features, large.features)


def test_dirichlet_energy_of_a_worked_example():
    features = np.array([[0.0], [2.0], [2.0]])
    assert synthetic.dirichlet_energy(features, np.array([[0, 1], [1, 2]])) == pytest.approx((4 / (8 / 9)) / 2)


def test_masks_in_the_catalog_are_those_that_exist():
    assert tuple(MASKS) == MASK_NAMES


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_masks_miss_the_stated_rate(kind, rate):
    data = small_dataset(3000, 40)
    known = draw_mask(kind, data, rate, np.random.default_rng(0))
    assert known.shape == data.features.shape
    assert 1 - known.mean() == pytest.approx(rate, abs=0.02 if rate else 0)
    assert np.array_equal(known, draw_mask(kind, data, rate, np.random.default_rng(0)))
    if rate > 0:
        assert not np.array_equal(known, draw_mask(kind, data, rate, np.random.default_rng(1)))
    if kind in NODE_MASKS:
        assert np.array_equal(known.all(axis=1), known.any(axis=1))


def test_uniform_cells_are_independent_and_blocks_share_their_patterns():
    data = small_dataset(3000, 40)
    patterns = {kind: len(np.unique(draw_mask(kind, data, 0.5, np.random.default_rng(0)), axis=1).T) for kind in MASKS}
    assert patterns == {"structural": 1, "uniform": 40, "block": 4, "degree": 1, "value": 40, "class": 1}


def log_odds(missing):
    return float(np.log(missing.mean() / (1 - missing.mean())))


def test_missingness_depends_on_degree_value_or_class():
    data = small_dataset(6000, 40)
    degree = np.bincount(data.edges[0], minlength=data.n_nodes)
    missing = ~draw_mask("degree", data, 0.5, np.random.default_rng(0))[:, 0]
    assert (
        log_odds(missing[degree <= np.quantile(degree, 0.2)])
        > 1
        > -1
        > log_odds(missing[degree >= np.quantile(degree, 0.8)])
    )
    missing = ~draw_mask("value", data, 0.5, np.random.default_rng(0))
    assert log_odds(missing[data.features == 1]) - log_odds(missing[data.features == 0]) == pytest.approx(2, abs=0.1)
    missing = ~draw_mask("class", data, 0.5, np.random.default_rng(0))[:, 0]
    by_class = sorted(log_odds(missing[data.labels == label]) for label in range(3))
    assert np.diff(by_class) == pytest.approx([2, 2], abs=0.35)


@pytest.mark.parametrize("rate", [0.005, 0.5, 0.995])
def test_calibrated_probabilities_have_the_rate_as_their_mean(rate):
    tendency = np.random.default_rng(0).random((200, 3))
    probability = calibrated_probabilities(tendency, rate)
    assert probability.mean() == pytest.approx(rate, abs=1e-9)
    assert (np.diff(probability.ravel()[np.argsort(tendency.ravel())]) >= 0).all()


def test_node_splits_have_twenty_per_class_and_fifteen_hundred_development_nodes():
    data = small_dataset(2000, 4, 7)
    split = split_nodes(data, np.random.default_rng(0))
    assert np.bincount(data.labels[split.train]).tolist() == [20] * 7
    assert len(split.train) + len(split.validation) == 1500
    everyone = np.concatenate([split.train, split.validation, split.test])
    assert np.array_equal(np.sort(everyone), np.arange(2000))
    assert not np.array_equal(split.train, split_nodes(data, np.random.default_rng(1)).train)


def test_synthetic_graphs_are_split_into_thirds():
    data = loading.load("homophily-0.5-scale-1")
    split = split_nodes(data, np.random.default_rng(0))
    assert [len(part) for part in (split.train, split.validation, split.test)] == [1666, 1666, 1668]


def test_graphs_too_small_for_the_split_are_refused():
    with pytest.raises(DatasetError, match="small has 120 nodes, but the split needs more than 1500"):
        split_nodes(small_dataset(), np.random.default_rng(0))


def test_edges_are_split_85_5_10_and_negatives_are_no_edges():
    data = small_dataset(500)
    split = split_edges(data, np.random.default_rng(0))
    n_edges = data.edges.shape[1] // 2
    assert split.validation.shape[1] == split.validation_negative.shape[1] == int(0.05 * n_edges)
    assert split.test.shape[1] == split.test_negative.shape[1] == int(0.1 * n_edges)
    everyone = np.concatenate([split.train, split.validation, split.test], axis=1)
    assert everyone.shape[1] == n_edges
    numbers = pair_numbers(data.edges, 500)
    assert np.array_equal(np.unique(pair_numbers(everyone, 500)), np.unique(numbers))
    for negative in (split.validation_negative, split.test_negative):
        assert not np.isin(pair_numbers(negative, 500), numbers).any()
        assert (negative[0] != negative[1]).all()


def test_negative_pairs_are_uniform_over_what_is_left():
    taken = LinkedPairs(pair_numbers(np.array([[0, 1], [1, 2]]), 4))
    drawn = sample_negative(taken, 8000, 4, np.random.default_rng(0))
    numbers, counts = np.unique(pair_numbers(drawn, 4), return_counts=True)
    assert numbers.tolist() == [2, 3, 7, 11]  # 0-2, 0-3, 1-3, 2-3
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(2000)
