"""The PyG transform: equal to `impute` on every kind of data, in every place where PyG puts a transform."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T  # noqa: N812  as PyG's documentation has it
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader

import pcfi
from array_interfaces import device_backend_on_cpu
from pcfi.pyg import ImputeFeatures
from random_problems import random_problem

NAN = torch.nan
EDGES = torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 3, 4]])
X = torch.tensor([[1.0, 5.0, 0.0], [NAN, NAN, NAN], [2.0, NAN, 1.0], [NAN, 7.0, 1.0], [4.0, NAN, 3.0]])


def small(**more) -> Data:
    return Data(x=X.clone(), edge_index=EDGES, y=torch.arange(5), **more)


def random_data(seed: int, n_channels: int = 5, **more) -> Data:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_nodes=int(rng.integers(2, 30)), n_channels=n_channels, degree=3, rate=0.4, **more)
    data = Data(x=torch.from_numpy(problem.masked), edge_index=torch.from_numpy(problem.edge_index))
    if problem.weights is not None:
        data.edge_weight = torch.from_numpy(problem.weights)
    return data


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        yield


def imputed(data: Data, **options) -> torch.Tensor:
    graph = data.edge_index if data.edge_weight is None else (data.edge_index, data.edge_weight)
    return pcfi.impute(data.x, graph, **{"alpha": 0.5, "beta": 0.1, "objective": "representation"} | options).values


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_transform_is_impute(weighted, dtype):
    for seed in range(20):
        data = random_data(seed, weighted=weighted, dtype=dtype)
        options = {
            "alpha": 0.7,
            "beta": 0.4,
            "directed": seed % 2 == 0,
            "method": ["pcfi", "fp", "neighbors"][seed % 3],
        }
        assert torch.equal(ImputeFeatures(**options)(data).x, imputed(data, **options))


def test_pygs_own_test_of_feature_propagation_holds_here_too():
    # two NaN; edge_index and adj_t give the same; without self-loops 40 steps of "fp" are PyG's own
    x = torch.randn(6, 4, generator=torch.manual_seed(0))
    x[0, 1], x[2, 3] = NAN, NAN
    missing_mask = x.isnan()
    edge_index = torch.tensor([[0, 1, 0, 4, 1, 4, 2, 3, 3, 5], [1, 0, 4, 0, 4, 1, 3, 2, 5, 3]])
    transform = ImputeFeatures(
        missing_mask, method="fp", self_loops=False, solver=pcfi.FixedSteps(40), alpha=0.5, beta=0.1
    )
    by_edges = transform(Data(x=x, edge_index=edge_index)).x
    assert by_edges.size() == x.size()
    assert not by_edges.isnan().any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls compressed layouts a beta
        transposed = T.ToSparseTensor(layout=torch.sparse_csr)(Data(x=x, edge_index=edge_index))
        theirs = T.FeaturePropagation(missing_mask)(Data(x=x, edge_index=edge_index)).x
    assert torch.equal(transform(transposed).x, by_edges)
    torch.testing.assert_close(by_edges, theirs)


def test_features_of_edges_are_not_weights():
    odd = small(edge_attr=torch.tensor([-1.0, 0.0, 50.0, 2.0, 9.0]))
    assert torch.equal(ImputeFeatures(alpha=0.5, beta=0.1)(odd).x, ImputeFeatures(alpha=0.5, beta=0.1)(small()).x)
    weighted = small(edge_weight=torch.tensor([1.0, 1.0, 50.0, 2.0, 9.0]))
    assert not torch.equal(
        ImputeFeatures(alpha=0.5, beta=0.1)(weighted).x, ImputeFeatures(alpha=0.5, beta=0.1)(small()).x
    )


@pytest.mark.parametrize("form", ["nan", "tensor", "per node", "named"])
def test_every_way_to_say_what_is_missing_means_the_same(form):
    data = small()
    whole = torch.tensor([False, True, False, True, False])
    data.x[:] = torch.where(whole[:, None], NAN, torch.arange(15.0).view(5, 3))
    expected = ImputeFeatures(alpha=0.5, beta=0.1)(data).x
    if form != "nan":
        data.x = torch.where(data.x.isnan(), 77.0, data.x)
    data.gone = whole[:, None].expand(5, 3).contiguous()
    mask = {"nan": None, "tensor": data.gone, "per node": whole, "named": "gone"}[form]
    assert torch.equal(ImputeFeatures(mask, alpha=0.5, beta=0.1)(data).x, expected)


def test_the_data_given_is_not_modified():
    data = small(mask=X.isnan())
    before = {key: value.clone() for key, value in data.to_dict().items()}
    ImputeFeatures("mask", add_confidence=True, add_indicator=True, alpha=0.5, beta=0.1)(data)
    assert list(data.to_dict()) == list(before)
    for key, value in data.to_dict().items():
        assert value.numpy().tobytes() == before[key].numpy().tobytes()


def test_confidence_and_indicators_come_along_when_asked_for():
    data = small(pos=X[:, :2] * 2)
    filled = ImputeFeatures(attrs=["x", "pos"], add_confidence=True, add_indicator=True, alpha=0.5, beta=0.1)(data)
    plain = {
        "x": pcfi.impute(X, EDGES, alpha=0.5, beta=0.1, objective="representation"),
        "pos": pcfi.impute(data.pos, EDGES, alpha=0.5, beta=0.1, objective="representation"),
    }
    for attr, name in (("x", "confidence"), ("pos", "pos_confidence")):
        width = data[attr].shape[1]
        assert torch.equal(filled[attr][:, :width], plain[attr].values)
        assert torch.equal(filled[attr][:, width:], data[attr].isnan().float())
        assert torch.equal(filled[name], plain[attr].confidence)
    assert "confidence" not in ImputeFeatures(alpha=0.5, beta=0.1)(data)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("weighted", [False, True])
def test_graphs_of_a_batch_never_mix(weighted):
    graphs = [random_data(seed, weighted=weighted and seed % 3 == 0) for seed in range(12)]
    if weighted:
        for graph in graphs:
            graph.edge_weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    transform = ImputeFeatures(alpha=0.6, beta=1.0, add_confidence=True)
    batch = transform(Batch.from_data_list(graphs))
    alone = [transform(graph) for graph in graphs]
    for together, graph in zip(batch.to_data_list(), alone, strict=True):
        assert torch.equal(together.x, graph.x)
    assert torch.equal(batch.confidence, torch.cat([graph.confidence for graph in alone]))
    whole = Batch.from_data_list(graphs)
    one_graph = Data(x=whole.x, edge_index=whole.edge_index)
    assert not torch.allclose(ImputeFeatures(alpha=0.6, beta=1.0)(one_graph).x, batch.x, atol=1e-2)


@pytest.mark.usefixtures("quiet")
def test_a_batch_vector_without_a_batch_object_counts_too():
    graphs = [random_data(seed) for seed in range(3)]
    batch = Batch.from_data_list(graphs)
    plain = Data(x=batch.x, edge_index=batch.edge_index, batch=batch.batch)
    assert torch.equal(ImputeFeatures(alpha=0.5, beta=0.1)(plain).x, ImputeFeatures(alpha=0.5, beta=0.1)(batch).x)
    with pytest.raises(pcfi.GraphError, match="not sorted"):
        ImputeFeatures(alpha=0.5, beta=0.1)(Data(x=batch.x, edge_index=batch.edge_index, batch=batch.batch.flip(0)))
    between = torch.cat([batch.edge_index, torch.tensor([[0], [batch.num_nodes - 1]])], dim=1)
    with pytest.raises(pcfi.GraphError, match="another graph of the batch"):
        ImputeFeatures(alpha=0.5, beta=0.1)(Data(x=batch.x, edge_index=between, batch=batch.batch))


@pytest.mark.usefixtures("quiet")
def test_the_engine_for_devices_fills_batches_as_well():
    batch = Batch.from_data_list([random_data(seed) for seed in range(4)])
    transform = ImputeFeatures(
        solver=pcfi.UntilSettled(1e-9), add_confidence=True, add_indicator=True, alpha=0.5, beta=0.1
    )
    by_kernels = transform(batch)
    with device_backend_on_cpu():
        by_torch = transform(batch)
    torch.testing.assert_close(by_torch.x, by_kernels.x, atol=1e-6, rtol=0)
    torch.testing.assert_close(by_torch.confidence, by_kernels.confidence)


def hetero() -> HeteroData:
    data = HeteroData()
    data["paper"].x = X.clone()
    data["author"].x = torch.tensor([[1.0], [NAN], [3.0]])
    data["venue"].name = torch.arange(2)
    data["paper", "cites", "paper"].edge_index = EDGES
    data["paper", "extends", "paper"].edge_index = torch.tensor([[0], [4]])
    data["paper", "extends", "paper"].edge_weight = torch.tensor([2.5])
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [0, 1]])
    return data


@pytest.mark.usefixtures("quiet")
def test_each_type_of_nodes_is_filled_along_edges_of_all_types():
    data = hetero()
    filled = ImputeFeatures(add_confidence=True, alpha=0.5, beta=0.1)(data)
    # authors 0, 1 and 2 are nodes 5, 6 and 7
    edges = torch.cat([EDGES, torch.tensor([[0, 5, 6], [4, 0, 1]])], dim=1)
    weights = torch.tensor([1.0, 1, 1, 1, 1, 2.5, 1, 1])
    options = {"alpha": 0.5, "beta": 0.1, "objective": "representation"}
    papers = pcfi.impute(torch.cat([X, torch.full((3, 3), NAN)]), (edges, weights), **options)
    assert torch.equal(filled["paper"].x, papers.values[:5])
    authors = torch.cat([torch.full((5, 1), NAN), data["author"].x])
    authors = pcfi.impute(authors, (edges, weights), **options)
    assert torch.equal(filled["author"].x, authors.values[5:])
    assert filled["author"].x.tolist() == [[1.0], [1.0], [3.0]]  # author 1 hangs on author 0, by two papers
    assert filled["author"].confidence.tolist() == [[1.0], [0.125], [1.0]]
    assert "x" not in filled["venue"]
    assert data["author"].x.isnan().any()


@pytest.mark.usefixtures("quiet")
def test_types_of_nodes_may_bring_their_masks_and_come_in_batches():
    data = hetero()
    data["paper"].x = torch.where(X.isnan(), 99.0, X)
    data["paper"].gone = X.isnan()
    expected = ImputeFeatures(alpha=0.5, beta=0.1)(hetero())
    transform = ImputeFeatures("gone", alpha=0.5, beta=0.1)
    for filled in (transform(data), *transform(Batch.from_data_list([data, data])).to_data_list()):
        assert torch.equal(filled["paper"].x, expected["paper"].x)
        assert torch.equal(filled["author"].x, expected["author"].x)


def test_repr_tells_the_parameters():
    assert repr(
        ImputeFeatures(X.isnan(), method="fp", unreachable="zero", solver=pcfi.FixedSteps(40), alpha=0.5, beta=0.1)
    ) == ("ImputeFeatures(missing_mask=<40.0% missing>, method='fp', solver=FixedSteps(steps=40), unreachable='zero')")
    assert repr(ImputeFeatures(attrs=["x", "pos"], add_confidence=True, alpha=0.5, beta=0.1)) == (
        "ImputeFeatures(attrs=('x', 'pos'), alpha=0.5, beta=0.1, solver=UntilSettled(rtol=0.0001, max_steps=1000), "
        "add_confidence=True)"
    )


def test_transforms_can_be_copied_and_pickled():
    transform = ImputeFeatures("gone", alpha=0.9, beta=0.1)
    data = small(gone=X.isnan())
    for copied in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        assert repr(copied) == repr(transform)
        assert torch.equal(copied(data).x, transform(data).x)


class Graphs(InMemoryDataset):
    """Four random graphs, saved the way PyG saves a data set."""

    def __init__(self, root, **more):
        super().__init__(root, **more)
        self.load(self.processed_paths[0])

    @property
    def processed_file_names(self):
        return ["graphs.pt"]

    def process(self):
        graphs = [random_data(seed) for seed in range(4)]
        self.save(
            [graph if self.pre_transform is None else self.pre_transform(graph) for graph in graphs],
            self.processed_paths[0],
        )


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("place", ["pre_transform", "transform"])
def test_data_sets_and_loaders_with_workers_take_it(tmp_path, place):
    transform = T.Compose([ImputeFeatures(unreachable="zero", alpha=0.5, beta=0.1), T.NormalizeFeatures()])
    dataset = Graphs(str(tmp_path), **{place: transform}, log=False)
    expected = [transform(random_data(seed)).x for seed in range(4)]
    loader = DataLoader(
        dataset, batch_size=2, num_workers=2 if place == "transform" else 0, multiprocessing_context=None
    )
    loaded = [graph.x for batch in loader for graph in batch.to_data_list()]
    for ours, theirs in zip(loaded, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_the_functional_name_is_known():
    from torch.utils.data import IterDataPipe
    from torch_geometric.data.datapipes import DatasetAdapter

    assert "impute_features" in IterDataPipe.functions
    filled = list(DatasetAdapter([small()]).impute_features(alpha=0.9, beta=0.1))
    assert torch.equal(filled[0].x, ImputeFeatures(alpha=0.9, beta=0.1)(small()).x)


def test_warnings_point_to_the_caller_and_come_once_for_a_batch():
    lonely = Data(x=torch.tensor([[1.0], [NAN]]), edge_index=torch.empty((2, 0), dtype=torch.long))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        ImputeFeatures(alpha=0.5, beta=0.1)(Batch.from_data_list([lonely, lonely, lonely]))
    assert [warning.filename for warning in heard] == [__file__]
    assert "and likewise in 2 more graphs" in str(heard[0].message)


def test_complete_features_stay_as_they_are():
    whole = small()
    whole.x = torch.arange(15).view(5, 3)
    assert ImputeFeatures(alpha=0.5, beta=0.1)(whole).x.dtype == torch.int64
    whole.x = whole.x.half()
    assert torch.equal(ImputeFeatures(alpha=0.5, beta=0.1)(whole).x, whole.x)


BAD = {
    "all False": (
        lambda: ImputeFeatures(torch.zeros(5, 3, dtype=bool), alpha=0.5, beta=0.1)(small()),
        "False everywhere, but x has NaN",
    ),
    "all True": (
        lambda: ImputeFeatures(torch.ones(5, 3, dtype=bool), alpha=0.5, beta=0.1)(small()),
        "True everywhere, .* leave missing_mask",
    ),
    "opposite": (
        lambda: ImputeFeatures(~X.isnan(), alpha=0.5, beta=0.1)(small()),
        "True where x has values .* invert the mask",
    ),
    "some NaN left": (
        lambda: ImputeFeatures(X.isnan() & (torch.arange(5) > 1)[:, None], alpha=0.5, beta=0.1)(small()),
        "3 cells of x",
    ),
    "integer mask": (
        lambda: ImputeFeatures(X.isnan().int(), alpha=0.5, beta=0.1)(small()),
        r"boolean mask \(True = missing\)",
    ),
    "mask of another shape": (
        lambda: ImputeFeatures(X.isnan()[:4], alpha=0.5, beta=0.1)(small()),
        r"shape \(4, 3\), but x has shape",
    ),
    "mask elsewhere": (
        lambda: ImputeFeatures(X.isnan().to("meta"), alpha=0.5, beta=0.1)(small()),
        "missing_mask is on meta",
    ),
    "mask that is not there": (
        lambda: ImputeFeatures("gone", alpha=0.5, beta=0.1)(small()),
        r"no mask 'gone' \(it has .*'edge_index'",
    ),
    "mask that is no mask": (
        lambda: ImputeFeatures(3, alpha=0.5, beta=0.1),
        "missing_mask must be a boolean tensor or the name",
    ),
    "one mask for many types": (
        lambda: ImputeFeatures(X.isnan(), alpha=0.5, beta=0.1)(hetero()),
        "several node types",
    ),
    "integers": (
        lambda: ImputeFeatures(X.isnan(), alpha=0.5, beta=0.1)(Data(x=X.nan_to_num().long(), edge_index=EDGES)),
        r"x holds torch.int64, .* data.x = data.x.float\(\)",
    ),
    "no features": (
        lambda: ImputeFeatures(alpha=0.5, beta=0.1)(Data(edge_index=EDGES)),
        r"the data has no tensor 'x' \(it has 'edge_index'\)",
    ),
    "no graph": (lambda: ImputeFeatures(alpha=0.5, beta=0.1)(Data(x=X)), "the data has neither edge_index nor adj_t"),
    "no such attribute": (
        lambda: ImputeFeatures(attrs="pos", alpha=0.5, beta=0.1)(hetero()),
        "no node type has an attribute 'pos'",
    ),
    "no attributes": (lambda: ImputeFeatures(attrs=[], alpha=0.5, beta=0.1), "attrs must be"),
    "not of PyG": (lambda: ImputeFeatures(alpha=0.5, beta=0.1)({"x": X}), "the data is a builtins.dict"),
    "alpha": (lambda: ImputeFeatures(alpha=2, beta=0.1), "alpha must be"),
    "no confidence": (
        lambda: ImputeFeatures(method="fp", add_confidence=True, alpha=0.5, beta=0.1),
        "needs method='pcfi'",
    ),
    "too many nodes in edges": (
        lambda: ImputeFeatures(alpha=0.5, beta=0.1)(Data(x=X[:3], edge_index=EDGES)),
        "but x has 3 rows",
    ),
    "infinite": (
        lambda: ImputeFeatures(alpha=0.5, beta=0.1)(Data(x=X / 0, edge_index=EDGES)),
        "is inf: known values must be finite",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_gets_an_error_that_says_what_to_do(case):
    call, message = BAD[case]
    with pytest.raises(pcfi.PcfiError, match=message):
        call()
