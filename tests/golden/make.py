"""Write the golden outputs by the reference implementation; `--authors FOLDER` compares it with the authors' output."""

import sys
from pathlib import Path

import numpy as np

from pcfi import datasets
from pcfi._kernels import reference

FOLDER = Path(__file__).resolve().parent
SHARED = FOLDER.parents[2] / "shared"
ALPHA, BETA, STEPS, FP_STEPS = 0.8, 0.3, 100, 40
MARKS = "<!-- authors -->\n", "<!-- /authors -->\n"


def states():
    """Standardised incomes (so that stage 2 makes sense), and the adjacency of the states."""
    table, borders = datasets.load_states()
    features = ((table - table.mean()) / table.std()).to_numpy()
    ends = [table.index.get_indexer(borders[column]) for column in ("source", "target")]
    flow = np.zeros((len(table), len(table)))
    flow[ends[0], ends[1]] = flow[ends[1], ends[0]] = 1
    return features, flow


def known_cells(kind, shape):
    rng = np.random.default_rng(0)
    return np.broadcast_to(rng.random((shape[0], 1 if kind == "structural" else shape[1])) < 0.4, shape).copy()


def by_channel(features, known, flow, fill):
    """Fill each channel by `fill(values, known, hops)`; return the features and the hops."""
    hops = np.stack([reference.hops(flow, known[:, d]) for d in range(known.shape[1])], axis=1)
    columns = [fill(features[:, d], known[:, d], hops[:, d]) for d in range(known.shape[1])]
    return np.stack(columns, axis=1), hops


def outputs(features, known, flow):
    """PCFI after 100 steps and settled, and Feature Propagation after 40 steps."""

    def steps(values, source, hops):
        return reference.take_steps(reference.confidence_matrix(flow, hops, ALPHA), values, source, STEPS)[-1]

    def settled(values, source, hops):
        return reference.steady_state(reference.confidence_matrix(flow, hops, ALPHA), values, source, hops >= 0)

    def propagated(values, source, _):
        return reference.take_steps(reference.propagation_matrix(flow), values, source, FP_STEPS)[-1]

    stepped, hops = by_channel(features, known, flow, steps)
    return {
        "hops": hops,
        "steps": reference.share(stepped, hops, ALPHA, BETA),
        "settled": reference.share(by_channel(features, known, flow, settled)[0], hops, ALPHA, BETA),
        "fp": by_channel(features, known, flow, propagated)[0],
    }


def write():
    features, flow = states()
    for kind in ("structural", "uniform"):
        known = known_cells(kind, features.shape)
        np.savez_compressed(
            FOLDER / f"states_{kind}.npz", known=known, features=features, flow=flow, **outputs(features, known, flow)
        )


def compare_with_authors():
    """Return the differences on Cora, structural missing: all channels have the same hops, hence one matrix."""
    from torch_geometric.datasets import Planetoid
    from torch_geometric.transforms import LargestConnectedComponents

    golden = np.load(SHARED / "golden" / "Cora_structural.npz", allow_pickle=False)
    data = LargestConnectedComponents()(Planetoid(sys.argv[2], "Cora")[0])
    features, (source, target) = data.x.numpy().astype(np.float64), data.edge_index.numpy()
    flow = np.zeros((len(features), len(features)))
    flow[target, source] = 1
    known = np.unpackbits(golden["known"])[: features.size].reshape(features.shape).astype(bool)
    assert (known == known[:, :1]).all()
    alpha, hops = float(golden["alpha"]), reference.hops(flow, known[:, 0])
    matrix = reference.confidence_matrix(flow, hops, alpha)
    blocks = np.array_split(np.arange(features.shape[1]), 30)  # `take_steps` keeps the state after each step
    diffused = [reference.take_steps(matrix, features[:, b], known[:, b], int(golden["steps"]))[-1] for b in blocks]
    current = np.concatenate(diffused, axis=1)
    filled = reference.share(current, np.repeat(hops[:, None], features.shape[1], axis=1), alpha, float(golden["beta"]))
    ours, theirs = filled[golden["rows"], golden["cols"]], golden["values"]
    in_norm = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
    at_most = np.abs(ours - theirs).max() / np.abs(theirs).max()
    return (
        f"{len(theirs):,} cells of Cora, structural missing, alpha {alpha:g}, beta {float(golden['beta']):g}, "
        f"{int(golden['steps'])} steps: relative difference {in_norm:.1e} in norm, {at_most:.1e} at most (the authors "
        "compute in float32).\n"
    )


if __name__ == "__main__":
    if "--authors" in sys.argv:
        page = FOLDER / "README.md"
        before, _, rest = page.read_text().partition(MARKS[0])
        page.write_text(f"{before}{MARKS[0]}{compare_with_authors()}{MARKS[1]}{rest.partition(MARKS[1])[2]}")
    else:
        write()
