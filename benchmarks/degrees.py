"""Do values grow with the degree of their node, and what is gained by dividing them by a power of it meanwhile?"""

from typing import Any

import numpy as np
from common import DATASETS, answer
from tuning import TABLES, data, known_cells

import pcfi
from pcfi.estimation.closed_form import LEVELS, Places, fit, moments_of
from pcfi.estimation.fold_runs import Whole
from pcfi.inputs.problem import read_problem
from pcfi.stages.degree_scaling import DegreeScale, growth

POWERS = (0.0, 0.25, 0.5, 0.75)
RATE, ALPHA = 0.9, 0.9


def measured(name: str) -> dict[str, Any]:
    features, graph, units = data(name)
    known = known_cells(features.shape, "structural", RATE, seed=0)
    hidden, missing = np.where(known, features, np.float32(np.nan)), ~known
    problem = read_problem(hidden, graph)
    whole = Whole.of(problem)
    power, explained = growth(problem, whole.squares, whole.units)
    means = problem.channels.mean.astype(np.float64)
    wanted = ((features - means) / units)[missing]

    def reliable(scale: DegreeScale) -> float:
        """RMSE with the reliability by hops that is best for those who see the truth."""
        result = pcfi.impute(scale.divide(problem).values, graph, alpha=ALPHA, beta=0.0)
        filled = result.values.copy()
        scale.multiply(problem, filled)
        levels = np.minimum(result.hops[missing], LEVELS - 1).astype(np.int64)
        diffused = ((filled - means) / units)[missing]
        kappa = fit(moments_of(Places.together(levels), diffused, np.zeros_like(diffused), wanted)).kappa
        return float(np.sqrt(np.mean((wanted - kappa[levels] * diffused) ** 2)))

    propagated = (pcfi.impute(hidden, graph, method="fp").values - features) / units
    return {
        "data": name,
        "grows with the degree to the power": power,
        "part of the variance, %": 100 * explained,
        **{f"divided by degree^{one:g}": reliable(DegreeScale.of(problem, one)) for one in POWERS},
        "fp": float(np.sqrt(np.mean(propagated[missing].astype(np.float64) ** 2))),
    }


if __name__ == "__main__":
    answer("degrees", [measured(name) for name in (*DATASETS, *TABLES)])
