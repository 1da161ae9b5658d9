"""The known mask of a run, in the portions in which its features are read."""

from typing import Any

import numpy as np

from pcfi._typing import Array


class MaskRows:
    """Rows of the mask; `parts` are arrays of rows, or None if there is no mask."""

    def __init__(self, parts: Any) -> None:
        self.parts = parts
        self.waiting: Array | None = None

    def take(self, count: int) -> Array:
        """The next rows; an empty mask if there is none."""
        if self.parts is None:
            return np.empty((0, 1), dtype=np.bool_)
        while self.waiting is None or len(self.waiting) < count:
            more = next(self.parts)
            self.waiting = more if self.waiting is None else np.concatenate([self.waiting, more])
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return np.ascontiguousarray(taken)
