"""
Places in a network: the characters of Les Misérables
=====================================================

77 characters, linked by the number of chapters in which they meet (the network comes with NetworkX). For a few
characters we say how close they are to Valjean or to Marius; PCFI spreads that over the network. There is no true
value here: the picture shows what alpha does.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import pcfi

network = nx.les_miserables_graph()
people = list(network)
table = np.full((len(people), 1), np.nan)
for name, value in {"Valjean": 0.0, "Myriel": 0.0, "Marius": 1.0, "Enjolras": 1.0}.items():
    table[people.index(name)] = value

# %%
# With a small alpha each character keeps to the nearest of the four. With alpha = 1 all neighbours count alike.

places = nx.spring_layout(network, seed=3, k=0.35)
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for axis, alpha in zip(axes, (0.1, 0.5, 1.0), strict=True):
    result = pcfi.impute(table, network, alpha=alpha, beta=0, objective="representation")
    nx.draw_networkx_edges(network, places, ax=axis, edge_color="#cccccc", width=0.6)
    sizes = np.where(np.isnan(table[:, 0]), 40, 160)
    shown = axis.scatter(
        *np.array([places[name] for name in people]).T, c=result.values[:, 0], s=sizes, cmap="coolwarm", vmin=0, vmax=1
    )
    axis.set(title=f"alpha = {alpha:g}", xticks=[], yticks=[])
    axis.set_frame_on(False)
figure.colorbar(shown, ax=axes, shrink=0.7, label="0: Valjean's side, 1: Marius's side")
plt.show()
