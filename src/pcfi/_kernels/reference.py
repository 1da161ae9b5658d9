"""Reference implementations of the kernels, straight from the paper's equations: dense, one channel at a time.

Tests compare the kernels with them; they are also the shortest explanation of what the kernels compute.
`flow[i, j]` is the weight with which the value of node j flows into node i. Hops are int64; UNREACHED is -1 here.
"""

from collections import deque

import numpy as np

from pcfi._typing import Array

UNREACHED = -1


def channel_stats(values: Array, known: Array) -> tuple[Array, Array, Array, Array]:
    """Known count, lowest, highest and sum of the known values of each channel."""
    columns = [values[known[:, d], d].astype(np.float64) for d in range(values.shape[1])]
    return (
        np.array([len(column) for column in columns]),
        np.array([column.min(initial=np.inf) for column in columns]),
        np.array([column.max(initial=-np.inf) for column in columns]),
        np.array([column.sum() for column in columns]),
    )


def hops(flow: Array, known: Array) -> Array:
    """Hops of each node to its nearest source (paper, eq. 2): a breadth-first search from all sources at once."""
    distance = np.where(known, 0, UNREACHED)
    queue = deque(np.flatnonzero(known).tolist())
    while queue:
        node = queue.popleft()
        for neighbour in np.flatnonzero(flow[:, node] > 0):
            if distance[neighbour] == UNREACHED:
                distance[neighbour] = distance[node] + 1
                queue.append(int(neighbour))
    return distance


def breadth_first_order(flow: Array) -> Array:
    """Nodes level by level, each after its first neighbour in the level before; those without a neighbour come last."""
    order: list[int] = []
    isolated = [node for node in range(len(flow)) if not flow[node].any()]
    for start in range(len(flow)):
        level = [] if start in order or start in isolated else [start]
        while level:
            order += level
            parents: dict[int, int] = {}
            for place, node in enumerate(level):
                for neighbour in np.flatnonzero(flow[node]).tolist():
                    if neighbour not in order:
                        parents.setdefault(neighbour, place)
            level = sorted(parents, key=lambda node: (parents[node], node))
    return np.array(order + isolated)


def confidence_matrix(flow: Array, distance: Array, alpha: float, self_weight: float = 1.0) -> Array:
    """Row-normalised W (paper, eq. 3): a_ij alpha^(S_j - S_i) between neighbours, `self_weight` on the diagonal."""
    n_nodes = len(flow)
    weights = np.zeros((n_nodes, n_nodes))
    for i in range(n_nodes):
        for j in range(n_nodes):
            if i == j:
                weights[i, j] = self_weight
            elif flow[i, j] > 0 and distance[i] != UNREACHED and distance[j] != UNREACHED:
                weights[i, j] = flow[i, j] * alpha ** float(distance[j] - distance[i])
    sums = weights.sum(axis=1, keepdims=True)
    normalised: Array = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    return normalised


def propagation_matrix(flow: Array, self_weight: float = 1.0) -> Array:
    """D^-1/2 A D^-1/2, the matrix of Feature Propagation."""
    weights = flow + self_weight * np.eye(len(flow))
    degree = weights.sum(axis=1)
    root = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    return np.asarray(root[:, None] * weights * root[None, :])


def take_steps(matrix: Array, x: Array, known: Array, steps: int) -> Array:
    """x(t) = W x(t - 1) from zero, known cells reset after each step (paper, eq. 4 and 5); x(t) for each t."""
    current = np.where(known, x, 0.0)
    states = [current]
    for _ in range(steps):
        current = matrix @ current
        current[known] = x[known]
        states.append(current)
    return np.stack(states)


def step_weights(flow: Array, hops: Array, reachable: Array, alpha: float, *, directed: bool) -> Array:
    """Sum of a_ij alpha^(hops j - hops i) over reachable neighbours; of a directed graph, of weights at both ends."""
    flow = np.where(reachable[:, None] & reachable, flow, 0.0)
    if directed:
        return np.asarray((flow + flow.T).sum(axis=1))
    return np.asarray((flow * alpha ** (hops[None, :] - hops[:, None])).sum(axis=1))


def chebyshev_step(flow: Array, current: Array, previous: Array, inverse: Array, own: float, through: float) -> Array:
    """The next block of the recurrence of a Chebyshev polynomial."""
    return np.asarray(own * current - through * inverse * (flow @ current) - previous)


def steady_state(matrix: Array, x: Array, known: Array, reachable: Array) -> Array:
    """(I - W_uu)^-1 W_uk x_k on the reachable missing nodes (paper, Proposition A.1); 0 where unreachable."""
    free = reachable & ~known
    result = np.where(known, x, 0.0)
    inner = np.eye(int(free.sum())) - matrix[np.ix_(free, free)]
    result[free] = np.linalg.solve(inner, matrix[np.ix_(free, known)] @ x[known])
    return result


def correlation(filled: Array) -> Array:
    """Correlation of the channels (paper, eq. 6), with 0 on the diagonal and where it is undefined."""
    n_channels = filled.shape[1]
    result = np.zeros((n_channels, n_channels))
    centred = filled - filled.mean(axis=0)
    for a in range(n_channels):
        for b in range(n_channels):
            scale = np.sqrt((centred[:, a] ** 2).sum() * (centred[:, b] ** 2).sum())
            if a != b and scale > 0:
                result[a, b] = (centred[:, a] * centred[:, b]).sum() / scale
    return result


def share(filled: Array, distance: Array, alpha: float, beta: float) -> Array:
    """Node-wise propagation between channels (paper, eq. 7-9), with one matrix B per node; all cells reachable."""
    relation = correlation(filled)
    means = filled.mean(axis=0)
    result = filled.copy()
    for i in range(len(filled)):
        xi = alpha ** distance[i].astype(np.float64)
        matrix = beta * (1 - xi)[:, None] * xi[None, :] * relation
        result[i] = filled[i] + matrix @ (filled[i] - means)
    return result


def neighbour_means(flow: Array, values: Array, known: Array) -> Array:
    """Weighted mean of the known neighbours of each missing cell; NaN where there is none."""
    result = np.where(known, values, np.nan)
    for i, d in np.argwhere(~known):
        neighbours = (flow[i] > 0) & known[:, d]
        if neighbours.any():
            result[i, d] = np.average(values[neighbours, d], weights=flow[i, neighbours])
    return result


def smooth_series(
    series: Array, known: Array, steps: Array, length: float, noise: float, first_variance: float
) -> tuple[Array, Array]:
    """Mean and variance of a process in time given its known readings, from its covariance matrix.

    The process starts with `first_variance`; a step of d keeps exp(-d / length) of it and adds the rest of the
    stationary variance length / 2, or d if it never forgets.
    """
    n_times = len(steps)
    covariance = np.zeros((n_times, n_times))
    covariance[0, 0] = first_variance
    for t in range(1, n_times):
        apart = steps[t] - steps[t - 1]
        survival = np.exp(-apart / length)
        added = apart if np.isinf(length) else length / 2 * (1 - survival**2)
        covariance[t, :t] = covariance[:t, t] = survival * covariance[t - 1, :t]
        covariance[t, t] = survival**2 * covariance[t - 1, t - 1] + added
    observed = covariance[np.ix_(known, known)] + noise * np.eye(known.sum())
    gain = np.linalg.solve(observed, covariance[known]).T
    return series[:, known] @ gain.T, np.diag(covariance - gain @ covariance[known])


def neighbour_terms(flow: Array, values: Array, known: Array, usual_spread: Array, slopes: Array) -> Array:
    """Slopes times the spread among the known neighbours of each missing cell, and their number (see `error_model`)."""
    out = np.zeros(values.shape)
    for node, channel in np.argwhere(~known):
        weights = np.where(known[:, channel], flow[node], 0.0)
        count = weights.sum()
        if count > 0:
            usual, mean = usual_spread[channel], weights @ values[:, channel] / count
            scatter = weights @ (values[:, channel] - mean) ** 2
            spread = (scatter + usual) / (max(count - 1, 0.0) + 1)
            out[node, channel] = slopes[:, channel] @ [np.log(spread / usual) / 2, np.log1p(count)]
    return out
