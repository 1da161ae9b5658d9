"""Libraries that every imputation needs are loaded while large files are read, which leaves Python's lock free."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIN_BYTES = 16_000_000  # of files that take longer to read than a thread to start


@contextmanager
def preloading(*paths: str) -> Iterator[None]:
    """A block of code that reads these files; afterwards numba and what pyarrow needs for arrays are loaded."""
    if sum(Path(path).stat().st_size for path in paths if Path(path).is_file()) < MIN_BYTES:
        yield
        return
    loading = threading.Thread(target=_load, name="pcfi preloading")
    loading.start()
    try:
        yield
    finally:
        loading.join()


def _load() -> None:
    import narwhals  # noqa: F401
    import pyarrow as pa

    from pcfi._kernels.compiling import prepare_numba

    pa.array([])  # loads pandas, if it is there
    prepare_numba()
