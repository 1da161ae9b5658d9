"""The settings of a run <-> facts as JSON holds them."""

from dataclasses import asdict
from typing import Any

from pcfi.settings import Settings
from pcfi.stages.solvers import FixedSteps, UntilSettled


def needs_fit(settings: Settings) -> bool:
    """Whether something has to be learned from the features before they diffuse."""
    return settings.method == "pcfi" and (settings.objective == "values" or settings.tunes)


def facts_of(settings: Settings) -> dict[str, Any]:
    """Settings as JSON holds them."""
    facts = {**asdict(settings), "solver": {"kind": type(settings.solver).__name__, **asdict(settings.solver)}}
    return {name: value for name, value in facts.items() if name != "progress"}


def settings_of(facts: dict[str, Any]) -> Settings:
    """The inverse of `facts_of`."""
    solver = dict(facts["solver"])
    kind = {"FixedSteps": FixedSteps, "UntilSettled": UntilSettled}[solver.pop("kind")]
    return Settings(**{**facts, "solver": kind(**solver), "progress": False})
