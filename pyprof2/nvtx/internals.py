"""The part of PyTorch's private interface that is used, and nothing else.

When torch changes, look here: no other module names what is private to it, and `NAMES` says what
each name is for. Where a version of torch lacks one, what needs it is left out, and nothing else:
whoever begins it asks `lacks`, which says so in one line. Most functions take some 30 ns.

The compiled observer (`observer.cpp`) needs headers of torch that are as private. It is compiled
for the torch that runs, and tested: where either fails, the dispatch mode takes its place.
"""

# ruff: noqa: SLF001 -- private members are what this module is for
from __future__ import annotations

import enum
import importlib
import operator
import sys
import types
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import torch
from torch.autograd import profiler as autograd_profiler
from torch.fx import GraphModule

from pyprof2.errors import say

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from contextlib import ExitStack

    from torch._ops import OpOverload as OpOverload  # noqa: PLC0414 -- for others
    from torch.multiprocessing.reductions import StorageWeakRef as StorageWeakRef  # noqa: PLC0414 -- for others
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode  # noqa: PLC0414 -- for others
    from torch.utils.data.dataloader import _BaseDataLoaderIter
    from torch.utils.weak import WeakIdKeyDictionary as WeakIdKeyDictionary  # noqa: PLC0414 -- for others


# -- which names, and what for ---------------------------------------------------------------------


class Need(enum.Enum):
    """Each use of private names of torch, by what is missing without it."""

    ALL = "no layer, line or step is marked"
    OPS = "ops are not marked, only layers and steps"
    INNER = "what runs inside autograd functions and transforms of torch.func is not paired"
    PROFILER = "torch.profiler gets no layers, lines and steps"
    LINES = "ops in the trace of torch.profiler have no lines"
    THREADS = "threads that the script starts itself are not recorded"
    OTHERS = "a profiler of the script's own may take events of this recording"
    FORKS = "a process that the script forks may wait for the profiler of its parent"
    BATCHES = "waits for batches are not marked"
    COLLECTIVES = "collectives are not numbered"
    MEMORY = "what memory is for is not marked"
    SNAPSHOT = "there is no snapshot of the GPU's memory"
    COMPILED = "torch.compile may compile functions of pyprof2"
    NOTES = "kernels of compiled code have no lines and layers"


NAMES: Final[dict[str, Need]] = {}
"""The use of each private name."""

_missing: Final[dict[Need, str]] = {}
_said: Final[set[Need]] = set()


def _find(name: str) -> Any:
    """Return what has a name in torch; None: nothing has."""
    *path, last = name.split(".")
    found: Any = torch
    for at, word in enumerate(path, 1):
        inner = getattr(found, word, None)
        if inner is None and isinstance(found, types.ModuleType):
            try:
                inner = importlib.import_module(".".join(("torch", *path[:at])))
            except ImportError:
                return None
        found = inner
    # A module that is being imported is not an attribute of its package yet.
    return getattr(found, last, sys.modules.get(f"torch.{name}"))


def _use(part: Need, name: str, instead: Any = None) -> Any:
    """Return what has a private name in torch, or what stands in for it where nothing has."""
    NAMES[name] = part
    found = _find(name)
    if found is None:
        _missing.setdefault(part, name)
        return instead
    return found


def lacks(part: Need) -> bool:
    """Return whether this torch lacks what a part needs; the first time the user is warned."""
    if part in _missing and part not in _said:
        _said.add(part)
        say(f"{lack(part)}; the script runs on")
    return part in _missing


def lack(part: Need) -> str | None:
    """Return what is missing, and what is not done; None: nothing is missing."""
    name = _missing.get(part)
    return None if name is None else f"torch {torch.__version__} has no torch.{name}: {part.value}"


def _nothing(*_: Any, **__: Any) -> None:
    """Stand in for a function of which nothing is needed."""


# -- what runs -------------------------------------------------------------------------------------

Node: TypeAlias = Any
"""An autograd node, as the engine gives it."""

NO_TASK: Final = -1

sequence_nr: Final[Callable[[Node], int]] = operator.methodcaller("_sequence_nr")
"""Autograd's number of a node."""
_use(Need.OPS, "_C._FunctionBase._sequence_nr")

current_node: Final[Callable[[], Node | None]] = _use(
    Need.OPS, "_C._current_autograd_node", _nothing
)
"""The node that runs on this thread; None outside of backward and in its callbacks."""

current_task: Final[Callable[[], int]] = _use(
    Need.ALL, "_C._current_graph_task_id", lambda: NO_TASK
)
"""The run of backward that this thread works for; `NO_TASK` outside of backward."""

next_sequence_nr: Final[Callable[[], int]] = _use(
    Need.OPS, "_C._autograd._get_sequence_nr", lambda: 0
)
"""The number that the next node made on this thread gets."""

grad_enabled: Final[Callable[[], bool]] = torch.is_grad_enabled

function_mode_enabled: Final[Callable[[], bool]] = _use(
    Need.OPS, "_C._is_torch_function_mode_enabled", lambda: False
)
"""Whether calls from Python go to a TorchFunctionMode first."""

mode_count: Final[Callable[[], int]] = _use(Need.OPS, "_C._len_torch_dispatch_stack", lambda: 0)
"""How many dispatch modes are on this thread; while one runs, those below it."""

_key_excluded: Final[Callable[[Any], bool]] = _use(
    Need.OPS, "_C._dispatch_tls_is_dispatch_key_excluded"
)
_VIEWS: Final = _use(Need.OPS, "_C.DispatchKey.ADInplaceOrView")

inside_transform: Final[Callable[[], object]] = _use(
    Need.INNER, "_C._functorch.peek_interpreter_stack", _nothing
)
"""The innermost transform of torch.func that an op is broken up by; None outside of them."""

_transforms: Final[Callable[[], Any]] = _use(
    Need.INNER, "_C._functorch.get_interpreter_stack", _nothing
)
_VMAP: Final = _use(Need.INNER, "_C._functorch.TransformType.Vmap")

_forward_ad_enabled: Final[Callable[[], bool]] = _use(
    Need.INNER, "_C._is_fwd_grad_enabled", lambda: True
)


def in_function() -> bool:
    """Return whether this thread runs the forward of an autograd function written in Python.

    For it, and for the views that it makes of what that returned, autograd turns forward-mode
    derivatives off. Otherwise only inference does.
    """
    return not _forward_ad_enabled() and not torch.is_inference_mode_enabled()


def inside_vmap() -> bool:
    """Return whether a vmap is among the transforms of torch.func that an op is broken up by."""
    return any(each.key() == _VMAP for each in _transforms() or ())


without_torch_function: Final[Callable[[], Any]] = _use(
    Need.ALL, "_C.DisableTorchFunction", nullcontext
)
"""Context in which neither modes nor subclasses override what is called from Python."""

RecordFunction: Final[Callable[[str], Any]] = _use(
    Need.ALL, "_C._profiler._RecordFunctionFast", nullcontext
)
"""A context manager: a range in the trace of a running torch.profiler. It is no op, so tracing
never sees it."""

add_metadata: Final[Callable[[str, str], None]] = _use(
    Need.LINES, "_C._autograd._add_metadata_json", _nothing
)
"""Adds a member, as JSON, to the trace of the torch.profiler that runs."""

EventType: Final = _use(Need.LINES, "_C._profiler._EventType")
"""The kinds of events that torch.profiler keeps."""

_NO_COLLECTIVES: Final = ("check_for_nan",)
"""Ops of c10d in which processes exchange nothing."""

_MODULE_CALL: Final = "_call_impl"
_DYNAMO_CALL: Final = "unpatched_nn_module_call_impl"

_COMPILERS: Final = ("torch._dynamo.", "torch._functorch._aot_autograd.", "torch._inductor.")

_MEMORY_EVENT: Final = "[memory]"
_CPU: Final = torch.autograd.DeviceType.CPU  # type: ignore[attr-defined]

ACCUMULATE_GRAD: Final = (1 << 64) - 1
"""The sequence number of all nodes that add up the gradient of a leaf."""

ENGINE: Final = "_engine_run_backward"
"""Every run of backward that Python starts calls it, in the modules that have it."""

ENGINE_RUN: Final[types.CodeType] = getattr(
    _use(Need.OPS, f"autograd.graph.{ENGINE}", _nothing), "__code__", _nothing.__code__
)
"""Every run of backward that Python starts runs inside this code."""

if not TYPE_CHECKING:
    OpOverload = _use(Need.OPS, "_ops.OpOverload", types.new_class("OpOverload"))
    TorchDispatchMode = _use(
        Need.OPS, "utils._python_dispatch.TorchDispatchMode", types.new_class("TorchDispatchMode")
    )
    _BaseDataLoaderIter = _use(Need.BATCHES, "utils.data.dataloader._BaseDataLoaderIter")
    StorageWeakRef = _use(Need.MEMORY, "multiprocessing.reductions.StorageWeakRef")
    WeakIdKeyDictionary = _use(Need.MEMORY, "utils.weak.WeakIdKeyDictionary", dict)

BatchIterator: Final = _BaseDataLoaderIter
"""The base of what gives the batches of a DataLoader; None: it has another one."""


def schema_of(op: OpOverload[..., Any]) -> Any:
    """Return the schema of an op."""
    return op._schema


_schema: Final[Callable[[str, str], Any]] = _use(Need.LINES, "_C._get_schema")


def schema_of_name(name: str, overload: str) -> Any:
    """Return the schema of an op, by its name; None: it has none."""
    try:
        return _schema(name, overload)
    except (RuntimeError, TypeError):
        return None


def hide_frame(error: BaseException) -> None:
    """Take the frame that handles an error off its traceback: it is the program's error.

    To be called where it is raised again, with nothing but the program's own call in the `try`.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


_profiler_config: Final = _use(Need.THREADS, "_C._profiler._ExperimentalConfig")


def all_threads_config() -> Any:
    """Return the option of torch.profiler to record every thread; None where it has none."""
    if lacks(Need.THREADS):
        return None
    try:
        return _profiler_config(profile_all_threads=True)
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


STARTED: Final = "_run_on_profiler_start"
STOPPED: Final = "_run_on_profiler_stop"
DISABLED: Final = "_disable_profiler"
"""Functions that torch.profiler calls in `torch.autograd.profiler` while it starts and ends."""

for _function in (STARTED, STOPPED, DISABLED):
    _use(Need.PROFILER, f"autograd.profiler.{_function}")
_RUNS: Final = "_is_profiler_enabled"
_use(Need.PROFILER, f"autograd.profiler.{_RUNS}")
_STARTS: Final = ("profiler._prepare_profiler", "profiler._enable_profiler",
                  "profiler_legacy._enable_profiler_legacy")  # fmt: skip
for _function in _STARTS:
    _use(Need.OTHERS, f"autograd.{_function}")


def profiler_runs() -> bool:
    """Return whether a profiler of torch runs."""
    return bool(getattr(autograd_profiler, _RUNS, False))


def profiler_starts() -> Iterator[tuple[Any, str]]:
    """Yield what every profiler of torch calls before it listens, by owner and name.

    One with a schedule marks steps already while it waits.
    """
    lacks(Need.OTHERS)
    yield torch.profiler.profile, "start"
    for each in _STARTS:
        module, _, name = each.partition(".")
        owner = _find(f"autograd.{module}")
        if hasattr(owner, name):
            yield owner, name


_clear_callbacks: Final = _use(Need.FORKS, "_C._autograd._clear_callbacks", _nothing)
_set_profiler_enabled: Final = _use(
    Need.FORKS, "autograd.profiler._set_is_profiler_enabled", _nothing
)


def forget_profiler() -> None:
    """Leave a forked process without the profiler of its parent, which cannot be stopped there."""
    lacks(Need.FORKS)
    _clear_callbacks()
    _set_profiler_enabled(enable=False)


def is_called() -> bool:
    """Return whether a dispatch mode gets `aten::detach` because the program called it.

    When autograd saves a tensor, or gives it back, it copies the handle; modes get to see this as
    a detach, which nobody called and no profiler records. A call comes through autograd's own
    detach, which keeps the layer for views out.
    """
    return _key_excluded(_VIEWS)


_tracing_state: Final[Callable[[], object]] = _use(Need.ALL, "_C._get_tracing_state", _nothing)


def is_tracing() -> bool:
    """Return whether the calls are being compiled or traced rather than run.

    Dynamo takes the first as a constant, so what stands behind it is not compiled.
    """
    return torch.compiler.is_compiling() or _tracing_state() is not None


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
    mode_count,
    _use(Need.OPS, "_C._get_dispatch_stack_at"),
    _use(Need.OPS, "_C._push_on_torch_dispatch_stack"),
    partial(_use(Need.OPS, "_C._pop_torch_dispatch_stack", _nothing), None),
)


def _modes(stack: _ModeStack) -> list[Any]:
    """Return the modes of this thread, the innermost last."""
    return [stack.at(index) for index in range(stack.length())]


def _set_modes(stack: _ModeStack, modes: list[Any]) -> None:
    for _ in _modes(stack):
        stack.pop()
    for mode in modes:
        stack.push(mode)


_enable_recording: Final[Callable[[bool], None]] = _use(
    Need.MEMORY, "_C._autograd._enable_record_function"
)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Keep ops that we call ourselves out of the trace of a torch.profiler, on this thread."""
    _enable_recording(False)  # noqa: FBT003 -- its only argument
    try:
        yield
    finally:
        _enable_recording(True)  # noqa: FBT003 -- its only argument


_without_dispatch: Final = _use(Need.MEMORY, "_C._DisableTorchDispatch")
_is_wrapper: Final = _use(Need.MEMORY, "utils._python_dispatch.is_traceable_wrapper_subclass")


def plain_alias(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same memory, version and values, without a graph.

    No mode of the program's sees it, unless the tensor is one that works by being seen.
    """
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return tensor.detach()
    with _without_dispatch():
        return tensor.detach()


def inner_tensors(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    """Return the tensors that one is wrapped around; None: it is none of those."""
    if type(tensor) is torch.Tensor or not _is_wrapper(tensor):
        return None
    names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
    return [getattr(tensor, name) for name in names]


def parts_of_sparse(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return indices and values of a sparse tensor, which the public accessors would change."""
    return tensor._indices(), tensor._values()


version_of: Final[Callable[[torch.Tensor], int]] = operator.attrgetter("_version")
"""How often a tensor was written to."""

identity_of: Final[Callable[[torch.UntypedStorage], int]] = operator.attrgetter("_cdata")
"""The number of a storage, which has no other name."""

for _attribute in ("Tensor._indices", "Tensor._values", "Tensor._version", "UntypedStorage._cdata"):
    _use(Need.MEMORY, _attribute)

storage_of_weak_ref: Final[Callable[[int], torch.UntypedStorage | None]] = _use(
    Need.MEMORY, "UntypedStorage._new_with_weak_ptr"
)
"""The storage that a StorageWeakRef was made of, by its number; None: it is gone."""

_AUTOGRAD: Final = _find("_C._autograd")
_DISABLE: Final = "_saved_tensors_hooks_disable"
_disable_saved_hooks: Final = _use(Need.MEMORY, f"_C._autograd.{_DISABLE}")
_saved_hooks_enabled: Final = _use(Need.MEMORY, "_C._autograd._saved_tensors_hooks_is_enabled")
_push_saved_hooks: Final = _use(Need.MEMORY, "_C._autograd._push_saved_tensors_default_hooks")
_pop_saved_hooks: Final = _use(Need.MEMORY, "_C._autograd._pop_saved_tensors_default_hooks")
_saved_hooks: Final = _use(Need.MEMORY, "_C._autograd._top_saved_tensors_default_hooks")


def hook_saved_tensors(pack: Any, unpack: Any) -> tuple[Any, Any] | None:
    """Have what autograd saves on this thread go through functions, below other hooks that come.

    None where something forbids such hooks at the moment.
    """
    if not _saved_hooks_enabled():
        return None
    _push_saved_hooks(pack, unpack)
    return pack, unpack


def unhook_saved_tensors(hooks: tuple[Any, Any]) -> None:
    """Take them off this thread, unless others were put above that are still there."""
    if _top_saved_hooks() == hooks:
        _pop_saved_hooks()


def _top_saved_hooks() -> tuple[Any, Any] | None:
    found: tuple[Any, Any] | None = _saved_hooks(True)  # noqa: FBT003
    return found


def allow_disabling_saved_hooks(unpack: Any) -> Callable[[], None]:
    """Let code forbid hooks that cannot work with them, such as torch.func; return what ends that.

    They fail where hooks are on; ours, known by `unpack`, are no reason to.
    """

    def disable(message: str, fail_if_non_empty: bool = True) -> None:  # noqa: FBT001, FBT002
        top = _top_saved_hooks() if fail_if_non_empty else None
        _disable_saved_hooks(message, fail_if_non_empty and not (top and top[1] is unpack))

    def restore() -> None:
        if getattr(_AUTOGRAD, _DISABLE) is disable:
            setattr(_AUTOGRAD, _DISABLE, _disable_saved_hooks)

    setattr(_AUTOGRAD, _DISABLE, disable)
    return restore


_keys_after: Final = _use(Need.COLLECTIVES, "_C._dispatch_keyset_full_after")
_op_names: Final = _use(Need.COLLECTIVES, "_C._dispatch_get_all_op_names")
_BACKEND: Final = _use(Need.COLLECTIVES, "_C.DispatchKey.BackendSelect")
_use(Need.COLLECTIVES, "library.Library._destroy")
_group: Callable[[str], Any] = _nothing
if torch.distributed.is_available():
    _use(Need.COLLECTIVES, "distributed.ProcessGroup._get_sequence_number_for_group")
    _group = _use(Need.COLLECTIVES, "distributed.distributed_c10d._resolve_process_group", _nothing)


def resolve_group(name: str) -> Any:
    """Return the process group of that name; None where torch does not say."""
    return _group(name)


def hook_collectives(
    around: Callable[[Any, Callable[[], Any], tuple[Any, ...]], Any], undo: ExitStack
) -> None:
    """Have a function run around every call of c10d, from Python or C++.

    Each op gets a kernel for the key that all calls pass on their way to the backend, below modes
    and autograd; so DDP's own calls are seen, and what runs is the same.

    Args:
        around: called with the op, what calls it, and its arguments.
        undo: takes what ends it.
    """
    after = _keys_after(_BACKEND)
    library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
    undo.callback(library._destroy)

    def kernel(op: Any) -> Callable[..., Any]:
        def call(keys: Any, *args: Any) -> Any:
            return around(op, lambda: op.redispatch(keys & after, *args), args)

        return call

    for name in _op_names():
        namespace, _, rest = name.partition("::")
        if namespace == "c10d" and "." not in rest and rest not in _NO_COLLECTIVES:
            op = getattr(torch.ops.c10d, rest).default
            library.impl(rest, kernel(op), "BackendSelect", with_keyset=True)


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


module_call: Final[Callable[..., Any]] = _use(Need.ALL, f"nn.Module.{_MODULE_CALL}", _nothing)
"""Every call of a module runs it, hooks included."""


MODULE_CALLS: Final = frozenset(
    getattr(getattr(torch.nn.Module, name, None), "__code__", None)
    for name in (_MODULE_CALL, "_wrapped_call_impl")
)
"""The code that calls modules."""


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


def wrap_compiled_call(module: Any, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    """Wrap what a call of a module runs that was compiled in its place, `module.compile()`."""
    run = getattr(module, "_compiled_call_impl", None)
    if run is not None:
        module._compiled_call_impl = wrap(run)


_frames: Final = _find("_C._dynamo.eval_frame")
_skip: Final = getattr(_frames, "skip_code", None)  # until 2.6
if _skip is None:
    _strategy: Final = _use(Need.COMPILED, "_C._dynamo.eval_frame._FrameExecStrategy")
    _action: Final = _use(Need.COMPILED, "_C._dynamo.eval_frame._FrameAction")
    _set_strategy: Final = _use(Need.COMPILED, "_C._dynamo.eval_frame.set_code_exec_strategy")


def hide_from_dynamo(names: tuple[str, ...]) -> None:
    """Keep torch.compile from compiling the functions of the modules with these names.

    Where a compiled function falls back to Python, Dynamo looks at every function that is called,
    the annotation's own as well. Those that Dynamo meets while it traces are not affected.
    """
    skip: Callable[[types.CodeType], None] | None = _skip
    if skip is None and Need.COMPILED not in _missing:
        how = _strategy(_action.SKIP, _action.DEFAULT)

        def skip(code: types.CodeType) -> None:
            _set_strategy(code, how)

    if skip is None:
        return
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


# -- memory of GPUs --------------------------------------------------------------------------------

_use(Need.SNAPSHOT, "cuda.memory._record_memory_history")
_use(Need.SNAPSHOT, "cuda.memory._snapshot")


def keep_history(cuda: Any, **how: Any) -> None:
    """Have the allocator of GPUs keep its history, or end that."""
    cuda.memory._record_memory_history(**how)


def history_of(cuda: Any) -> dict[str, Any]:
    """Return what the allocator of GPUs kept."""
    found: dict[str, Any] = cuda.memory._snapshot()
    return found


# -- the compiler, which is imported where the program needs it ------------------------------------

COMPILER: Final = "torch._inductor.compile_fx"

_OF_COMPILER: Final = {
    "fx": "_inductor.compile_fx", "passes": "_inductor.compile_fx._recursive_joint_graph_passes",
    "compile": "_inductor.compile_fx.fx_codegen_and_compile",
    "finish": "_inductor.compile_fx._compile_fx_inner", "lowering": "_inductor.graph.GraphLowering",
    "codegen": "_inductor.graph.GraphLowering.codegen",
    "kernels": "_inductor.debug._inductor_triton_kernel_to_post_grad_node_info",
    "path": "_inductor.codecache.get_path", "config": "_inductor.config",
    "functorch": "_functorch.config", "breaks": "_dynamo.utils.graph_break_reasons",
    "metrics": "_dynamo.utils.get_compilation_metrics",
    "compilation": "_guards.CompileContext.current_compile_id",
}  # fmt: skip
NAMES.update(dict.fromkeys(_OF_COMPILER.values(), Need.NOTES))


def of_compiler(short: str) -> Any:
    """Return what has a private name in torch's compiler, by what it is called here.

    Raises:
        AttributeError: nothing has.
    """
    found = _find(_OF_COMPILER[short])
    if found is None:
        raise AttributeError(_OF_COMPILER[short])
    return found


def hooks_of_compiler() -> Iterator[tuple[str, Any, str]]:
    """Yield what compiles a graph: what it is called here, its owner and its name.

    The user is warned of what this version lacks.
    """
    for name in _OF_COMPILER.values():
        if _find(name) is None:
            _missing.setdefault(Need.NOTES, name)
    lacks(Need.NOTES)
    for short in ("passes", "codegen", "compile", "finish"):
        owner, _, name = _OF_COMPILER[short].rpartition(".")
        if _find(f"{owner}.{name}") is not None:
            yield short, _find(owner), name


def cache_key(graph: Any) -> Any:
    """Return the key of a compiled graph, which the range of each of its calls shows."""
    return graph._fx_graph_cache_key


def set_cache_key(graph: Any, key: str) -> None:
    """Give a compiled graph a key of our own."""
    graph._fx_graph_cache_key = key
