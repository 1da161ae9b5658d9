"""Uses of a fitted model besides filled values: explanations, checks, draws, suggestions, exposure."""

from pcfi.explanation.explanation import Explanation, Explanations

__all__ = ["Explanation", "Explanations"]
