"""A first layer -> a trained network's answer to the task of a setting."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from pcfi._typing import Array
from pcfi.experiments.learning import classification, links
from pcfi.experiments.learning.networks import Network, Propagated
from pcfi.experiments.learning.operators import Constant, propagated
from pcfi.experiments.setting import Setting
from pcfi.experiments.splits import NodeSplit

MakeFirst = Callable[[int, torch.Generator], nn.Module]


@dataclass(frozen=True, eq=False)
class Answer:
    """What a system has to say: metrics by name; the class of every node; the filled features, if it fills any."""

    metrics: dict[str, float]
    predicted: Array | None = None
    filled: Array | None = None
    details: dict[str, Any] = field(default_factory=dict)


def learn(setting: Setting, make_first: MakeFirst) -> Answer:
    """Train the common network of the setting's task on a first layer."""
    asked = setting.parameters
    weights = torch.Generator().manual_seed(int(setting.rng("weights").integers(2**63)))
    first = make_first(asked["hidden"], weights)
    if not isinstance(setting.split, NodeSplit):
        network = Network(first, [asked["hidden"], asked["latent"]], weights)
        how = {name: asked[name] for name in ("learning_rate", "weight_decay", "dropout", "epochs")}
        scored = links.train(network, setting.adjacency, setting.split, links.Training(**how), setting.rng("training"))
        metrics = {
            "auc": scored.auc,
            "ap": scored.ap,
            "validation_auc": scored.validation_auc,
            "validation_ap": scored.validation_ap,
            "training_seconds": scored.seconds,
        }
        return Answer(metrics)
    widths = [*[asked["hidden"]] * (asked["layers"] - 1), setting.dataset.n_classes]
    network = Network(first, widths, weights, jumping=asked["jumping"])
    how = {name: asked[name] for name in ("learning_rate", "weight_decay", "dropout", "epochs", "patience")}
    trained = classification.train(
        network,
        setting.adjacency,
        setting.dataset.labels,
        setting.split,
        classification.Training(**how),
        setting.rng("training"),
    )
    metrics = {
        "validation_accuracy": trained.validation_accuracy,
        "epochs": float(trained.epochs),
        "best_epoch": float(trained.best_epoch),
        "training_seconds": trained.seconds,
    }
    return Answer(metrics, trained.predicted)


def constant_features(setting: Setting, features: Array) -> MakeFirst:
    """A maker of the first layer ReLU(A_sym X W + b) on features X that stay as they are."""
    channels = np.flatnonzero(features.any(axis=0))
    return constant_layer(propagated(setting.adjacency, features[:, channels]), channels, features.shape[1])


def constant_layer(constant: Constant, channels: Array, n_channels: int) -> MakeFirst:
    """A maker of the first layer ReLU(M W + b); M holds `channels`, the only ones of `n_channels` that are not 0."""

    def make(width: int, rng: torch.Generator) -> nn.Module:
        return Propagated(constant, width, rng, n_channels=n_channels, channels=channels)

    return make
