"""`SystemOutput`: the result of a system or a trained network."""

from dataclasses import dataclass, field
from typing import Any

from pcfi._typing import Array


@dataclass(frozen=True, eq=False)
class SystemOutput:
    """Metrics by name, the predicted class of every node (classification), the filled features (imputing systems)."""

    metrics: dict[str, float]
    labels: Array | None = None
    filled: Array | None = None
    details: dict[str, Any] = field(default_factory=dict)
