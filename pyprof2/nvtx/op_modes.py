"""Which mode marks ops: the one in C where it was built and is wanted, else the one in Python."""

# mypy: disable-error-code="no-untyped-call"
# The base class of all modes has no types.

from __future__ import annotations

import functools
from typing import Any

from pyprof2.markers import NO_SEQUENCE
from pyprof2.nvtx import internals
from pyprof2.nvtx.compiled import marking
from pyprof2.nvtx.internals import ACCUMULATE_GRAD, hide_frame, without_torch_function
from pyprof2.nvtx.ops import OpMode
from pyprof2.nvtx.pairing import note_nodes
from pyprof2.nvtx.schema import Op
from pyprof2.nvtx.sinks import Copied


def op_mode() -> type[OpMode]:
    """Return the class of the modes that mark ops."""
    compiled = marking()
    is_there = compiled is not None and issubclass(Op, compiled.Op)
    return _compiled_mode(compiled.Marker) if is_there else OpMode


@functools.cache
def _compiled_mode(base: Any) -> type[OpMode]:
    """Return the mode whose `__torch_dispatch__` is that of `base`, which stands in C.

    What it needs are attributes, most of them those of the mode in Python.
    """

    class CompiledOpMode(base, OpMode):  # type: ignore[misc]  # it has no types
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._in_python = OpMode.__torch_dispatch__
            self._run_odd = run_odd
            self._copied = Copied
            self._note_nodes = note_nodes
            self._current_node = internals.current_node
            self._current_task = internals.current_task
            self._next_sequence_nr = internals.next_sequence_nr
            self._grad_enabled = internals.grad_enabled
            self._function_mode_enabled = internals.function_mode_enabled
            self._mode_count = internals.mode_count
            self._is_called = internals.is_called
            self._no_sequence = NO_SEQUENCE
            self._accumulate_grad = ACCUMULATE_GRAD

    return CompiledOpMode


def run_odd(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """Run an op with tensors that are not plain; see `OpMode.__torch_dispatch__`."""
    try:
        with without_torch_function():
            return op.run(*args, **(kwargs or {}))
    except BaseException as error:
        hide_frame(error)
        raise
