"""scikit-learn: `PCFI`, a transformer that fills a table from a graph of its rows, given or made by similarity."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import GraphError, ParameterError, PcfiWarning
from pcfi.estimation import Tuning
from pcfi.estimation.search import DEFAULT_ALPHA
from pcfi.imputation import impute
from pcfi.inputs.graphs import Graph, prepare_graph
from pcfi.inputs.node_tables import number_nodes
from pcfi.integrations.knn import RowSearch, link, reach
from pcfi.integrations.new_nodes import Settled
from pcfi.optional import load
from pcfi.result import Imputation
from pcfi.stages.solvers import Solver, UntilSettled

load("sklearn", "pcfi.PCFI", "sklearn")

from sklearn.base import BaseEstimator, TransformerMixin  # noqa: E402
from sklearn.impute import MissingIndicator  # noqa: E402
from sklearn.utils.validation import (  # noqa: E402
    FLOAT_DTYPES,
    _check_feature_names_in,
    check_is_fitted,
    validate_data,
)


class PCFI(TransformerMixin, BaseEstimator):
    """Fill in missing values from similar rows, or from the neighbours in a graph of the rows.

    A drop-in for `sklearn.impute.KNNImputer`. Rows are the nodes of a graph: the one passed to `fit`, or, if none is
    passed, the graph that links each row to its most similar rows. Missing cells are filled by `pcfi.impute`.

    Parameters
    ----------
    n_neighbors : int, default=15
        How many similar rows a row is linked to, where no graph is passed.
    metric : str or callable, default="nan_euclidean"
        How far two rows are apart, columns being measured in units of their spread. "nan_euclidean" compares two rows
        by the columns that both know. Any metric of `sklearn.neighbors.NearestNeighbors` compares them by all columns,
        with the mean, and later what has been filled in, in missing cells.
    n_refinements : int, default=1
        How often similar rows are looked for again, among the rows filled so far.
    alpha : float or "auto", default="auto"
        Confidence in a value falls by this factor with every hop, see `pcfi.impute`. "auto" chooses it, and calibrates
        values, where a graph is passed. It is 0.5 for the graph of similar rows: that has seen the cells that would be
        hidden to learn from, so they would teach too much trust.
    beta : float or "auto", default="auto"
        How strongly columns share what they know with each other. "auto" likewise chooses it, or is 0, not at all,
        which is safe for tables with any number of columns; with some ten columns 0.01 may do a little better.
    solver : FixedSteps or UntilSettled, default=None
        None: `UntilSettled()`.
    standardize : bool, default=True
        Whether columns share in units of their spread.
    unreachable : {"mean", "zero", "nan", "error"}, default="mean"
        What a cell gets that no known cell of its column can reach.
    directed : bool, default=False
        Whether values flow only along the edges of a graph that is passed.
    add_indicator : bool, default=False
        Whether to append columns that tell which cells were missing, as scikit-learn's imputers do.
    keep_empty_features : bool, default=False
        Whether columns without any known value are kept (filled with 0) or dropped.

    Attributes
    ----------
    alpha_, beta_ : float
        The parameters used.
    tuning_ : Tuning or None
        What "auto" found, and what spoke for it.
    confidence_, hops_ : ndarray of shape (n_rows, n_columns kept)
        Of the rows that were fitted; see `pcfi.Imputation`.
    n_iter_ : int
        Diffusion steps.
    graph_ : Graph
        The graph of the fitted rows: `pcfi.impute(X, imputer.graph_, ...)` with the same parameters gives the same
        values.
    indicator_ : MissingIndicator or None
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    `transform` recognises the rows that were fitted (the same table, value by value) and returns them as `fit` filled
    them. Any other rows are new: each is linked to its most similar fitted rows, or by the links passed as `graph`
    (a sparse matrix of similarities, new rows x fitted rows), and filled from them alone. Fitted rows never change, and
    new rows do not see each other, so the outcome does not depend on which rows are transformed together.

    Examples
    --------
    >>> import numpy as np, pcfi
    >>> X = [[1.0, 2.0], [1.1, np.nan], [8.0, 9.0], [np.nan, 9.2]]
    >>> pcfi.PCFI(n_neighbors=1).fit_transform(X)
    array([[1. , 2. ],
           [1.1, 2. ],
           [8. , 9. ],
           [8. , 9.2]])
    """

    def __init__(
        self,
        n_neighbors: int = 15,
        *,
        metric: Any = "nan_euclidean",
        n_refinements: int = 1,
        alpha: float | str = "auto",
        beta: float | str = "auto",
        solver: Solver | None = None,
        standardize: bool = True,
        unreachable: str = "mean",
        directed: bool = False,
        add_indicator: bool = False,
        keep_empty_features: bool = False,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.n_refinements = n_refinements
        self.alpha = alpha
        self.beta = beta
        self.solver = solver
        self.standardize = standardize
        self.unreachable = unreachable
        self.directed = directed
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features

    def fit(self, X: Any, y: Any = None, graph: Any = None) -> "PCFI":  # noqa: N803, ARG002
        """Fill `X` and remember it, to fill further rows from it.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_columns)
            NaN is missing.
        y : None
            Ignored.
        graph : any graph that `pcfi.impute` accepts, default=None
            Edges between the rows. None: each row is linked to its most similar rows.

        Returns
        -------
        PCFI
        """
        self._check_parameters()
        graph = number_nodes(X, graph)
        X = validate_data(self, X, dtype=FLOAT_DTYPES, ensure_all_finite="allow-nan")
        self.indicator_ = MissingIndicator(error_on_new=False).fit(X) if self.add_indicator else None
        self._kept = np.full(X.shape[1], True) if self.keep_empty_features else ~np.isnan(X).all(axis=0)
        self._fitted_rows = X.copy()
        features = X[:, self._kept]
        self._search = RowSearch.among(features, self.metric)
        self._reach: Array | None = None
        self.graph_ = self._similar_rows(features) if graph is None else self._prepare(graph, len(X))
        self.alpha_, self.beta_ = _untuned(self.alpha, DEFAULT_ALPHA), _untuned(self.beta, 0.0)
        self.tuning_: Tuning | None = None
        if features.shape[1] == 0:
            self._values, self.confidence_, self.hops_, self.n_iter_ = features, features, features.astype(np.int32), 0
            return self
        chosen = (self.alpha_, self.beta_) if graph is None else (self.alpha, self.beta)
        result = self._impute(features, self.graph_, *chosen)
        self._values, self.n_iter_ = result.values, result.steps
        self.confidence_, self.hops_ = result.confidence, result.hops
        self.alpha_, self.beta_, self.tuning_ = result.alpha, result.beta, result.tuning
        diffused = result
        if result.beta != 0 or result.tuning is not None:
            with _without_a_word():
                diffused = self._impute(_divided(features, result.tuning), self.graph_, self.alpha_, 0.0)
        self._settled = Settled(
            diffused.values,
            result.hops,
            self._fallback(features, result.tuning),
            self.alpha_,
            self.beta_,
            bool(self.standardize),
            result.tuning,
        )
        return self

    def transform(self, X: Any, graph: Any = None) -> Any:  # noqa: N803
        """Fill the rows of `X`: as `fit` did if they are the fitted ones, else as new rows.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_columns)
        graph : sparse matrix of shape (n_rows, n_fitted_rows), default=None
            Links of new rows to fitted ones, as similarities. None: each new row is linked to its most similar ones.

        Returns
        -------
        ndarray, or what `set_output` says
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOAT_DTYPES, ensure_all_finite="allow-nan", reset=False)
        if np.array_equal(X, self._fitted_rows, equal_nan=True):
            filled = self._values.astype(X.dtype)
        else:
            filled = self._fill_new(X[:, self._kept], graph)
        return filled if self.indicator_ is None else np.hstack([filled, self.indicator_.transform(X)])

    def fit_transform(self, X: Any, y: Any = None, graph: Any = None) -> Any:  # noqa: N803
        """Fill `X`, and remember it. The parameters are those of `fit`."""
        return self.fit(X, y, graph=graph).transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns that come out: those kept, and those of the indicator."""
        check_is_fitted(self)
        names = np.asarray(_check_feature_names_in(self, input_features))
        kept = names[self._kept]
        return kept if self.indicator_ is None else np.concatenate([kept, self.indicator_.get_feature_names_out(names)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_parameters(self) -> None:
        for name, least in (("n_neighbors", 1), ("n_refinements", 0)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise ParameterError(f"{name} must be a whole number of at least {least}, got {value!r}")

    def _impute(self, features: Array, graph: Graph, alpha: Any, beta: Any) -> Imputation:
        return impute(
            features,
            graph,
            alpha=alpha,
            beta=beta,
            solver=UntilSettled() if self.solver is None else self.solver,
            standardize=self.standardize,
            unreachable=self.unreachable,
            directed=graph.directed,
        )

    def _prepare(self, graph: Any, n_rows: int) -> Graph:
        try:
            return prepare_graph(graph, n_rows, directed=self.directed)
        except GraphError as error:
            raise GraphError(
                f"{error}. (If this is one fold of a cross-validation over rows: with a graph that makes no sense, as "
                "a graph has a node for every row. Hide cells instead, or pass no graph.)"
            ) from None

    def _similar_rows(self, features: Array) -> Graph:
        """The graph of similar rows; the last of several, each from rows filled with the help of the one before."""
        n_rows = len(features)
        if n_rows == 1 or features.shape[1] == 0:
            return prepare_graph(np.empty((2, 0), dtype=np.int64), n_rows)
        found = self._search.first(self.n_neighbors)
        for _ in range(self.n_refinements if np.isnan(features).any() else 0):
            found = self._search.again(self.n_neighbors, self._first_fill(features, self._linked(*found)))
        return self._linked(*found)

    def _linked(self, nearest: Array, distances: Array) -> Graph:
        self._reach = reach(distances)
        return prepare_graph(link(nearest, distances, self._reach, len(nearest)), len(nearest))

    def _first_fill(self, features: Array, graph: Graph) -> Array:
        """For the search: every cell gets a value."""
        with _without_a_word():
            return np.asarray(impute(features, graph, alpha=_untuned(self.alpha, DEFAULT_ALPHA), beta=0.0).values)

    def _fallback(self, features: Array, tuning: Tuning | None) -> Array:
        """What an unreachable cell of a new row gets."""
        if self.unreachable == "nan":
            return np.full(features.shape[1], np.nan)
        mean = self._search.mean if tuning is None else tuning.means.values
        return np.where(np.isfinite(mean) & (self.unreachable == "mean"), mean, 0.0)

    def _fill_new(self, features: Array, graph: Any) -> Array:
        if features.shape[1] == 0 or not np.isnan(features).any():
            return features
        if graph is not None:
            return self._settled.fill(features, _read_links(graph, (len(features), len(self._values))))
        found = self._search.first(self.n_neighbors, features)
        for _ in range(self.n_refinements):
            filled = self._settled.fill(features, self._links(*found))
            found = self._search.again(self.n_neighbors, self._values, features, np.nan_to_num(filled))
        return self._settled.fill(features, self._links(*found))

    def _links(self, nearest: Array, distances: Array) -> Any:
        return link(nearest, distances, self._reach, len(self._values))


def _divided(features: Array, tuning: Tuning | None) -> Array:
    """Features as they diffuse."""
    scale = None if tuning is None else tuning.scale
    return features if scale is None else features / scale.factors(features, scale.by_node)


def _untuned(value: Any, default: float) -> Any:
    """A parameter where nothing can be tuned."""
    return default if isinstance(value, str) and value == "auto" else value


@contextmanager
def _without_a_word() -> Iterator[None]:
    """Nothing is warned of twice, nor about what only serves the search."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PcfiWarning)
        yield


def _read_links(graph: Any, shape: tuple[int, int]) -> Any:
    from scipy import sparse

    if not sparse.issparse(graph) or graph.shape != shape:
        got = f"shape {graph.shape}" if sparse.issparse(graph) else f"a {type(graph).__qualname__}"
        raise GraphError(
            f"transform links new rows to fitted ones by a scipy sparse matrix of shape {shape}, got {got}: pass that, "
            "or no graph to link each row to its most similar ones"
        )
    links = sparse.csr_array(graph).astype(np.float64)
    if not ((links.data >= 0) & np.isfinite(links.data)).all():
        raise GraphError("links of new rows to fitted ones must be finite similarities of at least 0")
    return links
