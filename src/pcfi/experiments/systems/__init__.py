"""The compared systems: modules with a function `predict` from `RunInput` to `SystemOutput`."""

from collections.abc import Callable
from importlib import import_module

from pcfi.experiments.catalog import SYSTEMS
from pcfi.experiments.data.run_input import RunInput
from pcfi.experiments.training.system_output import SystemOutput


def system(name: str) -> Callable[[RunInput], SystemOutput]:
    """Return the function of a system in the catalog: handle the missing cells, train, predict."""
    predict: Callable[[RunInput], SystemOutput]
    predict = import_module(f"pcfi.experiments.systems.{SYSTEMS[name].module}").predict
    return predict
