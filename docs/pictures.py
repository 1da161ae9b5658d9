"""Every picture and every number of the documentation. Run `python docs/pictures.py`; needs `pip install "pcfi[demo]"`.

The pictures go to docs/pictures, the numbers are printed. Both come from `pcfi.impute`, nothing is made up.
"""

import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from scipy.spatial import cKDTree

import pcfi
from pcfi import demo

FOLDER = Path(__file__).parent / "pictures"

# The small graph: two groups of nodes, a bridge (node 5) and a tail (nodes 12 to 14).
ACROSS = [0.0, 1.0, 1.0, 2.1, 2.1, 3.3, 4.4, 4.4, 5.4, 5.6, 6.5, 6.4, 7.5, 8.5, 8.5]
UP = [0.5, 1.4, -0.5, 1.0, -0.8, 0.3, 1.2, -0.8, 0.2, 1.6, 0.9, -0.6, 0.2, 0.9, -0.6]
PLACES = np.column_stack([ACROSS, UP])
LEFT = "0-1 0-2 1-2 1-3 2-3 2-4 3-4 3-5 4-5"
RIGHT = "5-6 5-7 6-7 6-8 7-8 6-9 8-9 8-10 8-11 9-10 10-11 10-12 11-12 12-13 12-14 13-14"
EDGES = np.array([pair.split("-") for pair in f"{LEFT} {RIGHT}".split()]).astype(int).T
SOURCES = {0: 1.0, 10: 9.0}

# Okabe and Ito's colours, distinct for colour-blind readers
BLACK, ORANGE, BLUE, GREEN, RED = "#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00"
LINES = {0.1: (BLUE, "o"), 0.5: (GREEN, "s"), 0.9: (ORANGE, "^"), 1.0: (RED, "D")}

EXACT = pcfi.UntilSettled(rtol=1e-10, max_steps=20_000)


def main() -> None:
    """Draw every picture and print every number."""
    FOLDER.mkdir(exist_ok=True)
    photo()
    digits()
    plt.rcParams.update({"font.size": 11, "axes.titlesize": 12, "axes.spines.top": False, "axes.spines.right": False})
    plt.rcParams.update({"axes.grid": True, "grid.color": "#e4e4e4", "axes.axisbelow": True, "legend.frameon": False})
    hops_and_confidence()
    one_mean()
    steps()
    plain_and_weighted()
    path()
    channels()
    field = make_field()
    error_by_hops(field)
    distance_to_steady_state(field)
    what_rtol_buys(field)
    sweeps_and_gradients(field)
    depths()


def photo() -> None:
    """The picture of the first page: the figure of an example of the gallery."""
    runpy.run_path(str(Path(__file__).parent / "gallery_scripts" / "plot_photo.py"))
    save(plt.gcf(), "photo.png")


def digits() -> None:
    """The picture of the demo."""
    data = demo.load_digits()
    demo.draw(data, pcfi.impute(data.features, data.edges), FOLDER / "digits.png")


def save(figure: Any, name: str) -> None:
    """Write the figure, without a date or a version in the file."""
    figure.savefig(FOLDER / name, dpi=140, bbox_inches="tight", pad_inches=0.08, metadata={"Software": None})
    plt.close(figure)


def say(title: str, **numbers: object) -> None:
    """Print numbers that the text quotes."""
    print(f"{title}: " + ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in numbers.items()))


# The small graph


def small_features() -> Any:
    """One channel on the small graph, known at the sources only."""
    features = np.full((len(PLACES), 1), np.nan)
    features[list(SOURCES), 0] = list(SOURCES.values())
    return features


def fill_small(alpha: float, solver: Any = EXACT) -> pcfi.Imputation:
    """The small graph, filled."""
    return pcfi.impute(small_features(), EDGES, alpha=alpha, solver=solver, beta=0.1, objective="representation")


def draw_nodes(axis: Any, shades: Any, labels: list[str], colours: str, top: float) -> None:
    """The small graph with a shade and a label per node: sources are squares, all other nodes circles."""
    for start, end in EDGES.T:
        axis.plot(*PLACES[[start, end]].T, color="#9a9a9a", linewidth=1.3, zorder=1)
    shown = plt.get_cmap(colours)(np.asarray(shades) / top)
    for node, (x, y) in enumerate(PLACES):
        known = node in SOURCES
        size, edge, shape = (620, 2.6, "s") if known else (560, 1.0, "o")
        axis.scatter(x, y, s=size, color=shown[node], edgecolor=BLACK, linewidth=edge, marker=shape, zorder=2)
        dark = shown[node, :3] @ [0.299, 0.587, 0.114] < 0.5
        axis.text(x, y, labels[node], ha="center", va="center_baseline", fontsize=10, color="w" if dark else "k")
    axis.set(xlim=(-0.5, 9.0), ylim=(-1.35, 2.15), aspect="equal")
    axis.axis("off")


def draw_values(axis: Any, values: Any, title: str) -> None:
    """The small graph with its values."""
    draw_nodes(axis, values, [f"{value:.1f}" for value in values], "cividis", 10)
    axis.set_title(title)


def hops_and_confidence() -> None:
    """What is known, how far it is, and how much we trust what flows there."""
    result = fill_small(0.5)
    values, hops, confidence = small_features()[:, 0], result.hops[:, 0], result.confidence[:, 0]
    figure, axes = plt.subplots(3, 1, figsize=(7, 8.6))
    labels = ["?" if np.isnan(value) else f"{value:.0f}" for value in values]
    draw_nodes(axes[0], np.zeros(len(values)), labels, "Greys", 1)
    for node, (x, y) in enumerate(PLACES):
        axes[0].text(x, y + (0.45 if y > 0.4 else -0.48), node, fontsize=9, color=BLUE, ha="center", va="center")
    axes[0].set_title("Known values (squares), missing ones (circles), node numbers (blue)")
    draw_nodes(axes[1], hops, [str(hop) for hop in hops], "Blues", 4.5)
    axes[1].set_title("Hops: edges to the nearest source")
    draw_nodes(axes[2], confidence, [f"{level:.3g}".lstrip("0") for level in confidence], "Greens", 1.25)
    axes[2].set_title(r"Confidence: alpha$^{hops}$, here with alpha = 0.5")
    save(figure, "hops-and-confidence.png")
    say("small graph", nodes=len(PLACES), edges=EDGES.shape[1], hops=hops.tolist(), confidence=confidence.tolist())


def one_mean(node: int = 3) -> None:
    """How much each neighbour of one node counts, with and without confidence."""
    neighbours = np.sort(EDGES[::-1][node == EDGES])
    for alpha in (0.5, 1.0):
        confidence = fill_small(alpha).confidence[neighbours, 0]
        shares = (confidence / confidence.sum()).round(3)
        say(f"mean of node {node}, alpha {alpha}", neighbours=neighbours, confidence=confidence, shares=shares)


def steps() -> None:
    """Values after a few steps, and the steady state."""
    figure, axes = plt.subplots(2, 2, figsize=(9.8, 4.6))
    for axis, count in zip(axes.flat, (1, 3, 10), strict=False):
        result = fill_small(0.5, pcfi.FixedSteps(count))
        draw_values(axis, result.values[:, 0], f"after {count} step{'s' * (count > 1)}")
        say(f"after {count} steps", values=result.values[:, 0].round(2).tolist())
    settled = fill_small(0.5)
    draw_values(axes[1, 1], settled.values[:, 0], "steady state")
    say(
        "steady state",
        values=settled.values[:, 0].round(2).tolist(),
        default_steps=fill_small(0.5, pcfi.UntilSettled()).steps,
    )
    figure.subplots_adjust(wspace=0.02, hspace=0.12)
    save(figure, "steps.png")


def plain_and_weighted() -> None:
    """The steady state of plain averaging and of the confidence-weighted diffusion."""
    figure, axes = plt.subplots(2, 1, figsize=(7, 5.8))
    for axis, alpha, name in zip(axes, (1.0, 0.5), ("plain averaging", "confidence-weighted"), strict=True):
        values = fill_small(alpha).values[:, 0]
        draw_values(axis, values, f"alpha = {alpha:g}: {name}")
        missing = np.delete(values, list(SOURCES))
        left, right = values[1:5], values[[6, 7, 8, 9, 11, 12, 13, 14]]
        say(
            f"alpha {alpha}",
            left=left.round(2),
            bridge=values[5].round(2),
            right=right.round(2),
            spread=missing.std().round(2),
        )
    save(figure, "plain-and-weighted.png")


def path(length: int = 21) -> None:
    """A path with both ends known, for several alphas."""
    features = np.full((length, 1), np.nan)
    features[[0, -1], 0] = 0.0, 1.0
    edges = np.stack([np.arange(length - 1), np.arange(1, length)])
    figure, axis = plt.subplots(figsize=(7, 3.6))
    for alpha, (colour, marker) in LINES.items():
        values = pcfi.impute(features, edges, alpha=alpha, solver=EXACT, beta=0.1, objective="representation").values[
            :, 0
        ]
        axis.plot(values, color=colour, marker=marker, markersize=4.5, label=f"alpha = {alpha:g}")
        say(f"path, alpha {alpha}", quarter=values[length // 4].round(4), middle=values[length // 2].round(4))
    axis.plot([0, length - 1], [0, 1], "s", markersize=10, color="w", markeredgecolor=BLACK, markeredgewidth=2)
    axis.set(xlabel="node on the path (squares: known)", ylabel="value", xticks=range(0, length, 5), yticks=[0, 0.5, 1])
    axis.legend(loc="upper left")
    save(figure, "path.png")


# Two channels


def make_two_channels(length: int = 25) -> tuple[Any, Any, Any]:
    """A path whose two channels rise and fall together; returns their true values, what is known, and the edges."""
    place = np.arange(length)
    wave = np.sin(2 * np.pi * place / 20)
    truth = np.stack([wave, 0.8 * wave], axis=1)
    features = np.full_like(truth, np.nan)
    for channel, first in enumerate((0, 3)):
        features[first::6, channel] = truth[first::6, channel]
    return truth, features, np.stack([place[:-1], place[1:]])


def channels(shown: float = 1.0) -> None:
    """Two channels before and after stage 2, each known where the other is missing."""
    truth, features, edges = make_two_channels()
    missing = np.isnan(features)
    filled = {
        beta: pcfi.impute(features, edges, beta=beta, solver=EXACT, alpha=0.5, objective="representation").values
        for beta in (0, 0.1, shown, 3)
    }
    for beta, values in filled.items():
        closer = (np.abs(values - truth) < np.abs(filled[0] - truth))[missing]
        error = rmse((values - truth)[missing]).round(3)
        say(f"two channels, beta {beta}", rmse=error, closer=int(closer.sum()), missing=closer.size)
    say("two channels", correlation=np.corrcoef(filled[0].T)[0, 1].round(2))
    figure, axes = plt.subplots(2, 1, figsize=(7.4, 5.6), sharex=True)
    for channel, (axis, colour) in enumerate(zip(axes, (BLUE, RED), strict=True)):
        before, after = filled[0][:, channel], filled[shown][:, channel]
        gone = np.flatnonzero(missing[:, channel])
        axis.plot(truth[:, channel], "--", color="#777777", linewidth=1, label="true value")
        axis.vlines(gone, before[gone], after[gone], color=colour, linewidth=2)
        axis.plot(gone, before[gone], "o", color="w", markeredgecolor=colour, markersize=6, label="after diffusion")
        axis.plot(gone, after[gone], "o", color=colour, markersize=7, label="after stage 2")
        axis.plot(features[:, channel], "s", color=BLACK, markersize=8, label="known")
        axis.set(ylim=(-1.5, 1.5), ylabel=f"channel {'ab'[channel]}", xticks=range(0, len(truth), 3))
    axes[0].legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), handletextpad=0.2, columnspacing=1.2)
    axes[1].set_xlabel("node on the path")
    save(figure, "channels.png")


def rmse(errors: Any) -> Any:
    """Root of the mean square."""
    return np.sqrt(np.mean(errors**2))


# A larger graph


@dataclass(frozen=True, eq=False)
class Field:
    """Points in a square, joined to their nearest points; smooth channels, known at few points."""

    truth: Any
    features: Any
    graph: pcfi.Graph


def make_field(n_nodes: int = 2000, n_channels: int = 32, known_rate: float = 0.02, seed: int = 0) -> Field:
    """Each channel is a sum of random waves, with mean 0 and variance 1."""
    rng = np.random.default_rng(seed)
    points = rng.random((n_nodes, 2))
    neighbours = cKDTree(points).query(points, k=6)[1][:, 1:]
    edges = np.stack([np.repeat(np.arange(n_nodes), 5), neighbours.ravel()])
    waves = rng.normal(scale=12, size=(n_channels, 2, 64))
    phases = rng.uniform(0, 2 * np.pi, size=(n_channels, 1, 64))
    truth = np.sqrt(2 / 64) * np.cos(points @ waves + phases).sum(axis=2).T
    known = rng.random((n_nodes, 1)) < known_rate
    field = Field(truth, np.where(known, truth, np.nan), pcfi.prepare_graph(edges, n_nodes))
    say("field", graph=field.graph, known_nodes=int(known.sum()), channels=n_channels)
    return field


def error_by_hops(field: Field) -> None:
    """Error of the filled values against the hops, with the channel's mean for comparison."""
    results = {
        f"alpha = {alpha:g}": pcfi.impute(field.features, field.graph, alpha=alpha, beta=0, objective="representation")
        for alpha in (0.5, 1)
    }
    results["channel's mean"] = pcfi.impute(field.features, field.graph, method="mean")
    hops = results["alpha = 1"].hops
    shown = np.arange(1, hops.max() + 1)
    counts = np.array([(hops[:, 0] == hop).sum() for hop in shown])
    say("field", nodes_by_hops=counts.tolist())
    shown = shown[counts >= 20]
    figure, axis = plt.subplots(figsize=(7, 3.6))
    styles = ((GREEN, "s-"), (RED, "D-"), (BLACK, "--"))
    for (name, result), (colour, style) in zip(results.items(), styles, strict=True):
        errors = [rmse((result.values - field.truth)[hops == hop]) for hop in shown]
        axis.plot(shown, errors, style, color=colour, markersize=5, label=name)
        overall = rmse((result.values - field.truth)[hops > 0]).round(3)
        say(f"error, {name}", by_hops=np.round(errors, 3).tolist(), all_missing=overall)
    axis.set(xlabel="hops", ylabel="RMSE (true values: variance 1)", xticks=shown, ylim=(0, None))
    axis.legend(loc="lower right")
    save(figure, "error-by-hops.png")


# Solvers


def distance(values: Any, steady: Any, features: Any) -> float:
    """Largest distance of any cell from the steady state, relative to the range of its channel's known values."""
    spread = np.nanmax(features, axis=0) - np.nanmin(features, axis=0)
    active = spread > 0
    return float((np.abs(values - steady)[:, active] / spread[active]).max())


def distance_to_steady_state(field: Field) -> None:
    """Distance after K plain steps, and where `UntilSettled` stops, on two graphs."""
    digits = demo.load_digits()
    features = digits.features.astype(np.float64)
    cases = {"digits": (features, pcfi.prepare_graph(digits.edges)), "field": (field.features, field.graph)}
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
    for axis, (name, (known, graph)) in zip(axes, cases.items(), strict=True):
        for alpha in (0.1, 0.5, 0.9):
            draw_distances(axis, name, known, graph, alpha)
        depth = pcfi.impute(known, graph, alpha=0.5, beta=0.1, objective="representation").hops.max()
        axis.set(xscale="log", yscale="log", ylim=(1e-5, 1.5), xlabel="steps")
        axis.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        axis.set_title(f"{name}: {graph.n_nodes:,} nodes, at most {depth} hops")
        say(name, graph=graph, known_nodes=int((~np.isnan(known[:, 0])).sum()), hops=depth)
    axes[0].set_ylabel("distance to the steady state")
    handles = [
        Line2D([], [], color=colour, marker=marker, label=f"FixedSteps, alpha = {alpha:g}")
        for alpha, (colour, marker) in LINES.items()
        if alpha < 1
    ]
    handles.append(
        Line2D([], [], color="w", marker="*", markersize=15, markeredgecolor=BLACK, label="UntilSettled() stops here")
    )
    figure.legend(handles=handles, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 0.97))
    save(figure, "distance-to-steady-state.png")


def draw_distances(axis: Any, name: str, features: Any, graph: pcfi.Graph, alpha: float) -> None:
    """One line of distances, and a star."""
    colour, marker = LINES[alpha]

    def fill(solver: Any) -> pcfi.Imputation:
        return pcfi.impute(features, graph, alpha=alpha, beta=0, solver=solver, objective="representation")

    steady = fill(EXACT).values
    counts = [1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000]
    distances = [distance(fill(pcfi.FixedSteps(count)).values, steady, features) for count in counts]
    axis.plot(counts, distances, color=colour, marker=marker, markersize=5)
    settled = fill(pcfi.UntilSettled())
    reached = distance(settled.values, steady, features)
    axis.plot(settled.steps, reached, "*", color=colour, markersize=17, markeredgecolor=BLACK, zorder=3)
    numbers = {
        f"K={count}": f"{far:.1e}" for count, far in zip(counts, distances, strict=True) if count in (10, 100, 1000)
    }
    say(f"{name}, alpha {alpha}", **numbers, settled_steps=settled.steps, settled_distance=f"{reached:.1e}")


def what_rtol_buys(field: Field) -> None:
    """Steps, residual and distance to the steady state for several tolerances."""
    for alpha in (0.5, 0.9, 1.0):
        steady = pcfi.impute(
            field.features, field.graph, alpha=alpha, beta=0, solver=EXACT, objective="representation"
        ).values
        for rtol in (1e-2, 1e-4, 1e-6):
            solver = pcfi.UntilSettled(rtol=rtol)
            result = pcfi.impute(
                field.features, field.graph, alpha=alpha, beta=0, solver=solver, objective="representation"
            )
            far = distance(result.values, steady, field.features)
            say(
                f"alpha {alpha}, rtol {rtol:g}",
                steps=result.steps,
                residual=f"{result.residual:.1e}",
                distance=f"{far:.1e}",
            )


def sweeps_and_gradients(field: Field) -> None:
    """Steps of both ways to one steady state: `directed=True` with every edge in both directions makes it sweep."""
    target = np.repeat(np.arange(field.graph.n_nodes), np.diff(field.graph.indptr))
    both_ways = pcfi.prepare_graph(np.stack([field.graph.indices, target]), directed=True)
    for alpha in (0.1, 0.5, 0.9, 1.0):
        gradients = pcfi.impute(field.features, field.graph, alpha=alpha, beta=0, objective="representation")
        swept = pcfi.impute(
            field.features,
            both_ways,
            alpha=alpha,
            beta=0,
            solver=pcfi.UntilSettled(max_steps=10_000),
            objective="representation",
        )
        say(f"alpha {alpha}", conjugate_gradients=gradients.steps, sweeps=swept.steps)


def depths() -> None:
    """Hops from which a confidence is too small for ordinary arithmetic, as `pcfi.stages.diffusion` decides it."""
    for dtype in (np.float32, np.float64):
        smallest = 1e3 * float(np.finfo(dtype).tiny)
        first = {f"alpha {alpha}": int(np.floor(np.log(smallest) / np.log(alpha))) + 1 for alpha in (0.1, 0.5, 0.9)}
        say(f"sweeps in {np.dtype(dtype).name} from hops", **first)


if __name__ == "__main__":
    main()
