"""The parameters of `impute`, and their allowed values as data."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from pcfi.errors import ParameterError
from pcfi.stages.solvers import FixedSteps, Solver, UntilSettled

METHODS = ("pcfi", "fp", "neighbors", "mean", "zero")
OBJECTIVES = ("values", "representation")
UNREACHABLE_POLICIES = ("mean", "zero", "nan", "error")


@dataclass(frozen=True)
class Rule:
    """Allowed values of a parameter, as text and as a test, and the conversion to the stored value."""

    allowed: str
    accepts: Callable[[Any], bool]
    store: Callable[[Any], Any] = lambda value: value


def _number(test: Callable[[float], bool]) -> Callable[[Any], bool]:
    """Return a test for real numbers, not booleans, whose value as a float passes `test`."""

    def accepts(value: object) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
            return False
        try:
            return test(float(value))
        except OverflowError:
            return False

    return accepts


def _one_of(*choices: str) -> Rule:
    names = ", ".join(map(repr, choices))
    return Rule(f"one of {names}", lambda value: isinstance(value, str) and value in choices)


def _auto_or(rule: Rule) -> Rule:
    """Allow what `rule` allows, and "auto"."""

    def is_auto(value: object) -> bool:
        return isinstance(value, str) and value == "auto"

    return Rule(
        f"{rule.allowed}, or 'auto'",
        lambda value: is_auto(value) or rule.accepts(value),
        lambda value: value if is_auto(value) else rule.store(value),
    )


def _none_or(rule: Rule) -> Rule:
    """Allow what `rule` allows, and None."""
    return Rule(
        f"{rule.allowed}, or None",
        lambda value: value is None or rule.accepts(value),
        lambda value: None if value is None else rule.store(value),
    )


def _is_seed(value: object) -> bool:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return 0 <= int(value) < 2**63
    return isinstance(value, np.random.Generator)


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


_FLAG = Rule("True or False", lambda value: isinstance(value, bool | np.bool_), bool)

RULES = {
    "method": _one_of(*METHODS, "auto"),
    "alpha": _auto_or(Rule("a number greater than 0 and at most 1", _number(lambda alpha: 0 < alpha <= 1), float)),
    "beta": _auto_or(Rule("a finite number of at least 0", _number(lambda beta: 0 <= beta < math.inf), float)),
    "objective": _one_of(*OBJECTIVES),
    "center": Rule(
        "True, False or 'auto'",
        lambda value: value is None or _auto_or(_FLAG).accepts(value),
        lambda value: value if value == "auto" else bool(value),  # None is False
    ),
    "position": Rule("an integer of at least 0, the number of channels", _is_count, int),
    "random_state": _none_or(Rule("an integer of at least 0 and below 2**63, a numpy Generator", _is_seed)),
    "solver": Rule(
        "pcfi.FixedSteps(...) or pcfi.UntilSettled(...)", lambda value: isinstance(value, FixedSteps | UntilSettled)
    ),
    "standardize": _none_or(_FLAG),
    "unreachable": _one_of(*UNREACHABLE_POLICIES),
    "directed": _FLAG,
    "self_loops": _FLAG,
    "progress": _FLAG,
}


@dataclass(frozen=True)
class Settings:
    """The checked parameters of one call; the defaults are those of `impute`.

    Values "auto" and None are resolved before the stages run.
    """

    method: str = "pcfi"
    alpha: Any = "auto"
    beta: Any = "auto"
    solver: Solver = UntilSettled()  # noqa: RUF009  a frozen value
    standardize: bool | None = None
    unreachable: str = "mean"
    directed: bool = False
    self_loops: bool = True
    progress: bool = False
    objective: str = "values"
    center: Any = False
    position: int = 0
    random_state: Any = None

    @property
    def tunes(self) -> bool:
        """Whether alpha or beta is "auto"."""
        return "auto" in (self.alpha, self.beta)

    def __post_init__(self) -> None:
        for field in fields(self):
            value, rule = getattr(self, field.name), RULES[field.name]
            if not rule.accepts(value):
                raise ParameterError(f"must be {rule.allowed}, got {value!r}", parameter=field.name)
            object.__setattr__(self, field.name, rule.store(value))
        if self.position and self.method in ("pcfi", "auto") and self.objective == "values":
            raise ParameterError(
                f"must be 0 for values, because position channels belong to a representation, got {self.position}",
                parameter="position",
                remedy="use {objective='representation'}, or call pcfi.position",
            )


def check_coverage(coverage: Any) -> None:
    """Raise an error if `coverage` is not a valid probability."""
    if isinstance(coverage, bool) or not isinstance(coverage, Real) or not 0 < float(coverage) < 1:
        raise ParameterError(
            f"must be a number between 0 and 1 (both excluded), got {coverage!r}", parameter="coverage"
        )
