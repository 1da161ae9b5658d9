"""The command line. `main` is the command `pcfi`; it needs `pcfi[cli]`."""

import sys


def main() -> None:
    """Run the command `pcfi` on the arguments of this process."""
    from importlib.util import find_spec

    if not all(map(find_spec, ("jinja2", "narwhals", "networkx", "pyarrow", "rich", "typer", "vl_convert"))):
        sys.stderr.write('the command pcfi needs more packages: pip install "pcfi[cli]"\n')
        raise SystemExit(1)
    from pcfi.cli.app import app

    app(prog_name="pcfi")
