"""Graphs and features larger than memory: the public name of `pcfi.outofcore`."""

from pcfi.outofcore import *  # noqa: F403
from pcfi.outofcore import __all__ as __all__
