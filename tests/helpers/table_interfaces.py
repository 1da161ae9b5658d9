"""Interfaces that take tables or objects, each as a function: a small problem -> filled values as an array."""

import warnings

import anndata
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse

import pcfi
from random_problems import RandomProblem

PAPER = {"alpha": 0.5, "beta": 0.1, "objective": "representation"}  # unless a test passes others


def node_names(problem: RandomProblem) -> list[str]:
    """Return names whose sort order differs from the order of the rows."""
    return [f"{(7 * row) % 1009}-{row}" for row in range(len(problem.features))]


def pandas_nodes(problem: RandomProblem) -> pd.DataFrame:
    names = [f"c{d}" for d in range(problem.features.shape[1])]
    return pd.DataFrame(problem.masked, index=node_names(problem), columns=names)


def pandas_edges(problem: RandomProblem) -> pd.DataFrame:
    names = np.array(node_names(problem), dtype=object)
    edges = pd.DataFrame({"source": names[problem.edge_index[0]], "target": names[problem.edge_index[1]]})
    return edges if problem.weights is None else edges.assign(weight=problem.weights)


def polars_nodes(problem: RandomProblem) -> pl.DataFrame:
    return pl.DataFrame({"id": node_names(problem), **dict(pandas_nodes(problem).items())})


def polars_edges(problem: RandomProblem) -> pl.DataFrame:
    edges = {name: list(column) for name, column in pandas_edges(problem).items()}
    kinds = {"source": pl.String, "target": pl.String, "weight": pl.Float64}
    return pl.DataFrame(edges, schema_overrides=kinds)


def by_pandas(problem, **chosen):
    return pcfi.impute(pandas_nodes(problem), pandas_edges(problem), **PAPER | chosen).values.to_numpy()


def by_polars(problem, **chosen):
    values = pcfi.impute(polars_nodes(problem), polars_edges(problem), **PAPER | chosen).values
    return values.drop("id").to_numpy()


def by_pyarrow(problem, **chosen):
    values = pcfi.impute(polars_nodes(problem).to_arrow(), polars_edges(problem).to_arrow(), **PAPER | chosen).values
    return np.stack([values[name].to_numpy() for name in values.column_names[1:]], axis=1)


def by_networkx(problem, **chosen):
    G = nx.DiGraph() if problem.directed else nx.Graph()
    for row, vector in zip(node_names(problem), problem.masked, strict=True):
        G.add_node(row, **({} if np.isnan(vector).all() else {"features": vector}))
    if not nx.get_node_attributes(G, "features"):
        return by_arrays(problem, **chosen)
    flow = problem.flow
    names = node_names(problem)
    for j, i in zip(*np.nonzero(flow), strict=True):
        G.add_edge(names[i], names[j], similarity=flow[j, i])
    weight = "similarity" if G.number_of_edges() else None
    filled = pcfi.networkx.impute(G, "features", weight=weight, **PAPER | chosen)
    return np.array([vector for _, vector in filled.nodes(data="features")], dtype=np.float64)


def by_arrays(problem, **chosen):
    return pcfi.impute(problem.masked.astype(np.float64), problem.graph, **PAPER | chosen).values


def by_anndata(problem, **chosen):
    adata = anndata.AnnData(problem.masked)
    adata.obsp["mine"] = sparse.csr_array(problem.flow.T)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "nothing is missing", pcfi.PcfiWarning)
        pcfi.anndata.impute(adata, obsp_key="mine", **PAPER | chosen)
    return adata.layers["pcfi"]


def by_estimator(problem, **chosen):
    imputer = pcfi.PCFI(keep_empty_features=True, **chosen)
    return imputer.fit_transform(problem.masked, graph=problem.graph)


PAPER_INTERFACES = {
    "pandas": by_pandas,
    "polars": by_polars,
    "pyarrow": by_pyarrow,
    "networkx": by_networkx,
    "anndata": by_anndata,
}
INTERFACES = PAPER_INTERFACES | {"estimator": by_estimator}  # which fills a table with a graph by values
