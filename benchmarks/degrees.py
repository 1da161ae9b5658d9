"""Do values grow with the degree of their node, and what is gained by dividing them by a power of it meanwhile?"""

from typing import Any

import numpy as np
from common import DATASETS, TABLES, answer, hide, load_with_units

import pcfi
from pcfi.estimation.channel_moments import moments_of_problem
from pcfi.inputs.problem import read_problem
from pcfi.stages.degree_scaling import DegreeScale, growth

POWERS = (0.0, 0.25, 0.5, 0.75)
RATE, ALPHA, MAX_HOPS = 0.9, 0.9, 7


def measure(name: str) -> dict[str, Any]:
    features, graph, units = load_with_units(name)
    hidden = hide(features, "structural", RATE)
    missing = np.isnan(hidden)
    problem = read_problem(hidden, graph)
    power, explained = growth(problem, moments_of_problem(problem).squares / np.maximum(problem.channels.n_known, 1))
    means = problem.channels.mean.astype(np.float64)
    truth = ((features - means) / units)[missing]

    def error(scale: DegreeScale) -> float:
        """RMSE if what is kept of the diffused values at each number of hops is best for those who see the truth."""
        result = pcfi.impute(scale.divide(problem).values, graph, alpha=ALPHA, beta=0.0, objective="representation")
        diffused = ((scale.multiplied(result.values) - means) / units)[missing]
        levels = np.minimum(result.hops[missing], MAX_HOPS)
        products, squares = (np.bincount(levels, weights=part) for part in (truth * diffused, diffused**2))
        kept = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)
        return float(np.sqrt(np.mean((truth - kept[levels] * diffused) ** 2)))

    propagated = (pcfi.impute(hidden, graph, method="fp").values - features) / units
    return {
        "data": name,
        "grows with the degree to the power": power,
        "part of the variance, %": 100 * explained,
        **{f"divided by degree^{one:g}": error(DegreeScale.of(problem, power=one)) for one in POWERS},
        "fp": float(np.sqrt(np.mean(propagated[missing].astype(np.float64) ** 2))),
    }


if __name__ == "__main__":
    answer("degrees", [measure(name) for name in (*DATASETS, *TABLES)])
