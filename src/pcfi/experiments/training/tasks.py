"""`train_network`: train the common network of a run's task on a first layer, and return its prediction."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from pcfi._typing import Array
from pcfi.experiments.data.run_input import RunInput
from pcfi.experiments.data.splits import NodeSplit
from pcfi.experiments.training.classification import train_classifier
from pcfi.experiments.training.constant_matrix import ConstantMatrix, propagated
from pcfi.experiments.training.link_prediction import train_link_predictor
from pcfi.experiments.training.networks import GCN, ConstantInputLayer
from pcfi.experiments.training.system_output import SystemOutput
from pcfi.experiments.training.variational import VariationalEncoder, train_variational

MakeFirstLayer = Callable[[int, torch.Generator], nn.Module]  # (width, random generator) -> first layer


def train_network(run_input: RunInput, make_first_layer: MakeFirstLayer, *, variational: bool = False) -> SystemOutput:
    """Train a GCN for node classification, or a graph auto-encoder (`variational` or not) for link prediction."""
    parameters = run_input.parameters
    weights = torch.Generator().manual_seed(run_input.weights_seed)
    first = make_first_layer(parameters["hidden"], weights)
    rng = run_input.rng("training")
    if isinstance(run_input.split, NodeSplit):
        widths = [*[parameters["hidden"]] * (parameters["layers"] - 1), run_input.dataset.n_classes]
        network = GCN(first, widths, weights, jumping=parameters["jumping"])
        labels = run_input.dataset.labels
        return train_classifier(network, run_input.adjacency, labels, run_input.split, parameters, rng)
    if variational:
        encoder = VariationalEncoder(first, parameters["hidden"], parameters["latent"], weights)
        return train_variational(encoder, run_input.adjacency, run_input.split, parameters, rng)
    network = GCN(first, [parameters["hidden"], parameters["latent"]], weights)
    return train_link_predictor(network, run_input.adjacency, run_input.split, parameters, rng)


def first_layer_on_features(run_input: RunInput, features: Array) -> MakeFirstLayer:
    """Return a constructor of the first layer ReLU(A_sym X W + b) on constant features X."""
    channels = np.flatnonzero(features.any(axis=0))
    return first_layer_on_matrix(propagated(run_input.adjacency, features[:, channels]), channels, features.shape[1])


def first_layer_on_matrix(matrix: ConstantMatrix, channels: Array, n_channels: int) -> MakeFirstLayer:
    """Return a constructor of the first layer ReLU(M W + b); M holds the nonzero `channels` of `n_channels`."""

    def make(width: int, rng: torch.Generator) -> nn.Module:
        return ConstantInputLayer(matrix, width, rng, n_channels=n_channels, channels=channels)

    return make
