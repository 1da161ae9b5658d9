"""Checks before a run: settings, shapes and paths that cannot be combined."""

from numbers import Integral

import numpy as np

from pcfi.errors import FeatureError, ParameterError
from pcfi.files.paths import draw_name, is_address, place_of
from pcfi.outofcore.feature_stores import FeatureStore
from pcfi.settings import Settings

METHODS = ("pcfi", "fp")


def check_choices(settings: Settings, results: dict[str, str | None], coverage: float) -> None:
    """Raise an error for settings that cannot be combined, or that only `pcfi.impute` supports."""
    if settings.method not in METHODS:
        raise ParameterError(f"method must be 'pcfi' or 'fp' here, got {settings.method!r}: others are in pcfi.impute")
    if results["confidence"] is not None and settings.method != "pcfi":
        raise ParameterError(f"method {settings.method!r} has no confidence: leave confidence= out")
    if results["intervals"] is not None and (settings.method, settings.objective) != ("pcfi", "values"):
        raise ParameterError("intervals belong to objective='values' and method 'pcfi': leave intervals= out")
    choices = settings.method, settings.objective, settings.unreachable
    if draw_name(1) in results and choices != ("pcfi", "values", "mean"):
        raise ParameterError("draws belong to objective='values', method 'pcfi' and unreachable='mean'")
    if not 0 < coverage < 1:
        raise ParameterError(
            f"must be a number between 0 and 1 (both excluded), got {coverage!r}", parameter="coverage"
        )
    if results["values"] is None:
        raise ParameterError("result must be a path, got None")


def check_partitions(partitions: object) -> None:
    """Refuse a number of partitions that is no positive integer or "auto"."""
    is_count = isinstance(partitions, Integral) and not isinstance(partitions, bool) and int(partitions) >= 1
    if not is_count and partitions != "auto":
        raise ParameterError(f'must be a positive integer or "auto", got {partitions!r}', parameter="partitions")


def check_places(results: dict[str, str | None], inputs: dict[str, str]) -> None:
    """Raise an error if two results have the same path, or if a remote result would overwrite an input."""
    taken: dict[str, str] = {}
    for name, path in results.items():
        if path is None:
            continue
        what, place = "result" if name == "values" else name, place_of(path)
        if place in taken:
            raise ParameterError(f"{taken[place]} and {what} have the same path {path!r}: choose different paths")
        taken[place] = what
        for input_name, other in inputs.items():
            if is_address(path) and f"{place_of(other)}/".startswith(f"{place}/"):
                raise ParameterError(
                    f"{what} would replace {input_name} at {other!r} while it is read: name another address"
                )


def check_shapes(store: FeatureStore, mask: FeatureStore | None) -> None:
    """Refuse features without cells, and a mask that does not fit them."""
    if 0 in store.shape:
        raise FeatureError(f"features has shape {store.shape}: at least one row and one channel is needed")
    if mask is not None and mask.shape != store.shape:
        raise FeatureError(f"known has shape {mask.shape}, but features has shape {store.shape}: both must agree")
    if mask is not None and mask.dtype != np.bool_:
        raise FeatureError(f"known must hold booleans (True = known), got dtype {mask.dtype}")
