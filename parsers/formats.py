"""The formats that are read; one more is one more here, and its own modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.parsers._kineto_format import KINETO
from pyprof2.parsers._nsight_format import NSIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.parsers._trace_format import TraceFormat
    from pyprof2.problems import Advice

FORMATS: Final[tuple[TraceFormat, ...]] = (KINETO, NSIGHT)

_SUFFIXES: Final = [suffix for known in FORMATS for suffix in known.suffixes]

ENDINGS: Final = tuple(dict.fromkeys("." + suffix.rpartition(".")[2] for suffix in _SUFFIXES))
"""What the names of recordings end in."""


def find_format(name: str, head: bytes) -> TraceFormat | None:
    """Return the format of a file: by its content, else by a suffix that only one format has.

    Args:
        name: of the file.
        head: its first bytes.
    """
    recognised = (known for known in FORMATS if known.recognises(head))
    named = (known for known in FORMATS if name.endswith(known.sole_suffixes or ("\0",)))
    return next(recognised, None) or next(named, None)


def advice_of(profilers: Sequence[str]) -> Advice:
    """Return how to record what is missing, with the first of these profilers that is known."""
    named = [known for name in profilers for known in FORMATS if known.name == name]
    return (named or list(FORMATS))[0].advice


def stem_of(name: str) -> str:
    """Return the name of a recording without its suffix: `net` for `net.json.gz`."""
    fitting = [suffix for suffix in _SUFFIXES if name.endswith(suffix)]
    return name.removesuffix(max(fitting, key=len, default="")) or name


def in_words(parts: list[str]) -> str:
    """Return parts of a sentence as a list in words: `a, b or c`."""
    return f"{', '.join(parts[:-1])} or {parts[-1]}" if len(parts) > 1 else "".join(parts)
