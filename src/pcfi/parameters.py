"""The parameters of `impute`, checked once: what each may be is declared as data, one routine words every error."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import numpy as np

from pcfi.errors import ParameterError
from pcfi.solvers import FixedSteps, Solver, UntilSettled

METHODS = ("pcfi", "fp", "neighbors", "mean", "zero")
UNREACHABLE_POLICIES = ("mean", "zero", "nan", "error")


@dataclass(frozen=True)
class Rule:
    """What a parameter may be: in words, as a test, and how it is stored."""

    allowed: str
    accepts: Callable[[Any], bool]
    store: Callable[[Any], Any] = lambda value: value


def _number(test: Callable[[float], bool]) -> Callable[[Any], bool]:
    """A test that holds for real numbers that pass `test` also as a float."""

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


_FLAG = Rule("True or False", lambda value: isinstance(value, bool | np.bool_), bool)

RULES = {
    "method": _one_of(*METHODS),
    "alpha": Rule("a number greater than 0 and at most 1", _number(lambda alpha: 0 < alpha <= 1), float),
    "beta": Rule("a finite number of at least 0", _number(lambda beta: 0 <= beta < math.inf), float),
    "solver": Rule(
        "pcfi.FixedSteps(...) or pcfi.UntilSettled(...)", lambda value: isinstance(value, FixedSteps | UntilSettled)
    ),
    "standardize": Rule("True, False or None", _FLAG.accepts, bool),
    "unreachable": _one_of(*UNREACHABLE_POLICIES),
    "directed": _FLAG,
    "self_loops": _FLAG,
    "progress": _FLAG,
}


@dataclass(frozen=True)
class Settings:
    """The parameters of one call; making one checks them."""

    method: str
    alpha: float
    beta: float
    solver: Solver
    standardize: bool
    unreachable: str
    directed: bool
    self_loops: bool
    progress: bool

    def __post_init__(self) -> None:
        for field in fields(self):
            value, rule = getattr(self, field.name), RULES[field.name]
            if not rule.accepts(value):
                raise ParameterError(f"{field.name} must be {rule.allowed}, got {value!r}")
            object.__setattr__(self, field.name, rule.store(value))
