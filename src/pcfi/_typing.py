"""Type names that every module uses."""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]

ArrayOrTensor: TypeAlias = "npt.NDArray[Any] | Tensor"
"""An array, or a tensor on a device that the compiled kernels cannot reach."""
