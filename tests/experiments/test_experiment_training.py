"""Constant matrices, networks and the two training protocols of the experiments."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch_geometric.nn")

from pcfi.experiments.data.run_input import normalized_adjacency  # noqa: E402
from pcfi.experiments.training import classification, link_prediction, variational  # noqa: E402
from pcfi.experiments.training.constant_matrix import ConstantMatrix, compact, low_rank_factors, propagated  # noqa: E402
from pcfi.experiments.training.networks import GCN, ByteDropout, ConstantInputLayer, ReceptiveField  # noqa: E402
from pcfi.experiments.training.tasks import first_layer_on_features, train_network  # noqa: E402

torch.set_num_threads(1)  # the tests are too small for several threads
from small_run_inputs import small_dataset, small_run_input  # noqa: E402


def matrices():
    rng = np.random.default_rng(0)
    sparse = np.where(rng.random((60, 90)) < 0.05, rng.standard_normal((60, 90)), 0)
    low_rank = rng.standard_normal((60, 4)) @ rng.standard_normal((4, 90))
    return {"sparse": sparse, "low rank": low_rank, "dense": rng.standard_normal((60, 90))}


@pytest.mark.parametrize("kind", matrices())
def test_constant_matrices_and_their_gradients_equal_the_dense_matrix(kind):
    matrix = matrices()[kind].astype(np.float32)
    operator = compact(matrix)
    assert len(operator.factors) == (2 if kind == "low rank" else 1)
    assert (operator.factors[0].layout == torch.sparse_csr) == (kind == "sparse")
    weights = torch.randn(90, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    rows = torch.randn(60, 5, generator=torch.Generator().manual_seed(1))
    (found,) = torch.autograd.grad(((operator @ weights) * rows).sum(), weights)
    assert np.abs((operator @ weights).detach().numpy() - matrix @ weights.detach().numpy()).max() < 1e-4
    assert np.abs(found.numpy() - matrix.T @ rows.numpy()).max() < 1e-4


def test_factors_are_thin_and_none_where_they_would_not_be_exact():
    matrix = matrices()["low rank"].astype(np.float32)
    left, right = low_rank_factors(matrix)
    assert left.shape == (60, 4)
    assert np.abs(left @ right - matrix).max() < 1e-5 * np.abs(matrix).max()
    noise = 1e-3 * np.random.default_rng(1).standard_normal(matrix.shape).astype(np.float32)
    assert low_rank_factors(matrix + noise) is None


def test_sparse_features_are_propagated_in_two_steps():
    data = small_dataset(600, 400)
    adjacency = normalized_adjacency(data.edges, 600)
    features = np.where(np.random.default_rng(0).random(data.features.shape) < 0.02, data.features, 0)
    operator = propagated(adjacency, features)
    assert len(operator.factors) == 2
    weights = torch.ones(400, 3)
    assert np.abs((operator @ weights).numpy() - (adjacency @ features).sum(axis=1)[:, None]).max() < 1e-5


class PygGCN(torch.nn.Module):
    """A stack of PyG's layers with the weights of one of ours."""

    def __init__(self, network, channels, n_channels):
        super().__init__()
        first = torch.zeros(n_channels, network.first.weight.shape[1])
        first[torch.from_numpy(channels)] = network.first.weight.detach()
        parts = [(first, network.first.bias)] + [(part.weight, part.bias) for part in network.convolutions]
        self.layers = []
        for weight, bias in parts:
            layer = nn.GCNConv(*weight.shape)
            layer.lin.weight.data, layer.bias.data = weight.detach().T.clone(), bias.detach().clone()
            self.layers.append(layer)
        self.hidden = []

    def forward(self, x, edge_index):
        self.hidden = []
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x, edge_index))
            self.hidden.append(x)
        return self.layers[-1](x, edge_index)


@pytest.mark.parametrize(("missing", "rate"), [("structural", 0.9), ("uniform", 0.5)])
@pytest.mark.parametrize("layers", [2, 3])
def test_network_on_computed_features_equals_a_stack_of_gcnconv_layers(missing, rate, layers):
    run_input = small_run_input(missing=missing, rate=rate)
    features, edges = run_input.zero_filled, torch.tensor(run_input.edges)
    rng = torch.Generator().manual_seed(0)
    first = first_layer_on_features(run_input, features)(16, rng)
    network = GCN(first, [*[16] * (layers - 1), 3], rng)
    for parameter in network.parameters():
        if parameter.dim() == 1:
            parameter.data.normal_(generator=rng)
    peer = PygGCN(network, np.flatnonzero(features.any(axis=0)), features.shape[1])
    nodes = run_input.split.train
    field = ReceptiveField(run_input.adjacency, nodes, layers - 1)
    ours = network.later_layers(network.first(), field)
    theirs = peer(torch.tensor(features), edges)[torch.from_numpy(nodes)]
    assert (ours - theirs).abs().max() < 1e-5
    targets = torch.tensor(run_input.dataset.labels[nodes])
    torch.nn.functional.cross_entropy(ours, targets).backward()
    torch.nn.functional.cross_entropy(theirs, targets).backward()
    for part, layer in zip([network.first, *network.convolutions], peer.layers, strict=True):
        kept = layer.lin.weight.grad.T
        kept = kept[torch.from_numpy(np.flatnonzero(features.any(axis=0)))] if part is network.first else kept
        assert (part.weight.grad - kept).abs().max() < 1e-6
        assert (part.bias.grad - layer.bias.grad).abs().max() < 1e-6


def test_jumping_knowledge_takes_the_largest_hidden_value_of_all_layers():
    run_input = small_run_input(rate=0.0)
    rng = torch.Generator().manual_seed(0)
    network = GCN(first_layer_on_features(run_input, run_input.zero_filled)(16, rng), [16, 16, 3], rng, jumping=True)
    peer = PygGCN(network, np.arange(run_input.zero_filled.shape[1]), run_input.zero_filled.shape[1])
    last = peer(torch.tensor(run_input.zero_filled), torch.tensor(run_input.edges))
    best = torch.stack([*peer.hidden, torch.relu(last)]).amax(dim=0)
    nodes = run_input.split.test
    ours = network.later_layers(network.first(), ReceptiveField(run_input.adjacency, nodes, 2))
    theirs = (best @ network.jump.weight + network.jump.bias)[torch.from_numpy(nodes)]
    assert (ours - theirs).abs().max() < 1e-5


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5])
def test_dropout_drops_at_its_rate_and_keeps_the_mean(rate):
    values = torch.ones(1000, 100)
    dropped = ByteDropout(rate, np.random.default_rng(0))(values)
    assert float((dropped == 0).float().mean()) == pytest.approx(rate, abs=0.01)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.01)
    assert dropped.unique()[-1].item() == pytest.approx(1 / (1 - rate))


def test_training_learns_stops_early_and_predicts_with_the_best_weights():
    run_input = small_run_input(rate=0.0, patience=30, hidden=16)
    output = train_network(run_input, first_layer_on_features(run_input, run_input.zero_filled))
    assert output.metrics["epochs"] - output.metrics["best_epoch"] == 30
    right = output.labels == run_input.dataset.labels
    assert 100 * right[run_input.split.validation].mean() == pytest.approx(output.metrics["validation_accuracy"])
    assert right[run_input.split.test].mean() > 0.9


def test_equal_seeds_give_equal_bits():
    run_input = small_run_input(rate=0.5, epochs=20, hidden=16)
    first, again = (
        train_network(run_input, first_layer_on_features(run_input, run_input.zero_filled)) for _ in range(2)
    )
    assert np.array_equal(first.labels, again.labels)
    assert first.metrics["validation_accuracy"] == again.metrics["validation_accuracy"]
    run_input = small_run_input(task="links", rate=0.5, epochs=20)
    scores = [
        train_network(run_input, first_layer_on_features(run_input, run_input.zero_filled)).metrics["auc"]
        for _ in range(2)
    ]
    assert scores[0] == scores[1]


def test_reconstruction_loss_equals_that_of_pygs_auto_encoder():
    rng = torch.Generator().manual_seed(0)
    latent = torch.randn(20, 4, generator=rng)
    positive, negative = torch.randint(0, 20, (2, 2, 30), generator=rng)
    peer = nn.GAE(torch.nn.Identity())
    theirs = peer.recon_loss(latent, positive, negative)
    assert float(link_prediction.reconstruction_loss(latent, positive, negative)) == pytest.approx(
        float(theirs), rel=1e-5
    )
    ours = link_prediction.auc_and_ap(latent, positive.numpy(), negative.numpy())
    assert ours == pytest.approx([100 * value for value in peer.test(latent, positive, negative)])


def test_link_prediction_finds_held_out_edges():
    run_input = small_run_input(task="links", rate=0.0)
    metrics = train_network(run_input, first_layer_on_features(run_input, run_input.zero_filled)).metrics
    assert metrics["auc"] > 70
    assert metrics["ap"] > 70


def test_best_weights_are_the_earliest_of_equals():
    network = GCN(
        ConstantInputLayer(ConstantMatrix(np.eye(3)), 2, torch.Generator(), n_channels=3, channels=np.arange(3)),
        [2, 2],
        torch.Generator(),
    )
    best = classification.BestWeights(network)
    best.update(1, 5)
    kept = network.first.weight.detach().clone()
    network.first.weight.data += 1
    best.update(2, 5)
    best.restore()
    assert torch.equal(network.first.weight, kept)
    assert best.epoch == 1


def test_the_loss_over_all_pairs_and_its_gradient_equal_those_of_the_dense_matrix(monkeypatch):
    monkeypatch.setattr(variational, "BLOCK_PAIRS", 700)  # several blocks, the last one smaller
    latent = torch.randn(60, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    linked = torch.tensor([[0, 1, 5, *range(60)], [1, 0, 9, *range(60)]])
    truth = torch.zeros(60, 60, dtype=torch.float64)
    truth[linked[0], linked[1]] = 1
    n_linked = linked.shape[1]
    weight, norm = (3600 - n_linked) / n_linked, 3600 / (2 * (3600 - n_linked))
    dense = norm * torch.nn.functional.binary_cross_entropy_with_logits(
        latent @ latent.T, truth, pos_weight=torch.tensor(weight, dtype=torch.float64)
    )
    ours = variational.all_pairs_loss(latent, linked)
    assert ours.item() == pytest.approx(dense.item(), rel=1e-12)
    gradients = [torch.autograd.grad(loss, latent)[0] for loss in (dense, ours)]
    assert torch.allclose(*gradients, rtol=1e-10, atol=1e-14)


def test_the_divergence_is_that_of_torchs_normal_distributions():
    mean, log_deviation = torch.randn(2, 40, 3, generator=torch.Generator().manual_seed(0))
    normal = torch.distributions.Normal
    exact = torch.distributions.kl_divergence(normal(mean, log_deviation.exp()), normal(0.0, 1.0)).sum(dim=1).mean()
    assert variational.divergence(mean, log_deviation).item() == pytest.approx(exact.item() / 40, rel=1e-5)


def test_a_variational_auto_encoder_finds_links_from_full_features():
    run_input = small_run_input(task="links", rate=0.0, epochs=150)
    first = first_layer_on_features(run_input, run_input.dataset.features)
    output = train_network(run_input, first, variational=True)
    assert output.metrics["auc"] > 65
    assert train_network(run_input, first, variational=True).metrics["auc"] == output.metrics["auc"]
