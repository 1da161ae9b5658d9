"""Options that several commands share, as frozen values; None is an option that was not given."""

from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import pcfi
from pcfi.cli.arguments import argument, literal, names, option, some_names
from pcfi.cli.loading import SimilarRows
from pcfi.cli.outputs import Outputs
from pcfi.errors import ParameterError
from pcfi.files.formats import STANDARD, STREAM_FORMATS
from pcfi.inputs.columns import EdgeColumns, NodeColumns
from pcfi.integrations.geo_graphs import Neighborhood
from pcfi.settings import METHODS, UNREACHABLE_POLICIES

DEFAULTS = {name: parameter.default for name, parameter in signature(pcfi.impute).parameters.items()}

column_option = partial(option, "Columns")
map_option = partial(option, "Maps")
filling_option = partial(option, "Filling")
output_option = partial(option, "Output")
running_option = partial(option, "Running")


@dataclass(frozen=True)
class FileOptions:
    """The two files that a command reads."""

    nodes: str = argument(
        "NODES",
        "Table with one row per node: .parquet, .csv, .tsv (also .gz, .zst), .feather, .arrow, .npy, .npz, .h5ad, a "
        "table of a database, FILE.duckdb/TABLE, or a map: .gpkg, .geojson, GeoParquet; - reads standard input.",
    )
    edges: str | None = argument(
        "[EDGES]",
        "Table with one row per edge, in one of these formats, or a sparse matrix as .npz or .mtx; an .h5ad file "
        "provides its connectivities. Without it, neighbours of a map are linked.",
        default=None,
    )
    query: str | None = column_option("--query", "SQL", "Query of a file .duckdb whose rows are the nodes.")
    edge_query: str | None = column_option("--edge-query", "SQL", "Query of a file .duckdb whose rows are the edges.")

    def __post_init__(self) -> None:
        """Put a query into the name of the database that it asks."""
        for name, query in (("nodes", self.query), ("edges", self.edge_query)):
            path = getattr(self, name)
            if query is not None and path is not None and path.endswith(".duckdb"):
                object.__setattr__(self, name, f"{path}?{query}")

    def check(self) -> None:
        """Refuse queries of files that are no databases."""
        for name, path, query in (("query", self.nodes, self.query), ("edge-query", self.edges, self.edge_query)):
            if query is not None and not (path or "").endswith(f"?{query}"):
                raise ParameterError(f"--{name} asks a file .duckdb, got {path}")

    @property
    def paths(self) -> tuple[str, str]:
        """Both paths."""
        if self.edges is None:
            raise ParameterError("a file of edges is needed here: name it after the file of nodes")
        return self.nodes, self.edges


@dataclass(frozen=True)
class MapOptions:
    """Which places of a map are neighbours."""

    contiguity: str | None = map_option(
        "--contiguity", "NAME", "Neighbours share a corner (queen, the default for polygons) or a border (rook)."
    )
    k: int | None = map_option("--k", "NUMBER", "Neighbours are the nearest places (8 by default for points).")
    distance: float | None = map_option(
        "--distance", "NUMBER", "Neighbours are at most this far apart: in the unit of the CRS, metres for degrees."
    )
    knn: int | None = map_option(
        "--knn", "NUMBER", "Not a map, and no edges: neighbours are this many most similar rows of the table."
    )
    islands: str = map_option(
        "--islands", "POLICY", "Places without a neighbour: linked to the nearest, or left alone.", default="nearest"
    )

    def sources(self, files: FileOptions) -> tuple[str, str | Neighborhood | SimilarRows]:
        """The file of nodes, and the file of edges or the rule by which places or rows are neighbours."""
        files.check()
        rule = Neighborhood(self.contiguity, self.k, self.distance, self.islands)
        if self.knn is not None and (files.edges is not None or rule != Neighborhood(islands=self.islands)):
            raise ParameterError("--knn links similar rows: leave out the edges, --contiguity, --k and --distance")
        if self.knn is not None and self.knn < 1:
            raise ParameterError(f"--knn must be a whole number of at least 1, got {self.knn}")
        if self.knn is not None:
            return files.nodes, SimilarRows(self.knn)
        if files.edges is None:
            return files.nodes, rule
        if rule != Neighborhood(islands=self.islands):
            raise ParameterError("--contiguity, --k and --distance link places of a map: leave out the file of edges")
        return files.paths


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns of the two tables hold what."""

    id: str | None = column_option(
        "--id",
        "COLUMN",
        "Node column with the ids. Default: the column id, node or node_id; else the first column of unique values "
        "with a name such as customer_id; else the first column of unique texts; else edges refer to row numbers.",
    )
    columns: list[str] | None = column_option(
        "--columns", "COLUMN,...", "Numeric columns to fill, such as age,income; repeatable. Default: all of them."
    )
    exclude: list[str] | None = column_option(
        "--exclude", "COLUMN,...", "Numeric columns to pass through unchanged, such as labels; repeatable."
    )
    categorical: list[str] | None = column_option(
        "--categorical", "COLUMN,...", "Columns of categories to fill; repeatable."
    )
    missing_value: list[str] | None = column_option(
        "--missing-value",
        "VALUE",
        "Value that marks a missing cell, such as -999, besides null and NaN; repeatable.",
    )
    decimal: str | None = column_option(
        "--decimal",
        "MARK",
        "What stands before the fraction of numbers in text files, . or a comma. Default: each column shows it.",
    )
    source: str | None = column_option(
        "--source", "COLUMN", "Edge column with the start of each edge. Default: recognised by its name."
    )
    target: str | None = column_option(
        "--target", "COLUMN", "Edge column with the end of each edge. Default: recognised by its name."
    )
    weight: str | None = column_option(
        "--weight", "COLUMN", "Edge column with the weights. Default: the column weight, weights or w, if any."
    )
    unknown_ids: str = column_option(
        "--unknown-ids",
        "POLICY",
        "What to do with an edge that names an unknown node: error, or drop the edge.",
        default="error",
    )
    directed: bool | None = column_option("--directed", None, "Let values flow only along the direction of the edges.")

    def node_columns(self) -> NodeColumns:
        """The choices for the node file."""
        return NodeColumns(
            id=self.id,
            channels=some_names(self.columns, "--columns") or None,
            exclude=names(self.exclude),
            categorical=names(self.categorical),
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


@dataclass(frozen=True)
class FillingOptions:
    """How `pcfi impute` fills missing cells, besides the parameters of the estimate."""

    method: str | None = filling_option(
        "--method", "NAME", f"One of {', '.join(METHODS)}, auto. Default: {DEFAULTS['method']}."
    )
    unreachable: str | None = filling_option(
        "--unreachable",
        "POLICY",
        f"Value of a cell that no known value can reach: {', '.join(UNREACHABLE_POLICIES)}. Default: "
        f"{DEFAULTS['unreachable']}.",
    )
    position: int | None = filling_option(
        "--position",
        "NUMBER",
        "Add this many columns position_1, position_2, ... that say where a node lies in the graph, for a neural "
        "network; with --objective representation.",
    )
    round: bool = column_option("--round", None, "Round filled cells of integer columns.", default=False)
    evaluate: bool = filling_option(
        "--evaluate", None, "Measure the error on hidden known cells, and show it in the report.", default=False
    )


@dataclass(frozen=True)
class EstimationOptions:
    """Parameters of the estimate."""

    alpha: str | None = filling_option(
        "--alpha",
        "NUMBER",
        f"Factor by which confidence falls with every hop, between 0 and 1. Default: {DEFAULTS['alpha']}.",
    )
    beta: str | None = filling_option(
        "--beta", "NUMBER", f"How strongly the channels of a node influence each other. Default: {DEFAULTS['beta']}."
    )
    objective: str | None = filling_option(
        "--objective",
        "NAME",
        "values for accurate numbers, or representation for the paper's input to a neural network. Default: values.",
    )
    steps: int | None = filling_option(
        "--steps", "NUMBER", "Diffuse for this many steps, as in the paper. Default: until values settle."
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
        "Divide each channel by its standard deviation before channels influence each other.",
    )
    seed: int = running_option(
        "--seed", "NUMBER", "Seed of the random numbers; equal seeds give equal results.", default=0
    )

    def solver(self) -> Any:
        """The solver that the options describe; None if they describe none."""
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
class OutputOptions:
    """What `pcfi impute` writes."""

    values: str = output_option("--output -o", "FILE", "File for the filled table; - is standard output.", default=...)
    stream_format: str = output_option(
        "--to", "FORMAT", f"Format of standard output: {', '.join(STREAM_FORMATS)}.", default="csv"
    )
    confidence: str | None = output_option(
        "--confidence",
        "FILE",
        "File for the confidence of every cell: alpha^hops, not a probability. Errors to expect: --intervals.",
    )
    confidence_columns: bool = output_option(
        "--confidence-columns", None, "Add the confidence, alpha^hops, as columns of the filled table.", default=False
    )
    hops: str | None = output_option(
        "--hops", "FILE", "File for the number of hops from every cell to the nearest known one."
    )
    intervals: str | None = output_option(
        "--intervals",
        "FILE",
        "File for the interval and the expected error of every cell: columns age_low, age_high, age_error.",
    )
    coverage: float = output_option(
        "--coverage", "NUMBER", "Probability that an interval holds the true value.", default=0.9
    )
    draws: int = output_option(
        "--draws",
        "NUMBER",
        "Write this many further completed tables that are plausible together, for multiple imputation: "
        "filled.draw1.csv, filled.draw2.csv, ...",
        default=0,
    )
    report: str | None = output_option("--report", "FILE", "File for a report to read in a browser, .html.")
    facts: str | None = output_option(
        "--facts", "FILE", "File for the numbers of the report, .json; pcfi report renders it again."
    )
    force: bool = output_option("--force -f", None, "Overwrite existing files.", default=False)

    def outputs(self) -> Outputs:
        """The files to write."""
        return Outputs(**vars(self))

    @property
    def to_stdout(self) -> bool:
        """Whether a table goes to standard output."""
        return STANDARD in (self.values, self.confidence, self.hops, self.intervals)


@dataclass(frozen=True)
class BudgetOptions:
    """How to fill files that are larger than memory."""

    memory: str | None = running_option(
        "--memory",
        "SIZE",
        "Fill files of any size within this much memory, such as 4GB; after an interruption, the same command "
        "continues. Nodes: .parquet, .csv, .tsv, .npy or .zarr.",
    )
    cluster: str | None = running_option(
        "--cluster",
        "ADDRESS",
        "Fill files of any size on the workers of this Dask scheduler, such as tcp://host:8786; --memory is then the "
        "budget of each worker.",
    )
    work: str | None = running_option(
        "--work", "FOLDER", "Folder for intermediate results of --memory or --cluster. Default: beside the output."
    )

    @property
    def is_set(self) -> bool:
        """Whether the files are filled larger than memory."""
        return any(value is not None for value in vars(self).values())


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
