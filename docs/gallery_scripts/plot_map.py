"""
A map: crime in the tracts of Columbus
======================================

49 tracts, linked where they share a border or a corner; the graph comes from the geometry. The crime rate of 40 % of
the tracts is removed and filled from the neighbours and from the other columns. The map comes with libpysal.
"""

import geopandas
import matplotlib.pyplot as plt
import numpy as np
from libpysal import examples

import pcfi

tracts = geopandas.read_file(examples.get_path("columbus.shp"))[["HOVAL", "INC", "CRIME", "DISCBD", "geometry"]]
gone = np.random.default_rng(0).random(len(tracts)) < 0.4
known = tracts.assign(CRIME=tracts["CRIME"].mask(gone))
result = pcfi.geo.impute(known)
print(result.columns)

# %%
# What is known, what was filled (outlined), and how wide the 90 % intervals are.

low, high = result.interval(0.9)
width = tracts.assign(width=(high["CRIME"] - low["CRIME"]).where(gone))
scale = {"vmin": tracts["CRIME"].min(), "vmax": tracts["CRIME"].max(), "cmap": "viridis"}
empty = {"color": "#eceff1", "edgecolor": "#b0bec5", "linewidth": 0.6}
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
known.plot("CRIME", ax=axes[0], missing_kwds=empty, **scale)
result.values.plot("CRIME", ax=axes[1], legend=True, legend_kwds={"shrink": 0.7}, **scale)
result.values[gone].boundary.plot(ax=axes[1], color="#d9822b", linewidth=1.5)
width.plot("width", ax=axes[2], cmap="magma", legend=True, legend_kwds={"shrink": 0.7}, missing_kwds=empty)
for axis, title in zip(axes, ("known", "filled: crimes per 1,000 households", "width of the interval"), strict=True):
    axis.set_title(title)
    axis.set_axis_off()
plt.show()
