"""AnnData: a matrix of cells x genes and a graph of cells -> a filled layer and a confidence layer."""

import warnings
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import (
    FeatureError,
    GraphError,
    ParameterError,
    PcfiWarning,
    TooLargeError,
    UnsupportedTypeError,
    counted,
)
from pcfi.imputation import impute as impute_features
from pcfi.memory import available, size_in_words
from pcfi.optional import load
from pcfi.result import Imputation

__all__ = ["impute"]


MOST_SHARING = 5_000  # genes


def impute(
    adata: Any,
    layer: str | None = None,
    *,
    obsp_key: str = "connectivities",
    genes: Any = None,
    zeros_missing: bool = False,
    key_added: str = "pcfi",
    copy: bool = False,
    beta: float | str | None = None,
    **options: Any,
) -> Any:
    """Fill missing values of cells from similar cells, into new layers.

    Parameters
    ----------
    adata : AnnData
        Of n cells and p genes. `X`, the layer that is read, and the graph are left alone.
    layer : str, default=None
        The layer to read; None: `X`.
    obsp_key : str, default="connectivities"
        The graph of the cells in `adata.obsp`; the default is that of `scanpy.pp.neighbors`.
    genes : list of gene names or boolean mask, default=None
        The genes to fill. None: all, as dense layers. If X is sparse and some genes are chosen, the layers are sparse
        and take the memory that these genes need.
    zeros_missing : bool, default=False
        Whether zeros count as missing (drop-outs), besides NaN.
    key_added : str, default="pcfi"
        Names of what is added: `layers[key_added]` (genes that were not chosen are as they were),
        `layers[key_added + "_confidence"]` (0 for genes that were not chosen) and `uns[key_added]` (parameters and
        status).
    copy : bool, default=False
        Whether to return a copy with the layers added, instead of adding them to `adata`.
    beta : float or "auto", default=None
        How strongly genes share with each other, as in `pcfi.impute`. None is "auto" for up to 5,000 genes and 0 for
        more, because time and memory for sharing grow with their square.
    **options
        Further parameters of `pcfi.impute`, such as `alpha`, which is "auto" by default.

    Returns
    -------
    AnnData if `copy`, else None.

    Examples
    --------
    >>> import anndata, numpy as np, pcfi
    >>> from scipy import sparse
    >>> adata = anndata.AnnData(np.array([[1.0], [0.0], [3.0]]))
    >>> adata.obsp["connectivities"] = sparse.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> pcfi.anndata.impute(adata, zeros_missing=True, alpha=0.5, beta=0.0)
    >>> adata.layers["pcfi"].ravel()
    array([1., 2., 3.])
    """
    load("anndata", "pcfi.anndata", "anndata")
    matrix, graph = _read(adata, layer, obsp_key)
    if not isinstance(zeros_missing, bool | np.bool_):
        raise ParameterError(f"zeros_missing must be True or False, got {zeros_missing!r}")
    chosen = _choose(adata, genes)
    _check_memory(adata, matrix, chosen)
    part = _dense(matrix if chosen is None else matrix[:, chosen])
    known = (part != 0) & ~np.isnan(part) if zeros_missing else None
    if beta is None:
        beta = "auto" if part.shape[1] <= MOST_SHARING else 0.0
    result = impute_features(part, graph, known=known, beta=beta, **options)
    if result.n_missing == 0:
        where = "X" if layer is None else f"layers[{layer!r}]"
        warnings.warn(
            f"nothing is missing in {where}: pass zeros_missing=True if zeros are values that were not measured",
            PcfiWarning,
            stacklevel=2,
        )
    target = adata.copy() if copy else adata
    _write(target, matrix, chosen, result, key_added)
    return target if copy else None


def _read(adata: Any, layer: str | None, obsp_key: str) -> tuple[Any, Any]:
    """The matrix and the graph."""
    if not (hasattr(adata, "obsp") and hasattr(adata, "layers")):
        raise UnsupportedTypeError(f"adata is a {type(adata).__qualname__}, but must be an AnnData")
    if adata.isbacked:
        raise UnsupportedTypeError("adata is backed by a file: pass adata.to_memory()")
    if layer is not None and layer not in adata.layers:
        raise FeatureError(f"adata has no layer {layer!r}, only {_listed(adata.layers)}")
    if obsp_key not in adata.obsp:
        raise GraphError(
            f"adata.obsp has no graph {obsp_key!r}, only {_listed(adata.obsp)}: name one with obsp_key=, or make one "
            "with scanpy.pp.neighbors(adata)"
        )
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise FeatureError("adata has no X: name a layer with layer=")
    return matrix, adata.obsp[obsp_key]


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none at all"


def _choose(adata: Any, genes: Any) -> Array | None:
    """Columns of the genes, in the order of adata; None for all."""
    if genes is None:
        return None
    if isinstance(genes, str):
        raise ParameterError(f"genes must be a list of names or a mask, got {genes!r}: use [{genes!r}]")
    wanted = np.asarray(genes)
    if wanted.dtype == np.bool_:
        if wanted.shape != (adata.n_vars,):
            raise ParameterError(f"genes is a mask of shape {wanted.shape}, but there are {adata.n_vars:,} genes")
        columns = np.flatnonzero(wanted)
    else:
        if not adata.var_names.is_unique:
            raise FeatureError("adata has several genes of one name: call adata.var_names_make_unique() first")
        columns = adata.var_names.get_indexer(wanted)
        if (columns < 0).any():
            unknown = wanted[columns < 0]
            raise ParameterError(
                f"genes names {str(unknown[0])!r}, which adata.var_names does not have "
                f"({counted(len(unknown), 'such name')})"
            )
        columns = np.unique(columns)
    if len(columns) == 0:
        raise ParameterError("genes chooses no gene: name at least one, or pass None for all")
    return columns


def _check_memory(adata: Any, matrix: Any, chosen: Array | None) -> None:
    """Refuse what cannot fit: values, confidence and hops of every cell, and one copy on the way."""
    n_genes = adata.n_vars if chosen is None else len(chosen)
    wide = 4 if matrix.dtype == np.float32 else 8
    needed = adata.n_obs * n_genes * (3 * wide + 2)
    there = available()
    if there is not None and needed > there:
        raise TooLargeError(
            f"{counted(n_genes, 'gene')} of {counted(adata.n_obs, 'cell')} would take about {size_in_words(needed)}, "
            f"but only {size_in_words(there)} of memory is available: choose fewer with genes=, such as "
            "adata.var_names[adata.var['highly_variable']]"
        )


def _dense(matrix: Any) -> Array:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)


def _write(adata: Any, matrix: Any, chosen: Array | None, result: Imputation, key: str) -> None:
    values, confidence = result.values, result.confidence
    if chosen is not None:
        values = _with_columns(matrix, chosen, values)
        confidence = None if confidence is None else _with_columns(_nothing_like(matrix), chosen, confidence)
    adata.layers[key] = values
    if confidence is not None:
        adata.layers[f"{key}_confidence"] = confidence
    facts = {"method": result.method, "alpha": result.alpha, "beta": result.beta, "status": result.status}
    adata.uns[key] = {name: fact for name, fact in facts.items() if fact is not None}


def _nothing_like(matrix: Any) -> Any:
    from scipy import sparse

    return sparse.csc_array(matrix.shape) if sparse.issparse(matrix) else np.zeros(matrix.shape)


def _with_columns(matrix: Any, columns: Array, values: Array) -> Any:
    """A copy of the matrix with some columns replaced; sparse if it was."""
    from scipy import sparse

    if not sparse.issparse(matrix):
        replaced = np.asarray(matrix).astype(values.dtype)
        replaced[:, columns] = values
        return replaced
    keep = np.ones(matrix.shape[1])
    keep[columns] = 0
    kept = sparse.csr_array(matrix @ sparse.diags_array(keep)).astype(values.dtype)
    kept.eliminate_zeros()
    dense = sparse.csr_array(values)
    place = sparse.csr_array(
        (np.ones(len(columns)), (np.arange(len(columns)), columns)), (len(columns), matrix.shape[1])
    )
    return sparse.csr_matrix(kept + (dense @ place).astype(values.dtype))
