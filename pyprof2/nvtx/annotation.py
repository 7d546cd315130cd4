"""Begin and end the annotation of this process."""

from __future__ import annotations

import atexit
import importlib.util
import os
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyprof2.errors import Pyprof2Error, UsageError, fault, say
from pyprof2.nvtx import hooks
from pyprof2.nvtx.compile_notes import notes
from pyprof2.nvtx.cpu_peaks import cpu_marker
from pyprof2.nvtx.energy import machine_meter
from pyprof2.nvtx.internals import Need, hide_from_dynamo, is_tracing, lack, lacks
from pyprof2.nvtx.memory_tags import MemoryTags
from pyprof2.nvtx.observed import ObservedSession
from pyprof2.nvtx.observers import is_wanted, observer
from pyprof2.nvtx.options import Options, SinkName
from pyprof2.nvtx.session import AnnotationSession
from pyprof2.nvtx.sinks import INJECTION, Sink, nvtx_sink, observer_sink
from pyprof2.nvtx.steps import OptimizerClock, StepTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from pyprof2.nvtx.session import Recorder


@dataclass(frozen=True, slots=True)
class Capture:
    """The request of `pyprof2 capture`; the script's own call of `init` does not undo it.

    Attributes:
        sink: where the profiler takes ranges from.
        steps: to record; None: what the script says.
        source_root: the folder of the user's own code.
        recorder: who records; None: another process, all the time.
        memory: whether the recording gets to know what memory is for.
        keep_cache: whether compiled graphs may come from torch's caches.
    """

    sink: SinkName
    steps: Container[int] | None = None
    source_root: str | None = None
    recorder: Recorder | None = None
    memory: bool = False
    keep_cache: bool = False

    def apply(self, options: Options) -> Options:
        """Return the options of the script as they hold in a capture."""
        return replace(
            options,
            sink=self.sink if options.sink == "auto" else options.sink,
            steps=options.steps if self.steps is None else self.steps,
            source_root=self.source_root,
            memory=options.memory or self.memory,
            keep_cache=options.keep_cache or self.keep_cache,
        )


class _Annotation:
    """The annotation that is on, if one is.

    Attributes:
        capture: what the process is run for, if it is for that.
        is_wanted: whether the script itself asked for the annotation.
        on_step: called where the program says that a step ends, in place of the annotation.
        fault: why nothing is marked; None: nothing went wrong.
    """

    def __init__(self) -> None:
        self.capture: Capture | None = None
        self.is_wanted = False
        self.session: AnnotationSession | None = None
        self.steps: StepTracker | None = None
        self.memory: MemoryTags | None = None
        self.on_step: Callable[[], None] | None = None
        self.undo = ExitStack()
        self.fault: str | None = None


_current = _Annotation()


def current_session() -> AnnotationSession | None:
    """Return what is on at the moment."""
    return _current.session


def current_memory() -> MemoryTags | None:
    """Return what marks what memory is for, if that is wanted."""
    return _current.memory


def init(  # noqa: PLR0913 -- options, each by its name
    *,
    sink: SinkName = "auto",
    shapes: bool = True,
    source: bool = True,
    layers: bool = True,
    scalars: bool = True,
    cpu_peaks: bool = True,
    energy: bool = True,
    memory: bool = False,
    steps: Container[int] | None = None,
    keep_cache: bool = False,
    enable_function_stack: bool = True,  # noqa: ARG001 -- what PyProf was asked for
) -> None:
    """Mark every op, layer and step of this process from now on, until `shutdown`.

    Ops of forward and backward, optimizers and data loading get a range, with the shapes and
    dtypes of the arguments, the layer, the line of user code, and for backward the forward op. It
    changes nothing in what the program computes. Threads that are started later are annotated
    too, worker processes of a DataLoader are not; other processes call it for themselves.

    NVTX ranges of ops are written from C++, by an observer that is compiled for the torch that runs
    where it is needed first. Where that fails, or `PYPROF2_OBSERVER` is 0, a dispatch mode marks
    them, and a line on stderr says so: it costs some five times as much, autograd adds up gradients
    in new memory under it, and backward seldom knows a forward op that ran on another thread.

    Calling it again does nothing, or changes the options if they are others.

    Args:
        sink: `nvtx` writes NVTX ranges, which Nsight Systems records. `kineto` writes ranges into
            the trace of torch.profiler, which has the ops already: only layers, steps and lines.
            `auto` does the second while a torch.profiler runs and the first otherwise.
        shapes: whether shapes, dtypes and strides of arguments are recorded, and scalars.
        source: whether the line of user code is.
        layers: whether layers are.
        scalars: whether numbers and texts among the arguments are.
        cpu_peaks: whether, on a machine without a GPU, the highest rates of its CPU are measured
            and recorded, as the roof of the ops. It takes some seconds, and is kept for an hour.
        energy: whether the counters of energy that the machine lets this process read are read,
            at the beginning of few steps: at the first, and after 1 s, 2 s, 4 s and so on. On a
            GPU these steps begin with a wait for what was launched before.
        memory: whether the trace of a torch.profiler that records memory gets to know what blocks
            are for: parameters, gradients, states of the optimizer, inputs, what autograd holds
            for backward. See the page on memory for what it costs.
        steps: the steps to record, such as `range(10, 20)`; everything by default. Steps count
            from 0, see `pyprof2.nvtx.steps`; what comes before the first one is in none.
            Without training, batches of a DataLoader count.
        keep_cache: whether graphs of torch.compile may come from torch's caches. By default they
            are compiled anew, once in a process, because nothing is known of the lines of a graph
            from a cache.
        enable_function_stack: PyProf's option; layers and lines of code, which stand for what it
            added, are recorded whatever it is.

    Raises:
        UsageError: an option makes no sense, or `nvtx` is wanted and the package is missing.
    """
    options = Options(
        sink, shapes, source, layers, scalars, cpu_peaks, energy, memory, steps,
        keep_cache=keep_cache,
    )  # fmt: skip
    _current.is_wanted = True
    _try(options if _current.capture is None else _current.capture.apply(options))


def begin_capture(capture: Capture) -> bool:
    """Begin the annotation for `pyprof2 capture`; `init` in the script changes its options.

    Returns whether it is on. Where it cannot be, a recording of everything begins without it.
    """
    _current.capture = capture
    is_whole = capture.recorder is None or capture.steps is None
    lost = "" if is_whole else ", so the steps to record are not known and nothing is recorded"
    if _try(capture.apply(Options()), lost):
        return True
    if capture.recorder is not None and is_whole:
        capture.recorder.record()
    return False


def end_capture() -> None:
    """End what is done for `pyprof2 capture`; what the script asked for itself goes on."""
    _current.capture = None
    if _current.session is not None:
        _current.session.recorder = None
    if not _current.is_wanted:
        shutdown()


def is_captured() -> bool:
    """Return whether this process is recorded already."""
    return _current.capture is not None


def restore(options: Options | None) -> None:
    """Make the annotation what it was; None: none was on."""
    if options is None:
        shutdown()
    else:
        _try(options)


def _try(options: Options, lost: str = "") -> bool:
    """Begin, and return whether that worked: a fault of ours does not end the user's program.

    Args:
        options: of the annotation.
        lost: what else is not done where it did not work; said once.

    Raises:
        UsageError: an option makes no sense.
    """
    why = _current.fault or lack(Need.ALL)
    if why is None:
        try:
            _begin(options)
        except Pyprof2Error:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever it is
            why = f"{fault(error)}: {Need.ALL.value}"
    if why is not None and _current.fault is None:
        say(f"{why}{lost}; the script runs on")
    _current.fault = why
    return why is None


def _begin(options: Options) -> None:
    if _current.session is not None:
        if _current.session.options == options:
            return
        shutdown()
    sink = None
    if options.sink != "kineto":
        try:
            sink = _nvtx_sink()
        except UsageError as error:
            if options.sink == "nvtx":
                raise
            warnings.warn(f"{error}; without it only torch.profiler gets ranges", stacklevel=2)
    start(options, sink)


def _nvtx_sink() -> Sink | None:
    """Return the sink that writes NVTX ranges: the observer's, or the package's."""
    if not is_wanted() or importlib.util.find_spec("nvtx") is None:
        # (The package: so that what is needed does not depend on whether there is a compiler.)
        return nvtx_sink()
    if not os.environ.get(INJECTION):
        return None  # nothing is compiled, and nothing tested, for nobody
    found = observer()
    return nvtx_sink() if found is None else observer_sink(found)


def _new_session(
    options: Options, sink: Sink | None, recorder: Recorder | None
) -> AnnotationSession:
    # Without a sink it is needed when a torch.profiler starts.
    found = None if sink is None else observer()
    if found is None and (sink is not None or not is_wanted()):
        return AnnotationSession(options, sink, recorder)
    return ObservedSession(options, sink, recorder, found)


def start(options: Options, sink: Sink | None) -> None:
    """Begin an annotation; none must be on."""
    lacks(Need.INNER)
    recorder = None if _current.capture is None else _current.capture.recorder
    session = _new_session(options, sink, recorder)
    cpu = cpu_marker() if options.cpu_peaks else None
    steps = StepTracker(session, cpu, machine_meter() if options.energy else None)
    with ExitStack() as undo:
        memory = MemoryTags(session) if options.memory and not lacks(Need.MEMORY) else None
        hooks.hook_modules(session, steps, undo, memory)
        hooks.hook_optimizers(steps, undo, memory)
        hooks.hook_dataloaders(session, steps, undo)
        hooks.hook_threads(session, undo)
        hooks.hook_c10d(session, undo)
        notes.begin(undo, keep_cache=options.keep_cache)
        if options.sink != "nvtx":
            hooks.hook_profiler(session, steps, undo, memory)
        if memory is not None:
            hooks.hook_memory(session, memory, undo)
        undo.callback(session.close)
        session.enter_thread()
        if recorder is not None:
            if options.sink != "nvtx" and options.source:
                session.prepare_rows()  # to compile may take longer than what is to be recorded
            recorder.record() if session.recording else recorder.discard()
        undo.callback(steps.finish)
        steps.introduce()
        _current.session, _current.steps, _current.memory = session, steps, memory
        _current.undo = undo.pop_all()
    atexit.register(shutdown)


def step() -> None:
    """Say that a step ends here, and the next one begins.

    For programs whose steps pyprof2 does not find by itself, see `pyprof2.nvtx.steps`. Where it is
    called, these are the only steps of the recording. Unless something records, or `init` was
    called, it does nothing.
    """
    if is_tracing():
        return
    if _current.on_step is not None:
        _current.on_step()
    elif _current.steps is not None:
        _current.steps.end_step()


def listen_for_steps(on_step: Callable[[], None]) -> Callable[[], None]:
    """Have `step` call a function instead, and return what ends that."""

    def end() -> None:
        if _current.on_step is on_step:
            _current.on_step = None

    _current.on_step = on_step
    return end


def count_from(clock: OptimizerClock, ended: int | None) -> None:
    """Go on with the steps that were counted until now; see `pyprof2.nvtx.steps.StepTracker`."""
    if _current.steps is not None:
        _current.steps.count_from(clock, ended)


def shutdown() -> None:
    """End the annotation, and leave PyTorch as it was before `init`.

    Where a dispatch mode marked ops, threads that run already keep one that lets everything
    through, until they end. Without `init` it does nothing.
    """
    if _current.session is None:
        return
    atexit.unregister(shutdown)
    undo, _current.undo = _current.undo, ExitStack()
    _current.session = _current.steps = _current.memory = None
    undo.close()


# A forked process, such as a worker of a DataLoader, is not what is being watched.
os.register_at_fork(after_in_child=shutdown)

hide_from_dynamo(
    tuple(
        f"pyprof2.{name}"
        for name in (
            "markers", "signatures", "nvtx.calls", "nvtx.catalog", "nvtx.collective_marks",
            "nvtx.compile_notes", "nvtx.describe", "nvtx.energy", "nvtx.holders",
            "nvtx.hooks", "nvtx.knowledge", "nvtx.layers", "nvtx.memory_tags", "nvtx.observed",
            "nvtx.ops",
            "nvtx.pairing", "nvtx.replacing", "nvtx.schema", "nvtx.session", "nvtx.sinks",
            "nvtx.sources", "nvtx.steps", "nvtx.storages", "nvtx.threads",
            "nvtx.weights",
        )
    )
)  # fmt: skip
