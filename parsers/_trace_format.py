"""What describes a format of recordings: one of these for each that is read."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.problems import Advice
    from pyprof2.recording import Recording


class Reader(Protocol):
    """What the module that reads a format has."""

    def read_recordings(
        self, path: Path, folder: Path, on_progress: Callable[[int], None] | None = None
    ) -> list[Recording]:
        """Return the recordings in a file, one per process; their tables go into `folder`."""

    def holds_work(self, path: Path) -> bool:
        """Return whether any op or GPU activity is in a file; reads no further than the first."""


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format of recordings.

    Attributes:
        name: as the table `trace` has it in `profiler`.
        files: its files, in words for people.
        source: what makes them, in words.
        suffixes: of its files; the longest that fits is no part of the name of the store.
        recognises: whether a file that begins with these bytes is one.
        reader: the module that reads them, by name: it is imported when a file is read.
        advice: how to record with it what a recording lacks.
        sole_suffixes: those that no other format has; the reader is asked what is wrong with a
            file that has one and is not recognised.
        exports: the suffix of a file, and that of its export; beside it the first is not read.
    """

    name: str
    files: str
    source: str
    suffixes: tuple[str, ...]
    recognises: Callable[[bytes], bool]
    reader: str
    advice: Advice
    sole_suffixes: tuple[str, ...] = ()
    exports: tuple[tuple[str, str], ...] = ()

    def load_reader(self) -> Reader:
        """Import the module that reads the format."""
        return cast("Reader", import_module(self.reader))
