"""How long to diffuse: for a fixed number of steps, or until the values have settled."""

from dataclasses import dataclass
from numbers import Integral, Real

from pcfi.errors import ParameterError

MOST_STEPS = 10**9


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= MOST_STEPS:
        raise ParameterError(
            f"must be an integer of at least 1 and at most {MOST_STEPS:,}, got {value!r}", parameter=name
        )
    return int(value)


@dataclass(frozen=True)
class FixedSteps:
    """The paper's recursion: `steps` plain diffusion steps, starting with every missing cell at zero.

    Parameters
    ----------
    steps : int, default=100
        Number of steps (the paper's K). With alpha of 0.8 or more, 100 steps are far from the steady state
        on sparse graphs; use it to reproduce published numbers.

    Examples
    --------
    >>> FixedSteps(40)
    FixedSteps(steps=40)
    """

    steps: int = 100

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _count("steps", self.steps))


@dataclass(frozen=True)
class UntilSettled:
    """The steady state of the diffusion, whatever the number of steps.

    Parameters
    ----------
    rtol : float, default=1e-4
        Settled means that one further diffusion step would move no missing cell by more than `rtol` times the
        range of the channel's known values. The distance to the exact steady state is larger, the more so
        the slower values settle (alpha near 1, few sources); a smaller `rtol` brings it down in proportion.
    max_steps : int, default=1000
        Give up after this many steps, with a warning.

    Examples
    --------
    >>> UntilSettled(rtol=1e-6)
    UntilSettled(rtol=1e-06, max_steps=1000)
    """

    rtol: float = 1e-4
    max_steps: int = 1000

    def __post_init__(self) -> None:
        is_number = isinstance(self.rtol, Real) and not isinstance(self.rtol, bool)
        if not is_number or not 0 < self.rtol < 1 or not 0 < float(self.rtol) < 1:
            raise ParameterError(
                f"must be a number between 0 and 1 (both excluded), got {self.rtol!r}", parameter="rtol"
            )
        object.__setattr__(self, "rtol", float(self.rtol))
        object.__setattr__(self, "max_steps", _count("max_steps", self.max_steps))


Solver = FixedSteps | UntilSettled
