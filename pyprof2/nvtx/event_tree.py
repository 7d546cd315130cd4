"""The lines of ops from the Python stacks that torch.profiler keeps, where there is no observer.

In a trace the line of a frame is that of its `def`. In memory each call knows the line of its
caller, be it of Python or of C. An operator, or a subscript, is no call: the line of an op directly
in a function of the user's is not known, and none is given.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.frames import is_generated, is_own_path
from pyprof2.markers import ROWS_AT_MOST, OpPlace, PlacesById
from pyprof2.nvtx.internals import EventType
from pyprof2.nvtx.sources import FRAMES_AT_MOST, is_installed_file, is_user_file, shown_path

if TYPE_CHECKING:
    from collections.abc import Sequence

_NODE: Final = "autograd::engine::evaluate_function"
_USER_SCOPE: Final = 7
"""Ranges of the program's own."""


class _StackCall:
    """A call that Python makes.

    Attributes:
        lines: from that of the call out to the user's own; None: it is not known which file it is.
        is_inside: whether the called function is the user's or a library's, of which nothing says
            how far it is.
    """

    __slots__ = ("is_inside", "lines")

    def __init__(self, event: Any, outer: _StackCall | None, root: str | None) -> None:
        caller = event.extra_fields.caller
        path = full_path(caller.file_name)
        around = () if outer is None else outer.lines
        self.lines: tuple[str, ...] | None = None
        if path is not None and is_user_file(path):
            line = f"{shown_path(path)}:{caller.line_number}"
            is_own = not is_installed_file(path) and is_own_path(shown_path(path), root)
            if is_own:
                self.lines = (line,)
            elif around is not None:
                self.lines = (line, *around)
        elif path is not None:
            self.lines = around
        self.is_inside = False
        if event.typed[0] == EventType.PyCall:
            inside = full_path(event.extra_fields.callsite.file_name)
            self.is_inside = inside is None or is_user_file(inside)

    @property
    def source(self) -> str | None:
        """The lines as text; None: unknown."""
        if self.is_inside or not self.lines:
            return None
        is_long = len(self.lines) > FRAMES_AT_MOST
        return "\n".join((*self.lines[:FRAMES_AT_MOST], self.lines[-1]) if is_long else self.lines)


@cache
def full_path(path: str) -> str | None:
    """Return the path of a file, which the profiler shortened by `sys.path`; None: unknown.

    Args:
        path: as the profiler shows it.
    """
    if Path(path).is_absolute() or is_generated(path):
        return path
    whole = (Path(folder, path).absolute() for folder in sys.path)
    # `sys.path` may name one folder in several ways.
    found = {full.resolve(): str(full) for full in whole if full.exists()}
    return found.popitem()[1] if len(found) == 1 else None


def places_of(roots: Sequence[Any], source_root: str | None) -> PlacesById:
    """Return where the ops were called that Python calls; those in them are called from there too.

    Args:
        roots: `experimental_event_tree()` of a torch.profiler `with_stack` that has ended.
        source_root: the folder of the user's own code.
    """
    ids: list[int] = []
    rows: list[int] = []
    places: dict[OpPlace, int] = {}
    todo: list[tuple[Any, _StackCall | None, bool]] = [(event, None, False) for event in roots]
    while todo:
        event, call, is_in_op = todo.pop()
        kind = event.typed[0]
        if kind in (EventType.PyCall, EventType.PyCCall):
            call, is_in_op = _StackCall(event, call, source_root), False
        elif kind == EventType.TorchOp:
            if event.name.startswith(_NODE):
                continue  # the line of its forward op is
            is_op = not event.name.startswith("{") and int(event.extra_fields.scope) != _USER_SCOPE
            source = None if call is None or is_in_op or not is_op else call.source
            is_in_op |= is_op
            if source is not None:
                place = OpPlace(event.name, None, None, False, source)  # noqa: FBT003
                ids.append(event.correlation_id)
                rows.append(places.setdefault(place, len(places)))
        todo += [(child, call, is_in_op) for child in event.children]
    found, order = np.array(ids, np.int64), np.argsort(np.array(ids, np.int64))[:ROWS_AT_MOST]
    return PlacesById("external_id", found[order], np.array(rows, np.int64)[order], list(places))
