"""A file with geometry -> what `pcfi.impute` takes: neighbours from shared borders or distances."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pcfi.cli.loading import Loaded, refuse_infinite, say_codes
from pcfi.cli.session import Session
from pcfi.errors import FileError, counted
from pcfi.files import node_files
from pcfi.files.atomic_output import atomic_output
from pcfi.files.formats import format_of
from pcfi.files.geo_files import read_geometry
from pcfi.inputs.columns import NodeColumns
from pcfi.inputs.node_tables import read_table
from pcfi.integrations.geo_graphs import Neighborhood, find_neighbors


def load_map(session: Session, path: str, columns: NodeColumns, rule: Neighborhood, *, rounds: bool = False) -> Loaded:
    """Read a file with geometry, and link neighbouring places."""
    with session.stage("read nodes"):
        nodes = node_files.read_nodes(path, columns)
    session.say(node_files.described(nodes, path))
    if nodes.geometry is None:
        raise FileError(
            f"{path} has no geometry to find neighbours by: name a file of edges after it, or use a file .gpkg, "
            ".geojson or GeoParquet"
        )
    with session.stage("find neighbours"):
        edges = find_neighbors(nodes.geometry.frame(nodes.table), rule)
        candidates = edges.graph("equal"), edges.graph("distance")
    chosen = NodeColumns(id=nodes.id, channels=nodes.channels, categorical=nodes.categorical)
    table = read_table(nodes.table, chosen, round=rounds)
    session.say(f"{path}: {counted(candidates[0].n_edges, 'pair')} of neighbours")
    say_codes(session, table, columns)
    loaded = Loaded(nodes, table, candidates[0], candidates)
    refuse_infinite(loaded)
    return loaded


@contextmanager
def neighbor_file(session: Session, path: str, rule: Neighborhood, target: Path) -> Iterator[str]:
    """A file of the edges between neighbouring places, for a run larger than memory; kept until the run is complete.

    Geometry and neighbours are in memory meanwhile, about 500 bytes per place.
    """
    if format_of(path.rstrip("/"), ("parquet", "gpkg", "geojson"), "a map").name != "parquet":
        raise FileError(
            f"{path}: with --memory or --cluster a map comes as GeoParquet: convert it, as by "
            "geopandas.read_file(...).to_parquet(...)"
        )
    if not target.exists():
        with session.stage("find neighbours"):
            edges = find_neighbors(read_geometry(path), rule)
            with atomic_output(target) as file:
                np.save(file, edges.pairs()[0], allow_pickle=False)
    yield str(target)
    target.unlink()
