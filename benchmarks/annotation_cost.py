"""What the annotation costs: added time per marked op, on a training step of small ops.

Usage: python benchmarks/annotation_cost.py [--rounds N] [--steps N] [--memory STEPS]

A transformer's layer is trained with SGD. Beside the annotation stand an empty
`TorchDispatchMode`, which is what any way costs that sees every op from Python, the annotation by a
dispatch mode (what there is without a compiler), and PyProf's way: every function of torch
replaced by one that writes the call and the whole Python stack into ranges. The ways take turns in
every round, and the fast steps and rounds count (where the lowest tenth ends): what else a machine
does only adds. Beside a number stand the lowest and the highest of single rounds. A profiler that
only counts (`tests/nvtx/listener.c`) is attached. The time is that of the thread's own work, with
one thread for kernels.

After them stand: the same with the caches of the CPU emptied before every step; two threads that
train at once, by the clock; a network with batches of a new size in every step; small ops that the
user's own line calls through functions of a library, `--frames` of them; the same step under a
torch.profiler that records shapes, alone, with Python stacks, and with the annotation; and, with
`--memory`, how much memory a long training takes on the way.

The claims: the step takes at most 1.6 times as long, and what is added is at most 0.4 of what the
empty mode adds; at most 1.5 times with empty caches, and twice for two threads. Per marked op, at
most 6 times as much with shapes that are new in every step, whose texts are made in Python, and
1.5 times with 20 functions of a library in between. Under torch.profiler with shapes the step takes
at most 1.25 times as long with the annotation as without. Exit code 1 if they do not hold.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse
import inspect
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import nvtx
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import pyprof2.nvtx
from pyprof2.nvtx.annotation import start
from pyprof2.nvtx.observers import SWITCH, observer
from pyprof2.nvtx.options import Options, SinkName
from pyprof2.nvtx.sinks import observer_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

ROOT: Final = Path(__file__).resolve().parent.parent
TIMES_PLAIN: Final = 1.6
SHARE_OF_EMPTY: Final = 0.4
COLD_TIMES_PLAIN: Final = 1.5
THREADS_TIMES_PLAIN: Final = 2.0
CHANGING_TIMES_FIXED: Final = 6.0
KINETO_TIMES_SHAPES: Final = 1.25
SIZES: Final = range(1, 4001)
LIBRARY_FRAMES: Final = (5, 20)
LIBRARY_TIMES_OWN: Final = 1.5
LIBRARY: Final = """
def through(count, x):
    if count > 1:
        return through(count - 1, x)
    for _ in range(100):
        x = x * x
"""


class Empty(TorchDispatchMode):
    """Lets every op through."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Counting(TorchDispatchMode):
    """Counts the ops."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.namespace != "profiler"
        return func(*args, **(kwargs or {}))


@contextmanager
def annotated(sink: SinkName = "nvtx") -> Iterator[None]:
    """Annotate as users do."""
    pyprof2.nvtx.init(sink=sink, cpu_peaks=False, energy=False)
    try:
        yield
    finally:
        pyprof2.nvtx.shutdown()


@contextmanager
def annotated_by_mode() -> Iterator[None]:
    """Annotate as where there is no compiler."""
    with mock.patch.dict(os.environ, {SWITCH: "0"}), annotated():
        yield


class PyProfsWay:
    """Replaces the functions of torch by ones that write ranges; counts their calls.

    What PyProf leaves alone is left alone: most names with underscores, and what would call
    itself. `Tensor.__torch_function__` too, without which current versions of torch do not work.
    """

    LEFT_ALONE: Final = {
        "size", "tolist", "dim", "is_storage", "item", "data_ptr", "contiguous", "detach", "empty",
        "from_numpy", "has_torch_function", "is_autocast_enabled", "is_available", "is_complex",
        "is_floating_point", "is_grad_enabled", "is_initialized", "is_tensor", "numel", "to",
        "requires_grad_", "type", "stride", "storage_offset", "get_device", "as_subclass",
        "backward", "manual_seed", "no_grad", "enable_grad", "set_grad_enabled", "typename",
        "compile", "load", "save", "register_hook", "handle_torch_function", "jit",
    }  # fmt: skip
    OPERATORS: Final = {
        f"__{way}{name}__"
        for way in ("", "i", "r")
        for name in ("add", "sub", "mul", "truediv", "matmul", "pow")
    }

    def __init__(self) -> None:
        self.count = 0
        self._writing = False

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Replace the functions, and put them back."""
        originals = []
        for owner in (torch, torch.Tensor, functional):
            for name in dir(owner):
                function: Any = getattr(owner, name, None)
                if self._is_replaced(name, function):
                    originals.append((owner, name, function))
                    setattr(owner, name, self._wrapper(owner.__name__, name, function))
        try:
            yield
        finally:
            for owner, name, function in originals:
                setattr(owner, name, function)

    def _is_replaced(self, name: str, function: Any) -> bool:
        named = name in self.OPERATORS or not name.startswith(("_", "is_", "has_", "get_", "set_"))
        kinds = (inspect.isfunction, inspect.ismethoddescriptor, inspect.isbuiltin)
        return named and name not in self.LEFT_ALONE and any(kind(function) for kind in kinds)

    def _wrapper(self, owner: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._writing:
                return function(*args, **kwargs)
            self._writing = True
            self.count += 1
            frames = traceback.extract_stack()[:-1]
            nvtx.push_range(str({"traceMarker": [f"{f.filename}:{f.lineno}" for f in frames]}))
            given = [("", arg) for arg in args] + list(kwargs.items())
            described = [_describe(key, value) for key, value in given]
            nvtx.push_range(str({"mod": owner, "op": name, "args": described}))
            self._writing = False
            result = function(*args, **kwargs)
            nvtx.pop_range()
            nvtx.pop_range()
            return result

        return wrapper


def _describe(name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).split(".")[-1]
        return {"name": name, "type": "tensor", "shape": tuple(value.size()), "dtype": dtype}
    if isinstance(value, (list, tuple)):
        return [_describe(name, part) for part in value]
    return {"name": name, "type": type(value).__name__, "value": str(value)[:80]}


def training_step() -> Callable[[], None]:
    """Return a function that trains a transformer's layer for one step."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(2, 8, 32)

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()

    return step


def seconds_per_step(step: Callable[[], None], steps: int) -> float:
    """Return the time of a fast step, after some that are not counted."""
    times = []
    for index in range(steps + 3):
        begin = time.thread_time()
        step()
        if index >= 3:
            times.append(time.thread_time() - begin)
    return fast(times)


def fast(times: Sequence[float]) -> float:
    """Return where the lowest tenth ends."""
    return sorted(times)[len(times) // 10]


def listen(folder: Path) -> None:
    """Attach a profiler that only counts, before anything looks for one."""
    library = folder / "listener.so"
    source = ROOT / "tests" / "nvtx" / "listener.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)  # noqa: S607
    os.environ["NVTX_INJECTION64_PATH"] = str(library)


def main() -> int:
    """Measure every way in turn, and print what each adds."""
    parser = argparse.ArgumentParser(description="Measure what the annotation costs.")
    parser.add_argument("--rounds", type=int, default=9, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=40, help="per round; default: %(default)s")
    parser.add_argument("--memory", type=int, metavar="STEPS", help="train that long, no more")
    parser.add_argument(
        "--frames", type=int, nargs="*", default=[*LIBRARY_FRAMES], help="default: %(default)s"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        listen(Path(name))
        if observer() is None:
            sys.exit("there is no observer here")
        if arguments.memory:
            return memory_of(arguments.memory)
        return _measure(arguments.rounds, arguments.steps, arguments.frames)


def _measure(rounds: int, steps: int, frames: Sequence[int]) -> int:
    step = training_step()
    step()
    pyprof = PyProfsWay()
    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "none": nullcontext, "empty mode": Empty, "pyprof2": annotated,
        "by mode": annotated_by_mode, "PyProf": pyprof.patched,
    }  # fmt: skip
    marked = _marked_calls(step, pyprof)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            with way():
                seconds[name].append(seconds_per_step(step, steps))
    base = fast(seconds["none"])
    print(f"a step takes {base * 1e3:.2f} ms without; {marked['pyprof2']} ops are marked")
    added = {name: _print_added(name, seconds, marked[name]) for name in list(ways)[1:]}
    cold = cold_times_plain(step, rounds)
    threads = threads_times_plain(rounds)
    kineto = kineto_times_shapes(step, rounds, steps)
    changing = changing_times_fixed(rounds)
    library = {n: library_times_own(n, rounds) for n in frames}
    times = fast(seconds["pyprof2"]) / base
    share = added["pyprof2"] / added["empty mode"]
    print(f"the step takes {times:.2f} times as long; {share:.0%} of what the empty mode adds")
    holds = times <= TIMES_PLAIN and share <= SHARE_OF_EMPTY
    holds &= cold <= COLD_TIMES_PLAIN and threads <= THREADS_TIMES_PLAIN
    holds &= kineto <= KINETO_TIMES_SHAPES
    holds &= all(each <= LIBRARY_TIMES_OWN for each in library.values())
    return int(not holds or changing >= CHANGING_TIMES_FIXED)


def _marked_calls(step: Callable[[], None], pyprof: PyProfsWay) -> dict[str, int]:
    """Return how many calls each way marks in a step."""
    with Counting() as ops:
        step()
    with pyprof.patched():
        step()
    ours = dict.fromkeys(("empty mode", "pyprof2", "by mode"), ops.count)
    return {**ours, "PyProf": pyprof.count}


def cold_times_plain(step: Callable[[], None], rounds: int) -> float:
    """Return how many times as long a step takes, where the caches are empty when it begins."""
    other = torch.zeros(1 << 23)

    def seconds() -> float:
        times = []
        for _ in range(20):
            other.add_(1)
            begin = time.thread_time()
            step()
            times.append(time.thread_time() - begin)
        return fast(times)

    def seconds_annotated() -> float:
        with annotated():
            step()
            step()
            return seconds()

    return _print_times("with empty caches a step takes", seconds, seconds_annotated, rounds)


def threads_times_plain(rounds: int) -> float:
    """Return how many times as long two threads take that train at once, by the clock."""
    steps = [training_step() for _ in range(2)]

    def run(step: Callable[[], None]) -> None:
        for _ in range(40):
            step()

    def seconds_once() -> float:
        workers = [threading.Thread(target=run, args=(step,)) for step in steps]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return time.perf_counter() - begin

    def seconds() -> float:
        return fast([seconds_once() for _ in range(5)])

    def seconds_annotated() -> float:
        with annotated():
            return seconds()

    return _print_times("two threads take", seconds, seconds_annotated, rounds)


def kineto_times_shapes(step: Callable[[], None], rounds: int, steps: int) -> float:
    """Return how many times as long a step takes under a torch.profiler that is annotated."""
    cpu = [torch.profiler.ProfilerActivity.CPU]

    def seconds(*, with_stack: bool = False) -> float:
        with torch.profiler.profile(activities=cpu, record_shapes=True, with_stack=with_stack):
            return seconds_per_step(step, steps)

    def seconds_annotated() -> float:
        with annotated("kineto"):
            return seconds()

    plain = partial(seconds_per_step, step, steps)
    _print_times("under torch.profiler with shapes a step takes", plain, seconds, rounds)
    stacks = partial(seconds, with_stack=True)
    _print_times("with Python stacks it takes", seconds, stacks, rounds)
    return _print_times("with the annotation it takes", seconds, seconds_annotated, rounds)


def _print_times(
    what: str, plain: Callable[[], float], with_it: Callable[[], float], rounds: int
) -> float:
    without, own = zip(*((plain(), with_it()) for _ in range(rounds)), strict=True)
    times = [b / a for a, b in zip(without, own, strict=True)]
    found = fast(own) / fast(without)
    print(f"{what} {found:.2f} times as long [{min(times):.2f} … {max(times):.2f}]")
    return found


def memory_of(steps: int) -> int:
    """Train for long, and print how much memory the process had on the way; 1: it grew."""
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(4, 16)
    parts = 10
    kib = []
    with annotated():
        for _ in range(parts):
            for _ in range(steps // parts):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
            kib.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            print(f"{len(kib) * steps // parts} steps: {kib[-1] / 1024:.1f} MiB at most")
    # What a thread remembers of nodes is a ring: it is full after some 40,000 steps of these.
    return int(kib[-1] - kib[-3] > 2048)


def _print_added(name: str, seconds: dict[str, list[float]], marked: int) -> float:
    """Print and return the time that a way adds per marked call, in microseconds."""
    pairs = zip(seconds[name], seconds["none"], strict=True)
    added = [(with_it - without) / marked * 1e6 for with_it, without in pairs]
    found = (fast(seconds[name]) - fast(seconds["none"])) / marked * 1e6
    spread = f"[{min(added):.2f} … {max(added):.2f}]"
    print(f"{name:<13} {found:6.2f} µs per marked call {spread}, {marked} of them")
    return found


def changing_times_fixed(rounds: int) -> float:
    """Return how many times as much is added where the shapes change in every step."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(max(SIZES), 16)

    def seconds(sizes: Sequence[int]) -> float:
        begin = time.thread_time()
        for size in sizes:
            optimizer.zero_grad()
            model(data[:size]).square().mean().backward()
            optimizer.step()
        return time.thread_time() - begin

    order = torch.randperm(len(SIZES)).tolist()
    changing = [SIZES[place] for place in order[: len(order) // 4]]
    times = []
    for _ in range(rounds):
        plain = {"fixed": seconds([64] * len(changing)), "changing": seconds(changing)}
        with annotated():
            seconds([64] * 20)
            fixed = seconds([64] * len(changing)) - plain["fixed"]
            times.append((seconds(changing) - plain["changing"]) / fixed)
    middle = statistics.median(times)
    print(
        f"changing shapes cost {middle:.2f} times fixed ones [{min(times):.2f} … {max(times):.2f}]"
    )
    return middle


def library_times_own(count: int, rounds: int) -> float:
    """Return how many times as much is added below functions of a library, that many."""
    names: dict[str, Any] = {}
    exec(compile(LIBRARY, "/library/calls.py", "exec"), names)  # noqa: S102 -- the text is above
    x = torch.randn(8)

    def seconds() -> float:
        times = []
        for _ in range(20):
            begin = time.thread_time()
            names["through"](count, x)
            times.append(time.thread_time() - begin)
        return min(times)

    times = []
    for _ in range(rounds):
        plain, added = seconds(), []
        for root in ("/library", str(ROOT)):
            start(Options(source_root=root, cpu_peaks=False), observer_sink(observer()))
            try:
                added.append(seconds() - plain)
            finally:
                pyprof2.nvtx.shutdown()
        times.append(added[1] / added[0])
    middle = statistics.median(times)
    spread = f"[{min(times):.2f} … {max(times):.2f}]"
    print(f"{count} functions of a library cost {middle:.2f} times an own line {spread}")
    return middle


if __name__ == "__main__":
    sys.exit(main())
