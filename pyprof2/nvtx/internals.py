"""The part of PyTorch's private interface that is used, and nothing else.

When torch changes, look here. Tried with torch 2.13. All of it is cheap: most functions take some
30 ns.
"""

# ruff: noqa: SLF001 -- private members are what this module is for
from __future__ import annotations

import operator
import sys
import types
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import torch
from torch import _C
from torch.autograd import graph, profiler_legacy
from torch.autograd import profiler as autograd_profiler
from torch.fx import GraphModule

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from torch.utils._python_dispatch import TorchDispatchMode


Node: TypeAlias = Any
"""An autograd node, as the engine gives it."""

sequence_nr: Final[Callable[[Node], int]] = operator.methodcaller("_sequence_nr")
"""Autograd's number of a node."""

current_node: Final[Callable[[], Node | None]] = _C._current_autograd_node
"""The node that runs on this thread; None outside of backward and in its callbacks."""

current_task: Final[Callable[[], int]] = _C._current_graph_task_id
"""The run of backward that this thread works for; `NO_TASK` outside of backward."""

next_sequence_nr: Final[Callable[[], int]] = _C._autograd._get_sequence_nr
"""The number that the next node made on this thread gets."""

grad_enabled: Final[Callable[[], bool]] = torch.is_grad_enabled

function_mode_enabled: Final[Callable[[], bool]] = _C._is_torch_function_mode_enabled
"""Whether calls from Python go to a TorchFunctionMode first."""

mode_count: Final[Callable[[], int]] = _C._len_torch_dispatch_stack
"""How many dispatch modes are on this thread; while one runs, those below it."""

_key_excluded: Final[Callable[[Any], bool]] = _C._dispatch_tls_is_dispatch_key_excluded

inside_transform: Final[Callable[[], object]] = _C._functorch.peek_interpreter_stack
"""The innermost transform of torch.func that an op is broken up by; None outside of them."""


def inside_vmap() -> bool:
    """Return whether a vmap is among the transforms of torch.func that an op is broken up by."""
    stack = _C._functorch.get_interpreter_stack() or ()
    return any(each.key() == _C._functorch.TransformType.Vmap for each in stack)


without_torch_function = _C.DisableTorchFunction
"""Context in which neither modes nor subclasses override what is called from Python."""

RecordFunction: Final[Callable[[str], Any]] = _C._profiler._RecordFunctionFast
"""A context manager: a range in the trace of a running torch.profiler. It is no op, so tracing
never sees it."""

add_metadata: Final[Callable[[str, str], None]] = getattr(_C._autograd, "_add_metadata_json")  # noqa: B009 -- untyped
"""Adds a member, as JSON, to the trace of the torch.profiler that runs."""

NO_TASK: Final = -1

_NO_COLLECTIVES: Final = ("check_for_nan",)
"""Ops of c10d in which processes exchange nothing."""

_MODULE_CALL: Final = "_call_impl"
_DYNAMO_CALL: Final = "unpatched_nn_module_call_impl"

_COMPILERS: Final = ("torch._dynamo.", "torch._functorch._aot_autograd.", "torch._inductor.")

_MEMORY_EVENT: Final = "[memory]"
_CPU: Final = _C._autograd.DeviceType.CPU

ACCUMULATE_GRAD: Final = (1 << 64) - 1
"""The sequence number of all nodes that add up the gradient of a leaf."""

FUNCTION_APPLY: Final[types.CodeType] = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
"""Every forward of a Python autograd function runs inside this code."""

ENGINE_RUN: Final[types.CodeType] = graph._engine_run_backward.__code__
"""Every run of backward that Python starts runs inside this code."""


def hide_frame(error: BaseException) -> None:
    """Take the frame that handles an error off its traceback: it is the program's error.

    To be called where it is raised again, with nothing but the program's own call in the `try`.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def all_threads_config() -> Any:
    """Return the option of torch.profiler to record every thread; None where it has none."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        return None


def allocated_on_cpu(stopped: Any) -> int | None:
    """Return how much more is allocated on the CPU since a torch.profiler started that has ended.

    None: it kept no events, or they have another form.
    """
    events = getattr(getattr(stopped.profiler, "kineto_results", None), "events", None)
    if events is None:
        return None
    own = (e for e in events() if e.name() == _MEMORY_EVENT and e.device_type() == _CPU)
    return sum(int(event.nbytes()) for event in own)


def profiler_starts() -> Iterator[tuple[Any, str]]:
    """Yield what every profiler of torch calls before it listens, by owner and name.

    One with a schedule marks steps already while it waits.
    """
    yield torch.profiler.profile, "start"
    for owner in (autograd_profiler, profiler_legacy):
        for name in ("_prepare_profiler", "_enable_profiler", "_enable_profiler_legacy"):
            if hasattr(owner, name):
                yield owner, name


def forget_profiler() -> None:
    """Leave a forked process without the profiler of its parent, which cannot be stopped there."""
    getattr(_C._autograd, "_clear_callbacks")()  # noqa: B009 -- untyped
    autograd_profiler._set_is_profiler_enabled(enable=False)


def is_called() -> bool:
    """Return whether a dispatch mode gets `aten::detach` because the program called it.

    When autograd saves a tensor, or gives it back, it copies the handle; modes get to see this as
    a detach, which nobody called and no profiler records. A call comes through autograd's own
    detach, which keeps the layer for views out.
    """
    return _key_excluded(_C.DispatchKey.ADInplaceOrView)


def is_tracing() -> bool:
    """Return whether the calls are being compiled or traced rather than run.

    Dynamo takes the first as a constant, so what stands behind it is not compiled.
    """
    return torch.compiler.is_compiling() or _C._get_tracing_state() is not None


def insert_mode(mode: TorchDispatchMode) -> None:
    """Push a mode below all others of this thread: it sees what they let through.

    Without `with`, since it goes in and out in any order; and the flags that `with` sets are
    global, so threads that leave in another order than they entered would leave them set.
    """
    _set_modes(_DISPATCH_STACK, [mode, *_modes(_DISPATCH_STACK)])


def remove_mode(mode: TorchDispatchMode) -> None:
    """Take a mode from this thread, wherever in the stack it is."""
    _set_modes(_DISPATCH_STACK, [m for m in _modes(_DISPATCH_STACK) if m is not mode])


def dispatch_modes() -> list[TorchDispatchMode]:
    """Return the dispatch modes of this thread, the innermost last."""
    return _modes(_DISPATCH_STACK)


class _ModeStack(NamedTuple):
    """The functions of a stack of modes."""

    length: Callable[[], int]
    at: Callable[[int], Any]
    push: Callable[[Any], None]
    pop: Callable[[], Any]


_DISPATCH_STACK: Final = _ModeStack(
    _C._len_torch_dispatch_stack,
    _C._get_dispatch_stack_at,
    _C._push_on_torch_dispatch_stack,
    lambda: _C._pop_torch_dispatch_stack(None),
)


def _modes(stack: _ModeStack) -> list[Any]:
    """Return the modes of this thread, the innermost last."""
    return [stack.at(index) for index in range(stack.length())]


def _set_modes(stack: _ModeStack, modes: list[Any]) -> None:
    for _ in _modes(stack):
        stack.pop()
    for mode in modes:
        stack.push(mode)


_enable_recording: Final[Callable[[bool], None]] = _C._autograd._enable_record_function


@contextmanager
def unrecorded() -> Iterator[None]:
    """Keep ops that we call ourselves out of the trace of a torch.profiler, on this thread."""
    _enable_recording(False)  # noqa: FBT003 -- its only argument
    try:
        yield
    finally:
        _enable_recording(True)  # noqa: FBT003 -- its only argument


def plain_alias(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same memory, version and values, without a graph.

    No mode of the program's sees it, unless the tensor is one that works by being seen.
    """
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return tensor.detach()
    with _C._DisableTorchDispatch():
        return tensor.detach()


def inner_tensors(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    """Return the tensors that one is wrapped around; None: it is none of those."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if type(tensor) is torch.Tensor or not is_traceable_wrapper_subclass(tensor):
        return None
    names, _ = tensor.__tensor_flatten__()
    return [getattr(tensor, name) for name in names]


storage_of_weak_ref: Final[Callable[[int], torch.UntypedStorage | None]] = (
    torch.UntypedStorage._new_with_weak_ptr
)
"""The storage that a StorageWeakRef was made of, by its number; None: it is gone."""

_disable_saved_hooks: Final = _C._autograd._saved_tensors_hooks_disable


def hook_saved_tensors(pack: Any, unpack: Any) -> tuple[Any, Any] | None:
    """Have what autograd saves on this thread go through functions, below other hooks that come.

    None where something forbids such hooks at the moment.
    """
    if not getattr(_C._autograd, "_saved_tensors_hooks_is_enabled")():  # noqa: B009 -- untyped
        return None
    _C._autograd._push_saved_tensors_default_hooks(pack, unpack)
    return pack, unpack


def unhook_saved_tensors(hooks: tuple[Any, Any]) -> None:
    """Take them off this thread, unless others were put above that are still there."""
    if _top_saved_hooks() == hooks:
        _C._autograd._pop_saved_tensors_default_hooks()


def _top_saved_hooks() -> tuple[Any, Any] | None:
    found: tuple[Any, Any] | None = _C._autograd._top_saved_tensors_default_hooks(True)  # noqa: FBT003
    return found


def allow_disabling_saved_hooks(unpack: Any) -> Callable[[], None]:
    """Let code forbid hooks that cannot work with them, such as torch.func; return what ends that.

    They fail where hooks are on; ours, known by `unpack`, are no reason to.
    """

    def disable(message: str, fail_if_non_empty: bool = True) -> None:  # noqa: FBT001, FBT002
        top = _top_saved_hooks() if fail_if_non_empty else None
        _disable_saved_hooks(message, fail_if_non_empty and not (top and top[1] is unpack))

    def restore() -> None:
        if _C._autograd._saved_tensors_hooks_disable is disable:
            _C._autograd._saved_tensors_hooks_disable = _disable_saved_hooks

    _C._autograd._saved_tensors_hooks_disable = disable
    return restore


def resolve_group(name: str) -> Any:
    """Return the process group of that name."""
    from torch.distributed import distributed_c10d

    return getattr(distributed_c10d, "_resolve_process_group")(name)  # noqa: B009 -- untyped


def hook_collectives(around: Callable[[Any, Callable[[], Any], tuple[Any, ...]], Any]) -> Any:
    """Have a function run around every call of c10d, from Python or C++; return what ends that.

    Each op gets a kernel for the key that all calls pass on their way to the backend, below modes
    and autograd; so DDP's own calls are seen, and what runs is the same.

    Args:
        around: called with the op, what calls it, and its arguments.
    """
    key = _C.DispatchKey.BackendSelect
    after = _C._dispatch_keyset_full_after(key)
    library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]

    def kernel(op: Any) -> Callable[..., Any]:
        def call(keys: Any, *args: Any) -> Any:
            return around(op, lambda: op.redispatch(keys & after, *args), args)

        return call

    for name in _C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        if namespace == "c10d" and "." not in rest and rest not in _NO_COLLECTIVES:
            op = getattr(torch.ops.c10d, rest).default
            library.impl(rest, kernel(op), "BackendSelect", with_keyset=True)
    return library._destroy


def own_number(group: Any) -> int | None:
    """Return how many collectives PyTorch has counted of a group; None: its backend counts none."""
    try:
        return int(group._get_sequence_number_for_group())
    except RuntimeError:
        return None


def compiled_codes() -> Container[types.CodeType]:
    """Return what Dynamo wrote, in place of the code of functions that it compiled."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    # It is not all there while it is imported.
    codes: Container[types.CodeType] = getattr(dynamo, "output_codes", ())
    return codes


def is_continuation(code: types.CodeType) -> bool:
    """Return whether Dynamo made the function, of what comes after a graph break in another one."""
    return code.co_name.startswith("torch_dynamo_resume_in_")


def is_compiled_graph(module: torch.nn.Module, frame: types.FrameType | None) -> bool:
    """Return whether a module is a graph that torch.compile made of the user's code.

    Args:
        module: that is called.
        frame: of the call; torch.compile calls its graphs itself.
    """
    if not isinstance(module, GraphModule):
        return False
    while frame is not None and _name(frame).startswith(("torch.nn.modules.", "torch.fx.")):
        frame = frame.f_back
    return frame is not None and _name(frame).startswith(_COMPILERS)


def _name(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


module_call: Final[Callable[..., Any]] = torch.nn.Module._call_impl
"""Every call of a module runs it, hooks included."""


def replace_module_call(new: Callable[..., Any]) -> Callable[[], None]:
    """Put `new` in the place of `module_call`, and return what takes that back.

    Dynamo goes from the call of a module to its forward directly if the call is the one that it
    knows. It hears of the new one, so it compiles what it would compile otherwise.
    """

    def replace(old: Any, new: Any) -> None:
        setattr(torch.nn.Module, _MODULE_CALL, new)
        for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
            module = sys.modules.get(name)
            if getattr(module, _DYNAMO_CALL, None) is old:
                setattr(module, _DYNAMO_CALL, new)

    def restore() -> None:
        # Somebody may have wrapped ours in the meantime; then it has to stay, and does nothing.
        if getattr(torch.nn.Module, _MODULE_CALL) is new:
            replace(new, module_call)

    replace(module_call, new)
    return restore


def hide_from_dynamo(names: tuple[str, ...]) -> None:
    """Keep torch.compile from compiling the functions of the modules with these names.

    Where a compiled function falls back to Python, Dynamo looks at every function that is called,
    the annotation's own as well. Those that Dynamo meets while it traces are not affected.
    """
    frames: Any = _C._dynamo.eval_frame
    skip = getattr(frames, "skip_code", None)  # until 2.6
    if skip is None:
        how = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)

        def skip(code: types.CodeType) -> None:
            frames.set_code_exec_strategy(code, how)

    for name in names:
        for code in _codes(vars(sys.modules[name]).values(), name):
            skip(code)


def _codes(values: Any, module: str) -> Iterator[types.CodeType]:
    for value in values:
        if isinstance(value, (staticmethod, classmethod)):
            yield from _codes([value.__func__], module)
        elif isinstance(value, property):
            yield from _codes([value.fget], module)
        elif isinstance(value, type) and value.__module__ == module:
            yield from _codes(vars(value).values(), module)
        elif isinstance(value, types.FunctionType) and value.__module__ == module:
            yield from _nested_codes(value.__code__)


def _nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested_codes(constant)
