# The types of the compiled scanner, _scan.c.
from collections.abc import Callable

class Scanner:
    def __init__(
        self,
        groups: tuple[tuple[object, ...], ...],
        group_of: Callable[[bytes, bytes], int],
        seed: int,
        /,
    ) -> None: ...
    def scan(
        self, text: bytes, /
    ) -> tuple[int, list[tuple[bytes, bytes, int]], list[tuple[int, list[bytes]]]] | None: ...
    def words(self, which: int, first: int, /) -> list[bytes]: ...
