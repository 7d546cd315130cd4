"""The kinds of stalls, by the names that the recorders of NVIDIA, AMD and Intel share."""

from __future__ import annotations

import re
from typing import Final

PROFILER: Final = "profiler"
OTHER: Final = "other"
SYNC: Final = "sync"
STREAM_WAIT: Final = "stream_wait"
DEVICE_WAIT: Final = "device_wait"
STREAM_WAIT_NAME: Final = "Stream Wait Event"

_WORDS: Final = {
    "module_load": r"module loading|function loading|driver (?:jit )?compiler",
    "queue_full": r"command buffer full",
    PROFILER: r"flush|instrumentation|resource|activity buffer request|profiling",
}
_KINDS: Final = {kind: re.compile(words, re.IGNORECASE) for kind, words in _WORDS.items()}


def overhead_kind(name: str, otherwise: str = OTHER) -> str:
    """Return the kind of an overhead; `otherwise` if its name says none."""
    return next((kind for kind, words in _KINDS.items() if words.search(name)), otherwise)


def wait_kind(name: str) -> str:
    """Return the kind of a wait: of a stream for an event of another one, or of the host."""
    return STREAM_WAIT if name == STREAM_WAIT_NAME else SYNC
