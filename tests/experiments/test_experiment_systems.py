"""The compared systems against closed forms, dense formulas, Monte Carlo and peers."""

from dataclasses import replace

import numpy as np
import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transforms = pytest.importorskip("torch_geometric.transforms")

import pcfi  # noqa: E402
from pcfi.experiments.catalog import SYSTEMS  # noqa: E402
from pcfi.experiments.data.run_input import normalized_adjacency  # noqa: E402
from pcfi.experiments.systems import gcnmf, srmgcnn, system  # noqa: E402
from pcfi.experiments.systems.imputers import fill  # noqa: E402
from pcfi.experiments.systems.label_propagation import propagate_labels  # noqa: E402
from pcfi.experiments.systems.pagnn import partial_aggregation  # noqa: E402
from small_run_inputs import small_dataset, small_run_input  # noqa: E402

torch.set_num_threads(1)  # the tests are too small for several threads

EVERY = [(name, task) for name, known in SYSTEMS.items() for task in known.tasks]


@pytest.mark.parametrize(("name", "task"), EVERY)
@pytest.mark.parametrize("missing", ["structural", "uniform"])
def test_every_system_answers_its_tasks(name, task, missing):
    short = {} if name == "lp" else {"epochs": 15}
    if name == "srmgcnn":
        short |= {"completion_steps": 10, "tuning_steps": 2}
    if name == "pcfi-position":
        short |= {"position": 20}
    run_input = small_run_input(name, missing, 0.5, task, **short)
    before = run_input.zero_filled.copy()
    output = system(name)(run_input)
    metric = "validation_accuracy" if task == "classification" else "auc"
    assert 0 <= output.metrics[metric] <= 100
    assert output.metrics["training_seconds"] > 0
    assert np.array_equal(run_input.zero_filled, before)
    if task == "classification":
        assert output.labels.shape == (120,)
    if output.filled is not None:
        assert np.isfinite(output.filled).all()


def test_label_propagation_settles_at_its_closed_form():
    data = small_dataset()
    adjacency = normalized_adjacency(data.edges, data.n_nodes)
    seeds = np.zeros((120, 3))
    seeds[np.arange(9), data.labels[:9]] = 1
    alpha = 0.7
    exact = (1 - alpha) * np.linalg.solve(np.eye(120) - alpha * adjacency.toarray(), seeds)
    assert np.abs(propagate_labels(adjacency, seeds, alpha, 200) - exact).max() < 1e-6
    two = alpha * (adjacency @ (alpha * (adjacency @ seeds) + (1 - alpha) * seeds)) + (1 - alpha) * seeds
    assert np.abs(propagate_labels(adjacency, seeds, alpha, 2) - two).max() < 1e-6


def test_label_propagation_takes_the_alpha_that_is_best_on_validation():
    tuned = system("lp")(small_run_input("lp"))
    fixed = [system("lp")(small_run_input("lp", alpha=alpha)) for alpha in (0.1, 0.5, 0.9)]
    assert tuned.metrics["validation_accuracy"] >= max(output.metrics["validation_accuracy"] for output in fixed)


def test_partial_aggregation_equals_its_dense_formula():
    run_input = small_run_input(missing="uniform", rate=0.9)
    dense = run_input.adjacency.toarray()
    with np.errstate(invalid="ignore"):
        formula = dense.sum(axis=1, keepdims=True) * (dense @ run_input.zero_filled) / (dense @ run_input.known)
    ours = partial_aggregation(run_input.adjacency, run_input.zero_filled, run_input.known)
    assert np.isnan(formula).any()
    assert np.abs(ours - np.nan_to_num(formula)).max() < 1e-5


@pytest.mark.filterwarnings("ignore:Sparse")  # of PyG's own tensors
@pytest.mark.parametrize("missing", ["structural", "uniform"])
def test_feature_propagation_without_self_loops_equals_pygs_transform(missing):
    from torch_geometric.data import Data

    run_input = small_run_input("fp", missing, 0.8, self_loops=False)
    data = Data(x=torch.tensor(run_input.features), edge_index=torch.tensor(run_input.edges))
    theirs = transforms.FeaturePropagation(torch.tensor(~run_input.known), num_iterations=40)(data).x.numpy()
    filled, details = fill(run_input)
    assert np.abs(filled - theirs).max() < 1e-5
    assert details["steps"] == 40


def test_pcfi_is_the_librarys_with_the_papers_hundred_steps():
    run_input = small_run_input("pcfi", rate=0.8, alpha=0.7, beta=0.3)
    expected = pcfi.impute(
        run_input.features,
        run_input.edges,
        alpha=0.7,
        beta=0.3,
        solver=pcfi.FixedSteps(100),
        objective="representation",
    )
    assert np.array_equal(fill(run_input)[0], expected.values)
    links = small_run_input("pcfi", rate=0.8, task="links", alpha=0.7, beta=0.3, solver="settled")
    expected = pcfi.impute(
        links.features,
        links.edges,
        alpha=0.7,
        beta=0.3,
        unreachable="zero",
        self_loops=False,
        objective="representation",
    )
    assert np.array_equal(fill(links)[0], expected.values)


def test_centered_features_have_no_channel_means():
    plain, centered = (small_run_input("mean", rate=0.5, center=center, epochs=5) for center in (False, True))
    predictions = [system("mean")(run_input) for run_input in (plain, centered)]
    assert np.array_equal(predictions[0].filled, predictions[1].filled)
    assert predictions[0].metrics["validation_accuracy"] != predictions[1].metrics["validation_accuracy"]


def mixture(n_channels, components=3):
    rng = np.random.default_rng(5)
    return (
        np.array([0.5, 0.3, 0.2]),
        rng.standard_normal((components, n_channels)),
        rng.uniform(0.2, 1.5, (components, n_channels)),
    )


def test_expected_relu_agrees_with_monte_carlo():
    mean, variance = (
        torch.tensor([-2.0, -0.3, 0.0, 0.8, 3.0, 1.5, -1.0]),
        torch.tensor([1.0, 4.0, 0.5, 0.1, 2.0, 0.0, 0.0]),
    )
    drawn = torch.randn(400_000, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sampled = torch.relu(mean + variance.sqrt() * drawn).mean(dim=0)
    assert (gcnmf.expected_relu(mean, variance) - sampled).abs().max() < 6e-3
    mean.requires_grad_()
    variance.requires_grad_()
    gradients = torch.autograd.grad(gcnmf.expected_relu(mean, variance).sum(), (mean, variance))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


class FixedDropout:
    """Dropout that leaves out the same cells in every call."""

    def __init__(self, keep):
        self.keep = torch.tensor(keep, dtype=torch.float32)

    def __call__(self, hidden):
        return hidden * self.keep


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize(("missing", "rate"), [("structural", 0.5), ("uniform", 0.5), ("uniform", 0.95)])
def test_gcnmf_without_materialising_equals_the_plain_form(missing, rate, dropped):
    run_input = small_run_input(missing=missing, rate=rate)
    weights, means, variances = mixture(30)
    features = gcnmf.PartialFeatures(run_input.adjacency, run_input.zero_filled, run_input.known)
    layer = gcnmf.ExpectedActivation(features, (weights, means, variances), 8, torch.Generator().manual_seed(0))
    layer.bias.data.normal_(generator=torch.Generator().manual_seed(1))
    dense, known, x = run_input.adjacency.toarray().astype(float), run_input.known, run_input.zero_filled
    weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    keep = 2.0 * (np.random.default_rng(3).random(x.shape) < 0.5) if dropped else np.ones(x.shape)
    expected, logs = [], []
    for c in range(3):
        filled = keep * np.where(known, x, means[c])
        uncertain = keep * np.where(known, 0, variances[c])
        mean = torch.tensor(dense @ (filled @ weight + bias))
        expected.append(gcnmf.expected_relu(mean, torch.tensor((dense**2) @ uncertain @ weight**2)).numpy())
        density = -0.5 * ((x - means[c]) ** 2 / variances[c] + np.log(2 * np.pi * variances[c]))
        logs.append(np.log(weights[c]) + np.where(known, density, 0).sum(axis=1))
    logs = np.stack(logs, axis=1)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    assert np.abs(layer.responsibilities().detach().numpy() - shares).max() < 1e-4
    plain = np.einsum("cnw,nc->nw", np.stack(expected), shares)
    output = layer(FixedDropout(keep)) if dropped else layer()
    assert np.abs(output.detach().numpy() - plain).max() < 1e-4


def test_gcnmf_learns_its_mixture_too():
    run_input = small_run_input("gcnmf", rate=0.5, epochs=3)
    fitted = gcnmf.fit_mixture(run_input.zero_filled, run_input.known, 5, 0)
    assert fitted[1].shape == (5, 30)
    features = gcnmf.PartialFeatures(run_input.adjacency, run_input.zero_filled, run_input.known)
    layer = gcnmf.ExpectedActivation(features, fitted, 8, torch.Generator().manual_seed(0))
    layer().sum().backward()
    assert all(torch.isfinite(part.grad).all() and part.grad.abs().max() > 0 for part in layer.parameters())


def low_rank_toy(rng):
    data = small_dataset(150)
    side = rng.standard_normal((150, 3)).astype(np.float32)
    adjacency = normalized_adjacency(data.edges, 150)
    for _ in range(3):
        side = adjacency @ side
    matrix = (side / side.std(axis=0)) @ rng.standard_normal((3, 24)).astype(np.float32)
    known = rng.random(matrix.shape) < 0.4
    return data.edges, matrix.astype(np.float32), known


def test_a_mixture_is_fitted_where_float32_sees_components_collapse():
    rng = np.random.default_rng(0)
    features = (100.0 + 1e-3 * rng.normal(size=(400, 5))).astype(np.float32)
    known = rng.random((400, 1)) < np.full((1, 5), 0.02)
    weights, means, variances = gcnmf.fit_mixture(np.where(known, features, np.float32(0)), known, 5, 0)
    assert weights.sum() == pytest.approx(1)
    assert np.isfinite(means).all()
    assert (variances > 0).all()


def test_srmgcnn_lowers_its_loss_and_beats_the_channel_mean():
    edges, matrix, known = low_rank_toy(np.random.default_rng(0))
    hidden = np.where(known, matrix, 0)
    problem = srmgcnn.completion_problem(edges, hidden, known, 10, np.random.default_rng(1))
    done = srmgcnn.complete(problem, 1e-4, 250, 0)
    assert done.losses[-1] < 0.3 * done.losses[0]
    means = hidden.sum(axis=0) / known.sum(axis=0)
    assert np.mean((done.matrix - matrix)[~known] ** 2) < 0.7 * np.mean((means - matrix)[~known] ** 2)
    again = srmgcnn.complete(problem, 1e-4, 5, 0)
    assert again.losses == done.losses[:5]


def test_srmgcnn_with_rescaling_spans_the_range_of_the_known_values():
    edges, matrix, known = low_rank_toy(np.random.default_rng(0))
    hidden = np.where(known, matrix, 0)
    problem = srmgcnn.completion_problem(edges, hidden, known, 10, np.random.default_rng(1))
    done = srmgcnn.complete(replace(problem, value_range=(-2.0, 3.0)), 1e-4, 40, 0)
    assert (done.matrix.min(), done.matrix.max()) == pytest.approx((-2.0, 3.0), abs=1e-4)
    assert done.losses[-1] < done.losses[0]


def test_srmgcnn_dirichlet_energy_in_factors_equals_that_of_the_matrix():
    from scipy.sparse import csgraph

    edges, matrix, known = low_rank_toy(np.random.default_rng(0))
    hidden = np.where(known, matrix, 0)
    hidden[:, [3, 7, 8]] = 0  # channels that stand alone: one stands for all three
    problem = srmgcnn.completion_problem(edges, hidden, known, 4, np.random.default_rng(1))
    rng = torch.Generator().manual_seed(0)
    p, q = torch.randn(150, 4, generator=rng), torch.randn(22, 4, generator=rng)
    assert problem.columns.copies.ravel().tolist() == [1.0] * 21 + [3.0]
    whole = (p @ q[problem.channel_rows].T).double().numpy()
    rows = csgraph.laplacian(1.0 * (normalized_adjacency(edges, 150) - 0 > 0).toarray() - np.eye(150), normed=True)
    train = hidden.copy()
    held = set(zip(problem.held_out[0].tolist(), problem.held_out[1].tolist(), strict=True))
    places = problem.channel_rows.tolist()
    for node in range(150):
        for channel in range(24):
            if known[node, channel] and (node, places[channel]) in held:
                train[node, channel] = 0
    columns = csgraph.laplacian(srmgcnn.channel_graph(train).toarray().astype(float), normed=True)
    exact = np.trace(whole.T @ rows @ whole) + np.trace(whole @ columns @ whole.T)
    assert float(srmgcnn.dirichlet_energy(problem, p, q)) == pytest.approx(exact, rel=1e-4)


def test_scaled_laplacian_has_its_eigenvalues_between_minus_one_and_one():
    data = small_dataset()
    from scipy import sparse

    graph = sparse.coo_array((np.ones(data.edges.shape[1]), tuple(data.edges)), shape=(120, 120)).tocsr()
    values = np.linalg.eigvalsh(srmgcnn.scaled_laplacian(graph).factors[0].to_dense().numpy())
    assert values.min() == pytest.approx(-1, abs=1e-5)
    assert values.max() <= 1 + 1e-5


def test_label_free_systems_are_the_transform():
    from torch_geometric.data import Data

    from pcfi.experiments.systems.representations import represent
    from pcfi.pyg import ImputeFeatures

    run_input = small_run_input("pcfi-position", rate=0.8, position=16)
    data = Data(x=torch.tensor(run_input.features), edge_index=torch.tensor(run_input.edges))
    features, position = represent(run_input, 16)
    expected = ImputeFeatures(position=16)(data).x.numpy()
    assert np.array_equal(np.concatenate([features, position], axis=1), expected)
    assert np.array_equal(represent(run_input, 0)[0], ImputeFeatures()(data).x.numpy())


def test_a_first_layer_beside_another_equals_one_layer():
    from pcfi.experiments.systems.representations import first_layer_beside, represent
    from pcfi.experiments.training.tasks import first_layer_on_features

    run_input = small_run_input("pcfi-position", rate=0.8)
    features, position = represent(run_input, 16)
    both = np.concatenate([features, position], axis=1)
    layers = [
        make(8, torch.Generator().manual_seed(0))()
        for make in (first_layer_beside(run_input, features, position), first_layer_on_features(run_input, both))
    ]
    torch.testing.assert_close(*layers, atol=1e-5, rtol=0)
