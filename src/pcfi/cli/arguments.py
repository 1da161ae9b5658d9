"""Arguments and errors of the command line: groups of options, lists, NAME=VALUE pairs, one-line errors."""

import errno
import re
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, field, fields
from inspect import Parameter, Signature
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from pcfi.cli import INTERRUPTED
from pcfi.errors import ParameterError, PcfiError, Worded

FAILED, USAGE = 1, 2  # exit codes
OPTION = "option"  # key of a field's metadata


def option(panel: str, flags: str, metavar: str | None, text: str, *, default: Any = None) -> Any:
    """A field of an option group; without a metavar it is a flag, and the default ... makes it required."""
    info = typer.Option(*flags.split(), help=text, metavar=metavar, rich_help_panel=panel)
    return field(metadata={OPTION: info}) if default is ... else field(default=default, metadata={OPTION: info})


def argument(metavar: str, text: str, *, default: Any = ...) -> Any:
    """A field of an option group that is a positional argument; required unless it has a default."""
    metadata = {OPTION: typer.Argument(metavar=metavar, help=text, show_default=False)}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


def grouped_command(function: Callable[..., None]) -> tuple[Callable[..., None], dict[str, Any]]:
    """Turn a function whose parameters are option groups (dataclasses) into the flat function that typer needs.

    Also returns keyword arguments for `typer.Typer.command`.
    """
    groups = get_type_hints(function)
    del groups["return"]

    def flat(**values: Any) -> None:
        built = {name: kind(**{one.name: values[one.name] for one in fields(kind)}) for name, kind in groups.items()}
        function(**built)

    flat.__doc__ = function.__doc__
    flat.__signature__ = Signature([one for kind in groups.values() for one in _parameters(kind)])  # type: ignore[attr-defined]
    return flat, {"cls": GroupedCommand}


def _parameters(group: Any) -> list[Parameter]:
    hints = get_type_hints(group)
    return [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if one.default is MISSING else one.default,
            annotation=Annotated[hints[one.name], one.metadata[OPTION]],
        )
        for one in fields(group)
    ]


class GroupedCommand(TyperCommand):
    """A command whose help has a plain-text section for each group of options; boxes would take twice the time."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections, in the order in which they first appear."""
        sections: dict[str, list[Any]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                fallback = "Files" if parameter.param_type_name == "argument" else "Help"
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or fallback, []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


class ListCommand(TyperCommand):
    """A command whose list options take several values: `--systems pcfi fp` is `--systems pcfi --systems fp`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its values, then parse as usual."""
        lists = {name for option in self.get_params(ctx) if getattr(option, "multiple", False) for name in option.opts}
        return super().parse_args(ctx, repeated(args, lists))


def repeated(args: Sequence[str], lists: set[str]) -> list[str]:
    """The arguments with every list option repeated before each of its values.

    >>> repeated(["table1", "--systems", "pcfi", "fp", "--splits", "3"], {"--systems"})
    ['table1', '--systems', 'pcfi', '--systems', 'fp', '--splits', '3']
    """
    result: list[str] = []
    current, valued = "", False
    for argument in args:
        if argument.startswith("--"):
            current, valued = (argument if argument in lists else ""), False
        elif current and valued:
            result.append(current)
        result.append(argument)
        valued = valued or not argument.startswith("--")
    return result


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE texts as a dict.

    >>> pairs(["epochs=5"], "--set")
    {'epochs': '5'}
    """
    split = [text.partition("=") for text in texts]
    for text, (name, equals, value) in zip(texts, split, strict=True):
        if not (name and equals and value):
            raise ParameterError(f"{option} takes NAME=VALUE, as in {option} epochs=50, got {text!r}")
    return {name: value for name, _, value in split}


def literal(text: str) -> Any:
    """A Python literal, or the text itself.

    >>> literal("0.5"), literal("5"), literal("true"), literal("settled")
    (0.5, 5, True, 'settled')
    """
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def names(texts: Sequence[str] | None) -> list[str]:
    """Names from an option such as `--columns age,income`, which may be repeated; names may be quoted.

    >>> names(["age, income", '"a,b", " c"'])
    ['age', 'income', 'a,b', ' c']
    """
    import csv

    return [name for row in csv.reader(texts or [], skipinitialspace=True) for name in row if name]


def some_names(texts: Sequence[str] | None, option: str) -> list[str]:
    """The same for an option whose default is all names: an empty value, as from "$UNSET", is an error."""
    found = names(texts)
    if texts and not found:
        raise ParameterError(f"{option} is empty, got {texts[0]!r}: give at least one name, or leave the option out")
    return found


OS_WORDS = {
    errno.ENOSPC: "no space left on the disk; free some space, or choose another disk",
    errno.EDQUOT: "your disk quota is exceeded; free some space, or choose another disk",
    errno.EFBIG: "the file would exceed the size limit of the disk",
    errno.EROFS: "the disk is read-only; choose another disk",
    errno.EACCES: "permission denied; check the permissions",
    errno.EIO: "the disk has an error; check it, or choose another disk",
}
QUOTES = "\"'"
_OPTIONS = {
    "channels": "columns",
    "client": "cluster",
    "missing_values": "missing-value",
    "random_state": "seed",
    "solver": "steps",
}
_NAME_LISTS = ("channels", "exclude", "categorical")  # parameters whose options take names between commas


def option_text(name: str, text: str = "", value: Any = None) -> str:
    """A parameter of the library as an option of the command line, with a value for the shell.

    >>> option_text("channels"), option_text("unknown_ids", "'drop'"), option_text("standardize", "True")
    ('--columns', '--unknown-ids drop', '--standardize')
    >>> option_text("missing_values", value=["?", -999])
    "--missing-value '?' --missing-value -999"
    """
    if name == "graph":
        return "--knn"  # the only graph that is an option
    flag = "--" + _OPTIONS.get(name, name).replace("_", "-")
    if value is not None:
        values = value if isinstance(value, list) else [value]
        return " ".join(f"{flag} {_in_shell(one, is_name=name in _NAME_LISTS)}" for one in values)
    return flag if text in ("", "True") or name == "solver" else f"{flag} {text.strip(QUOTES)}"


def _in_shell(value: Any, *, is_name: bool) -> str:
    """A value as it is typed in a shell; a name that `names` would split or strip is in quotes of its own."""
    text = str(value)
    if is_name and names([text]) != [text]:
        text = '"' + text.replace('"', '""') + '"'
    return shlex.quote(text)


def in_options(error: object) -> str:
    """An error or a warning as one line, with options instead of parameters."""
    if isinstance(error, Worded):
        text = error.text(option_text(error.parameter or ""), option_text)
    elif isinstance(error, OSError) and error.filename is not None and error.errno in OS_WORDS:
        text = f"{error.filename}: {OS_WORDS[error.errno]}"
    else:
        text = str(error)
    return printable(" ".join(text.split()))


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Text with control characters escaped, so that a name in a file cannot alter the terminal.

    >>> printable("age" + chr(27) + "[2J")
    'age\\x1b[2J'
    """
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


@contextmanager
def plain_errors(*, debug: bool = False) -> Iterator[None]:
    """Print errors as one line on stderr and exit, with code 2 for wrong options and 1 for failures; `debug` raises."""
    if debug:
        yield
        return
    interruptions: list[int] = []
    try:
        with _noted_interruptions(interruptions):
            yield
    except ParameterError as error:
        raise _exit(in_options(error), USAGE) from None
    except (PcfiError, OSError, ModuleNotFoundError) as error:
        if isinstance(error, BrokenPipeError):  # the reader of the pipe has closed it
            raise
        raise _exit(in_options(error), FAILED) from None
    except MemoryError:
        raise _exit("not enough memory", FAILED) from None
    except KeyboardInterrupt:
        raise _exit("interrupted", INTERRUPTED) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if interruptions:  # Ctrl-C during the import of a compiled module is an ImportError
            raise _exit("interrupted", INTERRUPTED) from None
        text = f"unexpected {type(error).__name__}: {in_options(error)}; --debug shows the traceback"
        raise _exit(text, FAILED) from None


@contextmanager
def _noted_interruptions(interruptions: list[int]) -> Iterator[None]:
    """Record SIGINT in the list, and handle it as usual."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or not _in_main_thread():
        yield
        return

    def stop(number: int, _: Any) -> None:
        interruptions.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _exit(text: str, code: int) -> typer.Exit:
    typer.echo(f"pcfi: {text}", err=True)
    return typer.Exit(code)
