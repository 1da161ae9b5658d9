"""
Incomes of states: which years can be filled?
=============================================

48 states of the USA, linked by their borders; income per person every tenth year. A third of the cells is removed and
filled. The removed values were not used to draw the graph.
"""

import matplotlib.pyplot as plt
import numpy as np

import pcfi

states, borders = pcfi.datasets.load_states(missing=1 / 3)
truth = pcfi.datasets.load_states()[0]
result = pcfi.impute(states, borders)
print(result.columns)

# %%
# Filled against true values, with intervals for 90 %. Both axes are logarithmic, because incomes grew a hundredfold.

low, high = result.interval(0.9)
missing = states.isna().to_numpy()
x, y = truth.to_numpy()[missing], result.values.to_numpy()[missing]
bars = np.abs(np.stack([low.to_numpy()[missing], high.to_numpy()[missing]]) - y)
inside = np.mean((low.to_numpy()[missing] <= x) & (x <= high.to_numpy()[missing]))

figure, axis = plt.subplots(figsize=(6, 5.5), layout="constrained")
axis.errorbar(x, y, yerr=bars, fmt="o", markersize=4, elinewidth=1, color="#0072B2", ecolor="#9ec9e2")
axis.plot([100, 60_000], [100, 60_000], "--", color="#777777", linewidth=1)
axis.set(xscale="log", yscale="log", xlabel="true income", ylabel="filled income")
axis.set_title(f"{inside:.0%} of the {missing.sum()} removed values are in their interval")
plt.show()
