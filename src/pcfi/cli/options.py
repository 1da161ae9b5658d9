"""Options that several commands share, as frozen dataclasses; None is an option that was not given."""

from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import pcfi
from pcfi.cli.arguments import argument, literal, names, option, some_names
from pcfi.cli.loading import Loaded, SimilarRows, load
from pcfi.cli.outputs import OutputOptions as OutputOptions
from pcfi.cli.outputs import output_option as output_option
from pcfi.cli.session import Session
from pcfi.errors import ParameterError
from pcfi.inputs.columns import EdgeColumns, NodeColumns
from pcfi.integrations.geo_graphs import Neighborhood
from pcfi.memory import MAX_SHARE_OF_AVAILABLE, size_in_bytes
from pcfi.settings import METHODS, UNREACHABLE_POLICIES
from pcfi.system_memory import available

DEFAULTS = {name: parameter.default for name, parameter in signature(pcfi.impute).parameters.items()}

column_option = partial(option, "Columns")
map_option = partial(option, "Maps")
filling_option = partial(option, "Filling")
running_option = partial(option, "Running")


@dataclass(frozen=True)
class InputOptions:
    """The files that a command reads, their columns, and the neighbours if there is no edge file."""

    nodes: str = argument(
        "NODES",
        "Table with one row per node: .parquet, .csv, .tsv (also .gz, .zst), .feather, .arrow, .npy, .npz, .h5ad, a "
        "database table FILE.duckdb/TABLE, or a map: .gpkg, .geojson, GeoParquet. - reads standard input.",
    )
    edges: str | None = argument(
        "[EDGES]",
        "Table with one row per edge, in one of these formats, or a sparse matrix as .npz or .mtx; from an .h5ad file "
        "the connectivities are read. Without edges, neighbouring places of a map are linked.",
        default=None,
    )
    query: str | None = column_option("--query", "SQL", "Query of a .duckdb file whose rows are the nodes.")
    edge_query: str | None = column_option("--edge-query", "SQL", "Query of a .duckdb file whose rows are the edges.")
    contiguity: str | None = map_option(
        "--contiguity", "NAME", "Neighbours share a corner (queen, the default for polygons) or a border (rook)."
    )
    k: int | None = map_option("--k", "NUMBER", "Neighbours are the k nearest places (8 by default for points).")
    distance: float | None = map_option(
        "--distance",
        "NUMBER",
        "Neighbours are at most this far apart, in the unit of the CRS, or in metres if that is degrees.",
    )
    knn: int | None = map_option(
        "--knn", "NUMBER", "For a table without edges or geometry: link each row to this many most similar rows."
    )
    islands: str = map_option(
        "--islands",
        "POLICY",
        "Places without a neighbour: nearest links them to the nearest places, alone does not.",
        default="nearest",
    )
    id: str | None = column_option(
        "--id",
        "COLUMN",
        "Node column with the ids. Default: the column id, node or node_id; else the first column of unique values "
        "with a name such as customer_id; else the first text column of unique values; else row numbers.",
    )
    columns: list[str] | None = column_option(
        "--columns", "COLUMN,...", "Numeric columns to fill, such as age,income; repeatable. Default: all of them."
    )
    exclude: list[str] | None = column_option(
        "--exclude", "COLUMN,...", "Numeric columns to leave unchanged, such as labels; repeatable."
    )
    categorical: list[str] | None = column_option(
        "--categorical",
        "COLUMN,...",
        "Categorical columns to fill; repeatable. Default: text columns with missing cells whose values repeat.",
    )
    missing_value: list[str] | None = column_option(
        "--missing-value",
        "VALUE",
        "Value that marks a missing cell, such as -999, besides null and NaN; repeatable.",
    )
    decimal: str | None = column_option(
        "--decimal", "MARK", "Decimal mark of numbers in text files, . or a comma. Default: detected for each column."
    )
    source: str | None = column_option(
        "--source", "COLUMN", "Edge column with the start of each edge. Default: detected by its name."
    )
    target: str | None = column_option(
        "--target", "COLUMN", "Edge column with the end of each edge. Default: detected by its name."
    )
    weight: str | None = column_option(
        "--weight", "COLUMN", "Edge column with the weights. Default: the column weight, weights or w, if any."
    )
    unknown_ids: str = column_option(
        "--unknown-ids",
        "POLICY",
        "What to do with an edge that refers to an unknown node: error, or drop the edge.",
        default="error",
    )
    directed: bool | None = column_option("--directed", None, "Let values flow only along the direction of the edges.")

    def __post_init__(self) -> None:
        """Append each query to the path of its database."""
        for name, query in (("nodes", self.query), ("edges", self.edge_query)):
            path = getattr(self, name)
            if query is not None and path is not None and path.endswith(".duckdb"):
                object.__setattr__(self, name, f"{path}?{query}")

    @property
    def paths(self) -> tuple[str, str]:
        """Paths of both files."""
        if self.edges is None:
            raise ParameterError("an edge file is needed: name it after the node file")
        return self.nodes, self.edges

    @property
    def sources(self) -> tuple[str, str | Neighborhood | SimilarRows]:
        """Path of the nodes, and path of the edges or the rule that links places or rows."""
        for name, path, query in (("query", self.nodes, self.query), ("edge-query", self.edges, self.edge_query)):
            if query is not None and not (path or "").endswith(f"?{query}"):
                raise ParameterError(f"--{name} needs a .duckdb file, got {path}")
        rule = Neighborhood(self.contiguity, self.k, self.distance, self.islands)
        has_rule = rule != Neighborhood(islands=self.islands)
        if self.knn is not None:
            if self.edges is not None or has_rule:
                raise ParameterError("--knn links similar rows: leave out the edges, --contiguity, --k and --distance")
            if self.knn < 1:
                raise ParameterError(f"--knn must be an integer of at least 1, got {self.knn}")
            return self.nodes, SimilarRows(self.knn)
        if self.edges is None:
            return self.nodes, rule
        if has_rule:
            raise ParameterError("--contiguity, --k and --distance link places of a map: leave out the edge file")
        return self.paths

    def node_columns(self) -> NodeColumns:
        """The choices for the node file."""
        return NodeColumns(
            id=self.id,
            channels=some_names(self.columns, "--columns") or None,
            exclude=names(self.exclude),
            categorical=names(self.categorical),
            finds_categories=self.categorical is None,
            missing_values=self.missing_value or (),
            decimal=self.decimal,
        )

    def edge_columns(self) -> EdgeColumns:
        """The choices for the edge file."""
        return EdgeColumns(
            source=self.source,
            target=self.target,
            weight=self.weight,
            unknown_ids=self.unknown_ids,
            decimal=self.decimal,
        )

    def load(self, session: Session, columns: NodeColumns | None = None, *, rounds: bool = False) -> Loaded:
        """Read the files; `columns` are the choices for the node file, if they are not those of the options."""
        return load(
            session,
            self.sources,
            columns or self.node_columns(),
            self.edge_columns(),
            directed=bool(self.directed),
            rounds=rounds,
        )


@dataclass(frozen=True)
class FillingOptions:
    """Options of `pcfi impute` besides the parameters of the estimate."""

    method: str | None = filling_option(
        "--method", "NAME", f"One of {', '.join(METHODS)}, auto. Default: {DEFAULTS['method']}."
    )
    unreachable: str | None = filling_option(
        "--unreachable",
        "POLICY",
        f"Value of a cell that no known cell can reach: {', '.join(UNREACHABLE_POLICIES)}. Default: "
        f"{DEFAULTS['unreachable']}.",
    )
    position: int | None = filling_option(
        "--position",
        "NUMBER",
        "Add this many columns position_1, position_2, ... that encode where a node lies in the graph, for a neural "
        "network; needs --objective representation.",
    )
    round: bool = column_option("--round", None, "Round filled cells of integer columns.", default=False)
    evaluate: bool = filling_option(
        "--evaluate",
        None,
        "Compare the methods on hidden known cells, and show the errors in the report.",
        default=False,
    )


@dataclass(frozen=True)
class EstimationOptions:
    """Parameters of the estimate."""

    alpha: str | None = filling_option(
        "--alpha",
        "NUMBER",
        f"Factor by which confidence falls with every hop, above 0 and at most 1. Default: {DEFAULTS['alpha']}.",
    )
    beta: str | None = filling_option(
        "--beta",
        "NUMBER",
        f"Strength of the correction between channels (stage 2). Default: {DEFAULTS['beta']}.",
    )
    objective: str | None = filling_option(
        "--objective",
        "NAME",
        "values (accurate numbers) or representation (the paper's input to a neural network). Default: values.",
    )
    steps: int | None = filling_option(
        "--steps", "NUMBER", "Take this many diffusion steps, as in the paper. Default: until the values have settled."
    )
    rtol: float | None = filling_option(
        "--rtol",
        "NUMBER",
        "Values have settled when another step would move none by more than this share of its channel's range. "
        f"Default: {DEFAULTS['solver'].rtol:g}.",
    )
    max_steps: int | None = filling_option(
        "--max-steps",
        "NUMBER",
        f"Stop after this many steps, settled or not. Default: {DEFAULTS['solver'].max_steps}.",
    )
    standardize: bool | None = filling_option(
        "--standardize/--no-standardize",
        None,
        "Use units of each channel's standard deviation in stage 2.",
    )
    seed: int = running_option("--seed", "NUMBER", "Random seed; equal seeds give equal results.", default=0)

    def solver(self) -> Any:
        """The solver that the options specify; None if they specify none."""
        settling = {name: value for name in ("rtol", "max_steps") if (value := getattr(self, name)) is not None}
        if self.steps is None:
            return pcfi.UntilSettled(**settling) if settling else None
        if settling:
            raise ParameterError("--steps fixes the number of steps: leave out --rtol and --max-steps")
        return pcfi.FixedSteps(self.steps)

    def parameters(self, **others: Any) -> dict[str, Any]:
        """The parameters of `pcfi.impute` that were given, and `others` unless they are None."""
        given = {
            "alpha": None if self.alpha is None else literal(self.alpha),
            "beta": None if self.beta is None else literal(self.beta),
            "objective": self.objective,
            "solver": self.solver(),
            "standardize": self.standardize,
            "random_state": self.seed,
            **others,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class BudgetOptions:
    """Options for files that are larger than memory."""

    memory: str | None = running_option(
        "--memory",
        "SIZE",
        "Process files of any size on disk within this much memory, such as 4GB; after an interruption, the same "
        "command resumes. Nodes: .parquet, .csv, .tsv, .npy or .zarr.",
    )
    cluster: str | None = running_option(
        "--cluster",
        "ADDRESS",
        "Process files of any size on the workers of this Dask scheduler, such as tcp://host:8786; --memory is then "
        "the budget of each worker.",
    )
    work: str | None = running_option(
        "--work", "FOLDER", "Folder for intermediate results of --memory or --cluster. Default: next to the output."
    )

    @property
    def is_set(self) -> bool:
        """Whether the files are processed on disk."""
        return any(value is not None for value in vars(self).values())

    @property
    def bytes(self) -> int:
        """The budget in bytes."""
        return size_in_bytes(self.memory, "memory") if self.memory else int(MAX_SHARE_OF_AVAILABLE * available())


@dataclass(frozen=True)
class MessageOptions:
    """What a command prints."""

    quiet: bool = running_option("--quiet -q", None, "Print only warnings and errors.", default=False)
    debug: bool = running_option("--debug", None, "Show the full traceback of an error.", default=False)


@dataclass(frozen=True)
class RunOptions(MessageOptions):
    """How a command runs, and what it prints."""

    threads: int | None = running_option("--threads", "NUMBER", "Number of threads. Default: all cores.")
    as_json: bool = running_option("--json", None, "Print the results as JSON.", default=False)
