"""Mark what blocks of memory are for: `init(memory=True)`.

A trace with memory events says when a block was allocated and released, not what it holds. The
program knows: at the borders of forward, backward and optimizer, the storages of parameters,
buffers, gradients, states of the optimizer, inputs, and what autograd has saved, are written as
markers, each once; parameters and buffers by name too. Nothing is kept alive, and no value is read.

What autograd saves comes through its hooks for that. A hook that returns the tensor itself keeps
the own output of an op alive for ever, and turns off the check for changes in place; so what is
packed is a detached alias and the version, which is compared when backward takes it out.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, UntypedStorage

from pyprof2.markers import BLOCKS_AT_MOST, Marker
from pyprof2.nvtx.internals import (
    NO_TASK,
    current_task,
    hook_saved_tensors,
    identity_of,
    inside_transform,
    is_tracing,
    plain_alias,
    unhook_saved_tensors,
    unrecorded,
    version_of,
    without_torch_function,
)
from pyprof2.nvtx.storages import Storages, place_of, storages_of, tensors_in
from pyprof2.nvtx.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch.nn import Module
    from torch.optim import Optimizer

    from pyprof2.markers import HeldFor, Moment
    from pyprof2.nvtx.session import AnnotationSession

_CHANGED: Final = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation: [{type} {sizes}] is at version {now}; expected version {then} instead. Hint: {hint}"
)
_HINT: Final = (
    "enable anomaly detection to find the operation that failed to compute its gradient, with "
    "torch.autograd.set_detect_anomaly(True, check_nan=False)."
)
_HINT_ABOVE: Final = (
    "the backtrace further above shows the operation that failed to compute its gradient. The "
    "variable in question was changed in there or anywhere later. Good luck!"
)

_Block = tuple["HeldFor", str, int, int]
"""Category, device, address, bytes."""


class MemoryTags:
    """Follows the storages of a training, and writes markers of them."""

    def __init__(self, session: AnnotationSession) -> None:
        self._session = session
        self._local = threading.local()
        # In the order in which they were called first.
        self._modules: weakref.WeakKeyDictionary[Module, None] = weakref.WeakKeyDictionary()
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._inputs, self._saved, self._outputs = Storages(), Storages(), Storages()
        self._written: dict[int, _Block] = {}
        self._weights = Weights(session.layers.root_of)
        self._is_forward = False

    @property
    def listens(self) -> bool:
        """Whether a torch.profiler runs and takes the markers."""
        return self._session.kineto and self._session.recording

    def begin(self) -> None:
        """Write everything again: another recorder listens."""
        self._written.clear()
        self._weights.begin()
        self._is_forward = False

    def follow(self, model: Any, inputs: Any, cpu_bytes: int | None) -> None:
        """Write, before the first iteration, what is held for a model and its inputs.

        Args:
            model: the module, whose paths are the names of its parameters; or another callable.
            inputs: the values that the iteration is called with.
            cpu_bytes: allocated on the CPU by PyTorch, all of it; None: not known.
        """
        if isinstance(model, torch.nn.Module):
            self._modules = weakref.WeakKeyDictionary({model: None} | dict(self._modules))
        with without_torch_function():
            self._add_inputs(inputs)
        self.mark("begins", cpu_bytes=cpu_bytes)

    # -- autograd ------------------------------------------------------------------------------

    def enter_thread(self) -> None:
        """See what autograd saves on the calling thread from now on."""
        if not getattr(self._local, "hooks", None):
            self._local.hooks = hook_saved_tensors(self._pack, unpack)

    def leave_thread(self) -> None:
        """Leave the calling thread as it was."""
        hooks, self._local.hooks = getattr(self._local, "hooks", None), None
        if hooks:
            unhook_saved_tensors(hooks)

    def _pack(self, tensor: Tensor) -> tuple[Tensor, int]:
        with without_torch_function(), unrecorded():
            if self.listens and inside_transform() is None:
                self._saved.add(tensor)
            return plain_alias(tensor), version_of(tensor)

    # -- what the training does ----------------------------------------------------------------

    def enter(self, module: Module, args: Any, kwargs: Any) -> bool:
        """Note that a module is called; return whether by the program itself: then `leave`."""
        if current_task() != NO_TASK or getattr(self._local, "inside", False):
            return False
        self._local.inside = True
        self._modules.setdefault(module)
        with_grad = torch.is_grad_enabled()
        with without_torch_function():
            self._add_inputs((args, kwargs))
        if not with_grad:
            self.mark("call")
        elif not self._is_forward:
            self._is_forward = True
            self.mark("forward")
        return True

    def leave(self, result: Any) -> None:
        """Note what a module returned that the program called; None: it failed."""
        self._local.inside = False
        self._add_outputs(result)

    def _add_outputs(self, value: Any) -> None:
        if self.listens:
            with without_torch_function():
                for tensor in tensors_in(value):
                    self._outputs.add(tensor)

    def _add_inputs(self, value: Any) -> None:
        if not self.listens:
            return
        for tensor in tensors_in(value):
            # The output of another module is no input of the program.
            if tensor.grad_fn is None and not any(
                storage in self._outputs for storage in storages_of(tensor)
            ):
                self._inputs.add(tensor)

    def around_backward(self, run: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Write what is held when backward begins, and which gradients there are when it ends."""
        if self._is_inside():
            return run(outputs, *args, **kwargs)
        self._begin_backward(outputs)
        try:
            return run(outputs, *args, **kwargs)
        finally:
            self.mark("gradients")

    def around_call(self, run: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Write what is held when a tensor's own `backward` is called: before its gradient is made.

        The engine is called later, with a gradient of ones that is nothing which forward left.
        """
        # Under a mode of torch functions a tensor's `backward` calls itself again.
        if self._is_inside():
            return run(tensor, *args, **kwargs)
        self._begin_backward((tensor,))
        self._local.has_begun = True
        try:
            return run(tensor, *args, **kwargs)
        finally:
            self._local.has_begun = False
            self.mark("gradients")

    def _is_inside(self) -> bool:
        """Whether backward has begun, or this is no run of the program's own."""
        has_begun = getattr(self._local, "has_begun", False)
        return has_begun or is_tracing() or current_task() != NO_TASK

    def _begin_backward(self, outputs: Any) -> None:
        self._add_outputs(outputs)
        self.mark("backward")
        self._is_forward = False

    def optimizer_stepped(self, optimizer: Optimizer) -> None:
        """Note that an optimizer has made its step."""
        self._optimizers.add(optimizer)
        if current_task() == NO_TASK:
            self.mark("optimizer", type(optimizer).__name__)

    # -- what is written -----------------------------------------------------------------------

    def mark(self, moment: Moment, name: str | None = None, cpu_bytes: int | None = None) -> None:
        """Write the moment, and what is held that is new or for something else than before.

        Args:
            moment: where the training is.
            name: class of the optimizer.
            cpu_bytes: allocated on the CPU, if that is known.
        """
        if not self.listens or inside_transform() is not None:
            return
        with without_torch_function(), unrecorded():
            held = dict(_described(self._held()))
            weights = list(self._weights.new(list(self._modules), list(self._optimizers)))
        new = [block for key, block in held.items() if self._written.get(key) != block]
        self._written = held
        marker = partial(Marker, "memory", moment=moment)
        device = None if cpu_bytes is None else "cpu"
        self._session.mark(marker(name=name, device=device, bytes=cpu_bytes))
        new.sort(key=lambda block: block[:2])
        for (category, device), group in itertools.groupby(new, key=lambda block: block[:2]):
            blocks = tuple(block[2:] for block in group)
            for at in range(0, len(blocks), BLOCKS_AT_MOST):
                part = blocks[at : at + BLOCKS_AT_MOST]
                self._session.mark(marker(device=device, category=category, blocks=part))
        for each in weights:
            self._session.mark(replace(each, moment=moment))

    def _held(self) -> Iterator[tuple[HeldFor, Iterable[UntypedStorage]]]:
        """Yield storages and what they are for; of several the last one counts."""
        yield "output", self._outputs.living()
        yield "activation", self._saved.living()
        yield "input", self._inputs.living()
        for optimizer in list(self._optimizers):
            yield "optimizer_state", _of_tensors(tensors_in(dict(optimizer.state)))
        modules = list(self._modules)
        yield "buffer", _of_tensors(b for module in modules for b in module.buffers())
        parameters: list[Tensor] = [p for module in modules for p in module.parameters()]
        for optimizer in list(self._optimizers):
            parameters += tensors_in([group["params"] for group in optimizer.param_groups])
        yield "gradient", _of_tensors(p.grad for p in parameters if p.grad is not None)
        yield "parameter", _of_tensors(parameters)


def _of_tensors(tensors: Iterable[Tensor]) -> Iterator[UntypedStorage]:
    for tensor in tensors:
        yield from storages_of(tensor)


def _described(
    held: Iterable[tuple[HeldFor, Iterable[UntypedStorage]]],
) -> Iterator[tuple[int, _Block]]:
    """Yield identity and description of storages that have memory."""
    for category, storages in held:
        for storage in storages:
            place = place_of(storage)
            if place is not None:
                block = (category, str(storage.device), *place)
                yield identity_of(storage), block


def unpack(packed: tuple[Tensor, int]) -> Tensor:
    """Return what was packed.

    Raises:
        RuntimeError: it was changed in place since, as autograd itself says it.
    """
    tensor, version = packed
    with without_torch_function():
        now = version_of(tensor)
        if now == version:
            return tensor
        hint = _HINT_ABOVE if torch.is_anomaly_enabled() else _HINT
        msg = _CHANGED.format(
            type=tensor.type(), sizes=list(tensor.shape), now=now, then=version, hint=hint
        )
    raise RuntimeError(msg)
