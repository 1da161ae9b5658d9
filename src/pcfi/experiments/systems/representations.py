"""Systems that fill with the transform `pcfi.pyg.ImputeFeatures` as it comes, without labels or tuned parameters."""

import time
import warnings
from dataclasses import replace

import numpy as np
import torch
from torch_geometric.data import Data

import pcfi
from pcfi._typing import Array
from pcfi.experiments.data.run_input import RunInput
from pcfi.experiments.training.constant_matrix import ConstantMatrix, propagated
from pcfi.experiments.training.system_output import SystemOutput
from pcfi.experiments.training.tasks import MakeFirstLayer, first_layer_on_matrix, train_network
from pcfi.pyg import ImputeFeatures


def predict(run_input: RunInput) -> SystemOutput:
    """Fill with the transform, append as many position channels as the parameter "position" says, and train."""
    start = time.perf_counter()
    features, position = represent(run_input, run_input.parameters.get("position", 0))
    seconds = time.perf_counter() - start
    output = train_network(run_input, first_layer_beside(run_input, features, position))
    return replace(output, metrics={**output.metrics, "imputing_seconds": seconds}, filled=features)


def represent(run_input: RunInput, n_channels: int) -> tuple[Array, Array]:
    """Filled features and position channels."""
    data = Data(x=torch.tensor(run_input.features), edge_index=torch.tensor(run_input.edges))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.PcfiWarning)  # of nodes that a split of the edges has cut off
        filled = ImputeFeatures(position=n_channels, random_state=run_input.run.seed)(data).x.numpy()
    width = data.x.shape[1]
    return filled[:, :width], filled[:, width:]


def first_layer_beside(run_input: RunInput, features: Array, position: Array) -> MakeFirstLayer:
    """The first layer on both, each as a matrix of its own: that of the features often is sparse or of low rank."""
    channels = np.flatnonzero(features.any(axis=0))
    matrix = propagated(run_input.adjacency, features[:, channels])
    n_features, n_position = features.shape[1], position.shape[1]
    if n_position:
        matrix = SideBySide(matrix, ConstantMatrix(np.asarray(run_input.adjacency @ position)))
    kept = np.concatenate([channels, np.arange(n_features, n_features + n_position)])
    return first_layer_on_matrix(matrix, kept, n_features + n_position)


class SideBySide(ConstantMatrix):
    """The columns of two constant matrices as one matrix."""

    def __init__(self, left: ConstantMatrix, right: ConstantMatrix) -> None:
        self.left, self.right = left, right

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of both together."""
        return self.left.shape[0], self.left.shape[1] + self.right.shape[1]

    def __matmul__(self, other: torch.Tensor) -> torch.Tensor:
        width = self.left.shape[1]
        return self.left @ other[:width] + self.right @ other[width:]
