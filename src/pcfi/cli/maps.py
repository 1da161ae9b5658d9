"""A file with geometry -> what `pcfi.impute` takes: neighbours from shared borders or distances."""

from pcfi.cli.loading import Loaded, refuse_infinite, say_codes
from pcfi.cli.session import Session
from pcfi.errors import FileError, counted
from pcfi.files import node_files
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
