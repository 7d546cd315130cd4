"""Notes of each graph that torch.compile compiles: which lines, layers and ops its kernels are of.

Inductor writes kernels that do the work of several lines, and forgets which. What it knows while it
compiles is noted here, and goes into the trace of torch.profiler, whose range of each call of a
graph then has a key of ours. Nothing of it runs with the program's steps. All that is asked of the
compiler is private to it: what a version of torch does not have, or what fails, is left out.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import inspect
import json
import os
import re
import sys
import threading
from contextlib import ExitStack
from importlib import util
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn import Module

from pyprof2.markers import COMPILED_KEY, COMPILED_VERSION
from pyprof2.nvtx.holders import WRAPPED
from pyprof2.nvtx.internals import (
    COMPILER,
    MODULE_CALLS,
    Need,
    add_metadata,
    cache_key,
    hooks_of_compiler,
    lacks,
    of_compiler,
    profiler_runs,
    set_cache_key,
)
from pyprof2.nvtx.replacing import replace

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib import machinery
    from types import ModuleType

    from pyprof2.nvtx.layers import Layers

_FRAME: Final = re.compile(r'  File "(.+)", line (\d+), in (.+)\n(?:    (.*)\n)?')
_TAG: Final = "partitioner_tag"
GRAPHS_AT_MOST: Final = 10_000
"""Nothing is noted of more graphs: a program that compiles so often is no training."""


EVENTS_AT_MOST: Final = 1_000
"""Nothing is noted of more breaks of graphs."""


class CompileNotes:
    """The notes of this process; they stay when nothing is recorded, as compiled graphs do."""

    def __init__(self) -> None:
        self._graphs: list[dict[str, Any]] = []
        self._modules: dict[str | None, int | None] = {}
        self._users = 0
        self._undo = ExitStack()
        self._local = threading.local()
        self._stacks: dict[str, list[list[Any]]] = {}

    # -- from when to when ---------------------------------------------------------------------

    def begin(self, undo: ExitStack, *, keep_cache: bool) -> None:
        """Take notes from now on, until `undo` is closed.

        Args:
            undo: takes what ends it.
            keep_cache: whether graphs may come from torch's caches; of those nothing is known.
        """
        undo.callback(self._end)
        self._users += 1
        if self._users > 1:
            return
        if COMPILER in sys.modules:
            self._hook(keep_cache=keep_cache)
            return
        # The compiler is imported where the program needs it.
        watch = _CompilerWatch(lambda: self._hook(keep_cache=keep_cache))
        sys.meta_path.insert(0, watch)
        self._undo.callback(watch.end)

    def _end(self) -> None:
        self._users -= 1
        if not self._users:
            self._undo.close()

    def _hook(self, *, keep_cache: bool) -> None:
        """Wrap what compiles a graph; whatever of it is missing stays as it is."""
        lacks(Need.COMPILED)
        with contextlib.suppress(Exception):
            config, functorch = of_compiler("config"), of_compiler("functorch")
            wanted: list[tuple[Any, str, Any]] = [(config.cpp, "enable_kernel_profile", True)]
            level = max(1, getattr(config.trace, "provenance_tracking_level", 1))
            wanted.append((config.trace, "provenance_tracking_level", level))
            if not keep_cache:
                # Their keys do not hold the numbers of lines, so what they give may have old ones.
                wanted += [(config, "fx_graph_cache", False)]
                wanted += [(functorch, "enable_autograd_cache", False)]
            for owner, name, value in wanted:
                self._set(owner, name, value)
        with contextlib.suppress(Exception):
            around = {
                "passes": _tagged, "codegen": self._generated, "compile": self._compiled,
                "finish": self._finished,
            }  # fmt: skip
            for short, owner, name in hooks_of_compiler():
                replace(owner, name, around[short], self._undo)

    def _set(self, owner: Any, name: str, value: Any) -> None:
        """Set an option of the compiler, if this version has it."""
        with contextlib.suppress(Exception):
            before = getattr(owner, name)
            setattr(owner, name, value)
            self._undo.callback(setattr, owner, name, before)

    # -- what is noted -------------------------------------------------------------------------

    def _generated(self, generate: Callable[..., Any], lowering: Any, *args: Any, **kw: Any) -> Any:
        """Take the buffers of a graph when its code has been written."""
        found = generate(lowering, *args, **kw)
        with contextlib.suppress(Exception):
            self._local.buffers = [_buffer(each) for each in lowering.buffers]
        return found

    def _compiled(self, compile_: Callable[..., Any], gm: Any, *args: Any, **kw: Any) -> Any:
        """Note a graph that is compiled here and now."""
        self._local.buffers, self._local.note = [], None
        maps: Any = None
        with contextlib.suppress(Exception):
            # It is not emptied between the graphs of one compilation.
            maps = of_compiler("kernels")
            maps.clear()
        found = compile_(gm, *args, **kw)
        with contextlib.suppress(Exception):
            self._note(gm, found, maps, is_backward=bool(kw.get("is_backward")))
        return found

    def _note(self, gm: Any, graph: Any, maps: Any, *, is_backward: bool) -> None:
        if len(self._graphs) >= GRAPHS_AT_MOST:
            return
        compile_id = _compile_id()
        if not is_backward:
            self._modules[compile_id] = _module_called()
        if maps is not None:
            # Where it was replaced meanwhile, the new one has the names.
            maps = of_compiler("kernels")
        note = {
            "compile_id": compile_id,
            "backward": is_backward,
            "module": self._modules.get(compile_id),
            "nodes": [self._node(node) for node in gm.graph.nodes],
            "kernels": {str(name): list(map(str, nodes)) for name, nodes in (maps or {}).items()},
            "buffers": self._local.buffers,
            "code": str(graph.source_code),
        }
        if cache_key(graph) is None:
            # The range of each call shows it. Without caches torch has none.
            set_cache_key(graph, f"pyprof2-{os.getpid()}-{len(self._graphs)}")
        note["key"] = cache_key(graph)
        with contextlib.suppress(Exception):
            note["file"] = of_compiler("path")(graph.cache_key, "py")[2]
        self._graphs.append(note)
        self._local.note = note

    def _finished(self, finish: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Take the key that a cache gives a graph, and that of one that it had."""
        self._local.note = None
        found = finish(*args, **kwargs)
        with contextlib.suppress(Exception):
            key, note = cache_key(found), self._local.note
            if note is not None:
                note["key"] = key
                _mark_calls(found, key)
            elif key is not None and len(self._graphs) < GRAPHS_AT_MOST:
                of = {"compile_id": _compile_id(), "backward": bool(kwargs.get("is_backward"))}
                self._graphs.append({**of, "key": key, "lacks": "cache"})
        return found

    def _node(self, node: Any) -> dict[str, Any]:
        meta = node.meta
        stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
        module: Any = None
        for key, (path, kind) in stack.items():
            name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
            # A module that is called again has a number behind it: `ID@2`.
            number = str(key).partition("@")[0]
            module = [int(number) if number.isdigit() else None, str(path), name]
        original = meta.get("original_aten")
        found = {
            "name": node.name,
            "kind": node.op,
            "target": _target(node.target),
            "original": None if original is None else _target(original),
            "inputs": [each.name for each in node.all_input_nodes],
            "frames": self._frames(meta.get("stack_trace")),
            "module": module,
            "is_backward": _is_backward(meta),
            "seq": meta.get("seq_nr"),
            "tensor": _tensor(meta.get("val")),
        }
        return {name: value for name, value in found.items() if value not in (None, [])}

    def _frames(self, text: str | None) -> list[list[Any]] | None:
        """Return the frames of a stack, the innermost first: file, line, function, code."""
        if not text:
            return None
        found = self._stacks.get(text)
        if found is None:
            found = [[f, int(n), name, code] for f, n, name, code in _FRAME.findall(text)][::-1]
            self._stacks[text] = found
        return found

    # -- what becomes of it --------------------------------------------------------------------

    def add_to_trace(self, layers: Layers) -> None:
        """Put the notes into the trace of the torch.profiler that runs.

        Args:
            layers: names modules.
        """
        if not self._graphs:
            return
        with contextlib.suppress(Exception):
            text = encoded([_named(each, layers) for each in self._graphs])
            add_metadata(COMPILED_KEY, json.dumps(text))


def encoded(graphs: list[dict[str, Any]]) -> str:
    """Return notes as a trace has them: a line of JSON for each, behind one of their version."""
    first = {"version": COMPILED_VERSION, "torch": str(torch.__version__), "events": _events()}
    lines = [first, *graphs]
    content = "\n".join(json.dumps(each, separators=(",", ":")) for each in lines)
    return base64.b64encode(gzip.compress(content.encode(), 6, mtime=0)).decode()


def _events() -> list[list[str | None]]:
    """Return why code was not compiled as one graph, or more than once: kind, place, reason."""
    found: list[list[str | None]] = []
    with contextlib.suppress(Exception):
        for each in of_compiler("breaks")[:EVENTS_AT_MOST]:
            place = next((f"{f.filename}:{f.lineno}" for f in reversed(each.user_stack)), None)
            found.append(["graph break", place, str(each.reason)])
    with contextlib.suppress(Exception):
        for own in of_compiler("metrics")()[-EVENTS_AT_MOST:]:
            if own.recompile_reason:
                place = f"{own.co_filename}:{own.co_firstlineno}"
                found.append(["recompilation", place, str(own.recompile_reason)])
    return found


def _named(note: dict[str, Any], layers: Layers) -> dict[str, Any]:
    """Return a note with the layers of its modules: path, root, whether it is the root."""

    def layer_of(number: int | None, kind: str | None = None) -> list[Any] | None:
        known = None if number is None else layers.known.get(number)
        module = None if known is None else known.ref()
        # The id may be that of another module by now.
        if known is None or module is None or (kind is not None and _kind(module) != kind):
            return None
        marker = known.forward.marker
        return [marker.layer, marker.root, bool(marker.outermost)]

    nodes = []
    for node in note.get("nodes", ()):
        module = node.get("module")
        layer = None if module is None else layer_of(module[0], module[2])
        nodes.append(node if layer is None else node | {"layer": layer})
    return note | {"nodes": nodes, "layer": layer_of(note.get("module"))}


def _kind(module: Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _mark_calls(graph: Any, key: str) -> None:
    """Have calls of a graph be ranges with its key, as torch itself does from 2.9 on."""
    if "Call CompiledFxGraph" in inspect.getsource(type(graph).__call__):
        return
    call = graph.current_callable
    name = f"## Call CompiledFxGraph {key} ##"

    def marked(inputs: Any) -> Any:
        if not profiler_runs():
            return call(inputs)
        with torch.autograd.profiler.record_function(name):
            return call(inputs)

    graph.current_callable = marked


def _module_called() -> int | None:
    """Return the id of the module whose call is being compiled; None where it is none."""
    frame = sys._getframe(1)  # noqa: SLF001 -- there is no other way
    while frame is not None:
        if frame.f_code in MODULE_CALLS:
            module = frame.f_locals.get("self")
            if isinstance(module, Module) and not hasattr(module, WRAPPED):
                return id(module)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _compile_id() -> str | None:
    found = of_compiler("compilation")()
    return None if found is None else str(found)


def _target(target: Any) -> str:
    """Return the name of an op with its overload, `aten.mm.default`; else of the function."""
    name = getattr(target, "_overloadname", None)
    if name is not None:
        return str(target)
    return target if isinstance(target, str) else str(getattr(target, "__name__", target))


def _tagged(pass_: Callable[..., Any], gm: Any, *args: Any, **kwargs: Any) -> Any:
    """Tag the nodes of forward, before they are run again in backward; newer torch has done so."""
    with contextlib.suppress(Exception):
        own = [node for node in gm.graph.nodes if node.op == "call_function"]
        tags = {node.meta.get(_TAG) for node in own}
        # All that backward made has its tag. What passes make gets the tag of what it replaces.
        if "is_backward" in tags and "is_forward" not in tags:
            for node in own:
                node.meta.setdefault(_TAG, "is_forward")
    return pass_(gm, *args, **kwargs)


def _is_backward(meta: dict[str, Any]) -> bool | None:
    """Return whether a node is of backward; None where nothing says so."""
    tag = meta.get(_TAG)
    if tag in ("is_forward", "is_backward", "must_be_in_backward"):
        return bool(tag != "is_forward")
    return None


def _tensor(value: Any) -> list[Any] | None:
    """Return sizes and dtype of the tensor that a node makes, those of each of several."""
    if isinstance(value, (tuple, list)):
        return [_tensor(each) for each in value]
    if not isinstance(value, torch.Tensor):
        return None
    return [[_size(each) for each in value.shape], str(value.dtype).removeprefix("torch.")]


def _size(size: Any) -> int | str:
    # As an int a symbol would become a number that the program is compiled for.
    return size if type(size) is int else str(size)


def _buffer(buffer: Any) -> dict[str, Any]:
    """Return what a buffer is: the node that it holds, and its sizes."""
    found: dict[str, Any] = {"name": str(buffer.get_name())}
    with contextlib.suppress(Exception):
        found["node"] = None if buffer.origin_node is None else str(buffer.origin_node.name)
        found["origins"] = [str(each.name) for each in buffer.origins]
    with contextlib.suppress(Exception):
        layout = buffer.get_layout()
        sizes = [int(s) if getattr(s, "is_Integer", False) else str(s) for s in layout.size]
        found["tensor"] = [sizes, str(layout.dtype).removeprefix("torch.")]
    return found


class _CompilerWatch:
    """Calls a function when the compiler has been imported."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then, self._is_looking = then, False

    def end(self) -> None:
        """Look out for it no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> machinery.ModuleSpec | None:
        """Find it as the other finders do."""
        if name != COMPILER or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = util.find_spec(name)
        finally:
            self._is_looking = False
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module
                execute(module)
                self.end()
                self._then()

            loader.exec_module = exec_module
        return spec


notes: Final = CompileNotes()
"""The notes of this process."""
