"""A fitted result and a cell -> its `Explanation`: every known cell that the value is computed from, with its weight.

Given the fitted parameters, the value (its logarithm, if the column is modelled so) is

    mean + unit * (constant + sum over columns d of coefficient_d * y_d)

with y_d the known standardised value of the node or, where it is missing, what stage 1 fills in, which is itself a
weighted mean of known cells of column d. `row_weights` has the coefficients, `source_weights` the weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.cell_info import CellInfo
from pcfi.errors import ParameterError
from pcfi.estimation.value_model import ValueModel
from pcfi.explanation.explanation import MAX_SHOWN, Explanation, Explanations, KnownCells
from pcfi.explanation.row_weights import row_weights
from pcfi.explanation.source_weights import PatternWalk, SourceWeights

MAX_KEPT = 32  # solved cells that are kept: columns with the same sources share them
NEGLIGIBLE = 1e-12  # weight relative to the largest below which a cell is left out: far sources of a large graph


def explain(cells: CellInfo, node: Any, column: Any) -> Explanation | Explanations:
    """Explain one cell, or several if `node` or `column` is a list; two lists are matched pairwise."""
    many = [isinstance(part, list | tuple | np.ndarray) for part in (node, column)]
    explainer = Explainer(cells)
    if not any(many):
        return explainer.explain(node, column)
    nodes, columns = _pairs(node, column, many)
    order = sorted(range(len(nodes)), key=lambda place: str(nodes[place]))  # cells of a node share what is solved
    explained = {place: explainer.explain(nodes[place], columns[place]) for place in order}
    return Explanations(explained[place] for place in range(len(nodes)))


def _pairs(node: Any, column: Any, many: list[bool]) -> tuple[Sequence[Any], Sequence[Any]]:
    length = len(node) if many[0] else len(column)
    nodes, columns = node if many[0] else [node] * length, column if many[1] else [column] * length
    if len(nodes) != len(columns):
        raise ParameterError(
            f"and column are lists of {len(nodes)} and {len(columns)}: both need the same length",
            parameter="node",
        )
    return nodes, columns


@dataclass(frozen=True, eq=False)
class Explainer:
    """Explains cells of one result; keeps what the last cells needed."""

    cells: CellInfo
    _walks: dict[int, PatternWalk] = field(default_factory=dict)
    _solved: dict[tuple[int, int], SourceWeights] = field(default_factory=dict)

    def explain(self, node: Any, column: Any) -> Explanation:
        """Explain the value of a cell."""
        cells, names = self.cells, self.cells.names
        first = np.arange(cells.filled.shape[1])[cells.first_channels]
        number = names.column(column, len(first))
        row = names.row(node, len(cells.filled))
        channels = np.arange(first[number], [*first, cells.filled.shape[1]][number + 1])
        values = cells.host_values[row, channels]
        chosen = int(np.argmax(values)) if number in names.categories else 0
        channel = int(channels[chosen])
        category = names.categories[number][chosen] if number in names.categories else None
        base = Explanation(
            node=names.node(row),
            column=names.name(number),
            value=float(values[chosen]),
            category=category,
            is_sum=False,
        )
        explained = self._explained(base, row, channel)
        calibrations = {} if cells.model is None else cells.model.categories
        if not explained.is_sum or number not in calibrations:
            return explained
        probability = float(calibrations[number].probabilities(values[None])[0, chosen])
        return _with(explained, value=probability, calibration=probability - base.value)

    def _explained(self, base: Explanation, row: int, channel: int) -> Explanation:
        cells, model = self.cells, self.cells.model
        if cells.hops is None or model is None:
            raise ParameterError(
                "explain needs the model of values, and this result has none: impute with objective='values' and "
                "method 'pcfi'"
            )
        hops = cells.host_hops
        code = hops.codes_at(np.array([row]), np.array([channel]))[0]
        if code == 0:
            return _with(base, note="This cell was known: nothing was filled in.")
        if not hops.is_reachable(code) and cells.settings.unreachable != "mean":
            policy = cells.settings.unreachable
            return _with(base, note=f"No known cell of the column can be reached, and unreachable={policy!r}.")
        return self._summed(base, model, row, channel, reachable=bool(hops.is_reachable(code)))

    def _summed(self, base: Explanation, model: ValueModel, row: int, channel: int, *, reachable: bool) -> Explanation:
        scale, hops = model.scale, self.cells.host_hops
        codes = hops.codes[row][hops.patterns]
        weights = row_weights(model.cells, codes == 0, hops.is_filled(codes), channel)
        unit, logarithmic = float(scale.unit[channel]), bool(scale.logarithmic[channel])
        parts, walked = self._parts(model, row, channel, weights.channels, weights.coefficients * unit)
        known = _sorted(parts, self.cells)
        mean, constant = float(scale.location[channel]), 0.0
        if len(weights.channels) or reachable:
            constant = unit * weights.constant + unit * float(scale.mean_shift(np.array(weights.variance))[channel])
        else:
            mean = float(np.log(scale.typical[channel]) if logarithmic else scale.typical[channel])
        constant += sum(extra for *_, extra in parts)
        total = mean + constant + float(known.contributions.sum())
        value = float(np.log(base.value)) if logarithmic and base.value > 0 else base.value
        cut = not scale.low[channel] <= (np.exp(total) if logarithmic else total) <= scale.high[channel]
        own = dict(zip(weights.channels.tolist(), weights.coefficients.tolist(), strict=True)).get(channel, 0.0)
        return _with(
            base,
            is_sum=True,
            note=_note(reachable, bool(len(weights.channels)), walked is not None, model),
            logarithmic=logarithmic,
            mean=mean,
            weight_of_mean=1.0 - own * (0.0 if walked is None else float(walked.weights.sum())),
            constant=constant,
            bounds=value - total if cut else 0.0,
            rest=0.0 if cut else value - total,
            known=known,
            paths=self._paths(walked),
        )

    def _parts(
        self, model: ValueModel, row: int, channel: int, channels: Array, coefficients: Array
    ) -> tuple[list[Any], SourceWeights | None]:
        """For each channel: nodes, its number, known values, hops, weights, contributions, and a constant."""
        hops, parts, walked = self.cells.host_hops, [], None
        for other, coefficient in zip(channels.tolist(), coefficients.tolist(), strict=True):
            if hops.codes[row, hops.patterns[other]] == 0:
                nodes, weights, steps = np.array([row]), np.ones(1), np.zeros(1, dtype=np.int64)
                grown = None
            else:
                solved = self._sources(row, int(hops.patterns[other]))
                nodes, weights, steps, grown = solved.nodes, solved.weights, solved.hops, model.degree
                walked = solved if other == channel else walked
            values = self.cells.host_values[nodes, other]
            slope, level = _on_scale(model, values, nodes, row, other, grown)
            unit, location = model.scale.unit[other], model.scale.location[other]
            contributions = coefficient * weights * (level - location) / unit
            extra = float(coefficient * location / unit * (weights.sum() - 1))
            parts.append((nodes, other, values, steps, coefficient * weights * slope / unit, contributions, extra))
        return parts, walked

    def _sources(self, row: int, pattern: int) -> SourceWeights:
        """Weights of the sources of a cell, solved once for all channels of its pattern."""
        if (row, pattern) not in self._solved:
            while len(self._solved) >= MAX_KEPT:
                self._solved.pop(next(iter(self._solved)))
            self._solved[row, pattern] = self._walk(pattern).weights_of(row)
        return self._solved[row, pattern]

    def _walk(self, pattern: int) -> PatternWalk:
        if pattern not in self._walks:
            hops, settings = self.cells.host_hops, self.cells.settings
            while len(self._walks) >= MAX_KEPT:
                self._walks.pop(next(iter(self._walks)))
            codes = hops.codes[:, pattern]
            self._walks[pattern] = PatternWalk(
                graph=self.cells.graph,
                hops=codes,
                reachable=hops.is_reachable(codes),
                alpha=settings.alpha,
                solver=settings.solver,
                self_weight=float(settings.self_loops),
            )
        return self._walks[pattern]

    def _paths(self, walked: SourceWeights | None) -> list[list[Any]]:
        if walked is None:
            return []
        largest = np.argsort(-np.abs(walked.weights), kind="stable")[:MAX_SHOWN]
        return [[self.cells.names.node(node) for node in walked.path(walked.nodes[one])] for one in largest]


def _with(base: Explanation, **changes: Any) -> Explanation:
    return Explanation(**{**vars(base), **changes})


def _on_scale(
    model: ValueModel, values: Array, nodes: Array, row: int, channel: int, degree: Any
) -> tuple[Array, Array]:
    """Known values as they arrive at the cell, on the scale of the model, and their slope in the values there."""
    level = np.log(values) if model.scale.logarithmic[channel] else values
    slope = np.ones(len(values))
    if degree is None or not degree.channels[channel]:
        return slope, level
    growth = degree.by_node[row] / degree.by_node[nodes]
    return (slope, level + np.log(growth)) if model.scale.logarithmic[channel] else (growth, level * growth)


def _sorted(parts: list[Any], cells: CellInfo) -> KnownCells:
    """All parts together, the largest contribution first; those without weight are left out."""
    if not parts:
        return KnownCells()
    columns = np.zeros(cells.filled.shape[1], dtype=np.int64)
    columns[cells.first_channels] = 1
    columns = np.cumsum(columns) - 1
    nodes, values, hops, weights, contributions = (
        np.concatenate([part[place] for part in parts]) for place in (0, 2, 3, 4, 5)
    )
    channels = np.repeat([part[1] for part in parts], [len(part[0]) for part in parts])
    order = np.argsort(-np.abs(contributions), kind="stable")
    order = order[np.abs(weights[order]) > NEGLIGIBLE * np.abs(weights).max(initial=0.0)]
    names = [cells.names.name(number) for number in range(int(columns[-1]) + 1)]
    first = np.flatnonzero(np.diff(columns, prepend=-1))
    categories = [
        cells.names.categories[columns[channel]][channel - first[columns[channel]]]
        if columns[channel] in cells.names.categories
        else None
        for channel in range(len(columns))
    ]
    return KnownCells(
        nodes=[cells.names.node(node) for node in nodes[order]],
        columns=[names[columns[channel]] for channel in channels[order]],
        values=values[order],
        hops=hops[order],
        weights=weights[order],
        contributions=contributions[order],
        categories=[categories[channel] for channel in channels[order]],
    )


def _note(reachable: bool, has_parts: bool, walked: bool, model: ValueModel) -> str:
    if not reachable:
        unreached = "No known cell of the column can be reached"
        return (
            f"{unreached}: the other columns of the node speak." if has_parts else f"{unreached}: only the mean speaks."
        )
    if not has_parts:
        return "Neither the graph nor other columns proved better than the mean for hidden cells: only the mean speaks."
    if walked and model.degree is not None:
        return "Values are divided by the root of the degree of their node on the way, so weights do not sum to 100 %."
    return ""
