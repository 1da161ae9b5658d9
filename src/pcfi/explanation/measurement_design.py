"""A greedy choice of nodes to measure, for the estimator that is really used.

The error of all missing cells is J = N - 2 b C + b^2 V: sums over cells of their variance without the graph, and of c
and v (`estimate_moments`) times it. b, about 1, is how far the estimates are drawn out or in when the model is fitted
again: b = T / U, sums of c and v over the known cells as they were when they were missing, or hidden. Measuring node u

    takes its cells out of N, C, V, and adds them to T and U: the next fit learns from them,
    changes the estimates of others to g_i + h_i (z_u - g_u): h are the weights of u as a further source (one run of
        stage 1), and w_i + h_i (e_u - w_u) those of the other sources.

Random vectors on the sources, diffused, keep track of q and of how much sources nodes share. Nodes are chosen one after
the other, each given those before it; what a node changes elsewhere is computed again only if a choice has changed it
and it would be the next one. Weights and hops are computed anew in every round.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.explanation.estimate_moments import EstimateMoments
from pcfi.inputs.graphs import Graph

N_PROBES = 64  # random vectors: q has a relative standard error of 18 %
N_ROUNDS = 8
MIN_ROUND = 16  # nodes that are chosen in a round
POOL_PER_NODE = 4  # nodes that are compared exactly, for each one to choose
MIN_POOL = 64
MAX_POOL_CELLS = 1 << 25  # weights that are kept at a time: 128 MB
MIN_WEIGHT = 1e-3  # of a source that counts
MAX_EDGES = 1 << 20  # edges that are screened at a time

Diffuse = Callable[[Array, Array], tuple[Array, Array]]
"""Stage 1 of some channels from their values and sources: diffused values, and hops (inf: unreachable)."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """Nodes in the order of choice, what each takes off at itself and at other nodes, and the error before."""

    nodes: Array
    own: Array
    others: Array
    total: float


@dataclass(eq=False)
class _Sums:
    """N, C, V, T and U."""

    cells: float
    covariance: float
    variance: float
    learned_covariance: float
    learned_variance: float

    def gains(self, own: Array, others: Array) -> tuple[Array, Array]:
        """What nodes take off at themselves and at others; `own` has N, C, V of each, `others` changes of C and V."""
        n_own, c_own, v_own = own
        factor = _ratio(self.learned_covariance, self.learned_variance)
        after = _ratio(self.learned_covariance + c_own, self.learned_variance + v_own)
        covariance, variance = self.covariance + others[0] - c_own, self.variance + others[1] - v_own
        left = self.cells - n_own - 2 * after * covariance + after**2 * variance
        at_node = n_own - 2 * factor * c_own + factor**2 * v_own
        return at_node, self.total - left - at_node

    @property
    def total(self) -> float:
        """J."""
        factor = float(_ratio(self.learned_covariance, self.learned_variance))
        return self.cells - 2 * factor * self.covariance + factor**2 * self.variance

    def measure(self, own: Array, others: Array) -> None:
        """A node was measured."""
        self.cells -= float(own[0])
        self.covariance += float(others[0] - own[1])
        self.variance += float(others[1] - own[2])
        self.learned_covariance += float(own[1])
        self.learned_variance += float(own[2])


def _ratio(left: "float | Array", right: "float | Array") -> Array:
    left, right = np.broadcast_arrays(np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64))
    return np.divide(left, right, out=np.zeros(left.shape), where=right > 0)


@dataclass(eq=False)
class _Pattern:
    """Columns with the same sources.

    Attributes
    ----------
    known : ndarray of bool, one per node
    weight : ndarray
        Variance of the missing cells of each node without the graph, 0 where known.
    probes : ndarray of shape (n_nodes, N_PROBES)
        Values of random vectors, if all nodes were sources.
    diffused : ndarray of that shape
    hops : ndarray
    """

    known: Array
    weight: Array
    probes: Array
    diffused: Array
    hops: Array

    @property
    def concentration(self) -> Array:
        """Return q of every node."""
        return np.asarray((self.diffused**2).mean(axis=1))

    def own(self, nodes: Array, moments: EstimateMoments) -> Array:
        """N, C and V of the cells of some nodes."""
        hops, weight = self.hops[nodes], self.weight[nodes]
        concentration = (self.diffused[nodes] ** 2).mean(axis=1)
        parts = [np.ones(len(nodes)), moments.covariance(hops), moments.variance(hops, concentration)]
        return np.asarray(weight * np.stack(parts))

    def changes(self, node: int, share: Array, hops: Array, moments: EstimateMoments) -> Array:
        """Changes of C and V elsewhere if a node becomes a source with these weights and hops."""
        if self.known[node]:
            return np.zeros(2)
        at = np.flatnonzero((share > MIN_WEIGHT) & ~self.known)
        at = at[at != node]
        weight, part, before, after = self.weight[at], share[at], self.hops[at], np.minimum(self.hops, hops)[at]
        own = self.diffused[node]
        shared = self.diffused[at] @ own / N_PROBES
        noise = part**2 * (1 + own @ own / N_PROBES) - 2 * part * shared
        reached = np.isfinite(after) & ~np.isfinite(before)
        return np.array(
            [
                weight @ (moments.covariance(after) - moments.covariance(before)),
                weight @ (moments.noise * noise + moments.shared * reached),
            ]
        )

    def screened(self, graph: Graph, alpha: float, moments: EstimateMoments) -> Array:
        """The same for every node, as if its neighbours were the only ones that depend on it."""
        sources, targets = graph.indices, np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))
        edge = graph.weights if graph.weights is not None else np.ones(len(sources))
        levels = np.minimum(self.hops, 2.0)
        confidence = alpha**levels
        total = np.bincount(targets, weights=edge * confidence[sources], minlength=graph.n_nodes)
        change, concentration = np.zeros((2, graph.n_nodes)), self.concentration
        covariance = moments.covariance(np.minimum(self.hops, 1)) - moments.covariance(self.hops)
        reached = ~np.isfinite(self.hops)
        for start in range(0, len(sources), MAX_EDGES):
            part = slice(start, start + MAX_EDGES)
            source, target = sources[part], targets[part]
            share = edge[part] / (total[target] + edge[part] * (1 - confidence[source]))
            shared = np.einsum("ij,ij->i", self.diffused[source], self.diffused[target]) / N_PROBES
            noise = moments.noise * (share**2 * (1 + concentration[source]) - 2 * share * shared)
            noise += moments.shared * reached[target]
            for row, at_target in enumerate((covariance[target], noise)):
                change[row] += np.bincount(source, weights=self.weight[target] * at_target, minlength=graph.n_nodes)
        return np.asarray(change * ~self.known)

    def measure(self, node: int, share: Array, hops: Array) -> None:
        """The node becomes a source."""
        if self.known[node]:
            return
        at = np.flatnonzero((share > MIN_WEIGHT) & ~self.known)
        self.diffused[at] += np.outer(share[at], self.probes[node] - self.diffused[node])
        self.diffused[node] = self.probes[node]
        self.hops = np.minimum(self.hops, hops)
        self.hops[node], self.weight[node], self.known[node] = 0, 0.0, True


@dataclass(eq=False, kw_only=True)
class MeasurementDesign:
    """What is known, what the graph's estimates are worth, and how to diffuse.

    Attributes
    ----------
    graph : Graph
    moments : EstimateMoments
    alpha : float
    diffuse : Diffuse
    known : ndarray of bool of shape (n_nodes, n_patterns)
    weight : ndarray of that shape
        Variance of the missing cells without the graph.
    rest : ndarray, one per node
        The same of cells that no pattern stands for; it is removed, and nothing else happens to it.
    """

    graph: Graph
    moments: EstimateMoments
    alpha: float
    diffuse: Diffuse
    known: Array
    weight: Array
    rest: Array

    def choose(self, candidates: Array, k: int) -> Chosen:
        """Choose up to k nodes; `known` and `weight` are used up."""
        nodes: list[int] = []
        own: list[float] = []
        others: list[float] = []
        k = min(k, len(candidates))
        n_round = max(MIN_ROUND, -(-k // N_ROUNDS))
        largest = max(MAX_POOL_CELLS // self.known.size, 2 * POOL_PER_NODE)
        patterns = self._patterns()
        sums = self._sums(patterns, None)
        total = sums.total
        while len(nodes) < k:
            left = np.setdiff1d(candidates, nodes)
            size = min(largest, max(MIN_POOL, POOL_PER_NODE * min(n_round, k - len(nodes))), len(left))
            most = k - len(nodes) if size == len(left) else max(size // POOL_PER_NODE, 1)
            pool = _Pool(self._screened(patterns, sums, left, size), patterns, self.moments, self.diffuse, self.rest)
            found = pool.greedy(sums, min(most, n_round, k - len(nodes)))
            nodes += [node for node, _, _ in found]
            self._measure(patterns, nodes)
            patterns, expected = self._patterns(), sums.total
            sums = self._sums(patterns, sums)
            own += [at_node for _, at_node, _ in found]
            # what the round took off, solved anew, less what was expected of it
            others += [elsewhere + (expected - sums.total) / len(found) for _, _, elsewhere in found]
        return Chosen(np.array(nodes, dtype=np.int64), np.array(own), np.array(others), max(total, 1e-300))

    def _measure(self, patterns: list[_Pattern], nodes: list[int]) -> None:
        self.known, self.weight = (
            np.stack([getattr(one, name) for one in patterns], axis=1) for name in ("known", "weight")
        )
        self.rest[nodes] = 0.0

    def _patterns(self) -> list[_Pattern]:
        probes = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(self.known), N_PROBES))
        patterns = []
        for known, weight in zip(self.known.T, self.weight.T, strict=True):
            sources = np.broadcast_to(known[:, None], probes.shape)
            diffused, hops = self.diffuse(probes, sources)
            patterns.append(_Pattern(known.copy(), weight.copy(), probes, diffused, hops[:, 0].copy()))
        return patterns

    def _sums(self, patterns: list[_Pattern], before: _Sums | None) -> _Sums:
        """N, C and V of all missing cells; T and U are those of the hidden cells, as long as no node was chosen."""
        everywhere = np.arange(len(self.known))
        cells, covariance, variance = np.sum([one.own(everywhere, self.moments) for one in patterns], axis=(0, 2))
        n_missing = sum(int((one.weight > 0).sum()) for one in patterns)
        n_known = sum(int(one.known.sum()) for one in patterns)
        learned = self.moments.hidden * n_known * float(cells) / max(n_missing, 1)
        of_known = (learned, learned) if before is None else (before.learned_covariance, before.learned_variance)
        return _Sums(float(cells + self.rest.sum()), float(covariance), float(variance), *of_known)

    def _screened(self, patterns: list[_Pattern], sums: _Sums, left: Array, size: int) -> Array:
        """Candidates with the largest estimated gains."""
        if size == len(left):
            return left
        others = np.sum([one.screened(self.graph, self.alpha, self.moments)[:, left] for one in patterns], axis=0)
        own = np.sum([one.own(left, self.moments) for one in patterns], axis=0)
        own[0] += self.rest[left]
        gain = np.add(*sums.gains(own, others))
        return np.sort(left[np.argsort(-gain, kind="stable")[:size]])


class _Pool:
    """Nodes that are compared, and their weights as sources."""

    def __init__(
        self, nodes: Array, patterns: list[_Pattern], moments: EstimateMoments, diffuse: Diffuse, rest: Array
    ) -> None:
        self.nodes, self._patterns, self._moments, self._rest = nodes, patterns, moments, rest
        self._shares, self._hops = [], []
        for one in patterns:
            sources = np.repeat(one.known[:, None], len(nodes), axis=1)
            values = np.zeros(sources.shape, dtype=np.float32)
            place = np.arange(len(nodes))
            values[nodes, place] = sources[nodes, place] = True
            shares, hops = diffuse(values, sources)
            self._shares.append(np.ascontiguousarray(shares.T))
            self._hops.append(np.ascontiguousarray(hops.T))
        self._changes = np.stack([self._changes_of(place) for place in range(len(nodes))], axis=1)

    def _changes_of(self, place: int) -> Array:
        node = int(self.nodes[place])
        parts = zip(self._patterns, self._shares, self._hops, strict=True)
        changes = [one.changes(node, share[place], hop[place], self._moments) for one, share, hop in parts]
        return np.asarray(np.sum(changes, axis=0))

    def greedy(self, sums: _Sums, most: int) -> list[tuple[int, float, float]]:
        """Choose nodes one at a time: the node and its two gains."""
        chosen = []
        is_open, is_old = np.ones(len(self.nodes), dtype=np.bool_), np.zeros(len(self.nodes), dtype=np.bool_)
        for _ in range(most):
            own = np.sum([one.own(self.nodes, self._moments) for one in self._patterns], axis=0)
            own[0] += self._rest[self.nodes]
            while True:
                at_node, elsewhere = sums.gains(own, self._changes)
                place = int(np.argmax(np.where(is_open, at_node + elsewhere, -np.inf)))
                if not is_old[place]:
                    break
                self._changes[:, place], is_old[place] = self._changes_of(place), False
            chosen.append((int(self.nodes[place]), float(at_node[place]), float(elsewhere[place])))
            sums.measure(own[:, place], self._changes[:, place])
            is_open[place] = False
            is_old |= self._measure(place)
        return chosen

    def _measure(self, place: int) -> Array:
        """The node becomes a source; return which nodes of the pool have other changes now."""
        node, is_old = int(self.nodes[place]), np.zeros(len(self.nodes), dtype=np.bool_)
        for one, shares, hops in zip(self._patterns, self._shares, self._hops, strict=True):
            if one.known[node]:
                continue
            own = shares[place].copy()
            back, forth = shares[:, node].copy(), own[self.nodes]
            back[place] = 0.0
            linked = np.flatnonzero((back > MIN_WEIGHT) | ((forth > MIN_WEIGHT) & (back > 0)))
            shares[linked] -= back[linked, None] * own
            shares[linked] /= np.maximum(1 - back * forth, MIN_WEIGHT)[linked, None]
            near = np.flatnonzero(own > 10 * MIN_WEIGHT)
            is_old |= (shares[:, near] > 10 * MIN_WEIGHT).any(axis=1)
            is_old[linked] = True
            one.measure(node, own, hops[place])
        return is_old
