"""The holder of a module where it is called: an attribute, a variable, or another module.

That gives a root its name, see `pyprof2.nvtx.layers`.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.nn import Module

from pyprof2.nvtx.sources import is_torch_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType, FrameType

WRAPPED: Final = "_orig_mod"
"""Where the wrapper that torch.compile puts around a module holds it: no layer of its own."""

FRAMES_AT_MOST: Final = 32
"""Frames in which what holds a module is looked for, from its call outwards."""

PARTS_AT_MOST: Final = 1000
"""Values of variables or attributes that are searched for a module at most, the nearest first."""

DEPTH_AT_MOST: Final = 3
"""How deep: `self.models["first"].generator`."""

_COMPREHENSIONS: Final = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Names of code that has a frame of its own inside of a function's."""

_NOT_HELD: Final = ("args", "kwargs", "_modules", "__builtins__")
"""Dicts and lists that are no place of their own."""

_SEQUENCES: Final = (list, tuple, deque, set, frozenset)
_NO_HOLDERS: Final = (
    type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, Module, torch.Tensor, str,
    bytes, int, float,
)  # fmt: skip
"""Values that are not looked into: a module's parts are layers, and the others hold none."""

_ODD_OBJECTS: Final = (AttributeError, RuntimeError, TypeError)
"""Errors that objects of unknown classes may raise when they are looked into."""


class Holder(NamedTuple):
    """The holder of a module: another one, by a path; or none, and the module has a name or not.

    Attributes:
        frame: where to look for what holds the holder.
        path: of the module in it.
        name: of the holder, or of the module if there is no holder, where a variable has it.
    """

    module: Module | None
    frame: FrameType | None
    path: str
    name: str | None


def find_holder(
    module: Module, frame: FrameType | None, known: Callable[[Module], object]
) -> Holder:
    """Return what holds a module where it is called, from `frame` outwards.

    Args:
        module: it is called there.
        frame: of the call.
        known: returns the layer of a module that has one: what is registered in it has one too.
    """
    own: Holder | None = None
    for outer in _own_frames(frame):
        try:
            found = _holder_in(module, outer, known)
        finally:
            _forget_variables(outer)
        if outer.f_code.co_name in _COMPREHENSIONS and (found is None or found.module is None):
            # Its variable stands for what the function around it holds: `[m(x) for m in self.all]`.
            own = own or found
            continue
        found = found or own
        if found is not None:
            return found
        # A module without modules is named after its class: all that matters is a holder.
        if not has_modules(module):
            break
    return own or Holder(None, None, "", None)


def _own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those around it, but for those of torch."""
    for _ in range(FRAMES_AT_MOST):
        if frame is None:
            return
        if not is_torch_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _forget_variables(frame: FrameType) -> None:
    """Let go of the variables that were looked at in a frame.

    Before Python 3.13 they are copied to a dictionary that lives as long as the frame, and with it
    what the program deletes. Where the program itself has it, from `locals()`, it is left alone.
    """
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        variables = frame.f_locals
        if sys.getrefcount(variables) <= _OWN_REFERENCES:
            variables.clear()


_OWN_REFERENCES: Final = 3
"""To the variables of a frame: its own, ours, and that of the function which counts."""


def _holder_in(
    module: Module, frame: FrameType, known: Callable[[Module], object]
) -> Holder | None:
    """Return what holds a module in one frame; None: nothing."""
    code, variables = frame.f_code, frame.f_locals
    first = code.co_varnames[0] if code.co_argcount else "self"
    caller: Any = variables.get("self", variables.get(first))
    if caller is module and (first == "self" or _is_method(code, module)):
        return None  # the frame that calls this method of its own says who holds it
    if _is_module(caller):
        path = path_in(caller, module, deep=known(caller) is None)
        if path is not None:
            return Holder(caller, frame.f_back, path, None)
    spaces = [_attributes(caller), variables]
    if variables is not frame.f_globals:
        spaces.append(frame.f_globals)
    if has_modules(module):
        names = (_name_in(space, module) for space in spaces)
        name = next((name for name in names if name is not None), None)
        if name is not None:
            return Holder(None, None, "", name)
    return _module_among(spaces, module, frame, known)


def _module_among(
    spaces: Sequence[dict[str, Any]],
    module: Module,
    frame: FrameType,
    known: Callable[[Module], object],
) -> Holder | None:
    """Return the module that holds another one, among attributes and variables; None: none does."""
    is_large = has_modules(module)
    for space in spaces:
        for name, value in list(space.items()):
            if _is_module(value) and value is not module:
                path = path_in(value, module, deep=is_large and known(value) is None)
                if path is not None:
                    return Holder(value, frame, path, name)
    return None


def _is_method(code: CodeType, module: Module) -> bool:
    method: Any = getattr(type(module), code.co_name, None)
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return getattr(method, "__code__", None) is code


def path_in(holder: Module, module: Module, *, deep: bool) -> str | None:
    """Return the path of a module in one that holds it; None: it does not.

    Args:
        holder: it may hold the module.
        module: it is looked for.
        deep: whether modules of modules are looked at too.
    """
    parts = holder.named_modules() if deep else holder.named_children()
    found = next((name for name, part in parts if part is module and name), None)
    return found or _name_in(_attributes(holder), module)


def _attributes(value: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = vars(value)
    except _ODD_OBJECTS:
        return {}
    return found


def _name_in(space: dict[str, Any], module: Module) -> str | None:
    """Return the name that holds a module among some; one that holds it in a list or an object.

    The nearest first: what is held in something that is held comes after it.
    """
    level = [(name, value) for name, value in space.items() if name not in _NOT_HELD]
    left = PARTS_AT_MOST
    for _ in range(DEPTH_AT_MOST):
        for name, value in level:
            if value is module:
                return name
        parts: list[tuple[str, Any]] = []
        for name, value in level:
            if left <= 0:
                break
            inside = _parts_of(value)
            if len(inside) <= left:
                left -= len(inside)
                parts += [(f"{name}.{key}", part) for key, part in inside]
        level = parts
    return next((name for name, value in level if value is module), None)


def _parts_of(value: Any) -> list[tuple[Any, Any]]:
    """Return what a value holds by key, place or attribute, without running code of its class."""
    kind = type(value)
    try:
        if issubclass(kind, dict):
            return list(dict.items(value)) if dict.__len__(value) <= PARTS_AT_MOST else []
        for sequence in _SEQUENCES:
            if issubclass(kind, sequence):
                few = sequence.__len__(value) <= PARTS_AT_MOST
                parts = sequence.__iter__(value) if few else ()
                names = getattr(kind, "_fields", None)  # of a named tuple
                return list(zip(names, parts, strict=False) if names else enumerate(parts))
    except _ODD_OBJECTS:
        return []
    return [] if issubclass(kind, _NO_HOLDERS) else _attributes_of(value)


def _attributes_of(value: Any) -> list[tuple[Any, Any]]:
    found = _attribute(value, "__dict__")
    held = list(found.items()) if type(found) is dict else []
    fields = getattr(type(value), "__dataclass_fields__", None)
    if not held and type(fields) is dict:  # it has slots instead
        held = [(name, _attribute(value, name)) for name in fields]
    return held


def _attribute(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except _ODD_OBJECTS:
        return None


def _is_module(value: object) -> bool:
    # Not `isinstance`, for which an object may say what it likes.
    return issubclass(type(value), Module)


def has_modules(module: Module) -> bool:
    """Return whether a module is made of others, what torch.compile puts around it aside."""
    return any(True for _ in getattr(module, WRAPPED, module).children())
