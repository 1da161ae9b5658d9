"""A Dask cluster: the client or the address that a caller passes -> a client with workers, and their state."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pcfi.errors import ClusterError, counted
from pcfi.optional import load
from pcfi.system_memory import size_in_words

CONNECT_TIMEOUT = "20s"  # until a scheduler answers, and until a first worker is there


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Yield the client, a client of the scheduler at this address (closed at the end), or None."""
    found = None if client is None else connect(client)
    try:
        yield found
    finally:
        if isinstance(client, str) and found is not None:
            found.close()


def connect(client: Any) -> Any:
    """The client itself, or a new client of the scheduler at this address."""
    distributed = load("distributed", "a cluster", "scale")
    asked = client
    if isinstance(client, str):
        try:
            client = distributed.Client(client, timeout=CONNECT_TIMEOUT, set_as_default=False)
        except Exception as error:  # of its own kind for every way in which an address can be wrong
            raise ClusterError(
                f"the scheduler at {client!r} cannot be reached ({' '.join(str(error).split())}): is it running, and "
                "is this its address, as in tcp://10.0.0.1:8786?"
            ) from None
    if not isinstance(client, distributed.Client):
        raise ClusterError(f"client must be a dask.distributed.Client or the address of a scheduler, got {client!r}")
    try:
        client.wait_for_workers(1, timeout=CONNECT_TIMEOUT)
    except TimeoutError:
        if asked is not client:
            client.close()
        raise ClusterError(f"the cluster has no workers after {CONNECT_TIMEOUT}: start some") from None
    return client


def workers_of(client: Any) -> list[dict[str, Any]]:
    """What the scheduler knows about its workers."""
    return list(_facts(client).values())


def thread_addresses(client: Any) -> list[str]:
    """The address of the worker of each thread of a cluster, in a fixed order."""
    workers = sorted(_facts(client).items())
    return [address for address, worker in workers for _ in range(max(1, int(worker["nthreads"])))]


def _facts(client: Any) -> dict[str, dict[str, Any]]:
    facts = client.scheduler_info(n_workers=-1)
    if "workers" not in facts:
        raise ClusterError("the connection to the scheduler is lost: is it running? Run it again to continue")
    return dict(facts["workers"])


def does_tasks(worker: dict[str, Any]) -> bool:
    """Whether a worker begins tasks or is at one: Dask pauses workers whose memory is nearly full."""
    n_tasks: int = worker["metrics"].get("task_counts", {}).get("executing", 0)
    return worker["status"] == "running" or n_tasks > 0


def idle_reason(workers: list[dict[str, Any]], seconds: float) -> str:
    """Message: why a cluster makes no progress, and what to do."""
    if not workers:
        return (
            f"the cluster has had no worker for {seconds} s: were they killed, or is the machine "
            "that they ran on gone? Start workers again"
        )
    limits = [worker["memory_limit"] for worker in workers if worker["memory_limit"]]
    limit = f" (the smallest limit is {size_in_words(min(limits))})" if limits else ""
    return (
        f"Dask has paused all workers ({counted(len(workers), 'worker')}) for {seconds} s, because "
        f"their memory is nearly full{limit}: start workers with more memory"
    )
