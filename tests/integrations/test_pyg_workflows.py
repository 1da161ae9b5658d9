"""How the transform is used in practice: loaders, link prediction, graph-level data sets, nodes that come later."""

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric import transforms as T  # noqa: N812  as PyG's documentation has it
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader, NeighborLoader
from torch_geometric.sampler import BaseSampler, SamplerOutput
from torch_geometric.utils import k_hop_subgraph, subgraph

import pcfi
from pcfi.pyg import ImputeFeatures

NAN = torch.nan


def miserables(rate: float = 0.7, seed: int = 0) -> Data:
    """Les Miserables: degrees and communities as features, some nodes without."""
    graph = nx.convert_node_labels_to_integers(nx.les_miserables_graph())
    edges = torch.tensor(list(graph.edges)).T
    communities = nx.community.greedy_modularity_communities(graph)
    x = torch.zeros(len(graph), len(communities) + 1)
    for number, members in enumerate(communities):
        x[list(members), number] = 1.0
    x[:, -1] = torch.tensor([float(graph.degree[node]) for node in graph])
    data = Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=x[:, :-1].argmax(dim=1))
    data.x[torch.rand(len(graph), generator=torch.manual_seed(seed)) < rate] = NAN
    return data


class AllNeighbors(BaseSampler):
    """Neighbours up to two hops, all of them: PyG's own sampler needs a package that is not on PyPI."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def sample_from_nodes(self, index, **_) -> SamplerOutput:
        nodes, edges, seeds, kept = k_hop_subgraph(
            index.node, 2, self.data.edge_index, relabel_nodes=True, num_nodes=self.data.num_nodes
        )
        order = torch.cat([seeds, torch.tensor([n for n in range(len(nodes)) if n not in set(seeds.tolist())])]).long()
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        row, col = place[edges]
        metadata = (index.input_id, None)
        return SamplerOutput(nodes[order], row, col, kept.nonzero().view(-1), metadata=metadata)

    def sample_from_edges(self, index, **_) -> SamplerOutput:
        raise NotImplementedError

    @property
    def edge_permutation(self) -> None:
        return None


def test_neighbor_loader_batches_features_of_the_whole_graph():
    data = miserables()
    filled = ImputeFeatures(position=16)(data)
    filled.node = torch.arange(filled.num_nodes)
    loader = NeighborLoader(
        filled, num_neighbors=[-1, -1], batch_size=10, neighbor_sampler=AllNeighbors(filled), shuffle=False
    )
    seen = []
    for batch in loader:
        assert not batch.x.isnan().any()
        assert torch.equal(batch.x, filled.x[batch.node])
        seen.append(batch.node[: batch.batch_size])
    assert torch.equal(torch.cat(seen), torch.arange(filled.num_nodes))


def test_random_link_split_does_not_leak_test_edges_into_features():
    data = miserables()
    split = T.RandomLinkSplit(num_val=0.1, num_test=0.2, is_undirected=True, add_negative_train_samples=False)
    torch.manual_seed(0)
    train, validation, test = split(data)
    transform = ImputeFeatures(position=16)
    with pytest.warns(pcfi.UnreachableWarning):  # nodes that the split has cut off
        filled = transform(train)
    validation.x = test.x = filled.x
    assert filled.x.shape == (77, data.num_features + 16)
    assert filled.edge_label_index.shape == train.edge_label_index.shape
    with pytest.warns(pcfi.UnreachableWarning):
        again = transform(Data(x=data.x, edge_index=train.edge_index))
    assert torch.equal(filled.x, again.x)  # a function of training edges alone
    assert not torch.allclose(filled.x, transform(data).x)


def graphs_with_means(*means: float) -> list[Data]:
    """Paths whose features differ by a constant: the signal of a graph-level task."""
    path = torch.stack([torch.arange(5), torch.arange(1, 6)])
    base = torch.tensor([[-0.1], [NAN], [0.1], [NAN], [0.0], [0.1]])
    return [Data(x=base + mean, edge_index=path, y=torch.tensor([mean])) for mean in means]


def test_graphs_of_a_batch_keep_their_means():
    graphs = graphs_with_means(5.0, 5.0, 10.0)
    batch = ImputeFeatures()(Batch.from_data_list(graphs))
    means = [graph.x.mean().item() for graph in batch.to_data_list()]
    np.testing.assert_allclose(means, [5.0, 5.0, 10.0], atol=0.1)
    for graph, filled in zip(graphs, batch.to_data_list(), strict=True):
        known = ~graph.x.isnan()
        assert torch.equal(graph.x[known], filled.x[known])


def test_known_cells_never_change_unless_centring_is_asked_for():
    data = miserables()
    data.x[:, :] += 100
    known = ~data.x.isnan()
    for options in ({}, {"position": 4}, {"alpha": 0.5}, {"method": "fp"}):
        filled = ImputeFeatures(**options)(data)
        assert torch.equal(filled.x[:, : data.num_features][known], data.x[known])


@pytest.mark.parametrize("center", [True, "auto"])
def test_centring_uses_the_means_of_the_training_graphs(center):
    graphs = graphs_with_means(5.0, 5.0, 10.0)
    transform = ImputeFeatures(center=center)
    with pytest.raises(pcfi.ParameterError, match="batch of 3 graphs: call fit"):
        transform(Batch.from_data_list(graphs))
    transform.fit(graphs[:2])
    batch = transform(Batch.from_data_list(graphs)).to_data_list()
    plain = [ImputeFeatures()(graph).x for graph in graphs]
    mean = torch.cat(plain[:2]).mean()
    for filled, expected in zip(batch, plain, strict=True):
        torch.testing.assert_close(filled.x, expected - mean)
    loader = DataLoader(graphs, batch_size=3)
    torch.testing.assert_close(transform(next(iter(loader))).x, torch.cat(plain) - mean)


def test_small_means_are_not_subtracted_by_auto():
    graphs = graphs_with_means(0.0, 0.0)
    transform = ImputeFeatures(center="auto").fit(graphs)
    assert torch.equal(transform(graphs[0]).x, ImputeFeatures()(graphs[0]).x)


def test_means_can_be_given_and_are_checked():
    graphs = graphs_with_means(5.0, 10.0)
    batch = Batch.from_data_list(graphs)
    given = ImputeFeatures(center=torch.tensor([7.0]))
    torch.testing.assert_close(given(batch).x, ImputeFeatures()(batch).x - 7)
    assert "center=<means>" in repr(given)
    with pytest.raises(pcfi.ParameterError, match="pass one mean each"):
        ImputeFeatures(center=torch.zeros(3))(batch)
    with pytest.raises(pcfi.ParameterError, match="center must be True, False or 'auto'"):
        ImputeFeatures(center="mean")


def test_nodes_that_come_later_do_not_change_the_training_nodes():
    data = miserables(rate=0.5)
    seen = torch.arange(60)
    edges, _ = subgraph(seen, data.edge_index, num_nodes=77)
    train = ImputeFeatures(position=16)(Data(x=data.x[seen], edge_index=edges))
    width = data.num_features
    x = torch.full((77, width + 16), NAN)
    x[:60] = train.x
    x[60:, :width] = data.x[60:]  # what is known of the new nodes
    later = ImputeFeatures()(Data(x=x, edge_index=data.edge_index))
    assert torch.equal(later.x[:60], train.x)
    assert not later.x.isnan().any()
    known = ~data.x[60:].isnan()
    assert torch.equal(later.x[60:, :width][known], data.x[60:][known])
    neighbors = data.edge_index[1][(data.edge_index[0] == 76) & (data.edge_index[1] < 60)]
    alone = (data.edge_index[0] == 76).sum() == len(neighbors)
    if alone:
        torch.testing.assert_close(later.x[76, width:], train.x[neighbors, width:].mean(dim=0), atol=1e-3, rtol=0)


def test_position_of_small_graphs_and_of_integers_is_refused():
    with pytest.raises(pcfi.ParameterError, match="position must be at most the number of nodes, got 128 for 6 nodes"):
        ImputeFeatures(position=128)(graphs_with_means(1.0)[0])
    whole = Data(x=torch.ones(3, 1).long(), edge_index=torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(pcfi.FeatureError, match="position channels are fractions"):
        ImputeFeatures(position=2)(whole)


def test_position_channels_follow_features_and_precede_indicators():
    data = miserables()
    filled = ImputeFeatures(position=8, add_indicator=True, random_state=2)(data).x
    width = data.num_features
    place = torch.from_numpy(pcfi.position(data.edge_index, 8, random_state=2))
    ratio = filled[:, width : width + 8] / place
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-3, atol=0)
    assert torch.equal(filled[:, width + 8 :], data.x.isnan().float())
    assert "position=8" in repr(ImputeFeatures(position=8))
