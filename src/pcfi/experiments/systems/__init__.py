"""The compared systems: one module each, with a function `predict` from `RunInput` to `Prediction`."""

from collections.abc import Callable
from importlib import import_module

from pcfi.experiments.catalog import SYSTEMS
from pcfi.experiments.data.run_input import RunInput
from pcfi.experiments.training.prediction import Prediction


def system(name: str) -> Callable[[RunInput], Prediction]:
    """Return the function of a system in the catalog: handle the missing cells, train, predict."""
    predict: Callable[[RunInput], Prediction]
    predict = import_module(f"pcfi.experiments.systems.{SYSTEMS[name].module}").predict
    return predict
