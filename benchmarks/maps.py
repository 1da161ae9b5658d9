"""How good are filled maps? Against the mean, libpysal's lag, ordinary kriging and IterativeImputer with lags.

On tables from the wheel of libpysal. `pcfi.geo.impute` chooses by its defaults: shared borders for polygons, 8
neighbours for points, weights by what hidden cells say. Errors are in standard deviations of the columns (root mean
squared error). The first three tables were used to develop, the others were not. Kriging is that of PyKrige.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import answer

import pcfi

DEVELOPED = ("columbus", "us_income", "mexico")
HELD_OUT = ("baltim", "sids2", "georgia")
CASES = (("cells", 0.1), ("cells", 0.3), ("cells", 0.6), ("rows", 0.3))
N_DRAWS = {0.1: 40, 0.3: 10, 0.6: 10}  # of the missing cells, by their rate: few cells say little
LEVEL = 0.9

FILES = {
    "columbus": ("columbus.shp", ("HOVAL", "INC", "CRIME", "OPEN", "PLUMB", "DISCBD")),
    "us_income": ("us48.shp", ()),
    "mexico": ("mexicojoin.shp", ("PCGDP1940", "PCGDP1960", "PCGDP1980", "PCGDP2000", "GR4000", "GR9000")),
    "baltim": ("baltim.shp", ("PRICE", "NROOM", "NBATH", "AGE", "LOTSZ", "SQFT")),
    "sids2": ("sids2.shp", ("BIR74", "SIDR74", "NWR74", "BIR79", "SIDR79", "NWR79")),
    "georgia": ("G_utm.shp", ("TotPop90", "PctRural", "PctBach", "PctEld", "PctFB", "PctPov", "PctBlack")),
}


def map_of(name: str) -> Any:
    import geopandas
    import pandas as pd
    from libpysal import examples

    path, columns = FILES[name]
    shapes = geopandas.read_file(examples.get_path(path))
    if name == "us_income":
        income = pd.read_csv(examples.get_path("usjoin.csv")).set_index("Name").drop(columns="STATE_FIPS")
        years = income.loc[shapes["STATE_NAME"]].iloc[:, ::8].astype(float).reset_index(drop=True)
        return geopandas.GeoDataFrame(years, geometry=shapes.geometry.to_numpy())
    return shapes[[*columns, "geometry"]].astype(dict.fromkeys(columns, float))


def weights_of(shapes: Any) -> Any:
    """Neighbours as libpysal's user makes them."""
    from libpysal.graph import Graph

    if set(shapes.geom_type) == {"Point"}:
        return Graph.build_knn(shapes.geometry, k=8)
    return Graph.build_contiguity(shapes, rook=False)


def mean(values: np.ndarray, *_: Any) -> np.ndarray:
    return np.where(np.isnan(values), np.nanmean(values, axis=0), values)


def lag_means(values: np.ndarray, weights: Any) -> np.ndarray:
    """Mean of the known neighbours of every row, NaN where there is none."""
    known, matrix = ~np.isnan(values), weights.sparse.tocsr()
    total, count = matrix @ np.where(known, values, 0.0), matrix @ known.astype(float)
    return np.divide(total, count, out=np.full(values.shape, np.nan), where=count > 0)


def lag(values: np.ndarray, weights: Any, _: Any) -> np.ndarray:
    filled = np.where(np.isnan(values), lag_means(values, weights), values)
    return mean(filled)


def kriging(values: np.ndarray, _: Any, places: np.ndarray) -> np.ndarray:
    from pykrige.ok import OrdinaryKriging

    filled = values.copy()
    for column, gone in zip(filled.T, np.isnan(values).T, strict=True):
        if not gone.any():
            continue
        known = column[~gone]
        column[gone] = known.mean()
        if known.std() > 0:
            model = OrdinaryKriging(*places[~gone].T, known, variogram_model="spherical", pseudo_inv=True)
            column[gone] = model.execute("points", *places[gone].T)[0].filled(known.mean())
    return filled


def iterative_with_lags(values: np.ndarray, weights: Any, _: Any) -> np.ndarray:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    lags = lag_means(values, weights)
    wide = np.hstack([values, lags[:, ~np.isnan(lags).all(axis=0)]])
    return IterativeImputer(random_state=0).fit_transform(wide)[:, : values.shape[1]]


RIVALS = {"mean": mean, "lag": lag, "kriging": kriging, "IterativeImputer with lags": iterative_with_lags}


def hide(shape: tuple[int, int], kind: str, rate: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(100 + seed)
    return np.broadcast_to(rng.random(shape if kind == "cells" else (shape[0], 1)) < rate, shape)


def errors_of(shapes: Any, missing: np.ndarray, **options: Any) -> dict[str, float]:
    names = [name for name in shapes.columns if name != "geometry"]
    truth = shapes[names].to_numpy(dtype=float)
    deviation = truth.std(axis=0)
    centre = truth.mean(axis=0)
    scaled = np.where(missing, np.nan, (truth - centre) / deviation)
    weights, middle = weights_of(shapes), shapes.geometry.centroid
    places = np.stack([middle.x, middle.y], axis=1)

    def error(filled: np.ndarray) -> float:
        return float(np.sqrt(np.mean((filled - (truth - centre) / deviation)[missing] ** 2)))

    row = {name: error(rival(scaled, weights, places)) for name, rival in RIVALS.items()}
    table = shapes.copy()
    table[names] = np.where(missing, np.nan, truth)
    result = pcfi.geo.impute(table, **options)
    low, high = (end[names].to_numpy() for end in result.interval(LEVEL))
    row["pcfi"] = error((result.values[names].to_numpy() - centre) / deviation)
    row["coverage"] = float(((low <= truth) & (truth <= high))[missing].mean())
    return row


def rows(names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        shapes = map_of(name)
        for kind, rate in CASES:
            shape = (len(shapes), shapes.shape[1] - 1)
            each = [errors_of(shapes, hide(shape, kind, rate, seed)) for seed in range(N_DRAWS[rate])]
            row = {key: float(np.mean([one[key] for one in each])) for key in each[0]}
            best = min(row[rival] for rival in RIVALS)
            yield {"table": name, "missing": kind, "rate": rate, **row, "pcfi over best": row["pcfi"] / best}


if __name__ == "__main__":
    answer("maps", rows(sys.argv[1:] or [*DEVELOPED, *HELD_OUT]))
