"""A sink that keeps what it gets, in place of NVTX: a recording of this very process."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyprof2.markers import Marker, parse_marker, parse_payload
from pyprof2.nvtx.sinks import Sink

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(eq=False)
class Range:
    """A range, or an instant, as it was pushed."""

    thread: int
    text: str
    payload: int
    parent: Range | None
    closed: bool = False

    @property
    def marker(self) -> Marker | None:
        return parse_marker(self.text)

    @property
    def op(self) -> str | None:
        return self.marker.op if self.marker else None

    @property
    def layer(self) -> str | None:
        return self.marker.layer if self.marker else None

    @property
    def sequence_nr(self) -> int | None:
        parsed = parse_payload(self.payload)
        return parsed[0] if parsed else None


@dataclass
class Recorder:
    """Keeps ranges in the order in which they were opened.

    Attributes:
        texts: what was registered.
        watch: called with each range when it is pushed.
        surplus: pops that nothing was open for.
    """

    ranges: list[Range] = field(default_factory=list)
    marks: list[Range] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    watch: Callable[[Range], None] | None = None
    surplus: int = 0
    _open: dict[int, list[Range]] = field(default_factory=lambda: defaultdict(list))

    def sink(self) -> Sink:
        return Sink(None, self._register, _new_attributes, self._push, self._pop, self._mark)

    def _register(self, text: str) -> str:
        self.texts.append(text)
        return text

    def _new(self, attributes: Any) -> Range:
        thread = threading.get_ident()
        parent = self._open[thread][-1] if self._open[thread] else None
        return Range(thread, attributes.message, attributes.payload, parent)

    def _push(self, attributes: Any, _domain: Any) -> None:
        pushed = self._new(attributes)
        self.ranges.append(pushed)
        self._open[pushed.thread].append(pushed)
        if self.watch is not None:
            self.watch(pushed)

    def _pop(self, _domain: Any) -> None:
        stack = self._open[threading.get_ident()]
        if stack:
            stack.pop().closed = True
        else:
            self.surplus += 1

    def _mark(self, attributes: Any, _domain: Any) -> None:
        self.marks.append(self._new(attributes))

    @property
    def is_balanced(self) -> bool:
        """Whether every range was closed, and none more than once."""
        return not self.surplus and all(r.closed for r in self.ranges)

    def ops(self, name: str | None = None, direction: str | None = None) -> list[Range]:
        """Return the ranges of ops, of one name or direction only if given."""
        return [
            item
            for item in self.ranges
            if (marker := item.marker)
            and marker.kind == "op"
            and name in (None, marker.op)
            and direction in (None, marker.direction)
        ]

    def markers(self, kind: str) -> list[Marker]:
        """Return the markers of one kind, of ranges and of instants."""
        found = [item.marker for item in (*self.ranges, *self.marks)]
        return [marker for marker in found if marker and marker.kind == kind]


def _new_attributes() -> Any:
    return SimpleNamespace(message=None, payload=0)
