"""Optional dependencies: imported on first use, with an error that names the extra to install."""

from importlib import import_module
from typing import Any


def load(module: str, needed_by: str, extra: str) -> Any:
    """Import and return a module.

    If it is absent, the error reads `pcfi.PCFI needs scikit-learn: pip install "pcfi[sklearn]"`.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        root = module.partition(".")[0]
        if error.name != root:  # the module is installed, but one of its own dependencies is not
            raise
        name = {"sklearn": "scikit-learn"}.get(root, root)
        raise ModuleNotFoundError(f'{needed_by} needs {name}: pip install "pcfi[{extra}]"', name=root) from None
