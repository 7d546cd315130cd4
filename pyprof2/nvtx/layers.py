"""Which layer a module is: its path of attributes below the root module.

A module that is called from outside of any other is a root, unless the object that calls it is a
module that holds it: then that is. A root is named after what holds it where it is called, an
attribute of the caller's `self`, or a variable; where nothing does, after its class.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import torch

from pyprof2.markers import Marker
from pyprof2.nvtx.holders import WRAPPED, Holder, find_holder, has_modules, path_in

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from torch.nn import Module

    from pyprof2.nvtx.catalog import Catalog, OpScope

NUMBERS_AT_MOST: Final = 100
"""Objects of one name that each get a number of their own; of more, the next one gets the number
of one that is gone. A module that is made anew for each step would take a new text each time."""


class Opened(Protocol):
    """A range that is open, with what closes it: of a module its id."""

    token: int


class Layer(NamedTuple):
    """A module with a name, and what its calls are in.

    Attributes:
        ref: the module.
        path: from the root, empty for the root itself.
        root: the name of the root; None: it is the module itself, and has no other modules.
        forward: the scope of its calls.
        recompute: the scope of its calls inside backward.
    """

    ref: weakref.ref[Module]
    path: str
    root: str | None
    forward: OpScope
    recompute: OpScope


class Layers:
    """Names modules, and leaves no trace in them.

    A root names all modules below it, each by the first path that leads to it.

    Attributes:
        known: the layer that was found for the id of a module; perhaps of another one.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.known: dict[int, Layer] = {}
        self._paths: dict[tuple[str | None, str], weakref.ref[Module]] = {}
        self._names = _Names()
        self._lock = threading.RLock()

    def find(self, module: Module, open_ranges: Iterable[Opened], frame: FrameType | None) -> Layer:
        """Return the layer of a module.

        Args:
            module: it is called.
            open_ranges: of the thread, the innermost last.
            frame: that calls it.
        """
        known = self.known.get(id(module))
        if known is not None and known.ref() is module:
            return known
        with self._lock:
            inner = self._caller_of(module, open_ranges, frame)
            return self._add(module, inner or find_holder(module, frame, self._known))

    def root_of(self, module: Module) -> str:
        """Return the name of the root that a module belongs to; its class, where it has none."""
        known = self._known(module)
        return _class_name(module) if known is None or known.root is None else known.root

    def _known(self, module: Module) -> Layer | None:
        known = self.known.get(id(module))
        return known if known is not None and known.ref() is module else None

    def _caller_of(
        self, module: Module, open_ranges: Iterable[Opened], frame: FrameType | None
    ) -> Holder | None:
        """Return the module that runs, if the module was put into it after it was named."""
        for item in reversed(list(open_ranges)):
            known = self.known.get(item.token)
            caller = None if known is None else known.ref()
            if caller is not None:
                path = path_in(caller, module, deep=False)
                return None if path is None else Holder(caller, frame, path, None)
        return None

    def _add(self, module: Module, holder: Holder, name: str | None = None) -> Layer:
        """Name a module and those below it.

        Args:
            module: it has no name yet.
            holder: of the module.
            name: of the module if it is a root, where that is known already.
        """
        known = self._known(getattr(module, WRAPPED, module))
        if known is not None:
            layer = self.known[id(module)] = known._replace(ref=self._ref(module))
            return layer
        if holder.module is not None:
            outer = self._name_holder(holder.module, holder)
            # If it is one of its modules, it got a name with it.
            return self._known(module) or self._name_all(
                module, f"{outer.path}.{holder.path}".removeprefix("."), outer.root
            )
        if not has_modules(module):
            return self._name_all(module, "", None)
        # The replicas of a model, one for each GPU, are made anew for each step.
        is_replica = getattr(module, "_is_replica", False) is True
        name = (
            _class_name(module)
            if is_replica
            else self._names.take(module, name or holder.name or _class_name(module))
        )
        return self._name_all(module, "", name)

    def _name_holder(self, module: Module, found: Holder) -> Layer:
        """Return the layer of a module that holds another one, which has a root therefore."""
        known = self._known(module) or self._add(
            module, find_holder(module, found.frame, self._known), found.name
        )
        if known.root is None:
            # Nothing was registered in it when it was called first: it stays what it is.
            name = found.name or find_holder(module, found.frame, self._known).name
            root = self._names.take(module, name or _class_name(module))
            known = self.known[id(module)] = known._replace(root=root)
        return known

    def _name_all(self, module: Module, path: str, root: str | None) -> Layer:
        path = self._own_path(module, path, root)
        for name, part in module.named_modules(prefix=path):
            self._remember(part, name, root)
        return self.known[id(module)]

    def _own_path(self, module: Module, path: str, root: str | None) -> str:
        """Return a path that no other module of the root has: `parts.1`, `parts.1#2`.

        The keys 1 and "1" of a dict are two, and so may be an attribute at two times.
        """
        if not path:
            return path
        wanted, number = path, 1
        while True:
            ref = self._paths.get((root, path))
            known = None if ref is None else ref()
            if known is None or known is module:
                self._paths[root, path] = weakref.ref(module)
                return path
            number += 1
            path = f"{wanted}#{number}"

    def _remember(self, module: Module, path: str, root: str | None) -> None:
        path = ".".join(part for part in path.split(".") if part != WRAPPED)
        kind = _class_name(module)
        name = kind if root is not None else self._names.take(module, kind)
        forward, recompute = (
            self._catalog.scope(
                Marker(
                    "layer",
                    layer=path or name,
                    module=kind,
                    recompute=again,
                    root=root,
                    outermost=root is not None and not path,
                )
            )
            for again in (False, True)
        )
        self.known[id(module)] = Layer(self._ref(module), path, root, forward, recompute)

    def _ref(self, module: Module) -> weakref.ref[Module]:
        key, layers = id(module), self.known

        def forget(gone: weakref.ref[Module]) -> None:
            # By now its id may be that of another module.
            if key in layers and layers[key].ref is gone:
                del layers[key]

        return weakref.ref(module, forget)


class _Names:
    """Gives each object a name that no other one has: `net`, `net#2`."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = defaultdict(int)
        self._free: dict[str, deque[int]] = defaultdict(deque)

    def take(self, module: Module, name: str) -> str:
        """Return a name for a module, which is its own as long as it exists."""
        free = self._free[name]
        # The name of a root, `models.0`, may be a path below another: 0 in `models`.
        if name not in self._taken and any(
            name.startswith(f"{taken}.") or taken.startswith(f"{name}.") for taken in self._taken
        ):
            self._taken[name] = 1
        if self._taken[name] >= NUMBERS_AT_MOST and free:
            number = free.popleft()
        else:
            number = self._taken[name] = self._taken[name] + 1
        weakref.finalize(module, free.append, number).atexit = False
        return name if number == 1 else f"{name}#{number}"


def _class_name(module: Module) -> str:
    if isinstance(module, torch.jit.ScriptModule):
        return str(module.original_name)
    return type(getattr(module, WRAPPED, module)).__name__
