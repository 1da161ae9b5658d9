"""AnnData: a matrix of cells x genes and a graph of cells -> a filled layer, and layers of its errors."""

import warnings
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, GraphError, ParameterError, PcfiWarning, UnsupportedTypeError, counted
from pcfi.imputation import impute as impute_features
from pcfi.optional import load
from pcfi.result import Imputation
from pcfi.system_memory import refuse_allocation

__all__ = ["impute"]


def impute(
    adata: Any,
    layer: str | None = None,
    *,
    obsp_key: str = "connectivities",
    genes: Any = None,
    zeros_missing: bool = False,
    key_added: str = "pcfi",
    interval: float | None = None,
    copy: bool = False,
    **options: Any,
) -> Any:
    """Fill missing values of cells from similar cells, and add the results as new layers.

    Parameters
    ----------
    adata : AnnData
        n cells x p genes. `X`, the layer to read, and the graph are not modified.
    layer : str, default=None
        The layer to read; None: `X`.
    obsp_key : str, default="connectivities"
        The graph of the cells in `adata.obsp`; the default is that of `scanpy.pp.neighbors`.
    genes : list of gene names or boolean mask, default=None
        The genes to fill. None: all, as dense layers. If X is sparse and genes are selected, the layers are sparse, and
        memory grows with the number of selected genes.
    zeros_missing : bool, default=False
        Whether zeros are missing (drop-outs), in addition to NaN.
    key_added : str, default="pcfi"
        Key of the results: `layers[key_added]` (other genes unchanged), `layers[key_added + "_expected_error"]` (0 for
        known values and other genes; not for a representation), `layers[key_added + "_confidence"]` (0 for other genes)
        and `uns[key_added]` (parameters and status).
    interval : float, default=None
        With a coverage such as 0.9, also adds `layers[key_added + "_low"]` and `layers[key_added + "_high"]`.
    copy : bool, default=False
        Whether to return a copy with the layers, instead of adding them to `adata`.
    **options
        Further parameters of `pcfi.impute`, such as `alpha`, which is "auto" by default. With `beta` above 0 (stage 2),
        time and memory grow with the square of the number of genes.

    Returns
    -------
    AnnData if `copy`, else None.

    Examples
    --------
    >>> import anndata, numpy as np, pcfi
    >>> from scipy import sparse
    >>> adata = anndata.AnnData(np.array([[1.0], [0.0], [3.0]]))
    >>> adata.obsp["connectivities"] = sparse.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> pcfi.anndata.impute(adata, zeros_missing=True, alpha=0.5, beta=0.0, objective="representation")
    >>> adata.layers["pcfi"].ravel()
    array([1., 2., 3.])
    """
    load("anndata", "pcfi.anndata", "anndata")
    matrix, graph = _read(adata, layer, obsp_key)
    if not isinstance(zeros_missing, bool | np.bool_):
        raise ParameterError(f"zeros_missing must be True or False, got {zeros_missing!r}")
    columns = _gene_columns(adata, genes)
    _check_memory(adata, matrix, columns)
    values = _dense(matrix if columns is None else matrix[:, columns])
    known = (values != 0) & ~np.isnan(values) if zeros_missing else None
    result = impute_features(values, graph, known=known, **options)
    if result.n_missing == 0:
        source = "X" if layer is None else f"layers[{layer!r}]"
        warnings.warn(
            f"nothing is missing in {source}: pass zeros_missing=True if zeros mean not measured",
            PcfiWarning,
            stacklevel=2,
        )
    target = adata.copy() if copy else adata
    _write(target, matrix, columns, result, key_added, interval)
    return target if copy else None


def _read(adata: Any, layer: str | None, obsp_key: str) -> tuple[Any, Any]:
    """Return the matrix and the graph."""
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
    return ", ".join(map(repr, names)) or "none"


def _gene_columns(adata: Any, genes: Any) -> Array | None:
    """Return the columns of the genes, in the order of adata; None for all."""
    if genes is None:
        return None
    if isinstance(genes, str):
        raise ParameterError(f"genes must be a list of names or a mask, got {genes!r}: use [{genes!r}]")
    selected = np.asarray(genes)
    if selected.dtype == np.bool_:
        if selected.shape != (adata.n_vars,):
            raise ParameterError(f"genes is a mask of shape {selected.shape}, but there are {adata.n_vars:,} genes")
        columns = np.flatnonzero(selected)
    else:
        if not adata.var_names.is_unique:
            raise FeatureError("adata has several genes with the same name: call adata.var_names_make_unique() first")
        columns = adata.var_names.get_indexer(selected)
        if (columns < 0).any():
            unknown = selected[columns < 0]
            raise ParameterError(
                f"genes names {str(unknown[0])!r}, which adata.var_names does not have "
                f"({counted(len(unknown), 'such name')})"
            )
        columns = np.unique(columns)
    if len(columns) == 0:
        raise ParameterError("genes is empty: name at least one gene, or pass None for all")
    return columns


def _check_memory(adata: Any, matrix: Any, columns: Array | None) -> None:
    """Raise an error if values, confidence, errors, hops and a temporary copy of the selected genes exceed memory."""
    n_genes = adata.n_vars if columns is None else len(columns)
    itemsize = 4 if matrix.dtype == np.float32 else 8
    refuse_allocation(
        adata.n_obs * n_genes * (4 * itemsize + 2),
        f"filling {counted(n_genes, 'gene')} of {counted(adata.n_obs, 'cell')}",
        "choose fewer genes with {genes}, such as adata.var_names[adata.var['highly_variable']]",
    )


def _dense(matrix: Any) -> Array:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)


def _write(
    adata: Any, matrix: Any, columns: Array | None, result: Imputation, key: str, coverage: float | None
) -> None:
    low, high = (None, None) if coverage is None else result.interval(coverage)
    layers = {"": result.values, "_low": low, "_high": high}
    for suffix, layer in layers.items():
        if layer is not None:
            adata.layers[key + suffix] = layer if columns is None else _with_columns(matrix, columns, layer)
    for suffix, layer in {"_confidence": result.confidence, "_expected_error": result.expected_error}.items():
        if layer is not None:
            adata.layers[key + suffix] = (
                layer if columns is None else _with_columns(_zeros_like(matrix), columns, layer)
            )
    facts = {"method": result.method, "alpha": result.alpha, "beta": result.beta, "status": result.status}
    adata.uns[key] = {name: fact for name, fact in facts.items() if fact is not None}


def _zeros_like(matrix: Any) -> Any:
    from scipy import sparse

    return sparse.csc_array(matrix.shape) if sparse.issparse(matrix) else np.zeros(matrix.shape)


def _with_columns(matrix: Any, columns: Array, values: Array) -> Any:
    """Return a copy of the matrix with some columns replaced; sparse if the matrix is."""
    from scipy import sparse

    if not sparse.issparse(matrix):
        replaced = np.asarray(matrix).astype(values.dtype)
        replaced[:, columns] = values
        return replaced
    keep = np.ones(matrix.shape[1])
    keep[columns] = 0
    kept = sparse.csr_array(matrix @ sparse.diags_array(keep)).astype(values.dtype)
    kept.eliminate_zeros()
    position = (np.arange(len(columns)), columns)
    scatter = sparse.csr_array((np.ones(len(columns)), position), (len(columns), matrix.shape[1]))
    return sparse.csr_matrix(kept + (sparse.csr_array(values) @ scatter).astype(values.dtype))
