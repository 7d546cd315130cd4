"""An eager run of a training, as an oracle of its compiled one: FLOPs by phase, line and layer.

Each op is counted by `torch.utils.flop_counter`; its line is that of the frames around it, in
backward of those that anomaly mode keeps of its forward call; its layer that of the module whose
call is open, in backward by autograd's number.
"""

# mypy: disable-error-code="no-untyped-call,attr-defined,redundant-expr"

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop, sdpa_flop

if TYPE_CHECKING:
    from torch import nn

    from tests.compiled_models import Training

_LINE: Final = re.compile(r'File "(.+)", line (\d+), in')
_aten = torch.ops.aten
FORMULAS: Final[dict[Any, Any]] = flop_registry | {
    _aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: sdpa_backward_flop,
}
"""Those of torch, which lacks attention on the CPU."""


class EagerCounts(TorchDispatchMode):
    """Counts the FLOPs of ops, and which ops run at each line.

    Attributes:
        flops: by phase, line and layer.
        ops: the names of the ops that run at a line.
    """

    def __init__(self, model: nn.Module, file: str) -> None:
        super().__init__()
        self.flops: Counter[tuple[str, str | None, str | None]] = Counter()
        self.ops: set[tuple[str, str | None]] = set()
        self._file = file
        self._open: list[str] = []
        self._layers: dict[int, str | None] = {}
        for name, module in model.named_modules():
            module.register_forward_pre_hook(lambda *_, name=name: self._open.append(name))
            module.register_forward_hook(self._leave, always_call=True)

    def _leave(self, *_: object) -> None:
        self._open.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an op, and count it."""
        kwargs = kwargs or {}
        node = torch._C._current_autograd_node()
        phase = "forward" if node is None or self._open else "backward"
        if node is not None and self._open:
            phase = "recompute"
        if node is None or self._open:
            line = self._line_here()
            layer = self._open[-1] if self._open else None
            # An op without a node has the number of the last one that has.
            self._layers.setdefault(torch.autograd._get_sequence_nr() - 1, layer)
        else:
            line = self._line_of(node)
            layer = self._layers.get(node._sequence_nr())
        found = func(*args, **kwargs)
        self.ops.add((str(func._overloadpacket).replace("aten.", "aten::", 1), line))
        formula = FORMULAS.get(func._overloadpacket)
        if formula is not None:
            self.flops[phase, line, layer] += formula(*args, **kwargs, out_val=found)
        return found

    def _line_here(self) -> str | None:
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self._file:
            frame = frame.f_back  # type: ignore[assignment]
        return None if frame is None else f"{self._file}:{frame.f_lineno}"

    def _line_of(self, node: Any) -> str | None:
        found = _LINE.findall("".join(node.metadata.get("traceback_", ())))
        own = [line for path, line in found if path == self._file]
        return f"{self._file}:{own[-1]}" if own else None


def run_steps(training: Training, call: Any, steps: int, first: int = 0) -> None:
    """Run some steps of a training, the same numbers in each run."""
    for step in range(first, first + steps):
        torch.manual_seed(step)
        inputs = training.inputs(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=training.autocast):
            out = call(*inputs)
            loss = out if out.dim() == 0 else out.float().square().mean()
        loss.backward()


def eager_counts(training: Training, file: str, steps: int, first: int = 0) -> EagerCounts:
    """Return what an eager run of some steps counts."""
    torch.manual_seed(0)
    model = training.make()
    counts = EagerCounts(model, file)
    with torch.autograd.set_detect_anomaly(True, check_nan=False), counts:
        run_steps(training, model, steps, first)
    return counts
