"""The ways into pcfi, as one: features and graph in numpy -> a result in numpy. Each face joins the laws here."""

import dataclasses
import os
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

import pcfi
from pcfi.inputs import tensors
from pcfi.pyg import ImputeFeatures

PAPER = {"alpha": 0.5, "beta": 0.1}  # the laws are about the paper's method unless they say otherwise
DEVICE = torch.device(os.environ.get("PCFI_TEST_DEVICE", "cpu"))


@contextmanager
def device_engine():
    """Let tensors on the CPU, too, go to the engine for devices."""
    before = tensors.KERNEL_DEVICES
    tensors.KERNEL_DEVICES = ()
    try:
        yield
    finally:
        tensors.KERNEL_DEVICES = before


def to_numpy(table: Any) -> np.ndarray:
    return table.cpu().numpy() if isinstance(table, torch.Tensor) else np.asarray(table)


def in_numpy(result: pcfi.Imputation) -> pcfi.Imputation:
    cells = dataclasses.replace(result.cells, wrap=to_numpy)
    return dataclasses.replace(result, values=to_numpy(result.values), cells=cells)


def to_tensor(array: Any) -> torch.Tensor:
    """A tensor with the same contents; the array may be one that must not be written to, which torch warns of."""
    return torch.from_numpy(np.array(array))


def tensor_graph(graph: Any, place: Any = "cpu") -> Any:
    if isinstance(graph, tuple):
        return tuple(None if part is None else to_tensor(part).to(place) for part in graph)
    return to_tensor(graph).to(place)


def check_untouched(given: torch.Tensor, features: np.ndarray, values: torch.Tensor) -> None:
    assert to_numpy(given).tobytes() == features.tobytes()
    assert given.data_ptr() != values.data_ptr()


def numpy(features, graph, **options):
    return pcfi.impute(features, graph, **PAPER | options)


def cpu_tensor(features, graph, known=None, **options):
    given, known = to_tensor(features), None if known is None else to_tensor(known)
    result = pcfi.impute(given, tensor_graph(graph), known=known, **PAPER | options)
    check_untouched(given, features, result.values)
    return in_numpy(result)


def device_tensor(features, graph, known=None, **options):
    given, known = to_tensor(features).to(DEVICE), None if known is None else to_tensor(known).to(DEVICE)
    with device_engine():
        result = pcfi.impute(given, tensor_graph(graph, DEVICE), known=known, **PAPER | options)
    assert result.values.device == given.device
    check_untouched(given, features, result.values)
    return in_numpy(result)


def pyg(features, graph, known=None, **options):
    """The transform has the values and the confidence; the rest is that of the plain call."""
    edge_index, weights = graph if isinstance(graph, tuple) else (graph, None)
    data = Data(x=to_tensor(features), edge_index=to_tensor(edge_index))
    if weights is not None:
        data.edge_weight = to_tensor(weights)
    mask = None if known is None else ~to_tensor(known)
    is_pcfi = options.get("method", "pcfi") == "pcfi"
    filled = ImputeFeatures(mask, add_confidence=is_pcfi, **PAPER | options)(data)
    check_untouched(data.x, features, filled.x)
    plain = pcfi.impute(features, graph, known=known, **PAPER | options)
    if is_pcfi:
        np.testing.assert_array_equal(filled.confidence.numpy(), plain.confidence)
    return dataclasses.replace(plain, values=filled.x.numpy())


FACES = {face.__name__: face for face in (numpy, cpu_tensor, device_tensor, pyg)}
