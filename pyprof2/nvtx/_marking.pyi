# The types of the compiled way of marking ops, _marking.c.
from collections.abc import Mapping
from typing import Any

class Matcher:
    def __init__(
        self,
        count: int,
        tensors: list[tuple[int, type, object, object, object]],
        others: list[tuple[int, type, bool, object]],
        device: object,
        /,
    ) -> None: ...
    def __call__(self, values: tuple[Any, ...], /) -> bool: ...

class Marker:
    active: bool
    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = ...,
        kwargs: Mapping[str, Any] | None = ...,
        /,
    ) -> Any: ...
