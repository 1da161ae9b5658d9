"""The content of a report as data: collected once, saved as JSON, rendered any number of times."""

import json
import math
import types
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pcfi.errors import FileError
from pcfi.estimation.result import ColumnReport
from pcfi.evaluation.reliability import Reliability

LAYOUT = 2  # version of the JSON file

Built = TypeVar("Built")


@dataclass(frozen=True)
class GraphFacts:
    """Size and connectedness of the graph."""

    n_nodes: int
    n_edges: int
    n_components: int
    largest_component: int
    n_isolated: int
    directed: bool
    weighted: bool


@dataclass(frozen=True)
class Histogram:
    """Counts of the known and of the filled cells of a channel between bin edges."""

    edges: tuple[float, ...]
    known: tuple[int, ...]
    filled: tuple[int, ...]


@dataclass(frozen=True)
class ChannelFacts:
    """One channel before and after filling; a mean over no cells is None."""

    name: str
    n_known: int
    n_missing: int
    n_unreachable: int
    mean_known: float | None
    mean_filled: float | None
    histogram: Histogram | None = None

    @property
    def missing_rate(self) -> float:
        """Share of the cells that were missing."""
        return self.n_missing / max(1, self.n_known + self.n_missing)


@dataclass(frozen=True)
class HopFacts:
    """Number of missing cells at `hops`, or more if `or_more`.

    `hops` is None for unreachable cells, `confidence` is None for methods without one.
    """

    hops: int | None
    n_cells: int
    confidence: float | None
    or_more: bool = False

    @property
    def words(self) -> str:
        """Label in charts and tables."""
        return "unreachable" if self.hops is None else f"{self.hops}{' or more' if self.or_more else ''}"


@dataclass(frozen=True)
class Convergence:
    """Convergence of the solver; `wanted` is its tolerance."""

    status: str
    converged: bool
    steps: int
    residual: float
    wanted: float | None


@dataclass(frozen=True)
class ErrorAtHops:
    """Error of a method on hidden cells at `hops` from a source; None is unreachable."""

    hops: int | None
    n_cells: int
    error: float


@dataclass(frozen=True)
class MethodError:
    """Error of a method on hidden cells; `accuracy` is its share of correct categories, None without categories."""

    method: str
    rmse: float
    mae: float
    seconds: float
    by_hops: tuple[ErrorAtHops, ...] = ()
    accuracy: float | None = None


@dataclass(frozen=True)
class EvaluationFacts:
    """Errors of the methods on hidden known cells; `n_categories` of them hold a category."""

    n_hidden: int
    how: str
    unit: str
    methods: tuple[MethodError, ...]
    reliability: tuple[Reliability, ...] = ()
    n_categories: int = 0


@dataclass(frozen=True)
class DrawnNode:
    """A node of the drawing: position, mean confidence of its filled cells (None if it has none), and name."""

    x: float
    y: float
    confidence: float | None
    name: str


@dataclass(frozen=True)
class GraphDrawing:
    """A drawing of the graph or of a part of it; edges are pairs of indices of `dots`."""

    n_nodes: int
    dots: tuple[DrawnNode, ...]
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class MapShape:
    """A place of the map: shape as GeoJSON, and by column the value, whether it was filled, and the interval width."""

    name: str
    geometry: dict[str, Any]
    filled: tuple[bool, ...]
    values: tuple[float | None, ...]
    widths: tuple[float | None, ...]


@dataclass(frozen=True)
class MapFacts:
    """The places of a map, or a sample of them, and the columns to choose from."""

    columns: tuple[str, ...]
    n_places: int
    shapes: tuple[MapShape, ...]


@dataclass(frozen=True)
class ExplainedCell:
    """Explanation of a filled cell, and the reason to show this cell.

    `lines` are pairs of a weight and a description; `paths` lead from the node to the most important known nodes.
    """

    reason: str
    node: str
    title: str
    lines: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SurprisingCell:
    """A known cell, its predicted value, and their distance in units of the expected error."""

    node: str
    column: str
    value: float
    expected: float
    surprise: float


@dataclass(frozen=True)
class SuggestedNode:
    """A node to measure, and the resulting reduction of the expected squared error, as shares."""

    node: str
    own: float
    others: float
    total: float


@dataclass(frozen=True)
class Facts:
    """The content of a report; the field names are the keys of the facts file."""

    title: str
    created: str
    command: str
    method: str
    graph: GraphFacts
    channels: tuple[ChannelFacts, ...]
    n_patterns: int
    hops: tuple[HopFacts, ...]
    convergence: Convergence
    parameters: dict[str, Any]
    versions: dict[str, str]
    files: dict[str, str] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    picture: GraphDrawing | None = None
    map: MapFacts | None = None
    evaluation: EvaluationFacts | None = None
    columns: tuple[ColumnReport, ...] = ()
    explained: tuple[ExplainedCell, ...] = ()
    surprises: tuple[SurprisingCell, ...] = ()
    suggestions: tuple[SuggestedNode, ...] = ()
    layout: int = LAYOUT

    @property
    def n_missing(self) -> int:
        """Number of missing cells."""
        return sum(channel.n_missing for channel in self.channels)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.graph.n_nodes * len(self.channels)

    @property
    def n_unreachable(self) -> int:
        """Number of missing cells that no source reaches."""
        return sum(channel.n_unreachable for channel in self.channels)

    @property
    def has_confidence(self) -> bool:
        """Whether confidence differs between cells; not with alpha=1, nor for methods without confidence."""
        return any(one.confidence not in (None, 0.0, 1.0) for one in self.hops)

    def to_json(self) -> str:
        """Return the facts as JSON; numbers that are not finite become null."""
        return json.dumps(finite(asdict(self)), ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> "Facts":
        """Read what `to_json` wrote."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileError(f"the facts are not valid JSON: {error}") from None
        layout = data.get("layout") if isinstance(data, dict) else None
        if layout != LAYOUT:
            raise FileError(
                f"the facts have layout {layout!r}, but this version reads {LAYOUT}: run pcfi impute --facts again"
            )
        return _build(Facts, data, "facts")


def finite(value: Any) -> Any:
    """Replace numbers that are not finite by None, because JSON cannot represent them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list | tuple) else value


def _build(kind: type[Built], data: Any, where: str) -> Built:
    """Build a dataclass from JSON data; every field is checked against its type."""
    if not isinstance(data, dict):
        raise FileError(f"{where} must be an object, got {type(data).__name__}")
    hints = get_type_hints(kind)
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(data) - names)
    if unknown:
        raise FileError(f"{where} has the unknown field {unknown[0]!r}")
    read = {name: _read(hints[name], value, f"{where}.{name}") for name, value in data.items()}
    try:
        return kind(**read)
    except TypeError as error:
        raise FileError(f"{where} is incomplete: {error}") from None


def _read(hint: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _read(next(one for one in inner if one is not type(None)), value, where)
    if is_dataclass(hint):
        return _build(hint, value, where)  # type: ignore[arg-type]
    if origin is tuple:
        if not isinstance(value, list):
            raise FileError(f"{where} must be a list, got {type(value).__name__}")
        hints = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        if len(hints) != len(value):
            raise FileError(f"{where} must have {len(hints)} parts, got {len(value)}")
        parts = enumerate(zip(hints, value, strict=True))
        return tuple(_read(one, part, f"{where}[{place}]") for place, (one, part) in parts)
    kind = origin or hint
    if kind is Any or isinstance(value, kind) or (kind is float and isinstance(value, int)):
        return value
    if kind is float and value is None:  # was not finite
        return math.nan
    raise FileError(f"{where} must be {kind.__name__}, got {value!r:.40}")
