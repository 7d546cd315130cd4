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

Steps: TypeAlias = int | tuple[int, int] | range
"""A step, the first and the last one, or a range of them; steps count from 0."""

VARIABLE: Final = "PYPROF2"
ON_DEMAND: Final = {"KINETO_USE_DAEMON": "1", "KINETO_LOG_LEVEL": "99"}
"""Torch reads them when it is imported: the process asks `pyprof2 watch` to be recorded, and does
not write to stderr every five seconds that nobody answers."""
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


def be_recordable() -> bool:
    """Let `pyprof2 watch` record this process; return whether it can: torch must come later."""
    if "torch" not in sys.modules:
        os.environ.update(ON_DEMAND | os.environ)
    return next(iter(ON_DEMAND)) in os.environ


def _text() -> str:
    return os.environ.get(VARIABLE, "").strip().lower()
