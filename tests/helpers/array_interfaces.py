"""Interfaces that take arrays or tensors, each as a function: features and graph in numpy -> a result in numpy."""

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

PAPER = {
    "alpha": 0.5,
    "beta": 0.1,
    "objective": "representation",
}  # the laws are about the paper's method unless they say otherwise
DEVICE = torch.device(os.environ.get("PCFI_TEST_DEVICE", "cpu"))


@contextmanager
def device_backend_on_cpu():
    """Compute with the device backend even for tensors on the CPU."""
    before = tensors.KERNEL_DEVICES
    tensors.KERNEL_DEVICES = ()
    try:
        yield
    finally:
        tensors.KERNEL_DEVICES = before


def to_numpy(table: Any) -> np.ndarray:
    return table.cpu().numpy() if isinstance(table, torch.Tensor) else np.asarray(table)


def result_in_numpy(result: pcfi.Imputation) -> pcfi.Imputation:
    cells = dataclasses.replace(result.cells, wrap=to_numpy)
    return dataclasses.replace(result, values=to_numpy(result.values), cells=cells)


def to_tensor(array: Any) -> torch.Tensor:
    """Copy an array into a tensor; torch warns about read-only arrays that it shares memory with."""
    return torch.from_numpy(np.array(array))


def tensor_graph(graph: Any, device: Any = "cpu") -> Any:
    if isinstance(graph, tuple):
        return tuple(None if part is None else to_tensor(part).to(device) for part in graph)
    return to_tensor(graph).to(device)


def check_untouched(tensor: torch.Tensor, features: np.ndarray, values: torch.Tensor) -> None:
    assert to_numpy(tensor).tobytes() == features.tobytes()
    assert tensor.data_ptr() != values.data_ptr()


def numpy(features, graph, **options):
    return pcfi.impute(features, graph, **PAPER | options)


def cpu_tensor(features, graph, known=None, **options):
    tensor, known = to_tensor(features), None if known is None else to_tensor(known)
    result = pcfi.impute(tensor, tensor_graph(graph), known=known, **PAPER | options)
    check_untouched(tensor, features, result.values)
    return result_in_numpy(result)


def device_tensor(features, graph, known=None, **options):
    tensor, known = to_tensor(features).to(DEVICE), None if known is None else to_tensor(known).to(DEVICE)
    with device_backend_on_cpu():
        result = pcfi.impute(tensor, tensor_graph(graph, DEVICE), known=known, **PAPER | options)
    assert result.values.device == tensor.device
    check_untouched(tensor, features, result.values)
    return result_in_numpy(result)


def pyg(features, graph, known=None, **options):
    """Return the values of the transform in a result that otherwise comes from the plain call."""
    edge_index, weights = graph if isinstance(graph, tuple) else (graph, None)
    data = Data(x=to_tensor(features), edge_index=to_tensor(edge_index))
    if weights is not None:
        data.edge_weight = to_tensor(weights)
    mask = None if known is None else ~to_tensor(known)
    is_pcfi = options.get("method", "pcfi") == "pcfi"
    chosen = {name: value for name, value in (PAPER | options).items() if name != "objective"}
    filled = ImputeFeatures(mask, add_confidence=is_pcfi, **chosen)(data)
    check_untouched(data.x, features, filled.x)
    plain = pcfi.impute(features, graph, known=known, **PAPER | options)
    if is_pcfi:
        np.testing.assert_array_equal(filled.confidence.numpy(), plain.confidence)
    return dataclasses.replace(plain, values=filled.x.numpy())


INTERFACES = {interface.__name__: interface for interface in (numpy, cpu_tensor, device_tensor, pyg)}
