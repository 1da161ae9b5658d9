"""Draw docs/pictures/map.png: known cells of a map, filled cells, and the widths of their intervals."""

from pathlib import Path

import geopandas
import matplotlib as mpl
import numpy as np
from libpysal import examples
from matplotlib import pyplot as plt

import pcfi

PICTURE = Path(__file__).parent / "pictures" / "map.png"


def main() -> None:
    mpl.use("Agg")
    tracts = geopandas.read_file(examples.get_path("columbus.shp"))[["HOVAL", "INC", "CRIME", "DISCBD", "geometry"]]
    gone = np.random.default_rng(0).random(len(tracts)) < 0.4
    known = tracts.assign(CRIME=tracts["CRIME"].mask(gone))
    result = pcfi.geo.impute(known)
    low, high = result.interval(0.9)
    width = result.values.assign(width=(high["CRIME"] - low["CRIME"]).where(gone))
    scale = {"vmin": tracts["CRIME"].min(), "vmax": tracts["CRIME"].max(), "cmap": "viridis"}
    empty = {"color": "#eceff1", "edgecolor": "#b0bec5", "linewidth": 0.6}
    figure, places = plt.subplots(1, 3, figsize=(12, 4.4), layout="constrained")
    known.plot("CRIME", ax=places[0], missing_kwds=empty, **scale)
    places[0].set_title(f"known: {(~gone).sum()} of {len(tracts)} tracts")
    result.values.plot("CRIME", ax=places[1], legend=True, legend_kwds={"shrink": 0.7}, **scale)
    result.values[gone].boundary.plot(ax=places[1], color="#d9822b", linewidth=1.5)
    places[1].set_title("filled (outlined): crimes per 1,000 households")
    width.plot("width", ax=places[2], cmap="magma", legend=True, legend_kwds={"shrink": 0.7}, missing_kwds=empty)
    places[2].set_title("width of the 90 % interval")
    for place in places:
        place.set_axis_off()
    figure.savefig(PICTURE, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
