"""A finished run on disk -> the data of its report, one column at a time."""

from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.files.geo_files import geometry_of, read_geometry
from pcfi.files.opening import InputFile
from pcfi.report.imputation_facts import FilledChannels


def filled_channels(run: Any, result: Any) -> FilledChannels:
    """The filled numeric and categorical columns of a run."""
    cells, numbers = result.cells, run.number_channels.tolist()
    hops, truth_values = cells.host_hops, set(run.store.truth_values.tolist())
    whole = {k for k in numbers if run.rounds and _is_integer(run, k)}

    def missing(place: int) -> Array:
        return np.asarray(hops.codes[:, hops.patterns[numbers[place]]] > 0)

    def filled(place: int) -> Array:
        values = cells.host_values[:, numbers[place]]
        if numbers[place] in truth_values:
            return np.asarray(np.where(np.isnan(values), values, values > 0.5))
        return np.asarray(np.rint(values) if numbers[place] in whole else values)

    names = run.store.names
    first = {run.category_columns[names[k]]: k for k in run.first_channels.tolist() if names[k] in run.category_columns}
    categories = {name: (np.asarray(hops.codes[:, hops.patterns[k]] > 0), k) for name, k in first.items()}
    return FilledChannels(
        names=[names[k] for k in numbers],
        missing=missing,
        filled=filled,
        node_name=lambda row: str(cells.names.node(row)),
        places=numbers,
        categories=categories,
    )


def _is_integer(run: Any, channel: int) -> bool:
    from pyarrow import types

    return hasattr(run.store, "schema") and types.is_integer(run.store.schema.field(run.store.names[channel]).type)


def map_frame(run: Any, path: str) -> Any:
    """A GeoDataFrame of the places; None if the node file has no geometry."""
    if not hasattr(run.store, "schema"):
        return None
    geometry = geometry_of(run.store.schema.empty_table(), InputFile.of_table(run.store.path))[1]
    return None if geometry is None else read_geometry(path)
