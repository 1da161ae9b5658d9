"""Systems that fill the missing cells with `pcfi.impute` and then train the common network."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pcfi
from pcfi._typing import Array
from pcfi.experiments.data.run_input import RunInput
from pcfi.experiments.training.system_output import SystemOutput
from pcfi.experiments.training.tasks import first_layer_on_features, train_network

Filled = tuple[Array, dict[str, Any]]


def predict(run_input: RunInput) -> SystemOutput:
    """Fill with the imputation method that the system is named after, then train."""
    return train_on_filled(run_input, fill)


def train_on_filled(run_input: RunInput, fill: Callable[[RunInput], Filled]) -> SystemOutput:
    """Fill, subtract the mean of each channel if the parameter "center" is set, and train the common network."""
    start = time.perf_counter()
    filled, details = fill(run_input)
    seconds = time.perf_counter() - start
    features = filled - filled.mean(axis=0) if run_input.parameters.get("center") else filled
    output = train_network(run_input, first_layer_on_features(run_input, features))
    metrics = {**output.metrics, "imputing_seconds": seconds}
    return replace(output, metrics=metrics, filled=filled, details=details)


def fill(run_input: RunInput) -> Filled:
    """Return the features without missing cells, and diagnostics; unreachable cells are 0, as in the paper."""
    if run_input.run.system == "full":  # nothing is missing: the upper bound
        return run_input.dataset.features, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.PcfiWarning)  # the details have the same facts
        result = pcfi.impute(
            run_input.features,
            run_input.edges,
            method=run_input.run.system,
            unreachable="zero",
            objective="representation",
            **_impute_options(run_input.run.system, run_input.parameters),
        )
    return result.values, {
        "steps": result.steps,
        "residual": result.residual,
        "converged": result.converged,
        "unreachable_cells": result.n_unreachable,
    }


def _impute_options(system: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Options of `pcfi.impute` from the parameters of a run."""
    if system not in ("fp", "pcfi"):
        return {}
    solver = (
        pcfi.FixedSteps(parameters["steps"])
        if parameters["solver"] == "fixed"
        else pcfi.UntilSettled(parameters["rtol"], parameters["max_steps"])
    )
    names = ("self_loops", "alpha", "beta", "standardize") if system == "pcfi" else ("self_loops",)
    return {"solver": solver, **{name: parameters[name] for name in names}}
