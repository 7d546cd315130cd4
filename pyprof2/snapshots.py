"""What a snapshot of an allocator says, as columns: the parser makes it, the analyses take it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

DEVICES_KEY: Final = "pyprof2_devices"
"""The key of a snapshot under which `pyprof2 capture` puts what is used of each device."""


@dataclass(frozen=True)
class Stack:
    """The frames of one call stack, innermost first: file, line, function."""

    frames: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of one process.

    Attributes:
        path: the file.
        events: in the order of recording: `device`, `action` (text), `address`, `bytes`,
            `time_ns`, `device_free_bytes`, `stack` (place in `stacks`), `note`; null: not known.
        segments: `device`, `address`, `total_bytes`, `allocated_bytes`, `active_bytes`,
            `expandable`.
        blocks: `segment` (its place), `address`, `bytes`, `requested_bytes`, `state`, `stack`.
        stacks: each distinct one once.
        settings: of the allocator, as far as they are recorded.
        device_count: how many devices it has a list of events for.
        non_torch: bytes that others than the allocator use, by device; empty: not recorded.
        unread: what is in it that this version does not know, with counts.
    """

    path: Path
    events: pa.Table
    segments: pa.Table
    blocks: pa.Table
    stacks: list[Stack]
    settings: dict[str, Any]
    device_count: int
    non_torch: dict[int, int] = field(default_factory=dict)
    unread: Counter[str] = field(default_factory=Counter)
