"""
Parameters with pictures: alpha and beta
========================================

The two parameters of the paper, on real data: 30 % of the incomes of US states are removed and filled with each pair of
alpha and beta. You rarely need them: ``alpha="auto"`` and ``beta="auto"`` are the defaults, and the value model then
does better than any pair in the picture.
"""

import matplotlib.pyplot as plt
import numpy as np

import pcfi

truth, borders = pcfi.datasets.load_states()
edges = np.array([truth.index.get_indexer(borders[end]) for end in ("source", "target")])
truth = ((truth - truth.mean()) / truth.std()).to_numpy()
missing = np.random.default_rng(0).random(truth.shape) < 0.3
table = np.where(missing, np.nan, truth)


def error(**options):
    values = pcfi.impute(table, edges, **options).values
    return np.sqrt(np.mean((values - truth)[missing] ** 2))


alphas, betas = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99), (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
errors = [[error(alpha=alpha, beta=beta, objective="representation") for beta in betas] for alpha in alphas]
automatic = error()
print(f"best pair {np.min(errors):.3f}, automatic {automatic:.3f}, column's mean {error(method='mean'):.3f}")

# %%
# Columns are strongly correlated here, so a larger beta (stage 2) helps, up to a point. Far too large a beta does harm.

figure, axis = plt.subplots(figsize=(6, 4.6), layout="constrained")
shown = axis.imshow(errors, cmap="viridis_r", vmax=1.2)
for row, line in enumerate(errors):
    for column, value in enumerate(line):
        axis.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.8 else "black")
axis.set_xticks(range(len(betas)), [f"{beta:g}" for beta in betas])
axis.set_yticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
axis.set(xlabel="beta", ylabel="alpha", title=f"error on removed cells; automatic: {automatic:.2f}")
figure.colorbar(shown, ax=axis, shrink=0.8)
plt.show()
