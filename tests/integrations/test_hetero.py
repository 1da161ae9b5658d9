"""Heterogeneous graphs: filled along the edges of all types, which count as much as they carry."""

import numpy as np
import pytest
import torch
from torch_geometric import transforms as T  # noqa: N812  as PyG's documentation has it
from torch_geometric.data import Batch, Data, HeteroData

import pcfi
from pcfi.pyg import ImputeFeatures, edge_type_weights
from random_problems import random_problem

NAN = torch.nan
WRITES = ("author", "writes", "paper")


def papers_and_authors() -> HeteroData:
    """Papers 0, 1, 2 with one channel each; authors 0 (of papers 0 and 1) and 1 (of papers 1 and 2) without any."""
    data = HeteroData()
    data["paper"].x = torch.tensor([[0.0], [NAN], [6.0]])
    data["author"].num_nodes = 2
    data[WRITES].edge_index = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 2]])
    return data


def test_a_type_without_features_links_those_that_have():
    # the path paper 0 - author 0 - paper 1 - author 1 - paper 2 with hops 0, 1, 2, 1, 0: paper 1 is in the middle
    filled = ImputeFeatures(alpha=0.5, beta=0.0, solver=pcfi.UntilSettled(1e-9), add_confidence=True)
    result = filled(papers_and_authors())
    torch.testing.assert_close(result["paper"].x, torch.tensor([[0.0], [3.0], [6.0]]))
    assert result["paper"].confidence.tolist() == [[1.0], [0.25], [1.0]]
    assert "x" not in result["author"]


def test_a_bipartite_graph_worked_out_by_hand():
    # author 0 wrote papers 0 (known 0), 1, 2 and author 1 wrote papers 2 and 3 (known 4); alpha = 1: plain means,
    # a0 = (0 + p1 + p2) / 3, p1 = a0, p2 = (a0 + a1) / 2, a1 = (p2 + 4) / 2 -> a0 = p1 = 1, p2 = 2, a1 = 3
    data = HeteroData()
    data["paper"].x = torch.tensor([[0.0], [NAN], [NAN], [4.0]], dtype=torch.float64)
    data["author"].num_nodes = 2
    data[WRITES].edge_index = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 2, 2, 3]])
    filled = ImputeFeatures(alpha=1.0, beta=0.0, solver=pcfi.UntilSettled(1e-10))(data)
    np.testing.assert_allclose(filled["paper"].x.numpy().ravel(), [0, 1, 2, 4], atol=1e-8)


def test_each_type_has_channels_of_its_own_unless_they_are_shared():
    data = papers_and_authors()
    data["author"].x = torch.tensor([[100.0], [NAN]])
    own = ImputeFeatures(alpha=0.5, beta=0.0)(data)
    assert own["author"].x.tolist() == [[100.0], [100.0]]
    torch.testing.assert_close(own["paper"].x[1], torch.tensor([3.0]))
    shared = ImputeFeatures(alpha=0.5, beta=0.0, shared_channels=True)(data)
    assert shared["paper"].x[1] > 20  # next to the author with 100
    data["author"].x = torch.zeros(2, 3)
    with pytest.raises(pcfi.FeatureError, match="same channels"):
        ImputeFeatures(shared_channels=True)(data)


def split_into_types(problem, rng) -> tuple[HeteroData, dict, Data]:
    """A graph without types, and the same with nodes and edges dealt out to types at random."""
    x, edges = torch.from_numpy(problem.masked), torch.from_numpy(problem.edge_index)
    kind = rng.integers(0, 3, size=len(x))
    own = np.zeros(len(x), dtype=np.int64)
    data = HeteroData()
    for number in range(3):
        own[kind == number] = np.arange((kind == number).sum())
        data[str(number)].x = x[kind == number]
    label = rng.integers(0, 2, size=edges.shape[1])
    for one, two, name in np.unique(np.stack([*kind[edges.numpy()], label]), axis=1).T:
        chosen = (kind[edges[0]] == one) & (kind[edges[1]] == two) & (label == name)
        store = data[str(one), f"relation {name}", str(two)]
        store.edge_index = torch.from_numpy(own[edges.numpy()[:, chosen]])
        if problem.weights is not None:
            store.edge_weight = torch.from_numpy(problem.weights[chosen])
    whole = Data(x=x, edge_index=edges)
    if problem.weights is not None:
        whole.edge_weight = torch.from_numpy(problem.weights)
    return data, {str(number): kind == number for number in range(3)}, whole


@pytest.mark.filterwarnings("ignore::pcfi.PcfiWarning")
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_graph_split_into_types_is_filled_like_the_graph(weighted, directed):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, n_nodes=25, n_channels=4, degree=3, rate=0.5, weighted=weighted)
        data, rows, whole = split_into_types(problem, rng)
        options = {"alpha": 0.7, "beta": 0.3, "directed": directed, "solver": pcfi.UntilSettled(1e-9)}
        expected = ImputeFeatures(**options)(whole).x
        filled = ImputeFeatures(**options, shared_channels=True, edge_type_weights=None)(data)
        for name, chosen in rows.items():
            torch.testing.assert_close(filled[name].x, expected[torch.from_numpy(chosen)], atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore::pcfi.PcfiWarning")
def test_types_without_features_are_nodes_where_everything_is_missing():
    rng = np.random.default_rng(0)
    problem = random_problem(rng, n_nodes=30, n_channels=3, degree=3, rate=0.3)
    data, rows, whole = split_into_types(problem, rng)
    for name in ("1", "2"):
        data[name].num_nodes = int(rows[name].sum())
        del data[name].x
        whole.x[torch.from_numpy(rows[name])] = NAN
    options = {"alpha": 0.7, "beta": 0.0, "solver": pcfi.UntilSettled(1e-9)}
    filled = ImputeFeatures(**options, edge_type_weights=None)(data)
    expected = ImputeFeatures(**options)(whole).x[torch.from_numpy(rows["0"])]
    torch.testing.assert_close(filled["0"].x, expected, atol=1e-6, rtol=0)


def communities(rng, n_papers=300, n_groups=6) -> HeteroData:
    """Papers whose features are their group's; authors stay within a group, venues take papers at random."""
    group = rng.integers(0, n_groups, size=n_papers)
    center = rng.normal(size=(n_groups, 4))
    data = HeteroData()
    data["paper"].x = torch.from_numpy(center[group] + 0.1 * rng.normal(size=(n_papers, 4)))
    data["paper"].truth = data["paper"].x.clone()
    data["paper"].x[torch.from_numpy(rng.random(n_papers) < 0.5)] = NAN
    writer = group * 10 + rng.integers(0, 10, size=n_papers)
    second = group * 10 + rng.integers(0, 10, size=n_papers)
    papers = np.arange(n_papers)
    data["author"].num_nodes, data["venue"].num_nodes = 10 * n_groups, 12
    data[WRITES].edge_index = torch.from_numpy(np.stack([np.r_[writer, second], np.r_[papers, papers]]))
    data["paper", "appears in", "venue"].edge_index = torch.from_numpy(
        np.stack([papers, rng.integers(0, 12, n_papers)])
    )
    return data


def test_edge_types_count_as_much_as_they_carry():
    data = communities(np.random.default_rng(0))
    weights = edge_type_weights(data, "paper")
    assert weights[WRITES] >= 1
    assert weights["paper", "appears in", "venue"] <= 0.25 * weights[WRITES]
    missing = data["paper"].x.isnan()

    def error(**options) -> float:
        filled = ImputeFeatures(**options)(data)["paper"].x
        return float((filled - data["paper"].truth)[missing].square().mean().sqrt())

    learned, alike = error(), error(edge_type_weights=None)
    assert learned < 0.5 * alike
    assert learned == error(edge_type_weights=weights)
    assert error(edge_type_weights={WRITES: 0.0}) > alike  # only the venues, which say nothing


@pytest.mark.filterwarnings("ignore::pcfi.PcfiWarning")
def test_edge_types_that_say_the_same_stay_equal():
    rng = np.random.default_rng(1)
    n = 200
    data = HeteroData()
    data["node"].x = torch.from_numpy(np.sin(np.arange(n) / 8)[:, None] + 0.05 * rng.normal(size=(n, 1)))
    data["node"].x[torch.from_numpy(rng.random(n) < 0.4)] = NAN
    edges = np.concatenate([[np.arange(n - k), np.arange(k, n)] for k in (1, 2)], axis=1)
    first = rng.random(edges.shape[1]) < 0.5
    data["node", "a", "node"].edge_index = torch.from_numpy(edges[:, first])
    data["node", "b", "node"].edge_index = torch.from_numpy(edges[:, ~first])
    assert set(edge_type_weights(data, "node").values()) == {1.0}
    whole = Data(x=data["node"].x, edge_index=torch.from_numpy(edges))
    torch.testing.assert_close(ImputeFeatures()(data)["node"].x, ImputeFeatures()(whole).x)


def test_reverse_edge_types_change_nothing():
    data = communities(np.random.default_rng(2))
    doubled = T.ToUndirected()(data)
    assert len(doubled.edge_types) == 4
    weights, both = edge_type_weights(data, "paper"), edge_type_weights(doubled, "paper")
    assert both[WRITES] == both["paper", "rev_writes", "author"] == weights[WRITES]
    torch.testing.assert_close(ImputeFeatures()(doubled)["paper"].x, ImputeFeatures()(data)["paper"].x)


def test_graphs_of_a_hetero_batch_never_mix():
    one, two = papers_and_authors(), papers_and_authors()
    two["paper"].x = torch.tensor([[10.0], [NAN], [30.0]])
    transform = ImputeFeatures(alpha=0.5, beta=0.0)
    together = transform(Batch.from_data_list([one, two]))["paper"].x
    assert torch.equal(together, torch.cat([transform(one)["paper"].x, transform(two)["paper"].x]))


def test_only_cells_of_the_type_itself_are_counted():
    data = papers_and_authors()
    data["paper"].x = torch.cat([data["paper"].x, torch.tensor([[NAN]])])  # a paper without an author
    with pytest.warns(pcfi.UnreachableWarning, match="node type 'paper': 1 of 2 missing cells cannot be reached"):
        filled = ImputeFeatures(alpha=0.5, beta=0.0)(data)
    assert filled["paper"].x[3] == 3.0
    with pytest.raises(pcfi.UnreachableError, match="1 of 2 missing cells"):
        ImputeFeatures(alpha=0.5, beta=0.0, unreachable="error")(data)
    data["author"].num_nodes = 3  # an author without papers is nobody's missing cell
    data["paper"].x = data["paper"].x[:3]
    ImputeFeatures(alpha=0.5, beta=0.0, unreachable="error")(data)


def test_position_channels_come_from_the_graph_of_all_types():
    data = communities(np.random.default_rng(3))
    filled = ImputeFeatures(position=16)(data)
    assert filled["paper"].x.shape == (300, 20)
    place = filled["paper"].x[:, 4:]
    writer = data[WRITES].edge_index[0][:300]
    alike = (place @ place.T).numpy()
    same = (writer[:, None] == writer[None, :]).numpy() & ~np.eye(300, dtype=bool)
    assert alike[same].mean() > alike[~same].mean() + 0.1 * alike.diagonal().mean()


BAD = {
    "index beyond a type": (
        lambda data: data[WRITES].update({"edge_index": torch.tensor([[0], [3]])}),
        {},
        r"edge 0 refers to node 3, but edge type .* leads to node type 'paper' with 3 nodes",
    ),
    "unknown edge type": (lambda _: None, {"edge_type_weights": {("a", "b", "c"): 1.0}}, "the edge types are"),
    "negative weight of a type": (lambda _: None, {"edge_type_weights": {WRITES: -1.0}}, "at least 0"),
    "words for weights": (lambda _: None, {"edge_type_weights": "equal"}, "must be 'auto', None"),
    "infinite edge weight": (
        lambda data: data[WRITES].update({"edge_weight": torch.tensor([1.0, 1.0, np.inf, 1.0])}),
        {},
        "weight inf",
    ),
    "mask per cell for all types": (lambda _: None, {"missing_mask": torch.ones(3, 1).bool()}, "several node types"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_heterogeneous_data_gets_an_error(case):
    change, options, message = BAD[case]
    data = papers_and_authors()
    change(data)
    with pytest.raises(pcfi.PcfiError, match=message):
        ImputeFeatures(**options)(data)


def test_data_without_types_has_no_weights_of_types():
    with pytest.raises(pcfi.FeatureError, match="pass a HeteroData"):
        edge_type_weights(Data(x=torch.zeros(2, 1), edge_index=torch.zeros(2, 0).long()), "paper")


def test_the_heterogeneous_data_given_is_not_modified():
    data = communities(np.random.default_rng(4))
    before = {str(key): value.clone() for key, value in data["paper"].items()}
    ImputeFeatures(add_indicator=True, add_confidence=True, position=3)(data)
    assert list(data["paper"].keys()) == list(before)
    assert all(data["paper"][key].numpy().tobytes() == value.numpy().tobytes() for key, value in before.items())
