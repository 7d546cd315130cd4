"""Ranges of the user's own: `annotate` a piece of code, `wrap` a function."""

from __future__ import annotations

import functools
import inspect
from contextlib import ContextDecorator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pyprof2.errors import refuse
from pyprof2.nvtx.annotation import current_session
from pyprof2.nvtx.internals import hide_frame, is_tracing
from pyprof2.nvtx.schema import UserFunction

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pyprof2.nvtx.session import AnnotationSession


class annotate(ContextDecorator):  # noqa: N801 -- used like a function
    """Put a range with a text of your own around a piece of code, or around a function.

    ::

        with pyprof2.annotate("data loading"):
            batch = next(batches)


        @pyprof2.annotate("validation")
        def validate(model): ...

    It does nothing unless `pyprof2.init` was called, and nothing in code that is compiled. As a
    decorator it is for plain functions: of a generator or a coroutine it marks the making only.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._entered: list[AnnotationSession | None] = []

    def _recreate_cm(self) -> annotate:
        """Make one of its own for each call of a decorated function."""
        return annotate(self._name)

    def __enter__(self) -> None:
        if is_tracing():
            return
        session = current_session()
        if session is not None:
            session.enter_text(id(self), self._name)
        self._entered.append(session)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if is_tracing() or not self._entered:
            return
        session = self._entered.pop()
        if session is not None:
            session.leave(id(self))


def wrap(owner: ModuleType | type, name: str) -> None:
    """Mark the calls of a function as if it were an op, with its arguments.

    For functions that are no ops of PyTorch, such as those of a CUDA extension: the kernels that
    they launch have an op then, `module::function` with shapes and dtypes, for which a cost can be
    registered.

    ::

        import my_extension

        pyprof2.wrap(my_extension, "fused_norm")
        pyprof2.wrap(my_extension.Solver, "solve")

    The function does what it did, with or without `init`. Names that were imported from the module
    before (`from my_extension import fused_norm`) stay what they are.

    Args:
        owner: the module or class that has the function.
        name: of the function; static methods and class methods stay what they are.

    Raises:
        UsageError: there is no such function.
    """
    if not isinstance(owner, (ModuleType, type)):
        refuse(f"wrap: {owner!r} is no module and no class")
    attribute = inspect.getattr_static(owner, name, None)
    is_method = isinstance(attribute, (staticmethod, classmethod))
    function = attribute.__func__ if is_method else attribute
    if not callable(function):
        refuse(f"wrap: {owner.__name__} has no function {name!r}")
    if hasattr(function, "_pyprof2_op"):
        return
    home = f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__
    marked = _marked(UserFunction(f"{home}::{name}", function), function)
    setattr(owner, name, type(attribute)(marked) if is_method else marked)


def _marked(op: UserFunction, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def marked(*args: Any, **kwargs: Any) -> Any:
        session = None if is_tracing() else current_session()
        end = None if session is None else session.open_function(op, args, kwargs)
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            if end is not None:
                end()

    marked._pyprof2_op = op  # type: ignore[attr-defined]  # noqa: SLF001 -- ours
    return marked
