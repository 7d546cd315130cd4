"""Ops that are marked in C get the ranges that they get in Python, and nothing leaks."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextlib
import gc
import importlib
import re
import sys
import threading
import traceback
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as functional_collectives
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import pyprof2.nvtx.annotation as annotation_module
from pyprof2.markers import parse_payload
from pyprof2.nvtx.annotation import shutdown, start
from pyprof2.nvtx.calls import CONTEXT, Site
from pyprof2.nvtx.compiled import marking
from pyprof2.nvtx.internals import insert_mode, next_sequence_nr, remove_mode
from pyprof2.nvtx.ops import OpMode, op_mode
from pyprof2.nvtx.options import Options
from pyprof2.nvtx.sinks import Sink
from tests.nvtx.recorder import Recorder
from tests.nvtx.scenarios import SCENARIOS, Gpt
from tests.nvtx.test_harmless import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMPILED: Any = marking()

pytestmark = [
    pytest.mark.usefixtures("by_mode"),
    pytest.mark.skipif(COMPILED is None, reason="the compiled module was not built"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]


_NUMBER: Final = re.compile(r"(?<=\w)#\d+(?=\")")
"""That of a layer's root which has the name of another one."""


class Row(NamedTuple):
    """A range as it is compared: its text, what it is the payload of, the text around it."""

    text: str
    thread: int | None
    sequence_nr: int | None
    outer: str | None


def recorded(
    run: Callable[[], object], monkeypatch: pytest.MonkeyPatch, *, pure: bool, **options: Any
) -> list[list[Row]]:
    """Return the ranges of the thread that ran a program in their order, and those of others."""
    recorder = Recorder()
    with monkeypatch.context() as patch:
        patch.setenv("PYPROF2_PURE", "1" if pure else "")
        assert (op_mode() is OpMode) == pure
        torch.manual_seed(1)
        first = next_sequence_nr()
        start(Options(**options), recorder.sink())
        try:
            run()
        finally:
            shutdown()
    assert recorder.is_balanced
    rows: dict[bool, list[Row]] = {True: [], False: []}
    for item in recorder.ranges:
        thread, sequence_nr = None, None
        parsed = parse_payload(item.payload)
        if parsed is not None:
            # Numbers of this thread go on from run to run.
            thread = parsed[1]
            sequence_nr = parsed[0] - (first if thread == 0 else 0)
        text, outer = item.text, None if item.parent is None else item.parent.text
        is_mine = item.thread == threading.get_ident()
        if not is_mine:
            # Which thread of a pool runs what, and how much before, is chance.
            thread, sequence_nr = None, None
            # Of two models that threads call at once, which is the first is chance too.
            text, outer = _NUMBER.sub("", item.text), outer and _NUMBER.sub("", outer)
        rows[is_mine].append(Row(text, thread, sequence_nr, outer))
    return [rows[True], sorted(rows[False], key=str)]


def both(
    run: Callable[[], object], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[list[list[Row]], list[list[Row]]]:
    """Return what is recorded in C, and in Python; a first run makes what is made once."""
    run()
    found = [recorded(run, monkeypatch, pure=pure, **options) for pure in (False, True)]
    return found[0], found[1]


class Scaled(torch.autograd.Function):
    """Runs ops in its forward and in its backward, with gradients on in the second."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp() * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            (inner,) = torch.autograd.grad(again.exp().sum(), again)
        product: Tensor = grad * inner * 2
        return product


class Wrapper(torch.Tensor):
    """A tensor around another one, which gets the ops itself."""

    held: Tensor

    @classmethod
    def around(cls, held: Tensor) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        def unwrapped(value: Any) -> Any:
            return value.held if isinstance(value, Wrapper) else value

        return func(*map(unwrapped, args), **(kwargs or {}))


class Named(torch.Tensor):
    """A subclass that nobody hears of: its ops are marked, with tensors that are not plain."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl


def lists_and_missing_ones() -> None:
    x, index = torch.ones(3, 4), torch.tensor([0, 2])
    for _ in range(3):
        torch.cat([x, x], 1)
        torch.cat((x, x[:, :2]), dim=1)
        torch.stack([x] * 5)
        torch._foreach_add([x.clone(), torch.ones(2)], 1.5)
        torch._foreach_addcmul_([x.clone()], [x], [x], value=0.5)
        _ = x[index], x[:, index], x[None, index]
        x.clone()[index] = 1.0
        torch.broadcast_tensors(x, torch.ones(4))
        x.split([1, 2])
        torch.einsum("ij,kj->ik", x, x)


def scalars_and_names() -> None:
    x = torch.ones(3, 4)
    nan = float("nan")
    for value in (1, 1, True, 1.0, 1.0, nan, nan, float("nan"), float("inf"), 2**40, 0.0, -0.0):
        torch.add(x, x, alpha=1 if value != value else int(min(value, 3)))  # noqa: PLR0124
        x.fill_(value)
    torch.mul(x, 1j)
    for rounding in (None, "floor", "trunc"):
        torch.div(x, 3, rounding_mode=rounding)
    for name in ("beta", "alpha", "beta"):
        torch.addmm(x, x, torch.ones(4, 4), **{name: 2})  # type: ignore[call-overload]
    x.to(torch.float64)
    x.to(torch.float16, copy=True)
    torch.empty(2, 3, dtype=torch.int8, device="cpu")
    torch.empty(2, 3, 4, 5, memory_format=torch.channels_last)
    torch.zeros(2, 2).to_sparse().to_dense()
    torch.full((2, 2), 7, dtype=torch.float64)
    torch.arange(0, 10, 2)
    for step in range(40):
        x.mul_(0.5 + step)  # a float that varies
        torch.roll(x, step)  # and a number


def results_that_are_given() -> None:
    x, out = torch.ones(3, 4), torch.empty(3, 4)
    values, places = torch.empty(3), torch.empty(3, dtype=torch.int64)
    for _ in range(3):
        torch.add(x, x, out=out)
        torch.mm(x, x.t(), out=torch.empty(3, 3))
        torch.max(x, 1, out=(values, places))


def strides_and_sizes() -> None:
    x = torch.ones(4, 6)
    for each in (
        x,
        x.t(),
        torch.ones(6, 4),
        x.t(),
        x[:, ::2],
        x[:0],
        x.expand(2, 4, 6),
        torch.ones(()),
        x[:, :1],
        x.t(),
    ):
        each + 1
        each.sum()
    torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last) * 2
    for size in range(1, 50):  # what changes all the time
        torch.ones(size, 3) * 2
        torch.ones(3, size) * 2


def kinds_of_tensors() -> None:
    x = torch.ones(4, 4)
    for _ in range(2):
        x.to_sparse() * 2
        torch.sparse.mm(x.to_sparse_csr(), x)
        quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        quantized.dequantize()
        torch.quantize_per_channel(x, torch.ones(4), torch.zeros(4), 0, torch.qint8).dequantize()
        torch.ones(2, 2, dtype=torch.complex64).conj() @ torch.ones(2, 2, dtype=torch.complex64)
        torch.ones(2, 2, device="meta") + 1
        torch.nn.Parameter(x) + 1
        torch.ones(4, 4).as_subclass(Named) + 1
        torch.mm(x.as_subclass(Named), x)
        Wrapper.around(x) + 1
        torch.ones(2, 2, dtype=torch.bool) | torch.ones(2, 2, dtype=torch.bool)


def traced_with_symbols() -> None:
    make_fx(lambda x: x.view(-1) + x.shape[0], tracing_mode="symbolic")(torch.ones(3, 4))
    make_fx(lambda x: (x @ x.t()).relu(), tracing_mode="fake")(torch.ones(3, 4))


def ops_that_raise() -> None:
    x = torch.ones(3, 4, requires_grad=True)
    for _ in range(2):
        for wrong in (lambda: torch.mm(x, x), lambda: x.view(5), lambda: torch.cat([x, x[:2, :2]])):
            with pytest.raises(RuntimeError):
                wrong()
        (x * 2).sum().backward()


def backward_in_backward() -> None:
    x = torch.ones(3, 4, requires_grad=True)
    for _ in range(3):
        Scaled.apply(x).sum().backward()
        x.register_hook(lambda grad: grad * 2)
        y = checkpoint(lambda v: (v * 2).exp(), x, use_reentrant=True)
        y.sum().backward()
        (first,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
        first.sum().backward()


def backward_on_threads() -> None:
    leaf = torch.ones(3, requires_grad=True)
    outcome = (leaf * 2).exp()

    def run() -> None:
        outcome.sum().backward()
        (torch.ones(2, requires_grad=True) * 3).sum().backward()

    for _ in range(2):
        thread = threading.Thread(target=run)
        outcome = (leaf * 2).exp()
        thread.start()
        thread.join()


class Deep(torch.autograd.Function):
    """Runs backward in backward so often that autograd goes on in a thread without frames."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, depth: int) -> Tensor:
        ctx.depth = depth
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if ctx.depth:
            with torch.enable_grad():
                inner = torch.ones(2, requires_grad=True) * 2
                total = Deep.apply(inner, ctx.depth - 1).sum()
            total.backward()
        return grad * 1, None


def backward_without_frames() -> None:
    Deep.apply(torch.ones(2, requires_grad=True) * 2, 70).sum().backward()


def optimizers() -> None:
    model = Gpt()
    tokens = torch.randint(0, 11, (2, 4))
    kinds: tuple[tuple[Any, dict[str, Any]], ...] = (
        *(
            (each, {"foreach": f})
            for each in (torch.optim.SGD, torch.optim.Adam)
            for f in (False, True)
        ),
        (torch.optim.LBFGS, {"max_iter": 3}),
    )
    for make, options in kinds:
        optimizer = make(model.parameters(), lr=0.01, **options)

        def closure(optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = model(tokens).sum()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)


OWN: Final[dict[str, Callable[[], object]]] = {
    "lists and missing ones": lists_and_missing_ones,
    "scalars and names": scalars_and_names,
    "results that are given": results_that_are_given,
    "strides and sizes": strides_and_sizes,
    "kinds of tensors": kinds_of_tensors,
    "traced with symbols": traced_with_symbols,
    "ops that raise": ops_that_raise,
    "backward in backward": backward_in_backward,
    "backward on threads": backward_on_threads,
    "backward without frames": backward_without_frames,
    "optimizers": optimizers,
}
ALL: Final[dict[str, Callable[[], object]]] = {
    **OWN,
    **{f"{name} (program)": program for name, program in PROGRAMS.items()},
    **{f"{name} (scenario)": scenario for name, scenario in SCENARIOS.items()},
}


@pytest.mark.parametrize("program", ALL)
def test_the_same_ranges_are_written_as_in_python(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_c, in_python = both(ALL[program], monkeypatch)

    assert in_c == in_python


@pytest.mark.parametrize("options", [{"source": False}, {"scalars": False}, {"shapes": False}])
@pytest.mark.parametrize("program", ["lists and missing ones", "scalars and names", "optimizers"])
def test_so_they_are_with_other_options(
    program: str, options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_c, in_python = both(OWN[program], monkeypatch, **options)

    assert in_c == in_python


@pytest.fixture
def _one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_one_process")
def test_so_they_are_for_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> None:
        x, world = torch.ones(4), torch.distributed.group.WORLD
        assert world is not None
        for _ in range(2):
            dist.all_reduce(x)
            functional_collectives.all_reduce(x, "sum", world) + 1
            functional_collectives.broadcast(x, 0, world) + 1

    in_c, in_python = (
        # How many there were before, which goes on.
        [row._replace(text=re.sub(r'"since":\d+', "", row.text)) for row in rows[0]]
        for rows in both(run, monkeypatch)
    )

    assert in_c == in_python
    assert any("allreduce" in row.text for row in in_c)
    assert any("_c10d_functional::broadcast" in row.text for row in in_c)


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[Any]:
    """Return a list that gets an entry with every call of a method."""
    method, calls = getattr(owner, name), []

    def call(*args: Any) -> Any:
        calls.append(name)
        return method(*args)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_a_step_that_repeats_is_marked_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = Gpt(), torch.randint(0, 11, (2, 4))
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(tokens).sum().backward()
        optimizer.step()

    step()
    start(Options(source=False), Recorder().sink())
    for _ in range(12):
        step()
    called = counted(monkeypatch, OpMode, "begin"), counted(monkeypatch, Site, "find")
    step()

    assert not called[0]
    assert len(called[1]) <= 20


def test_the_next_call_is_guessed_from_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.ones(n) for n in (1, 1, 2, 1, 1, 3, 1, 1, 4)]
    start(Options(source=False), Recorder().sink())
    found = counted(monkeypatch, Site, "find")
    missed = []
    for _ in range(CONTEXT):
        found.clear()
        for tensor in tensors:
            torch.neg(tensor)
        missed.append(len(found))

    assert missed[0] > 5
    assert missed[-1] == 0


def test_an_error_has_no_frame_of_ours_in_its_traceback() -> None:
    start(Options(), Recorder().sink())
    for args in ((torch.ones(2, 3), torch.ones(2, 3)), (torch.ones(2, 3).as_subclass(Named),) * 2):
        with pytest.raises(RuntimeError) as raised:
            torch.mm(*args)
        files = [frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)]
        assert set(files) == {__file__}


@pytest.mark.parametrize("call", ["_push", "_pop", "register"])
def test_an_error_of_the_sink_is_raised_and_leaves_a_mode_that_works(call: str) -> None:
    recorder, fails = Recorder(), True
    wrapped = getattr(recorder, f"_{call}".replace("__", "_"))

    def failing(*args: Any) -> Any:
        if fails:
            msg = "no room"
            raise ZeroDivisionError(msg)
        return wrapped(*args)

    setattr(recorder, f"_{call}".replace("__", "_"), failing)
    fails = False
    start(Options(), recorder.sink())
    x = torch.ones(3)
    x + 1

    def double() -> None:
        torch.ones(5, 7) * 2

    double()  # what comes again is registered
    fails = True
    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match="no room"):
            double()
    fails = False
    x + 1

    assert recorder.ops("aten::add")[-1].closed


def test_a_mode_that_was_not_initialized_says_so() -> None:
    mode = op_mode().__new__(op_mode())

    with pytest.raises(TypeError, match="not initialized"):
        mode.__torch_dispatch__(torch.ops.aten.add.Tensor, (), (torch.ones(1), torch.ones(1)), {})


def test_a_record_without_its_attributes_is_an_error_and_no_crash() -> None:
    start(Options(), Recorder().sink())
    session = annotation_module.current_session()
    assert session is not None
    x = torch.ones(3)
    x + 1
    state = session.state()
    for name in ("scope", "attributes", "next_nr", "unsure", "task", "nodes"):
        kept = getattr(state, name)
        delattr(state, name)
        with pytest.raises((TypeError, AttributeError)):
            (x.clone().requires_grad_() if name == "nodes" else x) + 1
        setattr(state, name, 3)  # of another kind
        with contextlib.suppress(TypeError, AttributeError, SystemError):
            x + 1
        setattr(state, name, kept)
    x + 1


@pytest.mark.parametrize(
    "args",
    [
        (),
        (1, [], []),
        (1, [(0, int)], [], None),
        (1, [], [(0, int, False)], None),
        (1, [(1, int, 0, 0, None)], [], None),
        (1, [], [(-1, int, False, 0)], None),
        (1, [3], [], None),
        (1, (), [], None),
    ],
)
def test_a_matcher_takes_what_it_is_made_of_only(args: Any) -> None:
    with pytest.raises((TypeError, IndexError)):
        COMPILED.Matcher(*args)


def test_a_matcher_compares_as_python_does() -> None:
    x, nan = torch.ones(2, 3), float("nan")
    matcher = COMPILED.Matcher(
        3,
        [(0, Tensor, x.dtype, x.shape, None)],
        [(1, float, False, 1.0), (2, int, True, None)],
        x.device,
    )

    assert matcher((x, 1.0, 5))
    assert matcher((torch.zeros(2, 3), 1.0, 6))
    for other in (
        (x, 1, 5), (x, True, 5), (x, 1.5, 5), (x, nan, 5), (x, 1.0, 5.0), (x, 1.0), (x.t(), 1.0, 5),
        (torch.ones(3, 2).t(), 1.0, 5), (x.double(), 1.0, 5), (x.to("meta"), 1.0, 5),
        (torch.nn.Parameter(x), 1.0, 5), (None, 1.0, 5), (x.to_sparse(), 1.0, 5),
    ):  # fmt: skip
        assert not matcher(other)
    assert not COMPILED.Matcher(1, [], [(0, float, False, nan)], None)((nan,))
    with pytest.raises(TypeError):
        matcher([x, 1.0, 5])


def test_a_mode_goes_with_its_annotation() -> None:
    start(Options(), Recorder().sink())
    session = annotation_module.current_session()
    SCENARIOS["mlp"]()
    torch.func.grad(lambda v: v.sin().sum())(torch.ones(3))
    assert session is not None
    gone = weakref.ref(session.local.mode)
    shutdown()
    gc.collect()

    assert gone() is None


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.minutes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_hundreds_of_thousands_of_ops_leave_no_memory() -> None:
    x, y = torch.ones(2, 3), torch.ones(2, 3, requires_grad=True)

    def run(count: int) -> None:
        for _ in range(count):
            torch.add(x, x, alpha=2)
            torch.cat([x, x])
            (y * 2).sum().backward()
            y.grad = None
            with contextlib.suppress(RuntimeError):
                torch.mm(x, x)

    # What is pushed is not kept, as the recorder would.
    sink = Sink(None, str, _Attributes, lambda _a, _d: None, lambda _d: None, lambda _a, _d: None)
    start(Options(source=False), sink)
    run(3_000)
    session = annotation_module.current_session()
    assert session is not None
    session.state().nodes.clear()
    gc.collect()
    before, refs = _resident(), [sys.getrefcount(o) for o in (None, x, y, torch.ones)]
    run(20_000)  # ten ops each
    session.state().nodes.clear()
    gc.collect()
    after = [sys.getrefcount(o) for o in (None, x, y, torch.ones)]

    assert _resident() - before < 1 << 22  # a reference for each op would be six times as much
    assert all(abs(new - old) < 100 for new, old in zip(after, refs, strict=True))


class _Attributes:
    message: Any = None
    payload: int = 0


class _Raises:
    """A size that cannot be compared, as those that are not known yet while torch traces."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def __eq__(self, _other: object) -> bool:
        raise self._error

    __hash__ = None  # type: ignore[assignment]


def test_a_shape_that_cannot_be_compared_is_another_one() -> None:
    x = torch.ones(2, 3)

    def matcher(error: type[Exception]) -> Any:
        shape = (2, _Raises(error))
        return COMPILED.Matcher(1, [(0, Tensor, x.dtype, shape, None)], [], x.device)

    assert not matcher(RuntimeError)((x,))
    with pytest.raises(ZeroDivisionError):
        matcher(ZeroDivisionError)((x,))


def test_a_list_that_changes_while_a_matcher_is_made_of_it_is_an_error_and_no_crash() -> None:
    x = torch.ones(2)
    tensors: list[Any] = []

    class Index:
        def __index__(self) -> int:
            tensors.clear()
            return 0

    tensors += [(Index(), Tensor, x.dtype, x.shape, None) for _ in range(2)]
    with pytest.raises(IndexError):
        COMPILED.Matcher(1, tensors, [], None)


class _Garbage:
    """Is collected with the next object that is made after `drop`, and then runs something."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.run, self.me = run, self

    def __del__(self) -> None:
        self.run()

    @classmethod
    def drop(cls, run: Callable[[], object]) -> None:
        cls(run)
        gc.set_threshold(1)


@pytest.mark.parametrize("before", [2, 20, 200])
@pytest.mark.parametrize("after", [1, 30, 300])
def test_a_list_may_change_while_an_op_is_looked_at(before: int, after: int) -> None:
    start(Options(source=False), Recorder().sink())
    session = annotation_module.current_session()
    assert session is not None
    mode, x = session.local.mode, torch.ones(2)
    number = mode._next_sequence_nr
    tensors = [x] * before

    def change() -> None:
        tensors[:] = [x] * after

    def drop() -> Any:
        _Garbage.drop(change)
        return number()

    thresholds = gc.get_threshold()
    torch.cat(tensors)
    remove_mode(mode)  # as while an op gets to it
    mode._next_sequence_nr = drop
    try:
        mode.__torch_dispatch__(torch.ops.aten.cat.default, (), (tensors,), {})
    finally:
        gc.set_threshold(*thresholds)
        mode._next_sequence_nr = number
        insert_mode(mode)
    assert len(tensors) == after


def test_what_a_mode_is_made_of_stays_while_an_op_runs() -> None:
    recorder = Recorder()
    start(Options(source=False), recorder.sink())
    session = annotation_module.current_session()
    assert session is not None
    mode, x = session.local.mode, torch.ones(2)
    for name in ("home", "_current_task", "_grad_enabled", "_local", "_no_sequence", "_ops"):
        with pytest.raises(AttributeError):
            delattr(mode, name)
        assert getattr(mode, name) is not None
    x + 1
    assert recorder.ops("aten::add")[-1].closed


def test_ops_go_on_if_the_module_is_imported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    start(Options(source=False), recorder.sink())
    x = torch.ones(2)
    torch.neg(x)
    monkeypatch.delitem(sys.modules, COMPILED.__name__)
    again = importlib.import_module(COMPILED.__name__)
    torch.neg(x)

    assert again.Op is COMPILED.Op
    assert len(recorder.ops("aten::neg")) == 2
