"""Optional dependencies: loaded when first needed; if one is absent, the error says what to install."""

from importlib import import_module
from typing import Any


def load(module: str, needed_by: str, extra: str) -> Any:
    """The module; or an ImportError such as `pcfi.PCFI needs scikit-learn: pip install "pcfi[sklearn]"`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        root = module.partition(".")[0]
        if error.name != root:  # it is there, but something that it needs itself is not
            raise
        name = {"sklearn": "scikit-learn"}.get(root, root)
        raise ModuleNotFoundError(f'{needed_by} needs {name}: pip install "pcfi[{extra}]"', name=root) from None
