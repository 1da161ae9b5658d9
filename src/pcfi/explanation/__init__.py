"""Why a value: which known cells it comes from, and what follows from a fitted model besides values."""

from pcfi.explanation.explanation import Explanation, Explanations

__all__ = ["Explanation", "Explanations"]
