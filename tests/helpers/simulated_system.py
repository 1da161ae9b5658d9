"""A pytest plugin: this library and its tests see Windows or macOS, as far as that can be simulated on Linux.

`PCFI_TEST_SYSTEM=windows PYTHONPATH=tests/helpers python -m pytest -p simulated_system` (or `macos`). Only code of this
repository sees the other system; other packages see the one that they were installed for.

- Modules and names of `os`, `signal` and `sys` that the system does not have are missing.
- There is no /proc and no /sys.
- On Windows, files that are open or mapped in this process can be neither removed nor renamed nor replaced, and links
  need a privilege.
"""

import builtins
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import windows_locks

ROOT = Path(__file__).resolve().parents[2]
OURS = (str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "docs"))
OF_THE_SIMULATION = (__file__, windows_locks.__file__)
THROUGH = ("pathlib", "shutil", "tempfile", "contextlib", "os", __name__)  # modules that act for their caller

POSIX_MODULES = {"crypt", "fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
MACOS_HIDDEN = {
    "os": {
        "O_TMPFILE O_DIRECT O_LARGEFILE O_NOATIME O_PATH SCHED_BATCH copy_file_range eventfd getrandom listxattr",
        "memfd_create pidfd_open posix_fadvise posix_fallocate sched_getaffinity sched_setaffinity splice",
    },
    "signal": {"SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT pidfd_send_signal sigtimedwait sigwaitinfo"},
}
WINDOWS_HIDDEN = {
    "os": {
        "O_CLOEXEC O_DIRECTORY O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC WEXITSTATUS WIFEXITED WIFSIGNALED WNOHANG",
        "WTERMSIG chflags chown chroot ctermid fchdir fchmod fchown fork forkpty fpathconf fstatvfs getegid geteuid",
        "getgid getgroups getloadavg getpgid getpgrp getpriority getresuid getsid getuid initgroups killpg lchown",
        "lockf major mkfifo mknod nice openpty pathconf pipe2 posix_spawn posix_spawnp pread preadv pwrite pwritev",
        "readv register_at_fork sched_get_priority_max sched_yield sendfile seteuid setgid setpgid setpriority setsid",
        "setuid statvfs sync sysconf tcgetpgrp ttyname uname wait wait3 wait4 waitid writev",
    },
    "signal": {
        "ITIMER_REAL SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGSYS",
        "SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ alarm getitimer",
        "pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigwait",
    },
}


class SeenModule(ModuleType):
    """A module without some of its names, and with others replaced; whatever is set is set in the module itself."""

    def __init__(self, real: ModuleType, hidden: set[str], replaced: dict[str, Any]) -> None:
        super().__init__(real.__name__)
        for name, value in {"real": real, "hidden": hidden, "replaced": replaced}.items():
            object.__setattr__(self, f"_{name}", value)

    def __getattribute__(self, name: str) -> Any:
        get = object.__getattribute__
        if name in get(self, "_replaced"):
            return get(self, "_replaced")[name]
        if name in get(self, "_hidden"):
            raise AttributeError(f"module {get(self, '_real').__name__!r} has no attribute {name!r} on this system")
        return getattr(get(self, "_real"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_real"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(object.__getattribute__(self, "_real"), name)

    def __dir__(self) -> list[str]:
        get = object.__getattribute__
        return sorted(set(dir(get(self, "_real"))) - get(self, "_hidden"))


def names(lines: set[str]) -> set[str]:
    return {name for line in lines for name in line.split()}


def is_ours(file: str | None) -> bool:
    return file is not None and file.startswith(OURS) and file not in OF_THE_SIMULATION


def acts_for_us() -> bool:
    """Whether the code that made this call, behind the modules that act for their caller, is in this repository."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") in THROUGH:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and is_ours(frame.f_code.co_filename)


def open_paths() -> Iterator[str]:
    """Paths of the files that this process has opened or mapped."""
    for descriptor in _listdir("/proc/self/fd"):
        with suppress(OSError):
            yield str(Path(f"/proc/self/fd/{descriptor}").readlink())
    with _open("/proc/self/maps") as maps:
        lines = maps.readlines()
    for line in lines:
        if "/" in line:
            yield line[line.index("/") :].rstrip("\n")


_open, _listdir = io.open, os.listdir  # before they are replaced


def refuse_open(path: Any) -> None:
    if isinstance(path, str | os.PathLike):
        place = str(Path(path).absolute().parent.resolve() / Path(path).name)
        for other in open_paths():
            if other == place or other.startswith(f"{place}/"):
                raise PermissionError(13, "the file is being used by another process (as on Windows)", str(path))


def simulate_imports(system: str) -> None:
    """Hide modules and names from the code of this repository."""
    windows = system == "windows"
    hidden = {
        name: names(MACOS_HIDDEN[name]) | (names(WINDOWS_HIDDEN[name]) if windows else set())
        for name in ("os", "signal")
    }
    seen: dict[str, ModuleType] = {
        "os": SeenModule(os, hidden["os"], {"name": "nt"} if windows else {}),
        "signal": SeenModule(signal, hidden["signal"], {}),
        "sys": SeenModule(sys, set(), {"platform": "win32" if windows else "darwin"}),
    } | ({"msvcrt": windows_locks} if windows else {})
    blocked = POSIX_MODULES if windows else set()
    usual = builtins.__import__

    def import_(name: str, globals_: Any = None, locals_: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level == 0 and is_ours((globals_ or {}).get("__file__")):
            if name in blocked:
                raise ModuleNotFoundError(f"No module named {name!r} on this system", name=name)
            if name in seen:
                return seen[name]
        return usual(name, globals_, locals_, fromlist, level)

    builtins.__import__ = import_


def without_proc(real: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a path that does not find /proc and /sys."""

    def call(path: Any, *args: Any, **options: Any) -> Any:
        if isinstance(path, str | os.PathLike) and str(path).startswith(("/proc", "/sys")) and acts_for_us():
            raise FileNotFoundError(2, "no such file on this system", str(path))
        return real(path, *args, **options)

    return call


def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one or two paths that refuses files which are open."""

    def call(*paths: Any, **options: Any) -> Any:
        if acts_for_us():
            for path in paths[:2]:
                refuse_open(path)
        return real(*paths, **options)

    return call


def no_links(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*paths: Any, **options: Any) -> Any:
        if acts_for_us():
            raise OSError(22, "a required privilege is not held by the client (as on Windows)")
        return real(*paths, **options)

    return call


def simulate_files(system: str) -> None:
    """No /proc and no /sys; on Windows, files that are open stay where they are."""
    for name in ("stat", "open", "scandir", "listdir"):
        setattr(os, name, without_proc(getattr(os, name)))
    io.open = builtins.open = without_proc(io.open)
    if system == "windows":
        for name in ("unlink", "remove", "rename", "replace", "rmdir"):
            setattr(os, name, refusing(getattr(os, name)))
        os.symlink = no_links(os.symlink)
        shutil._use_fd_functions = False  # type: ignore[attr-defined]  # it removes by paths


if __name__ == "simulated_system" and "PCFI_TEST_SYSTEM" in os.environ:  # not if it is only collected
    simulate_imports(os.environ["PCFI_TEST_SYSTEM"])
    simulate_files(os.environ["PCFI_TEST_SYSTEM"])
