"""Exceptions and warnings; every error is also a ValueError or a TypeError.

PcfiError
├── FeatureError (ValueError)          features or the known mask
├── GraphError (ValueError)            edges, weights, sizes
├── ParameterError (ValueError)        alpha, beta, solver, method, ...
├── UnreachableError (ValueError)      unreachable="error" and some cells are unreachable
├── DivergenceError (ValueError)       a computed value is not finite
├── TooLargeError (ValueError)         not enough memory; also a MemoryError
├── DatasetError (ValueError)          a data set of the experiments is absent or unsuitable
├── StorageError (ValueError)          no space left on disk; also an OSError
├── ClusterError (ValueError)          the scheduler cannot be reached, or workers die
├── FileError (ValueError)             a file cannot be read or written
└── UnsupportedTypeError (TypeError)   an unsupported container

PcfiWarning (UserWarning)
├── UnreachableWarning                 cells that no source can reach
├── NotSettledWarning                  the steady state was not reached within max_steps
├── ScaleWarning                       channels of very different scales are mixed
├── ColumnWarning                      a column may have another meaning than assumed
├── TuningWarning                      too few known cells to tune; defaults were used
└── GraphWarning                       the graph was probably built from the features

An error or warning says what is wrong, what was given, what is allowed (`message`) and what to do (`remedy`).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

_REFERENCE = re.compile(r"\{(\w+)(?:=([^{}]*))?\}")


def _as_keyword(name: str, text: str, value: Any = None) -> str:
    if name == "exclude":  # an option of the command line only
        return f"channels= without {', '.join(map(repr, value))}" if value else "channels="
    return f"{name}={text if value is None else repr(value)}"


class Worded(Exception):  # noqa: N818  warnings are no errors
    """An error or a warning, which every interface words in its own way.

    Parameters
    ----------
    message : str
        What is wrong. If `parameter` is set, its name is prepended: "must be positive".
    parameter : str or None
        Python name of the parameter whose value is wrong.
    remedy : str
        What to do. Names parameters as {channels} or {beta=0}, so that each interface can word them: `channels=` and
        `beta=0` in Python, `--columns` and `--beta 0` on the command line. Never holds text of the user.
    arguments : mapping or None
        Values, which may be text of the user, of parameters that the remedy names.
    """

    def __init__(
        self,
        message: str = "",
        *,
        parameter: str | None = None,
        remedy: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.parameter, self.remedy = message, parameter, remedy
        self.arguments = dict(arguments or {})

    def __str__(self) -> str:
        """The message as Python users see it."""
        return self.text(self.parameter or "", _as_keyword)

    def text(self, subject: str, reference: Callable[..., str]) -> str:
        """Return the message as users of an interface see it.

        Parameters
        ----------
        subject : str
            Name of `parameter` in the interface.
        reference : callable
            Turns the Python name of a parameter in the remedy, the text of its value ("" if none), and its value from
            `arguments` (None if it has none there) into the interface's form.
        """
        message = f"{subject} {self.message}" if self.parameter else self.message

        def referred(match: re.Match[str]) -> str:
            return reference(match[1], match[2] or "", self.arguments.get(match[1]))

        remedy = _REFERENCE.sub(referred, self.remedy)
        return f"{message}: {remedy}" if remedy else message


class PcfiError(Worded):
    """Base of all errors that pcfi raises on purpose."""


class FeatureError(PcfiError, ValueError):
    """The features or the known mask cannot be used."""


class GraphError(PcfiError, ValueError):
    """The graph cannot be used."""


class ParameterError(PcfiError, ValueError):
    """A parameter is outside its allowed values."""


class UnreachableError(PcfiError, ValueError):
    """Some missing cells cannot be reached from any source, and the caller asked for an error."""


class DivergenceError(PcfiError, ValueError):
    """A computed value is not finite."""


class TooLargeError(PcfiError, ValueError, MemoryError):
    """The problem needs more memory than is available."""


class DatasetError(PcfiError, ValueError):
    """A data set of the experiments is absent or unsuitable."""


class StorageError(PcfiError, OSError, ValueError):  # OSError first: its `__new__` is the only one that makes both
    """There is not enough space on disk."""


class ClusterError(PcfiError, ValueError):
    """The cluster cannot be reached, or its workers die."""


class FileError(PcfiError, ValueError):
    """A file cannot be read, or must not be written."""


class UnsupportedTypeError(PcfiError, TypeError):
    """The features or the graph have an unsupported type."""


class PcfiWarning(Worded, UserWarning):
    """Base of all warnings that pcfi issues."""


class UnreachableWarning(PcfiWarning):
    """Some missing cells cannot be reached from any source; the parameter `unreachable` sets their value."""


class NotSettledWarning(PcfiWarning):
    """The steady state was not reached within `max_steps`."""


class ScaleWarning(PcfiWarning):
    """Stage 2 has mixed channels of very different scales, and filled values are far outside the known range."""


class ColumnWarning(PcfiWarning):
    """A column may have another meaning than assumed: it looks like ids, codes, or edge weights."""


class TuningWarning(PcfiWarning):
    """There are too few known cells to tune parameters, so the documented defaults were used."""


class GraphWarning(PcfiWarning):
    """The graph was probably built from the features, so errors and intervals are too optimistic."""


def counted(number: int, noun: str) -> str:
    """A number and a noun, in the plural if needed: "1 channel", "2,000 channels"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
