"""The command line. `main` is the command `pcfi`; it needs `pcfi[cli]`."""

import sys

INTERRUPTED = 130  # exit code after Ctrl-C


def main() -> None:
    """Run the command `pcfi` on the arguments of this process."""
    try:
        _main()
    except KeyboardInterrupt:  # before the command itself began
        sys.stderr.write("pcfi: interrupted\n")
        raise SystemExit(INTERRUPTED) from None


def _main() -> None:
    from importlib.util import find_spec

    if not all(map(find_spec, ("jinja2", "narwhals", "networkx", "pyarrow", "rich", "typer", "vl_convert"))):
        sys.stderr.write('the command pcfi needs more packages: pip install "pcfi[cli]"\n')
        raise SystemExit(1)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # characters that the terminal cannot print are escaped
            stream.reconfigure(errors="backslashreplace")
    from pcfi.cli.app import app

    app(prog_name="pcfi")
