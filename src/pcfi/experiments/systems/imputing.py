"""Systems that fill the missing cells first and then train the common network."""

import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import pcfi
from pcfi._typing import Array
from pcfi.experiments.learning.tasks import Answer, constant_features, learn
from pcfi.experiments.setting import Setting

Filled = tuple[Array, dict[str, Any]]


class Imputer(ABC):
    """Fills the missing cells; the common network learns from the filled features."""

    def solve(self, setting: Setting) -> Answer:
        """Fill, then train; "center" subtracts each channel's mean in between."""
        start = time.perf_counter()
        filled, details = self.fill(setting)
        seconds = time.perf_counter() - start
        features = filled - filled.mean(axis=0) if setting.parameters.get("center") else filled
        answer = learn(setting, constant_features(setting, features))
        metrics = {**answer.metrics, "imputing_seconds": seconds}
        return replace(answer, metrics=metrics, filled=filled, details=details)

    @abstractmethod
    def fill(self, setting: Setting) -> Filled:
        """The features without missing cells, and facts about how it went."""


class Full(Imputer):
    """Nothing is missing: the upper bound."""

    def fill(self, setting: Setting) -> Filled:
        """The features as they are."""
        return setting.dataset.features, {}


class _Library(Imputer):
    """Fills with `pcfi.impute`."""

    method: str

    def fill(self, setting: Setting) -> Filled:
        """What `pcfi.impute` fills in; nodes that the split cuts off from every source get 0, as in the paper."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pcfi.PcfiWarning)  # what they say stands in the details
            result = pcfi.impute(
                setting.features,
                setting.edges,
                method=self.method,
                unreachable="zero",
                **self.options(setting.parameters),
            )
        return result.values, {
            "steps": result.steps,
            "residual": result.residual,
            "converged": result.converged,
            "unreachable_cells": result.n_unreachable,
        }

    def options(self, asked: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  others need them
        """Options of `pcfi.impute` from the run's parameters."""
        return {}


class Zero(_Library):
    """Missing cells get 0."""

    method = "zero"


class Mean(_Library):
    """Missing cells get the mean of their channel."""

    method = "mean"


class Neighbors(_Library):
    """Missing cells get the mean of their known neighbours."""

    method = "neighbors"


class FP(_Library):
    """Feature Propagation (Rossi et al., 2021)."""

    method = "fp"

    def options(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Solver and self-loops."""
        return {"solver": _solver(asked), "self_loops": asked["self_loops"]}


class PCFI(FP):
    """The paper's system; alpha = 1 and beta = 0 are its ablations."""

    method = "pcfi"

    def options(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Solver, self-loops, alpha, beta, standardize."""
        return super().options(asked) | {name: asked[name] for name in ("alpha", "beta", "standardize")}


def _solver(asked: dict[str, Any]) -> pcfi.FixedSteps | pcfi.UntilSettled:
    if asked["solver"] == "fixed":
        return pcfi.FixedSteps(asked["steps"])
    return pcfi.UntilSettled(asked["rtol"], asked["max_steps"])
