"""torch tensors in, torch tensors out: the same numbers, dtype and device, and no copy on the CPU."""

import copy
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData

import pcfi
from pcfi.inputs.problem import read_problem

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 2]])
WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0])
NAN = torch.nan
FEATURES = torch.tensor([[1.0, 5.0], [NAN, NAN], [2.0, NAN], [NAN, 7.0], [4.0, NAN]], dtype=torch.float64)
EXPECTED = pcfi.impute(FEATURES.numpy(), EDGES.numpy(), alpha=0.5, beta=0.1, objective="representation").values
WEIGHTED = pcfi.impute(
    FEATURES.numpy(), (EDGES.numpy(), WEIGHTS.numpy()), alpha=0.5, beta=0.1, objective="representation"
).values
ADJACENCY = torch.sparse_coo_tensor(EDGES, WEIGHTS, (5, 5), check_invariants=True)


def compressed(layout: str) -> torch.Tensor:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return getattr(ADJACENCY, f"to_sparse_{layout}")()


GRAPHS = {
    "edge index": (EDGES, EXPECTED),
    "int32": (EDGES.int(), EXPECTED),
    "list of two tensors": ([EDGES[0], EDGES[1]], EXPECTED),
    "pyg edge index": (EdgeIndex(EDGES), EXPECTED),
    "with weights": ((EDGES, WEIGHTS), WEIGHTED),
    "weights that need gradients": ((EDGES, WEIGHTS.clone().requires_grad_()), WEIGHTED),
    "bfloat16 weights": ((EDGES, WEIGHTS.bfloat16()), WEIGHTED),
    "coo": (ADJACENCY, WEIGHTED),
    "csr": (compressed("csr"), WEIGHTED),
    "csc": (compressed("csc"), WEIGHTED),
    "pyg data": (Data(edge_index=EDGES, edge_weight=WEIGHTS), WEIGHTED),
    "pyg data with features of edges": (Data(edge_index=EDGES, edge_attr=torch.full((5,), -7.0)), EXPECTED),
    "pyg data with adj_t": (Data(adj_t=compressed("csr").t()), WEIGHTED),
}


@pytest.mark.parametrize("form", GRAPHS)
@pytest.mark.parametrize("directed", [False, True])
def test_every_form_of_a_graph_means_the_same(form, directed):
    graph, expected = GRAPHS[form]
    if directed:
        plain = (EDGES.numpy(), WEIGHTS.numpy()) if expected is WEIGHTED else EDGES.numpy()
        undirected, expected = (
            expected,
            pcfi.impute(FEATURES.numpy(), plain, directed=True, alpha=0.5, beta=0.1, objective="representation").values,
        )
        assert np.abs(undirected - expected).max() > 0.1
    assert (
        pcfi.impute(FEATURES, graph, directed=directed, alpha=0.5, beta=0.1, objective="representation")
        .values.numpy()
        .tobytes()
        == expected.tobytes()
    )
    assert (
        pcfi.impute(FEATURES.numpy(), EDGES, alpha=0.5, beta=0.1, objective="representation").values.tobytes()
        == EXPECTED.tobytes()
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_values_come_back_in_the_dtype_that_went_in(dtype):
    result = pcfi.impute(FEATURES.to(dtype), EDGES, alpha=0.5, beta=0.1, objective="representation")
    assert result.values.dtype == dtype
    known = ~FEATURES.isnan()
    assert torch.equal(result.values[known], FEATURES.to(dtype)[known])
    torch.testing.assert_close(result.values.double(), torch.from_numpy(EXPECTED), rtol=1e-2, atol=0)
    assert result.confidence.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert result.hops.dtype == torch.int32
    assert result.unreachable.dtype == torch.bool


def test_integers_become_float64_and_transposed_tensors_are_read():
    result = pcfi.impute(
        torch.arange(10).view(5, 2), EDGES, known=~FEATURES.isnan(), alpha=0.5, beta=0.1, objective="representation"
    )
    assert result.values.dtype == torch.float64
    assert result.n_missing == 5
    fortran = FEATURES.t().contiguous().t()
    assert (
        pcfi.impute(fortran, EDGES, alpha=0.5, beta=0.1, objective="representation").values.numpy().tobytes()
        == EXPECTED.tobytes()
    )


def test_what_needs_gradients_is_detached():
    result = pcfi.impute(FEATURES.clone().requires_grad_(), EDGES, alpha=0.5, beta=0.1, objective="representation")
    assert not result.values.requires_grad
    assert result.values.numpy().tobytes() == EXPECTED.tobytes()


def test_tensors_on_the_cpu_are_read_and_given_back_without_a_copy():
    features = torch.rand(20_000, 50)
    features[torch.rand(features.shape) < 0.5] = NAN
    edges = torch.stack([torch.arange(19_999), torch.arange(1, 20_000)])
    problem = read_problem(features, edges, known=features > 0)
    assert problem.values.ctypes.data == features.data_ptr()
    filled = np.zeros((3, 2), dtype=np.float32)
    assert (
        read_problem(features[:3, :2].contiguous(), edges[:, :2]).wrap_values(filled).data_ptr() == filled.ctypes.data
    )
    graph = pcfi.prepare_graph(edges)
    pcfi.impute(features, graph, method="zero")
    tracemalloc.start()
    pcfi.impute(features, graph, method="zero")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * features.nbytes  # the result, and nothing else of that size


def test_results_in_tensors_can_be_copied_and_pickled():
    result = pcfi.impute(FEATURES, EDGES, alpha=0.5, beta=0.1, objective="representation")
    for copied in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert torch.equal(copied.values, result.values)
        assert torch.equal(copied.confidence, result.confidence)


def test_torch_is_not_loaded_for_numpy():
    code = """
import sys, numpy as np, pcfi
pcfi.impute(np.array([[1.0], [np.nan], [2.0]]), [[0, 1], [1, 2]], known=None)
assert not {"torch", "torch_geometric"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


META = torch.device("meta")
BAD = {
    "graph elsewhere": (
        lambda: pcfi.impute(FEATURES, EDGES.to(META), alpha=0.5, beta=0.1, objective="representation"),
        "graph is on meta, but features is on cpu",
    ),
    "weights elsewhere": (
        lambda: pcfi.impute(FEATURES, (EDGES, WEIGHTS.to(META)), alpha=0.5, beta=0.1, objective="representation"),
        "graph is on meta",
    ),
    "data elsewhere": (
        lambda: pcfi.impute(FEATURES, Data(edge_index=EDGES.to(META)), alpha=0.5, beta=0.1, objective="representation"),
        "graph is on meta",
    ),
    "known elsewhere": (
        lambda: pcfi.impute(
            FEATURES, EDGES, known=(FEATURES > 0).to(META), alpha=0.5, beta=0.1, objective="representation"
        ),
        "known is on meta, but features is on cpu: move both to one device",
    ),
    "complex": (
        lambda: pcfi.impute(FEATURES * 1j, EDGES, alpha=0.5, beta=0.1, objective="representation"),
        "real numbers",
    ),
    "float8": (
        lambda: pcfi.impute(FEATURES.to(torch.float8_e4m3fn), EDGES, alpha=0.5, beta=0.1, objective="representation"),
        "real numbers",
    ),
    "one column": (
        lambda: pcfi.impute(FEATURES[:, 0], EDGES, alpha=0.5, beta=0.1, objective="representation"),
        r"2-D .* got shape \(5,\)",
    ),
    "sparse features": (
        lambda: pcfi.impute(FEATURES.to_sparse(), EDGES, alpha=0.5, beta=0.1, objective="representation"),
        "to_dense",
    ),
    "known of integers": (
        lambda: pcfi.impute(
            FEATURES, EDGES, known=(FEATURES > 0).int(), alpha=0.5, beta=0.1, objective="representation"
        ),
        "boolean mask",
    ),
    "known of another shape": (
        lambda: pcfi.impute(FEATURES, EDGES, known=FEATURES[:, 0] > 0, alpha=0.5, beta=0.1, objective="representation"),
        "for whole nodes",
    ),
    "transposed edges": (
        lambda: pcfi.impute(FEATURES, EDGES.T, alpha=0.5, beta=0.1, objective="representation"),
        "pass its transpose",
    ),
    "edges out of range": (
        lambda: pcfi.impute(FEATURES, EDGES + 1, alpha=0.5, beta=0.1, objective="representation"),
        "edge 3 refers to node 5",
    ),
    "negative weights": (
        lambda: pcfi.impute(FEATURES, (EDGES, -WEIGHTS), alpha=0.5, beta=0.1, objective="representation"),
        "edge 0 has weight -1.0",
    ),
    "adjacency of another size": (
        lambda: pcfi.impute(FEATURES[:4], ADJACENCY, alpha=0.5, beta=0.1, objective="representation"),
        r"shape \(5, 5\)",
    ),
    "adjacency of vectors": (
        lambda: pcfi.impute(
            FEATURES,
            torch.sparse_coo_tensor(EDGES, WEIGHTS[:, None], (5, 5, 1), check_invariants=True),
            alpha=0.5,
            beta=0.1,
            objective="representation",
        ),
        "vectors",
    ),
    "no graph": (
        lambda: pcfi.impute(FEATURES, Data(x=FEATURES), alpha=0.5, beta=0.1, objective="representation"),
        "neither edge_index nor adj_t",
    ),
    "several types": (
        lambda: pcfi.impute(FEATURES, HeteroData(), alpha=0.5, beta=0.1, objective="representation"),
        "several types",
    ),
    "foreign adj_t": (
        lambda: pcfi.impute(FEATURES, Data(adj_t="rows"), alpha=0.5, beta=0.1, objective="representation"),
        "adj_t of the graph is a builtins.str",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tensors_get_an_error_of_ours(case):
    call, message = BAD[case]
    with pytest.raises(pcfi.PcfiError, match=message):
        call()
