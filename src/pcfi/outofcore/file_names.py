"""Names of the files in a work folder."""

JOB = "job.json"  # description of the run; marks a folder as a work folder
PLAN = "plan.json"  # division of the run into tasks, and which call works on it
JOURNAL = "journal"  # folder with an entry per finished task
KNOWN = "known.raw"  # known cells, one bit each
HOPS = "hops.json"  # counts over all patterns
LAYOUT = "layout.json"  # which channels are in which panel
MATRIX = "propagation.npy"  # the propagation matrix of stage 2
INFLUENCE = "influence.raw"  # the influence matrix, if all channels are one product
UNREACHABLE = "unreachable.npy"  # values of the unreachable cells of each channel
SAMPLE_NODES = "sample-nodes.npy"  # nodes whose rows the value model is fitted to
SAMPLE_CORE = "sample-core.npy"  # places of those among them whose cells may be hidden; empty: all
MODEL = "model.npz"  # the value model
TUNING = "tuning.json"  # what the fit chose and found
RELATION_SHARES = "relation-shares.npy"  # of the errors of each channel that neighbours have in common
RELATION_ROOTS = "relation-roots.npy"  # of the covariances of the coefficients of each column
FILLED = "filled.raw"  # all filled values, column by column, for explanations and reports
CODES = "codes.raw"  # hops of all patterns, one by one, likewise
ERRORS = "errors.raw"  # expected errors, column by column, likewise
SINKS = "sinks.json"  # results whose files have been created
PARTITIONS = "partitions.json"  # where the partitions of the graph begin
ORDER = "order.raw"  # the nodes in the order of the partitions
POSITIONS = "positions.raw"  # place of each node in that order
GROUP_COSTS = "group-costs.npy"  # work of each group of rows in that order
CHECKPOINT = "checkpoint.json"  # the last checkpoint of a diffusion in partitions


def survey(index: int) -> str:
    """Facts about the channels in a range of rows."""
    return f"survey-{index}.npy"


def channels(name: str) -> str:
    """A fact about all channels."""
    return f"channels-{name}.npy"


def prepared_survey(index: int) -> str:
    """The same of the channels as they diffuse."""
    return f"prepared-survey-{index}.npy"


def prepared(name: str) -> str:
    """A fact about all channels as they diffuse."""
    return f"prepared-{name}.npy"


def moments(index: int) -> str:
    """Sums over the known values in a range of rows."""
    return f"moments-{index}.npy"


def sample_values(index: int) -> str:
    """Values of the rows of the sample in a range of rows."""
    return f"sample-values-{index}.npy"


def sample_known(index: int) -> str:
    """Which of them are known."""
    return f"sample-known-{index}.npy"


def hops(group: int) -> str:
    """Hops of all nodes in a group of patterns."""
    return f"hops-{group}.raw"


def panel(number: int) -> str:
    """Channels that are kept and filled together."""
    return f"panel-{number}.raw"


def spread(number: int) -> str:
    """What the neighbours of the cells of some channels say about their errors."""
    return f"spread-{number}.raw"


def field_scale(pattern: int) -> str:
    """What the random fields of a pattern have in common."""
    return f"field-scale-{pattern}.raw"


def field(draw: int, group: int) -> str:
    """Random fields of some channels in a draw."""
    return f"field-{draw}-{group}.raw"


def begun(number: int) -> str:
    """Marks a panel whose diffusion has begun: its missing cells are no longer as they were split."""
    return f"begun-{number}"


def product(name: str) -> str:
    """A factor of the channels that are one product."""
    return f"product-{name}.npy"


def partition(number: int, array: str) -> str:
    """An array of the graph of a partition."""
    return f"partition-{number}-{array}.raw"


def filled_part(name: str, number: int) -> str:
    """The rows of a partition in what is put together as the file `name`."""
    return f"part-{number}-{name}"


def checkpoint(number: int, slot: int) -> str:
    """Blocks of a partition at a checkpoint, in one of two slots."""
    return f"checkpoint-{number}-{slot}.raw"
