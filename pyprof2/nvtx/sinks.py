"""Where ranges go: NVTX, through the Python package of that name."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyprof2.errors import UsageError
from pyprof2.markers import DOMAIN, MAX_TEXT_BYTES, Marker, format_marker

if TYPE_CHECKING:
    from collections.abc import Callable

_COLOR: Final = "blue"

_NOT_TAKEN: Final = (
    "a profiler is attached, but takes no ranges of the domain pyprof2: it may be too old for this"
    " version of the Python package nvtx; pip install 'nvtx<0.2.12'"
)

TEXT_LIMIT: Final = 50_000
"""Full texts that are registered at most: NVTX keeps every one until the process ends."""

_COARSE_LIMIT: Final = 2 * TEXT_LIMIT
_TOO_MANY: Final = "(more ranges than can be told apart)"


class Attributes(Protocol):
    """What a range is pushed with. One object serves all ranges of a thread in turn."""

    message: Any
    payload: int


@dataclass(frozen=True, slots=True)
class Sink:
    """How to push and pop a range, and to mark an instant, on the calling thread.

    Attributes:
        domain: what `push`, `pop` and `mark` take as their last argument.
        register: returns what a message is set to, for a text.
        new_attributes: returns fresh attributes, which must not be shared between threads: to set
            them and to push them are two things, and another thread may run in between.
        push, pop, mark: called for every op, so they are functions in C.
    """

    domain: Any
    register: Callable[[str], Any]
    new_attributes: Callable[[], Attributes]
    push: Callable[[Attributes, Any], object]
    pop: Callable[[Any], object]
    mark: Callable[[Attributes, Any], object]


def nvtx_sink() -> Sink | None:
    """Return the sink that writes NVTX ranges; None where no profiler listens, if NVTX tells.

    The package `nvtx` tells from 0.2.12 on. Tried with 0.2.10 to 0.2.17.

    Raises:
        UsageError: the package `nvtx` is missing, or of a kind that we do not know.
    """
    try:
        from nvtx import _lib as lib
    except ImportError as error:
        msg = "the Python package nvtx is not installed; pip install nvtx"
        raise UsageError(msg) from error
    domain = lib.Domain(DOMAIN)
    if not hasattr(domain, "handle"):
        if os.environ.get("NVTX_INJECTION64_PATH"):
            warnings.warn(_NOT_TAKEN, stacklevel=4)
        return None
    # The attributes of later versions know their domain; those of older ones have no payload.
    first = (domain,) if hasattr(lib, "DummyDomain") else ()
    register = partial(lib.RegisteredString, domain.handle)
    new_attributes = partial(lib.EventAttributes, *first, register(""), _COLOR, None, 0)
    try:
        new_attributes()
    except TypeError as error:
        msg = "the Python package nvtx is too old; pip install 'nvtx>=0.2.10'"
        raise UsageError(msg) from error
    return Sink(domain.handle, register, new_attributes, lib.push_range, lib.pop_range, lib.mark)


class Messages:
    """Registers each distinct text once, and only so many."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._messages: dict[str, Any] = {}
        self._lines: dict[tuple[str, bool], Any] = {}

    def of_line(self, source: str, *, recompute: bool) -> Any:
        """Return the message that says which line makes the calls inside."""
        key = source, recompute
        message = self._lines.get(key)
        if message is None:
            if len(self._lines) >= TEXT_LIMIT:
                self._lines.clear()
            marker = Marker("source", source=source, recompute=recompute)
            message = self._lines[key] = self.of_marker(marker)
        return message

    def of_marker(self, marker: Marker) -> Any:
        """Return the message of a marker.

        Where there are too many already it says less: an op's text loses its inputs first, then
        its layer and source.
        """
        text = format_marker(marker)
        if self._has_room(text, TEXT_LIMIT):
            return self._register(text)
        coarse = Marker(
            marker.kind,
            op=marker.op,
            layer=marker.layer,
            root=marker.root,
            outermost=marker.outermost,
            source=marker.source,
            direction=marker.direction,
            recompute=marker.recompute,
            step=marker.step,
            event=marker.event,
        )
        text = format_marker(coarse)
        if self._has_room(text, _COARSE_LIMIT):
            return self._register(text)
        return self._register(
            format_marker(
                Marker(marker.kind, op=marker.op, direction=marker.direction, event=marker.event)
            )
        )

    def of_text(self, text: str) -> Any:
        """Return the message of a text of the user's own."""
        text = text.encode("utf-8", "backslashreplace")[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
        return self._register(text if self._has_room(text, TEXT_LIMIT) else _TOO_MANY)

    def _has_room(self, text: str, limit: int) -> bool:
        return text in self._messages or len(self._messages) < limit

    def _register(self, text: str) -> Any:
        message = self._messages.get(text)
        if message is None:
            message = self._messages[text] = self._sink.register(text)
        return message
