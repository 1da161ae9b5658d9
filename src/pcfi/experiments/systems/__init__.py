"""The compared systems: each takes a `Setting` and gives an `Answer`."""

from importlib import import_module
from typing import Protocol

from pcfi.experiments.catalog import SYSTEMS
from pcfi.experiments.learning.tasks import Answer
from pcfi.experiments.setting import Setting


class System(Protocol):
    """Anything that copes with missing cells and answers a task; its parameters are in the setting."""

    def solve(self, setting: Setting) -> Answer:
        """Fill or cope, train, predict."""
        ...


def system(name: str) -> System:
    """The system of a name in the catalog."""
    module, attribute = SYSTEMS[name].code.split(":")
    made: System = getattr(import_module(f"pcfi.experiments.systems.{module}"), attribute)()
    return made
