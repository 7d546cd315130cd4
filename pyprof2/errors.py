"""Every error that pyprof2 raises on purpose.

::

    Pyprof2Error
    ├── TraceError          a recording cannot be read, or holds nothing to profile
    ├── StoreError          a store cannot be read or written
    │   └── SchemaError     it was written by another schema version
    ├── RemoteError         what is far away cannot be read or written
    ├── MemoryShortError    there is too little memory; a `MemoryError` too
    ├── OutputExistsError   something is there already, and --force was not given
    ├── CaptureError        a script cannot be recorded: something is missing, or nothing came
    ├── TableError          a table lacks a column or has one of the wrong type
    ├── CostRegistrationError  a formula for an op that has one, or in a category that is none
    └── UsageError          an option or argument makes no sense

Each message says which file, what is wrong, and what to do about it, in one line.
`is_shortage` knows too little memory, whoever raised it: Arrow, NumPy, SQLite, the system.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Pyprof2Error(Exception):
    """Anything that pyprof2 has to say to its user; the command line prints it and exits with 1."""


class TraceError(Pyprof2Error):
    """A recording cannot be read, or holds nothing to profile."""


class StoreError(Pyprof2Error):
    """A store cannot be read or written."""


class SchemaError(StoreError):
    """A store was written by another schema version; parse the recording again."""


class RemoteError(Pyprof2Error):
    """A remote store or file cannot be read or written: no connection, no rights, nothing there."""


class MemoryShortError(Pyprof2Error, MemoryError):
    """There is too little memory for a recording or a store; neither is damaged by it."""


class OutputExistsError(Pyprof2Error):
    """The output is there already; move it away or say --force."""


class CaptureError(Pyprof2Error):
    """A script cannot be recorded: something that it needs is missing, or nothing was recorded."""


class TableError(Pyprof2Error):
    """A table lacks a column, or has one of the wrong type."""


class CostRegistrationError(Pyprof2Error, ValueError):
    """A formula was registered for an op that has one, or in a category that is none."""


class UsageError(Pyprof2Error):
    """An option or argument makes no sense; the command line exits with 2."""


def say(text: str) -> None:
    """Print one line for the user of a program that runs on; nowhere, if stderr is closed."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"pyprof2: {text}", file=sys.stderr, flush=True)  # noqa: T201 -- no command line


def fault(error: BaseException) -> str:
    """Return what is said of an error: of our own code what and where, else what it says itself."""
    text = " ".join(str(error).split())
    if isinstance(error, (Pyprof2Error, OSError)):
        return text
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f", {Path(trace.tb_frame.f_code.co_filename).name}"
    line = "" if trace is None else f":{trace.tb_lineno}"
    return f"a fault in pyprof2 ({type(error).__name__}: {text}{where}{line})"


_P = ParamSpec("_P")


def harmless(lost: str) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Make a fault of a function of ours a line on stderr: the program of the user runs on.

    Args:
        lost: what is not done then.
    """

    def around(function: Callable[_P, None]) -> Callable[_P, None]:
        @functools.wraps(function)
        def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
            try:
                function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 -- whatever it is
                say(f"{fault(error)}: {lost}; the script runs on")

        return run

    return around


def refuse(message: str) -> NoReturn:
    """Refuse what was asked for.

    Raises:
        UsageError: always.
    """
    raise UsageError(message)


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean A or B? " for the known names that are most like one; else nothing.

    A name that begins as the other does comes first: `operator` is `op`.
    """
    lower = {each.lower(): each for each in known}
    given = name.lower()
    near = [n for n in lower if n and (given.startswith(n) or (given and n.startswith(given)))]
    near += difflib.get_close_matches(given, lower, cutoff=0.5)
    names = list(dict.fromkeys(lower[each] for each in near))[:3]
    return f"did you mean {' or '.join(names)}? " if names else ""


def refuse_without(what: str, *packages: str) -> NoReturn:
    """Refuse what needs packages that are not installed.

    Args:
        what: as the subject of the message: `the editor's server`.
        packages: as pip knows them, at least one.

    Raises:
        UsageError: always; it has the command that installs them.
    """
    raise UsageError(without(what, *packages))


def without(what: str, *packages: str) -> str:
    """Return the message of `refuse_without`."""
    return f"{what} needs {' and '.join(packages)}: pip install {' '.join(packages)}"


class TerminatedError(SystemExit):
    """SIGTERM ends the program: no error, and no `SystemExit` of other people's code."""


class LeftOutWarning(UserWarning):
    """Some of the recordings could not be read; the store has the others."""


_WORDS: Final = re.compile(
    r"bad_alloc|out of memory|(?:cannot|could not|unable to) allocate|allocation failed"
    r"|(?:m|re|c)alloc of size|can't start new thread|failed to launch worker thread"
    r"|failed to map segment",
    re.IGNORECASE,
)
_BYTES: Final = re.compile(r"(?:alloc of size|allocate) (\d+\.?\d*)(?: ([KMGT]iB|bytes))?")
_SCALES: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_UNITS: Final = {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


def is_shortage(error: BaseException) -> bool:
    """Whether an error, or what ours came from, says that there is too little memory."""
    if isinstance(error, KeyboardInterrupt):
        return _is_of_library(error)
    if isinstance(error, SystemError) and _is_limited():  # of C code whose allocation failed
        return True
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    if isinstance(error, (TraceError, StoreError)):  # others say what a script lacked
        return error.__cause__ is not None and is_shortage(error.__cause__)
    return not isinstance(error, Pyprof2Error) and bool(_WORDS.search(str(error)))


def _is_of_library(error: KeyboardInterrupt) -> bool:
    """Whether a library interrupts the program because it gets no thread while it is loaded.

    OpenBLAS does, which NumPy loads; nobody has pressed a key. It happens where a limit is set.
    """
    from dis import opname

    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or not _is_limited():
        return False
    # Frames of importlib itself are left out of tracebacks.
    code = place.tb_frame.f_code
    return opname[code.co_code[place.tb_lasti]].startswith("IMPORT")


def _is_limited() -> bool:
    """Whether the memory that this process may take is limited, as by `ulimit -v`."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)


def shortage(error: BaseException, place: object) -> MemoryShortError:
    """Return what to say of an error that is one.

    Args:
        error: `is_shortage` of it.
        place: what was being read or written.
    """
    found = _BYTES.search(str(error.__cause__ or error))
    asked = "" if found is None else f" ({_size(found)} more were asked for)"
    msg = (
        f"{place}: not enough memory{asked}; take fewer --jobs, end other programs, or do it on a "
        "machine with more"
    )
    return MemoryShortError(msg)


def _size(found: re.Match[str]) -> str:
    nbytes = float(found[1]) * (1 << _UNITS.get(found[2], 0))
    scale, unit = next(each for each in _SCALES if nbytes >= each[0] or each is _SCALES[-1])
    return f"{nbytes / scale:,.1f} {unit}"
