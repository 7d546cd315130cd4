"""Which layer a module is: its path of attributes below the root module."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from pyprof2.markers import Marker

if TYPE_CHECKING:
    from pyprof2.nvtx.catalog import Catalog, Scope
    from pyprof2.nvtx.threads import ThreadState

_WRAPPED: Final = "_orig_mod"
"""Where the wrapper that torch.compile puts around a module holds it: no layer of its own."""


class Layer(NamedTuple):
    """A module with a name: its path, empty for a root, and what its calls are in.

    Attributes:
        ref: the module.
        path: from the root.
        forward: the scope of its calls.
        recompute: the scope of its calls inside backward.
    """

    ref: weakref.ref[torch.nn.Module]
    path: str
    forward: Scope
    recompute: Scope


class Layers:
    """Names modules, and leaves no trace in them.

    The outermost module that is called is a root: it names all modules below it, each by the
    first path that leads to it, and itself by its class.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._layers: dict[int, Layer] = {}

    def find(self, module: torch.nn.Module, state: ThreadState) -> Layer:
        """Return the layer of a module that is called on a thread in that state."""
        known = self._layers.get(id(module))
        if known is not None and known.ref() is module:
            return known
        path = self._path_in_caller(module, state)
        for name, part in module.named_modules(prefix=path):
            self._remember(part, name)
        return self._layers[id(module)]

    def _path_in_caller(self, module: torch.nn.Module, state: ThreadState) -> str:
        """Return the path of a module that was put into its caller after that was named."""
        for item in reversed(state.open):
            caller = self._layers.get(item.token)
            parent = None if caller is None else caller.ref()
            if caller is not None and parent is not None:
                names = [name for name, child in parent.named_children() if child is module]
                return f"{caller.path}.{names[0]}".removeprefix(".") if names else ""
        return ""

    def _remember(self, module: torch.nn.Module, path: str) -> None:
        path = ".".join(part for part in path.split(".") if part != _WRAPPED)
        name = _class_name(module)
        forward, recompute = (
            self._catalog.scope(Marker("layer", layer=path or name, module=name, recompute=again))
            for again in (False, True)
        )
        key, layers = id(module), self._layers

        def forget(gone: weakref.ref[torch.nn.Module]) -> None:
            # By now its id may be that of another module.
            if key in layers and layers[key].ref is gone:
                del layers[key]

        layers[key] = Layer(weakref.ref(module, forget), path, forward, recompute)


def _class_name(module: torch.nn.Module) -> str:
    if isinstance(module, torch.jit.ScriptModule):
        return str(module.original_name)
    return type(getattr(module, _WRAPPED, module)).__name__
