"""scikit-learn: `PCFI`, a transformer that fills a table using a graph of its rows, given or built from similarity."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, cast

import numpy as np

from pcfi._typing import Array
from pcfi.backends import backend_for
from pcfi.errors import GraphError, ParameterError, PcfiWarning
from pcfi.estimation import ColumnReports, Resolved, Tuning
from pcfi.imputation import impute
from pcfi.inputs.graphs import Graph, prepare_graph
from pcfi.inputs.knn import RowSearch, link, local_scale
from pcfi.inputs.node_tables import number_nodes
from pcfi.inputs.problem import read_problem
from pcfi.integrations.new_nodes import SettledNodes
from pcfi.optional import load
from pcfi.pipeline import run_stages
from pcfi.result import Imputation
from pcfi.settings import Settings
from pcfi.stages.hops import Hops
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

DEFAULT_ALPHA = 0.5  # for a graph of similar rows


class PCFI(TransformerMixin, BaseEstimator):
    """Fill in missing values from similar rows, or from the neighbours in a graph of the rows.

    A drop-in for `sklearn.impute.KNNImputer`. Rows are the nodes of a graph: the one passed to `fit`, or, if none is
    passed, the graph that links each row to its most similar rows. Missing cells are filled by `pcfi.impute`.

    Parameters
    ----------
    n_neighbors : int, default=15
        Number of similar rows that a row is linked to, if no graph is passed.
    metric : str or callable, default="nan_euclidean"
        Distance of two rows, with standardized columns. "nan_euclidean" compares two rows by the columns that are known
        in both. Any metric of `sklearn.neighbors.NearestNeighbors` uses all columns; missing cells are replaced by the
        mean in the first search and by the filled values in later ones.
    n_refinements : int, default=1
        Number of further searches for similar rows, each among the rows filled so far.
    alpha : float or "auto", default="auto"
        Factor by which confidence falls with every hop, see `pcfi.impute`.
    beta : float or "auto", default="auto"
        Strength of the correction between columns (stage 2), see `pcfi.impute`.
    objective : {"values", "representation"}, default="values"
        See `pcfi.impute`. For values, known cells are hidden for learning, and the graph of similar rows is rebuilt
        without them, so that errors and intervals are valid for missing cells.
    solver : FixedSteps or UntilSettled, default=None
        None: `UntilSettled()`.
    standardize : bool, default=True
        Whether stage 2 uses units of each column's standard deviation.
    unreachable : {"mean", "zero", "nan", "error"}, default="mean"
        Value of a cell that no known cell of its column can reach.
    directed : bool, default=False
        Whether values flow only along the edges of a graph that is passed.
    missing_values : number, default=np.nan
        Value that marks missing cells, besides NaN.
    add_indicator : bool, default=False
        Whether to append indicator columns of missing cells, as scikit-learn's imputers do.
    keep_empty_features : bool, default=False
        Whether columns without any known value are kept (filled with 0) or dropped.

    Attributes
    ----------
    alpha_, beta_ : float
        The parameters used.
    tuning_ : Tuning or None
        Parameters learned from hidden cells; None for a representation with numbers for alpha and beta.
    columns_ : ColumnReports
        What explains each column, with its error on hidden cells, see `pcfi.Imputation.columns`.
    expected_error_ : ndarray of shape (n_rows, n_columns kept) or None
        Expected absolute error of each cell of the fitted rows; None for a representation.
    confidence_, hops_ : ndarray of shape (n_rows, n_columns kept)
        Confidence and hops of the fitted rows; see `pcfi.Imputation`.
    n_iter_ : int
        Number of diffusion steps.
    graph_ : Graph
        The graph of the fitted rows: `pcfi.impute(X, imputer.graph_, ...)` with the same parameters gives the same
        values.
    indicator_ : MissingIndicator or None
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    `transform` of the table that was fitted (the same values) returns it as `fit` filled it. Any other rows are new:
    each is linked to its most similar fitted rows, or by the links passed as `graph` (a sparse matrix of similarities,
    new rows x fitted rows), and filled from these only. Fitted rows never change, and new rows are filled independently
    of each other.

    Examples
    --------
    >>> import numpy as np, pcfi
    >>> X = [[1.0, 2.0], [1.1, np.nan], [8.0, 9.0], [np.nan, 9.2]]
    >>> pcfi.PCFI(n_neighbors=1, objective="representation").fit_transform(X)
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
        objective: str = "values",
        solver: Solver | None = None,
        standardize: bool = True,
        unreachable: str = "mean",
        directed: bool = False,
        missing_values: Any = np.nan,
        add_indicator: bool = False,
        keep_empty_features: bool = False,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.n_refinements = n_refinements
        self.alpha = alpha
        self.beta = beta
        self.objective = objective
        self.solver = solver
        self.standardize = standardize
        self.unreachable = unreachable
        self.directed = directed
        self.missing_values = missing_values
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features

    def fit(self, X: Any, y: Any = None, graph: Any = None) -> "PCFI":  # noqa: N803, ARG002
        """Fill `X`, and store it to fill further rows from it.

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
        X = self._read(X)
        self.indicator_ = MissingIndicator(error_on_new=False).fit(X) if self.add_indicator else None
        self._kept = np.full(X.shape[1], True) if self.keep_empty_features else ~np.isnan(X).all(axis=0)
        self._fitted_rows = X.copy()
        features = X[:, self._kept]
        if graph is None:
            self.graph_, self._search, self._scales = self._link_rows(features)
        else:
            self.graph_, self._search, self._scales = self._prepare(graph, len(X)), RowSearch.fit(features), None
        self._result: Imputation | None = None
        self.tuning_: Tuning | None = None
        if features.shape[1] == 0:
            self.alpha_, self.beta_ = _resolve_auto(self.alpha, DEFAULT_ALPHA), _resolve_auto(self.beta, 0.0)
            self._values, self.confidence_, self.hops_, self.n_iter_ = features, features, features.astype(np.int32), 0
            self.columns_, self.expected_error_ = ColumnReports(), features
            return self
        result = self._impute(features, self.graph_ if graph is not None else self._graph_function(features))
        self._result, self._values, self.n_iter_ = result, result.values, result.steps
        self.confidence_, self.hops_, self.expected_error_ = result.confidence, result.hops, result.expected_error
        self.alpha_, self.beta_, self.tuning_ = result.alpha, result.beta, result.tuning
        self.columns_ = result.columns
        resolved = Resolved(self._settings(result), result.tuning)
        problem = read_problem(features, self.graph_)
        prepared = problem if resolved.model is None else resolved.model.prepare(problem)
        diffused = run_stages(prepared, replace(resolved.settings, beta=0.0), backend_for(prepared))
        self._settled = SettledNodes(
            values=diffused.values,
            hops=cast(Hops, diffused.hops),
            channels=prepared.channels,
            resolved=resolved,
        )
        return self

    def transform(self, X: Any, graph: Any = None) -> Any:  # noqa: N803
        """Return `X` filled: as `fit` did if it is the fitted table, else as new rows.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_columns)
        graph : sparse matrix of shape (n_rows, n_fitted_rows), default=None
            Links of new rows to fitted ones, as similarities. None: each new row is linked to its most similar rows.

        Returns
        -------
        ndarray, or the container that `set_output` sets
        """
        check_is_fitted(self)
        X = self._read(X, reset=False)
        if np.array_equal(X, self._fitted_rows, equal_nan=True):
            filled = self._values.astype(X.dtype)
        else:
            filled = self._fill_new(X[:, self._kept], graph)
        return filled if self.indicator_ is None else np.hstack([filled, self.indicator_.transform(X)])

    def fit_transform(self, X: Any, y: Any = None, graph: Any = None) -> Any:  # noqa: N803
        """Fill `X`, and store it. The parameters are those of `fit`."""
        return self.fit(X, y, graph=graph).transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the output columns: the columns kept, then those of the indicator."""
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
        for name, minimum in (("n_neighbors", 1), ("n_refinements", 0)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < minimum:
                raise ParameterError(f"{name} must be an integer of at least {minimum}, got {value!r}")

    def _read(self, X: Any, *, reset: bool = True) -> Array:  # noqa: N803
        """Check the rows, and put NaN into missing cells."""
        X = validate_data(self, X, dtype=FLOAT_DTYPES, ensure_all_finite="allow-nan", reset=reset)
        is_nan = isinstance(self.missing_values, Real) and np.isnan(float(self.missing_values))
        return X if is_nan else np.where(self.missing_values == X, np.nan, X).astype(X.dtype)

    def _impute(self, features: Array, graph: Any) -> Imputation:
        is_auto = self.objective == "representation" and callable(graph)  # no rule is known for graphs of similar rows
        return impute(
            features,
            self.graph_ if is_auto else graph,
            alpha=_resolve_auto(self.alpha, DEFAULT_ALPHA) if is_auto else self.alpha,
            beta=_resolve_auto(self.beta, 0.0) if is_auto else self.beta,
            objective=self.objective,
            solver=UntilSettled() if self.solver is None else self.solver,
            standardize=self.standardize,
            unreachable=self.unreachable,
            directed=self.graph_.directed,
        )

    def interval(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return lower and upper bounds of each cell of the fitted rows, see `pcfi.Imputation.interval`."""
        check_is_fitted(self)
        if self._result is None:
            return self._values, self._values
        return self._result.interval(coverage)

    def _prepare(self, graph: Any, n_rows: int) -> Graph:
        try:
            return prepare_graph(graph, n_rows, directed=self.directed)
        except GraphError as error:
            raise GraphError(
                f"{error}. (Cross-validation over rows is not possible with a graph, because it has a node for every "
                "row: hide cells instead, or pass no graph.)"
            ) from None

    def _graph_function(self, features: Array) -> Callable[[Array], Graph]:
        """Return the function that links rows; it does not search the fitted rows again."""

        def link_rows(table: Array) -> Graph:
            same = np.array_equal(table, features, equal_nan=True)
            return self.graph_ if same else self._link_rows(table)[0]

        return link_rows

    def _link_rows(self, features: Array) -> tuple[Graph, RowSearch, Array | None]:
        """Return the graph of similar rows; each refinement searches among rows filled with the previous graph."""
        n_rows, search = len(features), RowSearch.fit(features, self.metric)
        if n_rows == 1 or features.shape[1] == 0:
            return prepare_graph(np.empty((2, 0), dtype=np.int64), n_rows), search, None
        neighbors = search.search(self.n_neighbors)
        for _ in range(self.n_refinements if np.isnan(features).any() else 0):
            with _suppress_warnings():
                alpha = _resolve_auto(self.alpha, DEFAULT_ALPHA)
                graph = _graph_of(*neighbors)
                filled = impute(features, graph, alpha=alpha, beta=0.0, objective="representation").values
            neighbors = search.search_filled(self.n_neighbors, np.asarray(filled))
        return _graph_of(*neighbors), search, local_scale(neighbors[1])

    def _link_new(self, nearest: Array, distances: Array) -> Any:
        return link(nearest, distances, self._scales, len(self._fitted_rows))

    def _settings(self, result: Imputation) -> Settings:
        """Return the settings of an imputation, for new rows."""
        return Settings(
            alpha=result.alpha,
            beta=result.beta,
            objective=result.objective or "values",
            standardize=bool(self.standardize),
            unreachable=self.unreachable,
            solver=UntilSettled() if self.solver is None else self.solver,
        )

    def _fill_new(self, features: Array, graph: Any) -> Array:
        if features.shape[1] == 0 or not np.isnan(features).any():
            return features
        if graph is not None:
            return self._settled.fill(features, _read_links(graph, (len(features), len(self._values))))
        neighbors = self._search.search(self.n_neighbors, features)
        for _ in range(self.n_refinements):
            filled = np.nan_to_num(self._settled.fill(features, self._link_new(*neighbors)))
            neighbors = self._search.search_filled(self.n_neighbors, self._values, features, filled)
        return self._settled.fill(features, self._link_new(*neighbors))


def _graph_of(nearest: Array, distances: Array) -> Graph:
    return prepare_graph(link(nearest, distances, local_scale(distances), len(nearest)), len(nearest))


def _resolve_auto(value: Any, default: float) -> Any:
    """Return a parameter, or its default in place of "auto" where nothing can be tuned."""
    return default if isinstance(value, str) and value == "auto" else value


@contextmanager
def _suppress_warnings() -> Iterator[None]:
    """Suppress warnings of auxiliary imputations; the main one issues its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PcfiWarning)
        yield


def _read_links(graph: Any, shape: tuple[int, int]) -> Any:
    from scipy import sparse

    if not sparse.issparse(graph) or graph.shape != shape:
        got = f"shape {graph.shape}" if sparse.issparse(graph) else f"a {type(graph).__qualname__}"
        raise GraphError(
            f"graph must be a scipy sparse matrix of shape {shape} (new rows x fitted rows), got {got}: pass such a "
            "matrix, or no graph to link each row to its most similar rows"
        )
    links = sparse.csr_array(graph).astype(np.float64)
    if not ((links.data >= 0) & np.isfinite(links.data)).all():
        raise GraphError("links of new rows to fitted rows must be finite similarities of at least 0")
    return links
