"""A fitted model <-> named arrays, as a file without pickles holds them."""

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from pcfi._typing import Array

SEPARATOR = "/"


def arrays_of(value: Any, name: str = "") -> dict[str, Array]:
    """The arrays of a dataclass, of its parts, and of lists and dictionaries in it, by their path; None has none."""
    if value is None:
        return {}
    if is_dataclass(value):
        parts: Any = {one.name: getattr(value, one.name) for one in fields(value)}
    elif isinstance(value, list):
        parts = dict(enumerate(value)) | {"length": len(value)}
    elif isinstance(value, dict):
        parts = value | {"keys": np.array(list(value), dtype=np.int64)}
    else:
        return {name: np.asarray(value)}
    prefix = f"{name}{SEPARATOR}" if name else ""
    return {path: array for key, part in parts.items() for path, array in arrays_of(part, f"{prefix}{key}").items()}


def value_of(kind: Any, arrays: dict[str, Array], name: str = "") -> Any:
    """The inverse of `arrays_of`, given the type of the value."""
    prefix = f"{name}{SEPARATOR}" if name else ""
    if get_origin(kind) is UnionType or type(None) in get_args(kind):
        chosen = next(one for one in get_args(kind) if one is not type(None))
        is_there = name in arrays or any(path.startswith(prefix) for path in arrays)
        return value_of(chosen, arrays, name) if is_there else None
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        parts = {one.name: value_of(hints[one.name], arrays, f"{prefix}{one.name}") for one in fields(kind)}
        return kind(**parts)  # type: ignore[operator]
    if get_origin(kind) is list:
        length = int(arrays[f"{prefix}length"])
        return [value_of(get_args(kind)[0], arrays, f"{prefix}{number}") for number in range(length)]
    if get_origin(kind) is dict:
        keys = arrays[f"{prefix}keys"].tolist()
        return {key: value_of(get_args(kind)[1], arrays, f"{prefix}{key}") for key in keys}
    return arrays[name] if arrays[name].ndim else arrays[name].item()
