"""The picture of docs/tuning.md: error by hops, expected error, coverage. `python docs/pictures_tuning.py`"""

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np

import pcfi
from pcfi import demo

FOLDER = Path(__file__).parent / "pictures"
BLACK, ORANGE, BLUE, GREEN = "#000000", "#E69F00", "#0072B2", "#009E73"
RATE = 0.97
STYLES = {"channel's mean": (BLACK, ":"), "numbers (0.5, 0.1)": (ORANGE, "^-"), "auto": (BLUE, "o-")}


def main() -> None:
    """Hide 97 % of the digits, fill them in, and compare with the truth."""
    FOLDER.mkdir(exist_ok=True)
    plt.rcParams.update({"font.size": 11, "axes.titlesize": 12, "axes.spines.top": False, "axes.spines.right": False})
    plt.rcParams.update({"axes.grid": True, "grid.color": "#e4e4e4", "axes.axisbelow": True, "legend.frameon": False})
    digits = demo.load_digits()
    known = np.random.default_rng(0).random((len(digits.images), 1)) >= RATE
    features = np.where(known, digits.images, np.nan)
    missing = np.broadcast_to(~known, features.shape)
    results = {
        "channel's mean": pcfi.impute(features, digits.edges, method="mean"),
        "numbers (0.5, 0.1)": pcfi.impute(features, digits.edges, alpha=0.5, beta=0.1),
        "auto": pcfi.impute(features, digits.edges),
    }
    tuned = results["auto"]
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), constrained_layout=True)
    error_by_hops(axes[0], results, digits.images, tuned.hops[:, 0])
    expected_and_actual(axes[1], tuned, digits.images, missing)
    coverage(axes[2], tuned, digits.images, missing)
    figure.savefig(FOLDER / "tuning.png", dpi=130)
    plt.close(figure)


def error_by_hops(axis: plt.Axes, results: dict, truth: np.ndarray, hops: np.ndarray) -> None:
    levels = [level for level in range(1, int(hops.max()) + 1) if (hops == level).sum() >= 20]
    for name, (colour, style) in STYLES.items():
        squared = (results[name].values - truth) ** 2
        axis.plot(levels, [np.sqrt(squared[hops == level].mean()) for level in levels], style, color=colour, label=name)
    axis.set(title="Error by hops", xlabel="hops", ylabel="RMSE on the removed pixels", xticks=levels, ylim=(0, None))
    axis.legend()


def expected_and_actual(axis: plt.Axes, tuned: pcfi.Imputation, truth: np.ndarray, missing: np.ndarray) -> None:
    """A reliability diagram: cells in twenty groups of rising expected error."""
    expected, actual = tuned.expected_error[missing], np.abs(tuned.values - truth)[missing]
    groups = np.array_split(np.argsort(expected, kind="stable"), 20)
    points = np.array([(expected[group].mean(), actual[group].mean()) for group in groups])
    axis.plot([0, points.max()], [0, points.max()], "--", color="#888888", label="as expected")
    axis.plot(*points.T, "o", color=BLUE, label="a twentieth of the cells")
    axis.set(title="Expected and actual error", xlabel="mean expected error", ylabel="mean absolute error")
    axis.legend()


def coverage(axis: plt.Axes, tuned: pcfi.Imputation, truth: np.ndarray, missing: np.ndarray) -> None:
    wanted = np.linspace(0.1, 0.95, 18)
    heard = missing & (~missing & (truth > 0)).any(axis=0)
    found = []
    for share in wanted:
        low, high = tuned.interval(float(share))
        inside = (low <= truth) & (truth <= high)
        found.append((inside[missing].mean(), inside[heard].mean()))
    axis.plot([0, 1], [0, 1], "--", color="#888888", label="as promised")
    axis.plot(wanted, [every for every, _ in found], "o-", color=GREEN, label="all removed pixels")
    axis.plot(wanted, [some for _, some in found], "^-", color=ORANGE, label="where not all known are 0")
    axis.set(title="Coverage of intervals", xlabel="coverage promised", ylabel="coverage found")
    axis.legend()


if __name__ == "__main__":
    main()
