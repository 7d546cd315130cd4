"""The environment variable `PYPROF2`: whether to record, and which steps.

It is read by `import pyprof2` and by what records from inside a program:

========== =====================================================================================
unset      what the program itself says; importing pyprof2 records nothing
`1`        the steps that the program names, else steps 3 to 6
`A`, `A:B` step A with A above 1, or the steps from A to B, whatever the program names
`0`        nothing, whatever the program says
========== =====================================================================================
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Final, TypeAlias

from pyprof2.errors import say
from pyprof2.own_files import SOCKET_DIR, socket_folder

Steps: TypeAlias = int | tuple[int, int] | range
"""A step, the first and the last one, or a range of them; steps count from 0."""

VARIABLE: Final = "PYPROF2"
_ON_DEMAND: Final = {"KINETO_USE_DAEMON": "1", "KINETO_LOG_LEVEL": "99"}
DEFAULT_STEPS: Final = (3, 6)
"""Past the first steps, in which caches fill and kernels are chosen."""

_OFF: Final = ("0", "off", "false", "no")
_ON: Final = ("1", "on", "true", "yes")


def is_off() -> bool:
    """Return whether nothing is to be recorded, whatever the program says."""
    return _text() in _OFF


def is_on() -> bool:
    """Return whether to record, whatever the program says."""
    return _text() not in ("", *_OFF)


def steps_asked() -> Steps | None:
    """Return the steps that the variable names; None: none, or it says only whether."""
    text = _text()
    if text in ("", *_ON, *_OFF):
        return None
    found = re.fullmatch(r"(\d{1,18})(?::(\d{1,18}))?", text)
    if found is None or int(found[1]) > int(found[2] or found[1]):
        warnings.warn(f"{VARIABLE} is {text!r}; it can be 1, 0, or steps such as 3:6", stacklevel=2)
        return None
    return int(found[1]), int(found[2] or found[1])


def steps_for(wanted: Steps | None) -> Steps | None:
    """Return the steps that a callback records, given those that the program names; None: none."""
    if is_off():
        return None
    return steps_asked() or wanted or (DEFAULT_STEPS if is_on() else None)


def on_demand() -> dict[str, str]:
    """Return the variables of a job that asks `pyprof2 watch`; torch reads them at its import.

    Such a job does not write to stderr every five seconds that nobody answers. Its sockets are in a
    folder of this user: a name outside of it another user may take, and have the job record.

    Raises:
        OSError: the folder is another user's, or cannot be made.
    """
    is_named = sys.platform != "linux" or os.environ.get(SOCKET_DIR)
    return _ON_DEMAND if is_named else _ON_DEMAND | {SOCKET_DIR: str(socket_folder())}


def be_recordable() -> bool:
    """Let `pyprof2 watch` record this process; return whether torch was not yet imported."""
    if "torch" in sys.modules:
        return next(iter(_ON_DEMAND)) in os.environ
    try:
        os.environ.update(on_demand() | os.environ)
    except OSError as error:
        say(f"{error.filename}: {error.strerror}: pyprof2 watch cannot record this program")
    return True


def _text() -> str:
    return os.environ.get(VARIABLE, "").strip().lower()
