"""sRMGCNN (Monti et al., 2017): matrix completion by recurrent networks on a graph of nodes and one of channels."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from pcfi._typing import Array
from pcfi.experiments.data.run_input import RunInput
from pcfi.experiments.systems.imputers import Filled, train_on_filled
from pcfi.experiments.training.constant_matrix import ConstantMatrix
from pcfi.experiments.training.networks import glorot
from pcfi.experiments.training.system_output import SystemOutput

ORDER, WIDTH, STEPS = 5, 32, 10
NEIGHBOURS = 10
GAMMAS = tuple(10.0**exponent for exponent in range(-10, -1))
LEARNING_RATE, PATIENCE, HELD_OUT = 1e-3, 200, 0.1


def predict(run_input: RunInput) -> SystemOutput:
    """Complete the matrix of features, then train the common network."""
    return train_on_filled(run_input, fill)


def fill(run_input: RunInput) -> Filled:
    """Approximate X by P Q^T of low rank; both factors are updated by a network that is trained on the known cells.

    Unless it is a parameter, gamma is the candidate with the smallest error on a held-out tenth of the known cells.
    With `rescale`, as in the published code: the completed matrix is mapped by its smallest and largest entry onto the
    range of the known values, the loss is the mean error, increments come from the LSTM's cell state.
    """
    parameters, rng = run_input.parameters, run_input.rng("system")
    problem = completion_problem(run_input.edges, run_input.zero_filled, run_input.known, parameters["rank"], rng)
    if parameters["rescale"]:
        known = run_input.zero_filled[run_input.known]
        problem = replace(problem, value_range=(float(known.min()), float(known.max())))
    seed = int(rng.integers(2**63))
    gamma, steps = parameters["gamma"], parameters["completion_steps"]
    if gamma is None:
        tuning_steps = min(parameters["tuning_steps"], steps)
        gamma = min(GAMMAS, key=lambda candidate: complete(problem, candidate, tuning_steps, seed).held_out_error)
    result = complete(problem, gamma, steps, seed)
    return result.matrix, {"gamma": gamma, "held_out_error": result.held_out_error, "steps": result.steps}


@dataclass(frozen=True, eq=False)
class FactorSide:
    """An initial factor and its graph: scaled Laplacian; for each row, whether it has neighbours, and its copies.

    Channels whose known values are all 0 have no neighbours and start at 0, so they stay equal: one row represents
    all of them.
    """

    factor: torch.Tensor
    laplacian: ConstantMatrix
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
class CompletionProblem:
    """Both factors, the row of each channel in the second one, and the known cells for training and validation.

    `value_range`, if given, is the range onto which the completed matrix is rescaled.
    """

    rows: FactorSide
    columns: FactorSide
    channel_rows: torch.Tensor
    train: Cells
    held_out: Cells
    value_range: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class CompletionResult:
    """The completed matrix at the step with the smallest mean squared error on held-out cells, and losses by step."""

    matrix: Array
    held_out_error: float
    steps: int
    losses: list[float]


def completion_problem(
    edges: Array, zero_filled: Array, known: Array, rank: int, rng: np.random.Generator
) -> CompletionProblem:
    """Set up the completion, with a tenth of the known cells held out."""
    from scipy import sparse

    n_nodes = len(zero_filled)
    row, column = np.nonzero(known)
    held = rng.random(len(row)) < HELD_OUT
    train = np.where(known, zero_filled, 0)
    train[row[held], column[held]] = 0
    active = train.any(axis=0)
    channel_rows = np.where(active, np.cumsum(active) - 1, active.sum())
    kept = np.append(np.flatnonzero(active), np.flatnonzero(~active)[:1])
    links = sparse.coo_array((np.ones(edges.shape[1], np.float32), tuple(edges)), shape=(n_nodes, n_nodes)).tocsr()
    p, q = truncated_factors(train[:, kept], rank, rng)

    def cells(chosen: Array) -> Cells:
        values = zero_filled[row[chosen], column[chosen]]
        return torch.from_numpy(row[chosen]), torch.from_numpy(channel_rows[column[chosen]]), torch.from_numpy(values)

    return CompletionProblem(
        side(p, links, np.ones(n_nodes)),
        side(q, channel_graph(train[:, kept]), np.bincount(channel_rows, minlength=len(kept))),
        torch.from_numpy(channel_rows),
        cells(~held),
        cells(held),
    )


def side(factor: torch.Tensor, graph: Any, copies: Array) -> FactorSide:
    """Return a side from its factor and graph."""
    linked = torch.tensor(np.asarray(graph.sum(axis=1)) > 0, dtype=torch.float32)[:, None]
    return FactorSide(factor, scaled_laplacian(graph), linked, torch.tensor(copies, dtype=torch.float32)[:, None])


def channel_graph(zero_filled: Array) -> Any:
    """Return the k-nearest-neighbour graph of the channels; channels that are 0 have no neighbours."""
    from scipy import sparse
    from sklearn.neighbors import kneighbors_graph

    n_channels = zero_filled.shape[1]
    active = np.flatnonzero(zero_filled.any(axis=0))
    if len(active) < 2:
        return sparse.csr_array((n_channels, n_channels), dtype=np.float32)
    columns = sparse.csr_array(zero_filled[:, active].T)
    neighbors = kneighbors_graph(columns, min(NEIGHBOURS, len(active) - 1)).tocoo()
    places = active[neighbors.row], active[neighbors.col]
    graph = sparse.coo_array((np.ones(neighbors.nnz, np.float32), places), shape=(n_channels, n_channels)).tocsr()
    return graph.maximum(graph.T)


def scaled_laplacian(graph: Any) -> ConstantMatrix:
    """L - I with L = I - D^-1/2 A D^-1/2, whose eigenvalues lie in [-1, 1]."""
    from scipy import sparse

    degree = np.asarray(graph.sum(axis=1))
    scale = sparse.diags_array(np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    return ConstantMatrix(-(scale @ graph @ scale))


def truncated_factors(matrix: Array, rank: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return P and Q, where P Q^T is the best approximation of that rank, padded with 0 if the rank is lower."""
    from sklearn.utils.extmath import randomized_svd

    left, singular_values, right = randomized_svd(matrix, rank, random_state=int(rng.integers(2**31)))
    root = np.sqrt(singular_values)
    pad = ((0, 0), (0, rank - len(singular_values)))
    factors = np.pad(left * root, pad), np.pad(right.T * root, pad)
    return torch.tensor(factors[0], dtype=torch.float32), torch.tensor(factors[1], dtype=torch.float32)


class FactorNetwork(nn.Module):
    """The network of one factor: a Chebyshev convolution, then an LSTM per row whose output is an increment.

    With `from_cell`, the increment comes from the cell state, and the LSTM has sigmoids in place of tanh.
    """

    def __init__(self, laplacian: ConstantMatrix, rank: int, rng: torch.Generator, *, from_cell: bool) -> None:
        super().__init__()
        self.laplacian, self.from_cell = laplacian, from_cell
        self.convolution = nn.Parameter(glorot(ORDER * rank, WIDTH, rng))
        self.convolution_bias = nn.Parameter(torch.zeros(WIDTH))
        self.gates = nn.Parameter(glorot(2 * WIDTH, 4 * WIDTH, rng))
        self.gates_bias = nn.Parameter(torch.zeros(4 * WIDTH))
        self.output = nn.Parameter(glorot(WIDTH, rank, rng))
        self.output_bias = nn.Parameter(torch.zeros(rank))

    def forward(self, factor: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> Any:
        """The increment of a factor, and the state of the LSTM."""
        convolved = torch.relu(
            torch.cat(list(self.chebyshev(factor)), dim=1) @ self.convolution + self.convolution_bias
        )
        gates = torch.cat([convolved, state[0]], dim=1) @ self.gates + self.gates_bias
        input_gate, forget_gate, output_gate = torch.sigmoid(gates[:, : 3 * WIDTH]).chunk(3, dim=1)
        squash = torch.sigmoid if self.from_cell else torch.tanh
        cell = forget_gate * state[1] + input_gate * squash(gates[:, 3 * WIDTH :])
        hidden = output_gate * squash(cell)
        output = cell if self.from_cell else hidden
        return torch.tanh(output @ self.output + self.output_bias), (hidden, cell)

    def chebyshev(self, factor: torch.Tensor) -> Iterator[torch.Tensor]:
        """The first `ORDER` Chebyshev polynomials of the scaled Laplacian, applied to a factor."""
        before, now = factor, self.laplacian @ factor
        yield before
        for _ in range(ORDER - 1):
            yield now
            before, now = now, 2 * (self.laplacian @ now) - before


class CompletionNetwork(nn.Module):
    """Both factor networks; returns the factors after all diffusion steps."""

    def __init__(self, problem: CompletionProblem, rng: torch.Generator) -> None:
        super().__init__()
        self.starts = (problem.rows.factor, problem.columns.factor)
        from_cell = problem.value_range is not None
        self.sides = nn.ModuleList(
            FactorNetwork(side.laplacian, side.factor.shape[1], rng, from_cell=from_cell)
            for side in (problem.rows, problem.columns)
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


def complete(problem: CompletionProblem, gamma: float, max_steps: int, seed: int) -> CompletionResult:
    """Train the completion until the held-out error has not improved for `PATIENCE` steps."""
    network = CompletionNetwork(problem, torch.Generator().manual_seed(seed))
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, fused=True)
    best, best_step, losses = np.inf, 0, []
    for step in range(max_steps + 1):
        p, q = network()
        scale, shift = rescaling(problem, p, q)
        with torch.no_grad():
            held_out = squared_errors(p, q, problem.held_out, scale, shift)
            error = float(held_out.mean()) if len(held_out) else -float(step)
        if error < best:
            best, best_step = error, step
            factors = scale.detach() * p.detach(), q.detach(), shift.detach()
        if step - best_step >= PATIENCE or step == max_steps:
            break
        errors = squared_errors(p, q, problem.train, scale, shift)
        loss = errors.mean() if problem.value_range else errors.sum()
        loss = loss + gamma / 2 * dirichlet_energy(problem, p, q)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    matrix = factors[0] @ factors[1][problem.channel_rows].T + factors[2]
    return CompletionResult(matrix.numpy(), best, step, losses)


def rescaling(problem: CompletionProblem, p: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scale and shift that map P Q^T onto the value range of the problem; 1 and 0 if it has none."""
    if problem.value_range is None:
        return torch.ones(()), torch.zeros(())
    with torch.no_grad():
        completed = p @ q.T
        ends = [divmod(int(position), len(q)) for position in (completed.argmin(), completed.argmax())]
    smallest, largest = ((p[row] * q[column]).sum() for row, column in ends)
    low, high = problem.value_range
    scale = (high - low) / (largest - smallest).clamp_min(1e-12)
    return scale, low - scale * smallest


def squared_errors(
    p: torch.Tensor, q: torch.Tensor, cells: Cells, scale: torch.Tensor | float = 1.0, shift: torch.Tensor | float = 0.0
) -> torch.Tensor:
    """Squared errors of scale P Q^T + shift in some cells."""
    row, column, value = cells
    return (scale * (p.index_select(0, row) * q.index_select(0, column)).sum(dim=1) + shift - value) ** 2


def dirichlet_energy(problem: CompletionProblem, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """tr(X^T L_r X) + tr(X L_c X^T) of X = P Q^T, without X: tr((P^T L_r P)(Q^T Q)) + tr((Q^T L_c Q)(P^T P))."""
    rows, columns = problem.rows, problem.columns
    return (rows.energy(p) * columns.gram(q)).sum() + (columns.energy(q) * rows.gram(p)).sum()
