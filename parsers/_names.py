"""Names of any length, which anybody may have written, cut to a length that names have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.problems import NAME_CUT, PATH_CUT, STACK_CUT

if TYPE_CHECKING:
    from collections import Counter

NAME_MAX: Final = 1 << 14
"""Characters of a name that are kept."""
STACK_MAX: Final = 1 << 16
"""Characters of a call stack that are kept."""
_MARKERS: Final = ('{"pyprof2":', "{'pyprof2':", "{'mod':", '{"mod":')
"""Markers are no names: a cut one says nothing, and their readers have limits of their own."""


def cut_name(name: str, problems: Counter[str]) -> str:
    """Return a name that is not too long; what is cut is counted."""
    if len(name) <= NAME_MAX or name.startswith(_MARKERS):
        return name
    problems[NAME_CUT] += 1
    return name[:NAME_MAX]


def cut_names(names: pa.StringArray, problems: Counter[str]) -> pa.StringArray:
    """Return names that are not too long; what is cut is counted."""
    if (pc.max(pc.binary_length(names)).as_py() or 0) <= NAME_MAX:
        return names
    return pa.array([text and cut_name(text, problems) for text in names.to_pylist()], pa.string())


def cut_stack(stack: str, problems: Counter[str]) -> str:
    """Return the innermost frames of a stack, which come first; if some are cut, it is counted."""
    if len(stack) <= STACK_MAX:
        return stack
    problems[STACK_CUT] += 1
    return _whole_parts(stack, ";", STACK_MAX)


def cut_path(path: str, problems: Counter[str]) -> str:
    """Return the outermost modules of a path, which come first; if some are cut, it is counted."""
    if len(path) <= NAME_MAX:
        return path
    problems[PATH_CUT] += 1
    return _whole_parts(path, ".", NAME_MAX)


def _whole_parts(text: str, separator: str, most: int) -> str:
    """Return the parts that fit as a whole: a cut one would be the name of something else."""
    return text[: most + 1].rpartition(separator)[0]
