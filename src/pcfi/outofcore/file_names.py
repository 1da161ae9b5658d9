"""Names of the files in a work folder: whoever reads or writes one takes its name from here."""

JOB = "job.json"  # what the run is; without it the folder is nobody's
PLAN = "plan.json"  # how the run is cut, and which call works on it
JOURNAL = "journal"  # folder with an entry per finished task
KNOWN = "known.raw"  # which cells are known, a bit each
HOPS = "hops.json"  # counts over all patterns
LAYOUT = "layout.json"  # which channels are in which panel
MATRIX = "propagation.npy"  # the propagation matrix of stage 2
INFLUENCE = "influence.raw"  # the influence matrix, if all channels are one product
UNREACHABLE = "unreachable.npy"  # what the policy puts into the unreachable cells of each channel
SINKS = "sinks.json"  # the results that have been begun


def survey(index: int) -> str:
    """Facts about the channels in a range of rows."""
    return f"survey-{index}.npy"


def channels(name: str) -> str:
    """A fact about all channels."""
    return f"channels-{name}.npy"


def hops(group: int) -> str:
    """Hops of all nodes in a group of patterns."""
    return f"hops-{group}.raw"


def panel(number: int) -> str:
    """Channels that are kept and filled together."""
    return f"panel-{number}.raw"


def product(name: str) -> str:
    """A factor of the channels that are one product."""
    return f"product-{name}.npy"
