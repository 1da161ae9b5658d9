"""pandas, polars and pyarrow tables: a node table and an edge table -> the filled node table."""

from collections.abc import Sequence
from typing import Any

from pcfi.evaluation import Evaluation
from pcfi.evaluation import evaluate as evaluate_features
from pcfi.imputation import impute as impute_features
from pcfi.inputs.category_columns import finds_categories
from pcfi.inputs.code_columns import code_columns, warn_of_columns
from pcfi.inputs.columns import EdgeColumns, NodeColumns, Weight
from pcfi.inputs.node_tables import NodeTable, read_table
from pcfi.result import Imputation

__all__ = ["evaluate", "impute"]


def impute(
    nodes: Any,
    edges: Any,
    *,
    id: str | None = None,  # noqa: A002
    channels: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    missing_values: Sequence[Any] = (),
    source: str | None = None,
    target: str | None = None,
    weight: Weight = "weight",
    unknown_ids: str = "error",
    round: bool = False,  # noqa: A002
    **options: Any,
) -> Imputation:
    """Fill the missing cells of a node table. `pcfi.impute(nodes, edges)` is this with its defaults.

    Parameters
    ----------
    nodes : DataFrame of pandas or polars, or Table of pyarrow
        One row per node. Null, NaN and `missing_values` mean missing.
    edges : edge table, or any graph that `pcfi.impute` accepts
        Nodes of an edge table or a networkx graph are matched by id, those of other graphs by row number.
    id : str, default=None
        The id column of `nodes`. None: a column called "id", "node" or "node_id"; else one with unique values and a
        name like "customer_id"; else the pandas index unless it is 0, 1, 2, ...; else the first text column with unique
        values; else row numbers. Ids are never a channel.
    channels : list of str, default=None
        The columns to use and fill. None: all numeric and boolean columns. Other columns are returned unchanged.
    categorical : list of str, default=None
        Categorical columns to fill: each category becomes a channel, and a missing cell gets the most likely category.
        None: if `channels` is None, the text columns that `pcfi.impute` finds. (): no column.
    missing_values : list, default=()
        Additional values that mean missing, such as [-999, "?"].
    source : str, default=None
        Column of `edges` with the first node of each edge. None: chosen by common names ("source", "src", "from", ...),
        else the first of two or three columns.
    target : str, default=None
        Column of `edges` with the second node of each edge. None: chosen by common names, else the second of two or
        three columns.
    weight : str, default="weight"
        Column of `edges` with the weights. The default is a column called "weight", "weights" or "w", if there is one.
        None: every edge has weight 1.
    unknown_ids : {"error", "drop"}, default="error"
        What to do with an edge that refers to an unknown id.
    round : bool, default=False
        Whether filled integer columns are rounded and stay integers (pandas Int64 becomes int64); otherwise they become
        float64. Boolean columns stay boolean: a missing cell gets the more likely value.
    **options
        Further parameters of `pcfi.impute`, such as `alpha` and `beta`. For a representation, pass `standardize=True`
        if the channels have different units.

    Returns
    -------
    Imputation
        `values` is the filled node table with the same index, row and column order, and float precision; columns
        without missing cells are unchanged. `confidence` and `hops` are tables of the ids and the channels.

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
    columns = NodeColumns(
        id=id,
        channels=channels,
        categorical=categorical or (),
        finds_categories=categorical is None and finds_categories(**options),
        missing_values=missing_values,
    )
    ends = {"source": source, "target": target, "weight": weight, "unknown_ids": unknown_ids}
    table, graph = _read(nodes, edges, columns, ends, round=round)
    return impute_features(table, graph, **options)


def evaluate(
    nodes: Any,
    edges: Any,
    *,
    id: str | None = None,  # noqa: A002
    channels: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    missing_values: Sequence[Any] = (),
    source: str | None = None,
    target: str | None = None,
    weight: Weight = "weight",
    unknown_ids: str = "error",
    **options: Any,
) -> Evaluation:
    """Hide known cells of a node table, fill them with each method, and compare with their true values.

    Parameters
    ----------
    nodes, edges, id, channels, categorical, missing_values, source, target, weight, unknown_ids
        As in `impute` of this module.
    **options
        Further parameters of `pcfi.evaluate`, such as `methods`, `folds` and `unit`.

    Returns
    -------
    Evaluation
        Errors of the numeric columns, and `accuracy`, the share of hidden categories that are filled correctly.

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
    columns = NodeColumns(
        id=id,
        channels=channels,
        categorical=categorical or (),
        finds_categories=categorical is None,
        missing_values=missing_values,
    )
    ends = {"source": source, "target": target, "weight": weight, "unknown_ids": unknown_ids}
    table, graph = _read(nodes, edges, columns, ends)
    return evaluate_features(table, graph, **options)


def _read(nodes: Any, edges: Any, columns: NodeColumns, ends: dict[str, Any], **options: Any) -> tuple[NodeTable, Any]:
    """The node table with its channels, and the graph with row numbers."""
    weight = ends["weight"]
    # "weight" is the common name, which may be absent; None switches weights off
    edge_columns = EdgeColumns(
        **{**ends, "weight": None if weight == "weight" else weight if weight is not None else False}
    )
    table = read_table(nodes, columns, graph=edges, edge_columns=edge_columns, **options)
    if columns.channels is None:
        remedy = "name the columns to use with channels=[...]"
        warn_of_columns(table, code_columns(table, edges, edge_columns), remedy, stacklevel=3)
    return table, table.number_nodes(edges, edge_columns)
