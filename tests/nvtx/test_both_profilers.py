"""One script under both profilers: nsys, with our annotation, and torch.profiler tell the same.

torch.profiler sees every op, whoever calls it; the annotation sees what autograd calls. So each
marked op must be found among the recorded ones, in order, and what is beside them needs a reason.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch

import pyprof2
from pyprof2.signatures import Tensor, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

pytestmark = [pytest.mark.nsys, pytest.mark.slow, pytest.mark.minutes]

ROOT: Final = Path(__file__).resolve().parents[2]
SCRIPTS: Final = {
    **{path.stem: [str(path), "--steps", "2"] for path in sorted(ROOT.glob("examples/*.py"))},
    **{
        name: [str(Path(__file__).with_name(f"train_{name}.py"))]
        for name in ("checkpointed", "with_closure", "in_backward", "clipped")
    },
}

DETACH: Final = "aten::detach"
ADDS: Final = ("aten::add", "aten::add_")
"""Under any dispatch mode autograd adds up gradients, and `linear` its bias, out of place."""

NODE: Final = re.compile(r"autograd::engine::.*|\w*Backward\d*|torch::autograd::AccumulateGrad")
FUNCTIONS: Final = ("Double", "CheckpointFunction")
"""Functions of autograd in Python: torch.profiler puts a range around them."""

MADE_WITH_MODES_OFF: Final = (
    DETACH, "detach", "aten::detach_", "detach_", "aten::empty", "aten::lift_fresh",
)  # fmt: skip
"""`torch.tensor` and `nn.Parameter` make their tensors while dispatch modes are off. `detach` is a
range of that name in `aten::detach`."""


@dataclass
class Call:
    """A recorded call of an op."""

    id: int
    op: str
    shapes: list[Any] | None
    layer: str | None
    direction: str
    recompute: bool
    step: int | None
    forward: int | None
    parent: int | None
    inner: list[Call] = field(default_factory=list)


class Store:
    """The calls of a recording, by thread and in order."""

    def __init__(self, trace: Path) -> None:
        self.run = pyprof2.load(trace)
        signatures = self.run.signatures.set_index("signature_id")["inputs"]
        self.shapes = {number: _shapes(inputs) for number, inputs in signatures.items()}
        self.calls: dict[int, Call] = {}
        self.threads: dict[int, list[Call]] = defaultdict(list)
        for row in self.run.ops.to_dict("records"):
            call = self._call(row)
            self.calls[call.id] = call
            self.threads[row["tid"]].append(call)
            if call.parent is not None:
                self.calls[call.parent].inner.append(call)

    def _call(self, row: dict[Any, Any]) -> Call:
        known: Any = {name: None if _is_null(value) else value for name, value in row.items()}
        return Call(
            known["op_id"],
            known["op"],
            self.shapes.get(known["signature_id"]),
            known["layer"],
            known["direction"],
            bool(known["recompute"]),
            known["step"],
            known["forward_op_id"],
            known["parent_op_id"],
        )

    def around(self, call: Call) -> Iterator[Call]:
        """Yield the calls around a call, the innermost first."""
        while call.parent is not None:
            call = self.calls[call.parent]
            yield call

    def work(self, without: Collection[int] = ()) -> dict[tuple[str, str], list[int]]:
        """Return FLOPs, and bounds of bytes, by layer and direction; without some calls."""
        ops = self.run.ops
        ops = ops[ops["cost_status"].isin(["ok", "assumed"]) & ~ops["op_id"].isin(list(without))]
        keys = [ops["layer"].astype(str), ops["direction"].astype(str)]
        sums = ops.groupby(keys)[["flops", "bytes_lo", "bytes_hi"]].sum()
        return {key: [int(n) for n in row] for key, *row in sums.itertuples() if any(row)}


def _is_null(value: Any) -> bool:
    return value is None or str(value) in ("<NA>", "nan")


def _shapes(inputs: str) -> list[Any]:
    """Return shape and dtype of every tensor; torch.profiler does not say the dtype in a list."""
    found: list[Any] = []
    for item in parse_inputs(inputs):
        if isinstance(item, Tensor):
            found.append((item.shape, item.dtype))
        elif isinstance(item, tuple):
            found.append([part.shape for part in item])
    return found


class Matcher:
    """Finds the marked calls of one thread among those that torch.profiler recorded."""

    def __init__(self, marked: list[Call], recorded: list[Call]) -> None:
        self.found: dict[int, Call] = {}
        self._marked = iter(marked)
        self._next = next(self._marked, None)
        for call in recorded:
            if call.parent is None:
                self._look_into(call)
        assert self._next is None, f"{self._next} is marked, but not recorded"

    def _look_into(self, call: Call) -> int:
        """Match a call, or what is in it; return how many were matched.

        Hooks of saved tensors run inside the op for torch.profiler, and beside it for a mode.
        """
        if self._match(call):
            return 1 + sum(self._match(inner) for inner in call.inner if inner.op == DETACH)
        before = self._next
        count = sum(self._look_into(inner) for inner in call.inner)
        by_hooks = count > 0 and before is not None and before.op == DETACH
        return count + (self._match(call) if by_hooks else 0)

    def _match(self, call: Call) -> bool:
        marked = self._next
        if marked is None or (marked.op != call.op and not {marked.op, call.op} <= set(ADDS)):
            return False
        self.found[marked.id] = call
        self._next = next(self._marked, None)
        return True


@dataclass
class Pair:
    """The two stores of one script, and for each marked call the recorded one."""

    nsys: Store
    kineto: Store
    found: dict[int, Call]


@pytest.fixture(scope="module", params=SCRIPTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Record a script with either profiler."""
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    for profiler in ("--nsys", "--kineto"):
        done = subprocess.run(
            [sys.executable, "-m", "pyprof2", "capture", profiler, "-o", folder / "out",
             *SCRIPTS[request.param]],
            capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    nsys, kineto = Store(folder / "out.sqlite"), Store(folder / "out.json.gz")
    # Threads that share the work of one op make room for their part of it, and call nothing else.
    threads = [
        calls for calls in kineto.threads.values() if {call.op for call in calls} != {"aten::empty"}
    ]
    assert len(nsys.threads) == len(threads)
    found: dict[int, Call] = {}
    for marked, recorded in zip(nsys.threads.values(), threads, strict=True):
        found |= Matcher(marked, recorded).found
    return Pair(nsys, kineto, found)


def test_every_marked_op_was_recorded_with_the_same_inputs_and_place(pair: Pair) -> None:
    assert len(pair.found) == len(pair.nsys.calls) > 100
    for number, recorded in pair.found.items():
        marked = pair.nsys.calls[number]
        assert (marked.layer, marked.direction, marked.recompute, marked.step) == (
            recorded.layer, recorded.direction, recorded.recompute, recorded.step,
        )  # fmt: skip
        assert marked.shapes == recorded.shapes, marked
    directions = Counter(call.direction for call in pair.found.values())
    assert min(directions[name] for name in ("forward", "backward", "optimizer")) > 10


def test_both_name_the_same_forward_op(pair: Pair) -> None:
    count = 0
    for number, recorded in pair.found.items():
        marked = pair.nsys.calls[number]
        forward = None if recorded.forward is None else pair.kineto.calls[recorded.forward]
        if forward is not None and forward.op in FUNCTIONS:
            # What is marked is the op in the function that made the node, if there is one.
            if marked.forward is not None:
                assert forward in pair.kineto.around(pair.found[marked.forward])
        else:
            expected = None if marked.forward is None else pair.found[marked.forward]
            assert forward is expected
            count += forward is not None
    assert count > 10


def test_what_only_torch_profiler_recorded_has_a_reason(pair: Pair) -> None:
    stopped = _stopped(pair)
    unexplained = Counter(
        call.op
        for call in _beside(pair)
        if call.id not in stopped
        and not NODE.fullmatch(call.op)
        and call.op not in (*FUNCTIONS, *MADE_WITH_MODES_OFF)
        and not any(_is_composite(call.op, name) for name in _overloads(call.op))
    )
    assert unexplained == {}


def _beside(pair: Pair) -> list[Call]:
    """Return what was recorded and is neither marked nor in a marked op."""
    marked = {call.id for call in pair.found.values()}
    return [
        call
        for call in pair.kineto.calls.values()
        if call.id not in marked
        and not any(outer.id in marked for outer in pair.kineto.around(call))
    ]


def _stopped(pair: Pair) -> set[int]:
    """Return the ops, one for each step, in which checkpointing stopped its second run.

    It does that when all tensors are there that backward wants: in a hook of the last op, before
    that op does anything. torch.profiler has its range all the same.
    """
    found = {
        call.id
        for call in _beside(pair)
        if call.recompute and call.inner and {inner.op for inner in call.inner} == {DETACH}
    }
    assert len(found) in (0, 2)
    return found


def _overloads(op: str) -> list[str]:
    return [schema.overload_name for schema in torch._C._jit_get_schemas_for_operator(op)]


def _is_composite(op: str, overload: str) -> bool:
    """Whether an op consists of others above autograd: those are marked."""
    name = f"{op}.{overload}" if overload else op
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


def test_flops_and_bytes_of_every_layer_are_the_same(pair: Pair) -> None:
    marked, recorded = pair.nsys.work(), pair.kineto.work(without=_stopped(pair))
    assert sum(flops for flops, _, _ in marked.values()) > 0
    for key in marked.keys() | recorded.keys():
        flops, low, high = marked.get(key, [0, 0, 0])
        flops_too, low_too, high_too = recorded.get(key, [0, 0, 0])
        assert flops == flops_too, key
        # torch.profiler does not say the dtypes in a list: then there are bounds.
        assert low_too <= low <= high <= high_too, key
