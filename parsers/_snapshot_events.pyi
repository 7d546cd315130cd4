# The types of the compiled reader of memory snapshots, _snapshot_events.c.
from collections.abc import Callable

from typing_extensions import Buffer

class Reader:
    def __init__(
        self,
        known: Callable[[int], bytes | tuple[int, int]],
        frame: Callable[[str, int, str], int],
        stack: Callable[[bytes], int],
        seed: int,
        /,
    ) -> None: ...
    def read(
        self, data: Buffer, at: int, stop: int, memoized: int, many: bool, /
    ) -> tuple[int, int, int, list[int]] | None: ...
    def write(self, which: int, write: Callable[[memoryview], object], /) -> int: ...
    def words(self, which: int, /) -> list[bytes]: ...
    def text(self, index: int, /) -> bytes | None: ...
