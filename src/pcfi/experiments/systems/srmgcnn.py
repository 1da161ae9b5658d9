"""sRMGCNN (Monti et al., 2017): matrix completion by recurrent graph networks on a row graph and a column graph."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from pcfi._typing import Array
from pcfi.experiments.learning.networks import glorot
from pcfi.experiments.learning.operators import Constant
from pcfi.experiments.setting import Setting
from pcfi.experiments.systems.imputing import Filled, Imputer

ORDER, WIDTH, STEPS = 5, 32, 10
NEIGHBOURS = 10
GAMMAS = tuple(10.0**exponent for exponent in range(-10, -1))
LEARNING_RATE, PATIENCE, HELD_OUT = 1e-3, 200, 0.1


class SRMGCNN(Imputer):
    """X ~ P Q^T of low rank; both factors are improved step by step by a network, which is trained on known cells."""

    def fill(self, setting: Setting) -> Filled:
        """The completed matrix; gamma is the best on a tenth of the known cells unless it is given."""
        asked, rng = setting.parameters, setting.rng("system")
        problem = completion_problem(setting.edges, setting.zero_filled, setting.known, asked["rank"], rng)
        seed = int(rng.integers(2**63))
        gamma, steps = asked["gamma"], asked["completion_steps"]
        if gamma is None:
            short = min(asked["tuning_steps"], steps)
            gamma = min(GAMMAS, key=lambda tried: complete(problem, tried, short, seed).held_out_error)
        completed = complete(problem, gamma, steps, seed)
        return completed.matrix, {"gamma": gamma, "held_out_error": completed.held_out_error, "steps": completed.steps}


@dataclass(frozen=True, eq=False)
class Side:
    """A factor before the first step, and its graph: the scaled Laplacian, and each row's degree and number of copies.

    Channels without a known value other than 0 stand alone and start at 0, so they stay equal: one stands for all.
    """

    factor: torch.Tensor
    laplacian: Constant
    linked: torch.Tensor
    copies: torch.Tensor

    def gram(self, factor: torch.Tensor) -> torch.Tensor:
        """F^T F over all copies."""
        return factor.T @ (self.copies * factor)

    def energy(self, factor: torch.Tensor) -> torch.Tensor:
        """F^T L F; rows without neighbours have none."""
        return factor.T @ (self.linked * factor + self.laplacian @ factor)


Cells = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Problem:
    """Both sides, where each channel stands in the second one, and the known cells to learn from and to hold out."""

    rows: Side
    columns: Side
    place: torch.Tensor
    train: Cells
    held_out: Cells


@dataclass(frozen=True, eq=False)
class Completed:
    """The completed matrix at the step with the smallest mean squared error on held-out cells; losses by step."""

    matrix: Array
    held_out_error: float
    steps: int
    losses: list[float]


def completion_problem(edges: Array, zero_filled: Array, known: Array, rank: int, rng: np.random.Generator) -> Problem:
    """Set up the completion; a tenth of the known cells is held out."""
    from scipy import sparse

    n_nodes = len(zero_filled)
    row, column = np.nonzero(known)
    held = rng.random(len(row)) < HELD_OUT
    train = np.where(known, zero_filled, 0)
    train[row[held], column[held]] = 0
    active = train.any(axis=0)
    place = np.where(active, np.cumsum(active) - 1, active.sum())
    kept = np.append(np.flatnonzero(active), np.flatnonzero(~active)[:1])
    links = sparse.coo_array((np.ones(edges.shape[1], np.float32), tuple(edges)), shape=(n_nodes, n_nodes)).tocsr()
    p, q = truncated_factors(train[:, kept], rank, rng)

    def cells(chosen: Array) -> Cells:
        values = zero_filled[row[chosen], column[chosen]]
        return torch.from_numpy(row[chosen]), torch.from_numpy(place[column[chosen]]), torch.from_numpy(values)

    return Problem(
        side(p, links, np.ones(n_nodes)),
        side(q, channel_graph(train[:, kept]), np.bincount(place, minlength=len(kept))),
        torch.from_numpy(place),
        cells(~held),
        cells(held),
    )


def side(factor: torch.Tensor, graph: Any, copies: Array) -> Side:
    """A side from its factor and graph."""
    linked = torch.tensor(np.asarray(graph.sum(axis=1)) > 0, dtype=torch.float32)[:, None]
    return Side(factor, scaled_laplacian(graph), linked, torch.tensor(copies, dtype=torch.float32)[:, None])


def channel_graph(zero_filled: Array) -> Any:
    """Channels are linked to the nearest ones by their known cells; those without a value other than 0 stay alone."""
    from scipy import sparse
    from sklearn.neighbors import kneighbors_graph

    n_channels = zero_filled.shape[1]
    active = np.flatnonzero(zero_filled.any(axis=0))
    if len(active) < 2:
        return sparse.csr_array((n_channels, n_channels), dtype=np.float32)
    columns = sparse.csr_array(zero_filled[:, active].T)
    found = kneighbors_graph(columns, min(NEIGHBOURS, len(active) - 1)).tocoo()
    places = active[found.row], active[found.col]
    graph = sparse.coo_array((np.ones(found.nnz, np.float32), places), shape=(n_channels, n_channels)).tocsr()
    return graph.maximum(graph.T)


def scaled_laplacian(graph: Any) -> Constant:
    """L - I with L = I - D^-1/2 A D^-1/2, whose eigenvalues lie in [-1, 1]."""
    from scipy import sparse

    degree = np.asarray(graph.sum(axis=1))
    scale = sparse.diags_array(np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    return Constant(-(scale @ graph @ scale))


def truncated_factors(matrix: Array, rank: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """P and Q with P Q^T the best approximation of the matrix of that rank (padded with 0 if it is less)."""
    from sklearn.utils.extmath import randomized_svd

    left, sizes, right = randomized_svd(matrix, rank, random_state=int(rng.integers(2**31)))
    root = np.sqrt(sizes)
    pad = ((0, 0), (0, rank - len(sizes)))
    factors = np.pad(left * root, pad), np.pad(right.T * root, pad)
    return torch.tensor(factors[0], dtype=torch.float32), torch.tensor(factors[1], dtype=torch.float32)


class Diffusion(nn.Module):
    """One side of the network: Chebyshev convolution of a factor, an LSTM per row, and its output as an increment."""

    def __init__(self, laplacian: Constant, rank: int, rng: torch.Generator) -> None:
        super().__init__()
        self.laplacian = laplacian
        self.convolution = nn.Parameter(glorot(ORDER * rank, WIDTH, rng))
        self.convolution_bias = nn.Parameter(torch.zeros(WIDTH))
        self.gates = nn.Parameter(glorot(2 * WIDTH, 4 * WIDTH, rng))
        self.gates_bias = nn.Parameter(torch.zeros(4 * WIDTH))
        self.output = nn.Parameter(glorot(WIDTH, rank, rng))
        self.output_bias = nn.Parameter(torch.zeros(rank))

    def forward(self, factor: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> Any:
        """The increment of a factor, and the state of the LSTM."""
        seen = torch.relu(torch.cat(list(self.chebyshev(factor)), dim=1) @ self.convolution + self.convolution_bias)
        gates = torch.cat([seen, state[0]], dim=1) @ self.gates + self.gates_bias
        enter, forget, leave = torch.sigmoid(gates[:, : 3 * WIDTH]).chunk(3, dim=1)
        cell = forget * state[1] + enter * torch.tanh(gates[:, 3 * WIDTH :])
        hidden = leave * torch.tanh(cell)
        return torch.tanh(hidden @ self.output + self.output_bias), (hidden, cell)

    def chebyshev(self, factor: torch.Tensor) -> Iterator[torch.Tensor]:
        """The first `ORDER` Chebyshev polynomials of the scaled Laplacian, applied to a factor."""
        before, now = factor, self.laplacian @ factor
        yield before
        for _ in range(ORDER - 1):
            yield now
            before, now = now, 2 * (self.laplacian @ now) - before


class Completion(nn.Module):
    """Both sides; gives the factors after all diffusion steps."""

    def __init__(self, problem: Problem, rng: torch.Generator) -> None:
        super().__init__()
        self.starts = (problem.rows.factor, problem.columns.factor)
        self.sides = nn.ModuleList(
            Diffusion(side.laplacian, side.factor.shape[1], rng) for side in (problem.rows, problem.columns)
        )

    def forward(self) -> list[torch.Tensor]:
        """P and Q."""
        factors = []
        for side, start in zip(self.sides, self.starts, strict=True):
            factor = start
            state = (torch.zeros(len(start), WIDTH), torch.zeros(len(start), WIDTH))
            for _ in range(STEPS):
                increment, state = side(factor, state)
                factor = factor + increment
            factors.append(factor)
        return factors


def complete(problem: Problem, gamma: float, max_steps: int, seed: int) -> Completed:
    """Train the completion until the held-out error has not improved for 200 steps."""
    network = Completion(problem, torch.Generator().manual_seed(seed))
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, fused=True)
    best, best_step, losses = np.inf, 0, []
    for step in range(max_steps + 1):
        p, q = network()
        with torch.no_grad():
            error = float(squared_errors(p, q, problem.held_out).mean()) if len(problem.held_out[0]) else -float(step)
        if error < best:
            best, best_step, kept = error, step, (p.detach(), q.detach())
        if step - best_step >= PATIENCE or step == max_steps:
            break
        loss = squared_errors(p, q, problem.train).sum() + gamma / 2 * dirichlet_energy(problem, p, q)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Completed((kept[0] @ kept[1][problem.place].T).numpy(), best, step, losses)


def squared_errors(p: torch.Tensor, q: torch.Tensor, cells: Cells) -> torch.Tensor:
    """Squared errors of P Q^T in the given cells."""
    row, column, value = cells
    return ((p.index_select(0, row) * q.index_select(0, column)).sum(dim=1) - value) ** 2


def dirichlet_energy(problem: Problem, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """tr(X^T L_r X) + tr(X L_c X^T) of X = P Q^T, without X: tr((P^T L_r P)(Q^T Q)) + tr((Q^T L_c Q)(P^T P))."""
    rows, columns = problem.rows, problem.columns
    return (rows.energy(p) * columns.gram(q)).sum() + (columns.energy(q) * rows.gram(p)).sum()
