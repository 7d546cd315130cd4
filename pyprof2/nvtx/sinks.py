"""Where ranges go: NVTX, through the Python package of that name."""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyprof2.errors import UsageError
from pyprof2.markers import DOMAIN, MAX_TEXT_BYTES, Marker, format_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_COLOR: Final = "blue"

_NOT_TAKEN: Final = (
    "a profiler is attached, but takes no ranges of the domain pyprof2: it may be too old for this"
    " version of the Python package nvtx; pip install 'nvtx<0.2.12'"
)

INJECTION: Final = "NVTX_INJECTION64_PATH"
"""The variable by which a profiler has itself loaded."""

_REFUSED: Final = "a profiler is attached, but takes no NVTX ranges"

TEXT_LIMIT: Final = 50_000
"""Texts that are registered at most: NVTX keeps every one until the process ends."""

CAME_AT_MOST: Final = 1 << 14
"""Texts, by their hashes, of which it is remembered that they came once."""


class Attributes(Protocol):
    """The attributes of a pushed range. One object serves all ranges of a thread in turn."""

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
        copied: as long as it is entered, what is pushed with these attributes has this text, which
            is not kept; None: all texts have to be registered.
        is_native: whether it is the observer's own, which pushes without Python.
    """

    domain: Any
    register: Callable[[str], Any]
    new_attributes: Callable[[], Attributes]
    push: Callable[[Attributes, Any], object]
    pop: Callable[[Any], object]
    mark: Callable[[Attributes, Any], object]
    copied: Callable[[Attributes, str], AbstractContextManager[None]] | None = None
    is_native: bool = False


def observer_sink(observer: Any) -> Sink | None:
    """Return the sink that writes NVTX ranges from C++; None where no profiler listens."""
    found = observer.listener(DOMAIN)
    if found < 0:
        warnings.warn(_REFUSED, stacklevel=4)
    if found <= 0:
        return None
    return Sink(
        None, observer.register_text, _PlainAttributes, observer.push, observer.pop,
        observer.mark, _copied_plainly, is_native=True,
    )  # fmt: skip


class _PlainAttributes:
    """Attributes whose message is the number of a registered text, or a text to copy."""

    __slots__ = ("message", "payload")

    def __init__(self) -> None:
        self.message: Any = ""
        self.payload = 0


@contextmanager
def _copied_plainly(attributes: Attributes, text: str) -> Iterator[None]:
    attributes.message = text
    yield
    attributes.message = ""


def numbered_sink(sink: Sink) -> Sink:
    """Return a sink that does the same, whose messages are numbers: what the observer can keep."""
    messages: list[Any] = [None]
    local = threading.local()

    def register(text: str) -> int:
        messages.append(sink.register(text))
        return len(messages) - 1

    def passing(function: Callable[[Any, Any], object]) -> Callable[[Attributes, Any], None]:
        def push(attributes: Attributes, domain: Any) -> None:
            own = getattr(local, "attributes", None)
            if own is None:
                own = local.attributes = sink.new_attributes()
            own.payload = attributes.payload
            if isinstance(attributes.message, str) and sink.copied is not None:
                with sink.copied(own, attributes.message):
                    function(own, domain)
            else:
                own.message = messages[attributes.message]
                function(own, domain)

        return push

    copied = None if sink.copied is None else _copied_plainly
    return Sink(
        sink.domain, register, _PlainAttributes, passing(sink.push), sink.pop,
        passing(sink.mark), copied,
    )  # fmt: skip


def nvtx_sink() -> Sink | None:
    """Return the sink that writes NVTX ranges; None where no profiler listens, if NVTX says.

    The package `nvtx` says so from 0.2.12 on. Tried with 0.2.10 to 0.2.17.

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
        if os.environ.get(INJECTION):
            warnings.warn(_NOT_TAKEN, stacklevel=4)
        return None
    # The attributes of later versions know their domain; those of older ones have no payload.
    first = (domain,) if hasattr(lib, "DummyDomain") else ()
    register = partial(lib.RegisteredString, domain.handle)
    new_attributes = partial(lib.EventAttributes, *first, register(""), _COLOR, None, 0)
    try:
        copied = copied_texts(new_attributes())
    except TypeError as error:
        msg = "the Python package nvtx is too old; pip install 'nvtx>=0.2.10'"
        raise UsageError(msg) from error
    return Sink(
        domain.handle, register, new_attributes, lib.push_range, lib.pop_range, lib.mark, copied
    )


class _EventAttributes(ctypes.Structure):
    """NVTX's own, which the package `nvtx` sets up for registered texts alone."""

    _fields_ = (
        ("version", ctypes.c_uint16),
        ("size", ctypes.c_uint16),
        ("category", ctypes.c_uint32),
        ("color_type", ctypes.c_int32),
        ("color", ctypes.c_uint32),
        ("payload_type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("payload", ctypes.c_int64),
        ("message_type", ctypes.c_int32),
        ("message", ctypes.c_char_p),
    )


_COPIED, _REGISTERED = 1, 3
_INT64: Final = 2
_PROBE: Final = 0x5A17_C0DE_0F_A7EC75


def copied_texts(
    attributes: Any,
) -> Callable[[Attributes, str], AbstractContextManager[None]] | None:
    """Return `Sink.copied` for attributes such as these; None: they are of a kind we do not know.

    The package `nvtx` has no way to it. So the structure that NVTX gets is looked for inside of its
    objects, by all that is known of it, and changed there for the time being.
    """
    attributes.payload = _PROBE
    size = type(attributes).__basicsize__
    step = ctypes.alignment(_EventAttributes)
    found = []
    for offset in range(0, size - ctypes.sizeof(_EventAttributes) + 1, step):
        event = _EventAttributes.from_address(id(attributes) + offset)
        if (
            event.size == ctypes.sizeof(_EventAttributes)
            and (event.payload_type, event.payload) == (_INT64, _PROBE)
            and event.message_type == _REGISTERED
        ):
            found.append(offset)
    if len(found) != 1:
        return None

    @contextmanager
    def copied(attributes: Attributes, text: str) -> Iterator[None]:
        event = _EventAttributes.from_address(id(attributes) + found[0])
        event.message, event.message_type = text.encode(), _COPIED
        try:
            yield
        finally:
            event.message_type = _REGISTERED

    return copied


class Copied:
    """A text in place of a registered message: it did not come twice yet, or there are too many."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Messages:
    """Makes messages of texts, and registers those that come again, but only so many.

    A text that comes first is copied when it is pushed, and only its hash is remembered.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._messages: dict[str, Any] = {}
        self._lines: dict[tuple[str, bool], Any] = {}
        self._came: set[int] = set()
        self._came_before: set[int] = set()
        self._steps: dict[Any, Any] = {}

    def of_line(self, source: str, *, recompute: bool) -> Any:
        """Return the message that says which line makes the calls inside."""
        key = source, recompute
        message = self._lines.get(key)
        if message is None:
            if len(self._lines) >= TEXT_LIMIT:
                self._lines.clear()
            marker = Marker("source", source=source, recompute=recompute)
            message = self._lines[key] = self.lasting(marker)
        return message

    def lasting(self, marker: Marker) -> Any:
        """Return the message of a marker that will come often."""
        return self._of(format_marker(marker), is_first=False)

    def of_marker(self, marker: Marker) -> Any:
        """Return the message of a marker."""
        if marker.kind == "step":  # several in every step, which differ in their payloads alone
            found = self._steps.get(marker.event) if marker.step is None else None
            if found is None:
                found = self._of(format_marker(marker), is_first=False)
                if marker.step is None:
                    self._steps[marker.event] = found
            return found
        return self._of(format_marker(marker), is_first=True)

    def of_text(self, text: str) -> Any:
        """Return the message of a text of the user's own."""
        text = text.encode("utf-8", "backslashreplace")[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
        return self._of(text.replace("\0", ""), is_first=True)

    @property
    def is_full(self) -> bool:
        """Whether no more texts are registered."""
        return len(self._messages) >= TEXT_LIMIT

    def next_of(self, text: str) -> Any:
        """Return what the text of a marker is pushed with now: the first time that is copied."""
        return self._next(self._of(text, is_first=True))

    def next_of_text(self, text: str) -> Any:
        """Return what a text of the user's own is pushed with now."""
        return self._next(self.of_text(text))

    def _next(self, message: Any) -> Any:
        return self._again(message) if type(message) is Copied else message

    def push(
        self, message: Any, attributes: Any, payload: int, push: Callable[[Any, Any], object]
    ) -> Any:
        """Push, or mark, with a message that may be `Copied`; return the message for the next time.

        Args:
            message: of the range.
            attributes: of the thread.
            payload: of the range.
            push: of the sink, or its `mark`.
        """
        attributes.payload = payload
        if type(message) is Copied:
            message = self._again(message)
        if type(message) is Copied and self._sink.copied is not None:
            with self._sink.copied(attributes, message.text):
                push(attributes, self._sink.domain)
        else:
            attributes.message = message
            push(attributes, self._sink.domain)
        return message

    def _of(self, text: str, *, is_first: bool) -> Any:
        found = self._messages.get(text)
        if found is not None:
            return found
        if self._sink.copied is not None and (is_first or len(self._messages) >= TEXT_LIMIT):
            return Copied(text)
        return self._register(text)

    def _again(self, message: Copied) -> Any:
        """Return what a text is pushed with: the second time it is registered."""
        found = self._messages.get(message.text)
        if found is not None:
            return found
        key = hash(message.text)
        if len(self._messages) < TEXT_LIMIT and (key in self._came or key in self._came_before):
            return self._register(message.text)
        if len(self._came) >= CAME_AT_MOST // 2:
            self._came, self._came_before = set(), self._came
        self._came.add(key)
        return message

    def _register(self, text: str) -> Any:
        message = self._messages[text] = self._sink.register(text)
        return message
