"""Arguments and errors of the command line: groups of options, lists, NAME=VALUE pairs, errors as one line."""

import errno
import re
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
from pcfi.errors import ParameterError, PcfiError

FAILED, USAGE = 1, 2  # exit codes
OPTION = "option"  # key of a field's metadata


def option(panel: str, flags: str, metavar: str | None, text: str, *, default: Any = None) -> Any:
    """A field of a group of options; without a value the option is a flag, and the default ... makes it required."""
    info = typer.Option(*flags.split(), help=text, metavar=metavar, rich_help_panel=panel)
    return field(metadata={OPTION: info}) if default is ... else field(default=default, metadata={OPTION: info})


def argument(metavar: str, text: str, *, default: Any = ...) -> Any:
    """A field of a group of options that is a positional argument, required unless it has a default."""
    metadata = {OPTION: typer.Argument(metavar=metavar, help=text, show_default=False)}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


def grouped_command(function: Callable[..., None]) -> tuple[Callable[..., None], dict[str, Any]]:
    """Turn a function of groups of options, which are dataclasses, into the flat function that typer takes.

    Returns it with the keyword arguments of `typer.Typer.command`.
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
    """A command whose help has a section for each group of options, in plain text; boxes would take twice the time."""

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
    """The arguments with every list option in front of each of its values.

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
    """A value as Python would read it, or the text itself.

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
    """Names from an option such as `--columns age,income`, which may be repeated; quotes protect commas and spaces.

    >>> names(["age, income", '"a,b", " c"'])
    ['age', 'income', 'a,b', ' c']
    """
    import csv

    return [name for row in csv.reader(texts or [], skipinitialspace=True) for name in row if name]


def some_names(texts: Sequence[str] | None, option: str) -> list[str]:
    """The same, for an option that means all names if it is left out: it may not be empty, as "$UNSET" is."""
    found = names(texts)
    if texts and not found:
        raise ParameterError(f"{option} is empty, got {texts[0]!r}: give at least one name, or leave the option out")
    return found


OS_WORDS = {
    errno.ENOSPC: "no space is left on its disk; make room, or choose another disk",
    errno.EDQUOT: "your quota on its disk is used up; make room, or choose another disk",
    errno.EFBIG: "the file would be larger than its disk allows",
    errno.EROFS: "its disk is read-only; choose another",
    errno.EACCES: "you may not read or write it; check its permissions",
    errno.EIO: "its disk fails; check it, or choose another",
}
QUOTES = "\"'"
_OPTIONS = {"channels": "columns", "client": "cluster", "random_state": "seed", "solver": "steps"}


def option_text(name: str, value: str = "") -> str:
    """A parameter of the library, by the name and the value that it has on the command line.

    >>> option_text("channels"), option_text("unknown_ids", "'drop'"), option_text("standardize", "True")
    ('--columns', '--unknown-ids drop', '--standardize')
    """
    flag = "--" + _OPTIONS.get(name, name).replace("_", "-")
    return flag if value in ("", "True") or name == "solver" else f"{flag} {value.strip(QUOTES)}"


def in_options(error: BaseException) -> str:
    """An error in one line, with parameters of the library as options."""
    if isinstance(error, PcfiError):
        text = error.text(option_text(error.parameter or ""), option_text)
    elif isinstance(error, OSError) and error.filename is not None and error.errno in OS_WORDS:
        text = f"{error.filename}: {OS_WORDS[error.errno]}"
    else:
        text = str(error)
    return printable(" ".join(text.split()))


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Text with control characters as codes: a name in a file must not move the cursor or rewrite what is shown.

    >>> printable("age" + chr(27) + "[2J")
    'age\\x1b[2J'
    """
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


@contextmanager
def plain_errors(*, debug: bool = False) -> Iterator[None]:
    """Print errors as one line on stderr, and exit: code 2 for wrong options, 1 for failures. `debug` raises them."""
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
        if interruptions:  # compiled modules that are being imported turn Ctrl-C into an ImportError
            raise _exit("interrupted", INTERRUPTED) from None
        text = f"unexpected {type(error).__name__}: {in_options(error)}; --debug shows the traceback"
        raise _exit(text, FAILED) from None


@contextmanager
def _noted_interruptions(interruptions: list[int]) -> Iterator[None]:
    """Add to the list when SIGINT arrives, and go on as usual."""
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
