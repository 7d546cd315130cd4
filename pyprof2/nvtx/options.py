"""The options of `pyprof2.init`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from pyprof2.errors import refuse

SinkName: TypeAlias = Literal["auto", "nvtx", "kineto"]

SINKS: Final[tuple[str, ...]] = get_args(SinkName)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an annotation; see `pyprof2.nvtx.init`."""

    sink: SinkName = "auto"
    shapes: bool = True
    source: bool = True
    layers: bool = True
    scalars: bool = True
    cpu_peaks: bool = True
    energy: bool = True
    memory: bool = False
    steps: Container[int] | None = None
    source_root: str | None = None
    keep_cache: bool = False

    def __post_init__(self) -> None:
        if self.sink not in SINKS:
            refuse(f"sink is {self.sink!r}; it can be {', '.join(SINKS)}")
        if self.steps is not None and not isinstance(self.steps, Container):
            refuse(f"steps is {self.steps!r}; give a range or a set of step numbers")
        for name in (
            "shapes", "source", "layers", "scalars", "cpu_peaks", "energy", "memory", "keep_cache",
        ):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, bool):
                refuse(f"{name} is {value!r}; it can be True or False")
