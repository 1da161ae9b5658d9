"""Tables of pandas, polars and pyarrow: a node table and an edge table -> the same node table, filled."""

from collections.abc import Sequence
from typing import Any

from pcfi.evaluation import Evaluation
from pcfi.evaluation import evaluate as evaluate_features
from pcfi.imputation import impute as impute_features
from pcfi.inputs.code_columns import code_columns, warn_of_codes
from pcfi.inputs.columns import EdgeColumns, NodeColumns, Weight
from pcfi.inputs.node_tables import NodeTable, read_table
from pcfi.result import Imputation

__all__ = ["evaluate", "impute"]


def impute(
    nodes: Any,
    edges: Any,
    *,
    id: str | None = None,  # noqa: A002  the word of the domain
    channels: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    missing_values: Sequence[Any] = (),
    source: str | None = None,
    target: str | None = None,
    weight: Weight = "weight",
    unknown_ids: str = "error",
    round: bool = False,  # noqa: A002  what it does
    **options: Any,
) -> Imputation:
    """Fill the missing cells of a node table. `pcfi.impute(nodes, edges)` is this with its defaults.

    Parameters
    ----------
    nodes : DataFrame of pandas or polars, or Table of pyarrow
        One row per node. Null and NaN are missing, and what `missing_values` says.
    edges : table of edges between ids, or any graph that `pcfi.impute` accepts
        Nodes of an edge table or a networkx graph are matched by id, those of any other graph by row number.
    id : str, default=None
        The column of `nodes` that holds the ids. None: a column called "id", "node" or "node_id"; else one named like
        an id ("customer_id") whose values all differ; else the index of pandas unless it is 0, 1, 2, ...; else the
        first text column whose values all differ; else the row numbers. Ids are never a channel.
    channels : list of str, default=None
        The columns to use and fill. None: all numeric and boolean columns. All others pass through as they are.
    categorical : list of str, default=()
        Further columns to fill, of categories: each category becomes a channel of its own, and a missing cell gets the
        category with the largest share.
    missing_values : list, default=()
        Further values that mean missing, such as [-999, "?"].
    source : str, default=None
        Column of `edges` with the ids of the nodes where edges begin. None: by its usual name ("source", "src", "from"
        and the like), else the first of two or three columns.
    target : str, default=None
        Column of `edges` with the ids of the nodes where edges end. None: by its usual name, else the second of two or
        three columns.
    weight : str, default="weight"
        Column of `edges` with the weights. The default takes a column called "weight", "weights" or "w" if there is
        one. None: all edges count 1.
    unknown_ids : {"error", "drop"}, default="error"
        What to do with an edge that names an id that `nodes` does not have.
    round : bool, default=False
        Whether filled integer columns are rounded and stay integers (without nulls: Int64 of pandas becomes int64);
        otherwise they become float64. Boolean columns stay boolean: a missing cell gets the likelier value.
    **options
        Further parameters of `pcfi.impute`, such as `alpha`, `beta` and `standardize` (advisable with numbers for alpha
        and beta if the channels have different units; without, it is on).

    Returns
    -------
    Imputation
        `values` is the node table with index, order of rows and columns, and precision of floats kept; columns without
        missing cells are left as they are. `confidence` and `hops` are tables of the ids and the channels.

    Examples
    --------
    >>> import pandas as pd, pcfi
    >>> nodes = pd.DataFrame({"age": [31.0, None, 35.0], "city": ["Oslo", None, "Oslo"]}, index=["ann", "bob", "cyd"])
    >>> edges = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", "cyd"]})
    >>> options = {"alpha": 0.5, "beta": 0.1, "objective": "representation"}
    >>> pcfi.frames.impute(nodes, edges, categorical=["city"], **options).values
          age  city
    ann  31.0  Oslo
    bob  33.0  Oslo
    cyd  35.0  Oslo
    """
    named = {"id": id, "channels": channels, "categorical": categorical, "missing_values": missing_values}
    ends = {"source": source, "target": target, "weight": weight, "unknown_ids": unknown_ids}
    table, graph = _read(nodes, edges, named, ends, round=round)
    return impute_features(table, graph, **options)


def evaluate(
    nodes: Any,
    edges: Any,
    *,
    id: str | None = None,  # noqa: A002  the word of the domain
    channels: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    missing_values: Sequence[Any] = (),
    source: str | None = None,
    target: str | None = None,
    weight: Weight = "weight",
    unknown_ids: str = "error",
    **options: Any,
) -> Evaluation:
    """Hide known cells of a node table, fill them in with each method, and compare with what they were.

    Parameters
    ----------
    nodes, edges, id, channels, categorical, missing_values, source, target, weight, unknown_ids
        As in `impute` of this module.
    **options
        Further parameters of `pcfi.evaluate`, such as `methods`, `folds` and `unit`.

    Returns
    -------
    Evaluation
        Errors of the numeric columns, and as `accuracy` the share of hidden categories that are filled in rightly.

    Examples
    --------
    >>> import pandas as pd, pcfi
    >>> people = range(40)
    >>> nodes = pd.DataFrame({"age": [30.0 + person for person in people], "city": ["Oslo"] * 20 + ["Rome"] * 20})
    >>> nodes.loc[::4, ["age", "city"]] = None
    >>> edges = pd.DataFrame({"source": people[:-1], "target": people[1:]})
    >>> found = pcfi.frames.evaluate(nodes, edges, categorical=["city"], methods=["mean", "pcfi"])
    >>> found.best, found.methods[1].scores["accuracy"]
    ('pcfi', 1.0)
    """
    named = {"id": id, "channels": channels, "categorical": categorical, "missing_values": missing_values}
    ends = {"source": source, "target": target, "weight": weight, "unknown_ids": unknown_ids}
    table, graph = _read(nodes, edges, named, ends)
    return evaluate_features(table, graph, **options)


def _read(nodes: Any, edges: Any, named: dict[str, Any], ends: dict[str, Any], **options: Any) -> tuple[NodeTable, Any]:
    """The node table with its channels, and the graph with nodes named by rows."""
    weight = ends["weight"]
    # "weight" is the usual name, which need not be there; None switches weights off
    columns = EdgeColumns(**{**ends, "weight": None if weight == "weight" else weight if weight is not None else False})
    table = read_table(
        nodes,
        NodeColumns(**{**named, "categorical": named["categorical"] or ()}),
        graph=edges,
        edge_columns=columns,
        **options,
    )
    if named["channels"] is None:
        warn_of_codes(code_columns(table, edges, columns), "name the columns to use with channels=[...]", stacklevel=3)
    return table, table.number_nodes(edges, columns)
