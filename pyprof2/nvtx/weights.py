"""Parameters and buffers by name: where each is, what it takes, and which line made it."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Final

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from pyprof2.markers import MAX_TEXT_BYTES, WEIGHTS_AT_MOST, Marker
from pyprof2.nvtx.holders import WRAPPED
from pyprof2.nvtx.internals import WeakIdKeyDictionary
from pyprof2.nvtx.storages import place_of, storages_of, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, MutableMapping
    from contextlib import ExitStack

    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

    from pyprof2.markers import HeldFor, Weight
    from pyprof2.nvtx.sources import Sources

_ROOM: Final = MAX_TEXT_BYTES // 2
"""Characters of a marker: some are written as three."""
_NUMBERS: Final = 100
"""Characters that a weight takes beside its name and lines."""

_made_at: Final[MutableMapping[Tensor | Module, str]] = WeakIdKeyDictionary()
"""The user's own lines that registered each parameter, buffer and module first, the innermost of
them first, one to a line."""


def note_lines(sources: Sources, undo: ExitStack) -> None:
    """Note from now on which lines make parameters, buffers and modules: that register them first.

    Args:
        sources: knows the user's own code.
        undo: takes what ends it.
    """

    def note(_module: Module, _name: str, made: Tensor | Module | None) -> None:
        if made is not None and made not in _made_at:
            lines = sources.own_lines(sys._getframe(1))  # noqa: SLF001 -- there is no other way
            if lines:
                _made_at[made] = "\n".join(lines)

    for register in (
        register_module_parameter_registration_hook,
        register_module_buffer_registration_hook,
        register_module_module_registration_hook,
    ):
        undo.callback(register(note).remove)


class Weights:
    """Describes parameters and buffers, each as far as it is new.

    A tensor keeps the name that it was first written with: its path in the first module with it.
    """

    def __init__(self, root_of: Callable[[Module], str]) -> None:
        """Know nothing yet.

        Args:
            root_of: gives the name of a module, for names that two modules have.
        """
        self._root_of = root_of
        self._names: MutableMapping[Tensor, str] = WeakIdKeyDictionary()
        self._owners: dict[str, weakref.ref[Tensor]] = {}
        self._lines: MutableMapping[Tensor, str | None] = WeakIdKeyDictionary()
        self._written: dict[str, tuple[str, str, Weight]] = {}

    def begin(self) -> None:
        """Write everything again."""
        self._written.clear()

    def new(self, modules: Iterable[Module], optimizers: Iterable[Optimizer]) -> Iterator[Marker]:
        """Yield markers of what is new or has changed since it was written."""
        states = _state_bytes(optimizers)
        groups: dict[tuple[HeldFor, str], list[Weight]] = {}
        for category, tensor, name in self._named(modules, optimizers):
            places = (place_of(storage) for storage in storages_of(tensor))
            address = next((place[0] for place in places if place is not None), None)
            if address is None:
                continue  # it has no memory
            before = self._written.get(name)
            gradient = None if tensor.grad is None else _bytes_of(tensor.grad)
            # A gradient that is cleared has been there: how much it takes stays known.
            if gradient is None and before is not None:
                gradient = before[2][4]
            kind = str(tensor.dtype).removeprefix("torch.")
            state = states.get(tensor)
            weight = (
                name,
                kind,
                address,
                _bytes_of(tensor),
                gradient,
                state,
                self._lines.get(tensor),
            )
            written = category, str(tensor.device), weight
            if before != written:
                self._written[name] = written
                groups.setdefault(written[:2], []).append(weight)
        for (category, device), weights in groups.items():
            for part in _in_parts(weights):
                yield Marker("memory", device=device, category=category, weights=part)

    def _named(
        self, modules: Iterable[Module], optimizers: Iterable[Optimizer]
    ) -> Iterator[tuple[HeldFor, Tensor, str]]:
        """Yield each parameter and buffer once, with its name."""
        seen: set[int] = set()
        for module in modules:
            members: list[tuple[HeldFor, str, Tensor]] = [
                ("parameter", *pair) for pair in module.named_parameters()
            ]
            members += [("buffer", *pair) for pair in module.named_buffers()]
            for category, path, tensor in members:
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield category, tensor, self._name(tensor, path, module)
        for optimizer in optimizers:
            for at, group in enumerate(optimizer.param_groups):
                for number, tensor in enumerate(tensors_in(group["params"])):
                    if id(tensor) not in seen:
                        seen.add(id(tensor))
                        name = f"{type(optimizer).__name__}.{at}.{number}"
                        yield "parameter", tensor, self._name(tensor, name, None)

    def _name(self, tensor: Tensor, path: str, module: Module | None) -> str:
        """Return the name of a tensor, which no other living one has."""
        known = self._names.get(tensor)
        if known is not None:
            return known
        name = plain = ".".join(part for part in path.split(".") if part != WRAPPED)
        if self._is_taken(name) and module is not None:
            name = plain = f"{self._root_of(module)}.{plain}"
        number = 1
        while self._is_taken(name):
            number += 1
            name = f"{plain}#{number}"
        self._names[tensor] = name
        # No line made what is copied: it has those of its module.
        holders: list[Tensor | Module] = [tensor]
        if module is not None:
            names = path.split(".")[:-1]
            parts = (".".join(names[:count]) for count in range(len(names), 0, -1))
            holders += [module.get_submodule(part) for part in parts]
        self._lines[tensor] = next((_made_at[each] for each in holders if each in _made_at), None)
        self._owners[name] = weakref.ref(tensor)
        return name

    def _is_taken(self, name: str) -> bool:
        owner = self._owners.get(name)
        return owner is not None and owner() is not None


def _in_parts(weights: list[Weight]) -> Iterator[tuple[Weight, ...]]:
    """Yield as many weights at a time as the text of a marker has room for."""
    part: list[Weight] = []
    room = _ROOM
    for weight in weights:
        room -= len(weight[0]) + len(weight[-1] or "") + _NUMBERS
        if part and (room < 0 or len(part) == WEIGHTS_AT_MOST):
            yield tuple(part)
            part, room = [], _ROOM
        part.append(weight)
    if part:
        yield tuple(part)


def _state_bytes(optimizers: Iterable[Optimizer]) -> MutableMapping[Tensor, int]:
    """Return what optimizers keep for each parameter on its device: Adam counts on the CPU."""
    found: MutableMapping[Tensor, int] = WeakIdKeyDictionary()
    for optimizer in optimizers:
        for tensor, state in list(optimizer.state.items()):
            if isinstance(tensor, torch.Tensor):
                own = (t for t in tensors_in({0: state}) if t.device == tensor.device)
                found[tensor] = found.get(tensor, 0) + sum(map(_bytes_of, own))
    return found


def _bytes_of(tensor: Tensor) -> int:
    """Return the bytes that a tensor takes of its storages: of a view only its own."""
    sizes = [place[1] for s in storages_of(tensor) if (place := place_of(s)) is not None]
    if len(sizes) == 1 and tensor.layout == torch.strided:
        return min(sizes[0], tensor.numel() * tensor.element_size())
    return sum(sizes)
