"""Tables of pandas, polars and pyarrow: a node table and an edge table -> the same node table, filled."""

from collections.abc import Sequence
from typing import Any

from pcfi.evaluation import Evaluation
from pcfi.evaluation import evaluate as evaluate_features
from pcfi.imputation import impute as impute_features
from pcfi.inputs.ids import is_frame, read_edges
from pcfi.inputs.node_tables import read_table
from pcfi.result import Imputation

__all__ = ["evaluate", "impute"]


def impute(
    nodes: Any,
    edges: Any,
    *,
    id: str | None = None,  # noqa: A002  the word of the domain
    channels: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    source: str = "source",
    target: str = "target",
    weight: str | None = "weight",
    unknown_ids: str = "error",
    round: bool = False,  # noqa: A002  what it does
    **options: Any,
) -> Imputation:
    """Fill the missing cells of a node table. `pcfi.impute(nodes, edges)` is this with its defaults.

    Parameters
    ----------
    nodes : DataFrame of pandas or polars, or Table of pyarrow
        One row per node. Null and NaN are missing.
    edges : table of edges between ids, or any graph that `pcfi.impute` accepts
        Nodes of an edge table or a networkx graph are matched by id, those of any other graph by row number.
    id : str, default=None
        The column of `nodes` that holds the ids. None: a column called "id"; if there is none the index of pandas,
        else the row numbers. Ids are never a channel.
    channels : list of str, default=None
        The columns to use and fill. None: all columns of numbers and booleans. All others pass through as they are.
    categorical : list of str, default=()
        Further columns to fill, of categories: each category becomes a channel of its own, and a missing cell gets the
        category with the largest share.
    source : str, default="source"
        Column of `edges` with the ids of the nodes where edges begin.
    target : str, default="target"
        Column of `edges` with the ids of the nodes where edges end.
    weight : str, default="weight"
        Column of `edges` with the weights, if there is one. None: all edges count 1.
    unknown_ids : {"error", "drop"}, default="error"
        What to do with an edge that names an id that `nodes` does not have.
    round : bool, default=False
        Whether filled integer and boolean columns are rounded and stay integers or booleans (without nulls: Int64 of
        pandas becomes int64); otherwise they become float64.
    **options
        Further parameters of `pcfi.impute`, such as `alpha`, `beta` and `standardize` (advisable with numbers for alpha
        and beta if the channels have different units; without, it is on).

    Returns
    -------
    Imputation
        `values` is the node table with index, order of rows and columns, and precision of floats kept; columns without
        missing cells are left as they are. `confidence` and `hops` are tables of the same shape.

    Examples
    --------
    >>> import pandas as pd, pcfi
    >>> nodes = pd.DataFrame({"age": [31.0, None, 35.0], "city": ["Oslo", None, "Oslo"]}, index=["ann", "bob", "cyd"])
    >>> edges = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", "cyd"]})
    >>> pcfi.frames.impute(nodes, edges, categorical=["city"], alpha=0.5, beta=0.1).values
          age  city
    ann  31.0  Oslo
    bob  33.0  Oslo
    cyd  35.0  Oslo
    """
    table = read_table(nodes, id=id, channels=channels, categorical=categorical, round=round)
    if is_frame(edges):
        edges = read_edges(edges, table.ids, source=source, target=target, weight=weight, unknown_ids=unknown_ids)
    return impute_features(table, edges, **options)


def evaluate(
    nodes: Any,
    edges: Any,
    *,
    id: str | None = None,  # noqa: A002  the word of the domain
    channels: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    source: str = "source",
    target: str = "target",
    weight: str | None = "weight",
    unknown_ids: str = "error",
    **options: Any,
) -> Evaluation:
    """Hide known cells of a node table, fill them in with each method, and compare with what they were.

    Parameters
    ----------
    nodes, edges, id, channels, categorical, source, target, weight, unknown_ids
        As in `impute` of this module.
    **options
        Further parameters of `pcfi.evaluate`, such as `methods`, `folds` and `unit`.

    Returns
    -------
    Evaluation
        Errors of the columns of numbers, and as `accuracy` the share of hidden categories that are filled in rightly.

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
    table = read_table(nodes, id=id, channels=channels, categorical=categorical)
    if is_frame(edges):
        edges = read_edges(edges, table.ids, source=source, target=target, weight=weight, unknown_ids=unknown_ids)
    return evaluate_features(table, edges, **options)
