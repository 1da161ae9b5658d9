"""Preparation before runs are timed: required packages, data sets, compiled kernels."""

from collections.abc import Iterable
from importlib.util import find_spec

from pcfi.errors import PcfiError
from pcfi.experiments.catalog import SYNTHETIC
from pcfi.experiments.run import Run

_PACKAGES = ("torch", "torch_geometric", "sklearn", "platformdirs", "filelock", "psutil", "matplotlib", "jinja2")


def require_packages() -> None:
    """Raise an error if packages are missing, before anything runs rather than once per run."""
    missing = [name for name in _PACKAGES if not find_spec(name)]
    if missing:
        raise PcfiError(f'`pcfi reproduce` needs {", ".join(missing)}: pip install "pcfi[experiments]"')


def fetch_datasets(runs: Iterable[Run]) -> None:
    """Download and convert the data sets of some runs, one after another, so that workers do not all try to."""
    from pcfi.experiments.data.dataset import folder
    from pcfi.experiments.data.loading import load

    for name in dict.fromkeys(run.dataset for run in runs):
        if not SYNTHETIC.fullmatch(name) and not (folder() / "pcfi" / f"{name}.npz").exists():
            load(name)


def warm_up() -> None:
    """Load the compiled kernels, and what torch loads on first use, so that the first run of a worker is not slower."""
    import warnings

    import numpy as np
    import torch

    import pcfi

    edges = np.stack([np.arange(63), np.arange(1, 64)])
    draws = np.random.default_rng(0).random((64, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.PcfiWarning)
        for known in (draws < 0.5, draws[:, :1] < 0.5):  # single cells, and all channels of a node
            features = np.where(known, np.ones((64, 8), np.float32), np.float32(np.nan))
            for method in ("fp", "pcfi"):
                for solver in (pcfi.FixedSteps(2), pcfi.UntilSettled()):
                    pcfi.impute(
                        features,
                        edges,
                        method=method,
                        alpha=0.5,
                        beta=0.1,
                        solver=solver,
                        objective="representation",
                    )
            pcfi.impute(features, edges, method="neighbors")
    weight = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = torch.optim.Adam([weight], fused=True)
    torch.autograd.backward(torch.nn.functional.cross_entropy(weight, torch.tensor([0, 1])))
    optimizer.step()
