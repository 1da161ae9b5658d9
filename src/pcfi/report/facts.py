"""What a report says, as data: gathered once, kept as JSON, painted as often as one likes."""

import json
import math
import types
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pcfi.errors import FileError
from pcfi.evaluation.reliability import Reliability

LAYOUT = 2  # of the JSON file; another number is another layout

Built = TypeVar("Built")


@dataclass(frozen=True)
class GraphFacts:
    """The graph."""

    n_nodes: int
    n_edges: int
    n_components: int
    largest_component: int
    n_isolated: int
    directed: bool
    weighted: bool


@dataclass(frozen=True)
class Histogram:
    """Counts between edges, of the known and of the filled cells of a channel."""

    edges: tuple[float, ...]
    known: tuple[int, ...]
    filled: tuple[int, ...]


@dataclass(frozen=True)
class ChannelFacts:
    """One channel, before and after. A mean is None where there is no cell to take it of."""

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
    """Missing cells at a number of hops, or at that or more.

    None hops is unreachable, None confidence a method that has none.
    """

    hops: int | None
    n_cells: int
    confidence: float | None
    or_more: bool = False

    @property
    def words(self) -> str:
        """The hops in words."""
        return "unreachable" if self.hops is None else f"{self.hops}{' or more' if self.or_more else ''}"


@dataclass(frozen=True)
class Convergence:
    """How the solver did."""

    status: str
    converged: bool
    steps: int
    residual: float
    wanted: float | None


@dataclass(frozen=True)
class ErrorAtHops:
    """Error of a method on hidden cells that are so many hops from a source; None hops is unreachable."""

    hops: int | None
    n_cells: int
    error: float


@dataclass(frozen=True)
class MethodError:
    """Error of a method on hidden cells, and the share of hidden categories that it found (None: there are none)."""

    method: str
    rmse: float
    mae: float
    seconds: float
    by_hops: tuple[ErrorAtHops, ...] = ()
    accuracy: float | None = None


@dataclass(frozen=True)
class EvaluationFacts:
    """What hiding known cells showed; `n_categories` of them hold a category."""

    n_hidden: int
    how: str
    unit: str
    methods: tuple[MethodError, ...]
    reliability: tuple[Reliability, ...] = ()
    n_categories: int = 0


@dataclass(frozen=True)
class Dot:
    """A node of the picture: where, how confident on average (None: all cells known), and its name."""

    x: float
    y: float
    confidence: float | None
    name: str


@dataclass(frozen=True)
class Picture:
    """A part of the graph, laid out; edges name dots by position."""

    n_nodes: int
    dots: tuple[Dot, ...]
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Facts:
    """Everything that a report says."""

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
    picture: Picture | None = None
    evaluation: EvaluationFacts | None = None
    layout: int = LAYOUT

    @property
    def n_missing(self) -> int:
        """Cells that were missing."""
        return sum(channel.n_missing for channel in self.channels)

    @property
    def n_cells(self) -> int:
        """All cells."""
        return self.graph.n_nodes * len(self.channels)

    @property
    def n_unreachable(self) -> int:
        """Missing cells that no source can reach."""
        return sum(channel.n_unreachable for channel in self.channels)

    def to_json(self) -> str:
        """The facts as JSON; a number that is not finite becomes null."""
        return json.dumps(finite(asdict(self)), ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> "Facts":
        """The facts that `to_json` wrote."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileError(f"the facts are no JSON: {error}") from None
        layout = data.get("layout") if isinstance(data, dict) else None
        if layout != LAYOUT:
            raise FileError(f"the facts have layout {layout!r}, but this version reads {LAYOUT}: make them again")
        return _build(Facts, data, "facts")


def finite(value: Any) -> Any:
    """The value as JSON takes it: numbers that are not finite become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list | tuple) else value


def _build(kind: type[Built], data: Any, where: str) -> Built:
    """A dataclass from what JSON gives, every field checked against its type."""
    if not isinstance(data, dict):
        raise FileError(f"{where} must be an object, got {type(data).__name__}")
    hints = get_type_hints(kind)
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    strange = sorted(set(data) - names)
    if strange:
        raise FileError(f"{where} has a field {strange[0]!r}, which a report does not know")
    read = {name: _read(hints[name], value, f"{where}.{name}") for name, value in data.items()}
    try:
        return kind(**read)
    except TypeError as error:
        raise FileError(f"{where} is not whole: {error}") from None


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
    if kind is float and value is None:  # it was not finite
        return math.nan
    raise FileError(f"{where} must be {kind.__name__}, got {value!r:.40}")
