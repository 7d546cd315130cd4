"""Who records a script that `pyprof2 capture` runs, from when to when.

The annotation asks a recorder (`pyprof2.nvtx.session.Recorder`) to record, when the first step
begins that is wanted, or at once; and to finish, when one begins that is not. After that it records
nothing more.
"""

from __future__ import annotations

import ctypes
import gzip
import os
import pickle
import shutil
import signal
import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from pyprof2.capture.graph_captures import GraphCaptures
from pyprof2.capture.growth import Growth
from pyprof2.capture.outputs import write_trace
from pyprof2.capture.runner import BY_SIGNAL
from pyprof2.errors import harmless, say
from pyprof2.markers import DEVICES_KEY, DOMAIN, MEMBER, WINDOW, format_places
from pyprof2.nvtx.annotation import Capture, begin_capture, end_capture, shutdown
from pyprof2.nvtx.event_tree import places_of
from pyprof2.nvtx.internals import (
    Need,
    all_threads_config,
    allocated_on_cpu,
    forget_profiler,
    history_of,
    keep_history,
    lacks,
    profiler_starts,
)
from pyprof2.nvtx.observers import LACKS_LINES, callbacks_cleared, observer
from pyprof2.nvtx.replacing import replace
from pyprof2.nvtx.sources import script_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.markers import PlacesById

SNAPSHOT_EVENTS: Final = 1_000_000
"""Allocations and releases that a snapshot keeps at most, the last ones: some 100 MB."""

_GIVES_WAY: Final = (
    "the script starts a profiler of its own, and torch.profiler cannot run twice: recorded up to "
    "there; pyprof2 capture --nsys records beside it"
)
_TOO_LATE: Final = (
    "the script has started a profiler of its own before the first step that is wanted: nothing is "
    "recorded; pyprof2 capture --nsys records beside it"
)
_AGAIN: Final = "torch.profiler records one run of steps: what is wanted after it is not recorded"


class Prelude:
    """Counts what PyTorch allocates on the CPU before the recording, of which no recorder knows.

    It is a profiler of its own, whose events are counted and forgotten. It gives way to one of the
    program's; then the count is not known.
    """

    def __init__(self) -> None:
        """Begin to count."""
        self.cpu_bytes: int | None = None
        self._undo = ExitStack()
        self._profiler: profile | None = None
        # Starting it calls what gives way to others.
        started = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        started.start()
        self._profiler = started
        for owner, name in profiler_starts():
            replace(owner, name, self._make_way, self._undo)

    def end(self) -> None:
        """Count what is allocated, and do no more."""
        if self._profiler is not None:
            self._stop()
            self.cpu_bytes = allocated_on_cpu(self._profiler)
        self._profiler = None
        self._undo.close()

    def _make_way(self, start: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Give up where a profiler starts that is not this one."""
        if self._profiler is not None:
            self._stop()
            self._profiler = None
        return start(*args, **kwargs)

    def _stop(self) -> None:
        if self._profiler is not None:
            self._profiler.stop()


class NsysWindow:
    """Marks the part of the process that `nsys` records, by an NVTX range."""

    def __init__(self, at_end: Callable[[], None]) -> None:
        """Begin without a range.

        Args:
            at_end: called when the recording has ended.
        """
        self.has_begun = self.is_over = False
        self._range: Any = None
        self._at_end = at_end

    def record(self) -> None:
        """Begin the range; `nsys` looks at no second one."""
        import nvtx

        if not self.has_begun:
            self.has_begun = True
            self._range = nvtx.start_range(WINDOW, domain=DOMAIN)

    def finish(self) -> None:
        """End it."""
        import nvtx

        if self.has_begun and not self.is_over:
            self.is_over = True
            nvtx.end_range(self._range)
            self._at_end()

    def discard(self) -> None:
        """Nothing is recorded yet."""

    def step(self) -> None:
        """Do nothing: what `nsys` records is not in the memory of this process."""


class TorchRecorder:
    """Records with torch.profiler, and writes one trace, whole or not at all.

    The profilers of torch do not nest: a second one takes the first one's events, and the process
    ends with a fault. So this one ends when the script starts one. In a process that the script
    forks it does nothing: what is recorded there belongs to no recording.

    Attributes:
        has_begun: whether anything was recorded, or was to be.
        is_over: whether nothing more will be.
        source_root: the folder of the user's own code.
    """

    def __init__(  # noqa: PLR0913 -- options, each by its name
        self,
        path: Path,
        at_end: Callable[[], None],
        *,
        ends_process: bool = True,
        memory: bool = False,
        snapshot: Path | None = None,
        prelude: Prelude | None = None,
        graphs: GraphCaptures | None = None,
    ) -> None:
        """Begin to look out for other profilers.

        Args:
            path: of the trace; the end of its name says whether torch compresses it.
            at_end: called when the recording ends before the script does.
            ends_process: whether the recording is written where SIGTERM or `os._exit` ends the
                script.
            memory: whether every allocation is recorded too; then threads that the program starts
                itself are not.
            snapshot: where a snapshot of a GPU's allocator goes, if there is to be one.
            prelude: counts what is allocated before; it ends when the recording begins.
            graphs: records captures of graphs before; it ends with the recording.
        """
        self.has_begun = self.is_over = False
        self._path = path
        self._at_end = at_end
        self._memory = memory
        self._profiler: profile | None = None
        self._growth = Growth()
        self._snapshot = snapshot
        self._prelude = prelude
        self._graphs = graphs
        self.source_root = script_folder()
        self._has_stacks = False
        self._is_busy = False
        self._is_finishing = False
        self._ended_by: int | None = None
        self._undo = ExitStack()
        for owner, name in profiler_starts():
            replace(owner, name, self._make_way, self._undo)
        if ends_process:
            replace(os, "_exit", self._leave, self._undo)
            signal.signal(signal.SIGTERM, self._end)
        os.register_at_fork(after_in_child=self._forget)

    @harmless("nothing is recorded")
    def record(self) -> None:
        """Begin, unless it records already."""
        if self._profiler is not None:
            return
        if self.is_over:
            say(_AGAIN)
            return
        if self._graphs is not None and self._graphs.after(self.record):
            return  # a capture would break at what waits for the device
        if self._prelude is not None:
            self._prelude.end()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()  # what was launched before is no part of it
        if self._snapshot is not None:
            record_snapshot(torch.cuda)
        # Without the observer the lines of ops are found in Python's stacks, when it has ended.
        self._has_stacks = observer(LACKS_LINES) is None
        started = profile(
            record_shapes=True,
            with_stack=self._has_stacks,
            profile_memory=self._memory,
            # A profiler of all threads gets no allocations: the threads that the training and its
            # backward run on are followed anyway.
            experimental_config=None if self._memory else all_threads_config(),
        )
        self._growth = Growth()
        self.has_begun = self._is_busy = True
        try:
            started.start()
            self._profiler = started
        finally:
            self._is_busy = False

    @harmless("the recording is not whole")
    def finish(self) -> None:
        """End, and write what was recorded; afterwards it does nothing."""
        self._is_finishing = True
        try:
            profiler, is_first = self._profiler, not self.is_over
            self._stop()
            if profiler is not None and self._snapshot is not None:
                write_snapshot(torch.cuda, self._snapshot)
            self.is_over = True
            self._undo.close()
            if self._graphs is not None:
                self._graphs.close()
            if profiler is not None:
                finish = partial(self._add_places, profiler) if self._has_stacks else None
                write_trace(profiler, self._path, finish)
            if is_first:
                self._at_end()
        finally:
            self._is_finishing = False
        if self._ended_by is not None:
            # As the signal ends a process that does not handle it.
            signal.signal(self._ended_by, signal.SIG_DFL)
            os.kill(os.getpid(), self._ended_by)

    def discard(self) -> None:
        """Forget what was recorded, and wait for the start of recording."""
        self._stop()
        self.has_begun = False

    def step(self) -> None:
        """Warn the user when the recording takes much memory, and end it before there is none."""
        found = None if self._profiler is None else self._growth.step()
        if found is not None:
            say(found.text)
            if found.is_full:
                self.finish()

    def _stop(self) -> None:
        if self._profiler is not None:
            self._profiler.stop()
        self._profiler = None

    def _add_places(self, profiler: profile, plain: Path, path: Path) -> None:
        """Write the trace with the places of ops, by the Python stacks that the profiler keeps."""
        results: Any = profiler.profiler and profiler.profiler.kineto_results
        roots = results.experimental_event_tree()
        add_places(plain, path, places_of(roots, self.source_root))

    def _make_way(self, start: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """End before a profiler starts that is not this one."""
        is_ours = self._is_busy or (self._graphs is not None and self._graphs.is_busy)
        if not is_ours and not self.is_over:
            say(_TOO_LATE if self._profiler is None else _GIVES_WAY)
            self.has_begun = True
            self.finish()
        return start(*args, **kwargs)

    def _leave(self, leave: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Write what was recorded, if the script ends here and now."""
        if not self._is_finishing:
            self.finish()
        return leave(*args, **kwargs)

    def _end(self, number: int, _frame: object) -> None:
        """Write what was recorded, and end as the signal ends a script that does not handle it."""
        self._ended_by = number
        if not self._is_finishing:
            self.finish()

    def _forget(self) -> None:
        """Leave a forked process as if there were no recorder."""
        was_recording = self._profiler is not None
        self._profiler, self.is_over = None, True
        self._undo.close()
        if signal.getsignal(signal.SIGTERM) == self._end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if was_recording:
            forget_profiler()
            callbacks_cleared()


def add_places(plain: Path, path: Path, places: PlacesById) -> None:
    """Write a trace anew, with where its ops were called.

    Args:
        plain: the trace, as JSON.
        path: of the new one; the end of its name says whether it is compressed.
        places: where the ops were called.
    """
    member = f'"{MEMBER}":{format_places(places)},'
    create: Callable[[Path, str], Any] = gzip.open if path.suffix == ".gz" else open
    with plain.open("rb") as file, create(path, "wb") as new:
        # Some versions of torch begin it with an empty line.
        new.write(file.read(1 << 10).replace(b"{", b"{" + member.encode(), 1))
        shutil.copyfileobj(file, new)


def record_snapshot(cuda: Any) -> None:
    """Have the allocator of GPUs keep its history, if there are any.

    Args:
        cuda: `torch.cuda`.
    """
    if cuda.is_available() and not lacks(Need.SNAPSHOT):
        keep_history(cuda, max_entries=SNAPSHOT_EVENTS, stacks="python")


def write_snapshot(cuda: Any, path: Path) -> None:
    """Write what the allocator kept, and let it keep no more; if there are GPUs.

    It is what `torch.cuda.memory._dump_snapshot` writes, and what the driver says of each device.

    Also where memory ran out: the snapshot then has the request that failed.

    Args:
        cuda: `torch.cuda`.
        path: of the snapshot.
    """
    if not cuda.is_available() or lacks(Need.SNAPSHOT):
        return
    try:
        devices = []
        for device in range(cuda.device_count()):
            # The driver counts all users, of devices on which this process holds any memory.
            if reserved := int(cuda.memory_reserved(device)):
                free, total = cuda.mem_get_info(device)
                devices.append({"device": device, "used": int(total - free), "reserved": reserved})
        found = history_of(cuda) | {DEVICES_KEY: devices}
        with path.open("wb") as file:
            pickle.dump(found, file)
    except (OSError, RuntimeError) as error:
        say(f"{path.name}: no snapshot of the GPU's memory was written: {error}")
    finally:
        keep_history(cuda, enabled=None)


def leave_on_signal() -> None:
    """Let SIGTERM end this process by the exit of C, at which `nsys` takes what was recorded last.

    Killed, it leaves little or nothing. Python does not end: no `finally`, nothing of `atexit`.
    """

    def leave(number: int, _frame: object) -> None:
        ctypes.CDLL(None).exit(BY_SIGNAL + number)

    def forget() -> None:
        if signal.getsignal(signal.SIGTERM) is leave:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, leave)
    os.register_at_fork(after_in_child=forget)


def begin(args: argparse.Namespace, undo: ExitStack, prelude: Prelude | None = None) -> None:
    """Begin to annotate, and to record when it is time.

    Args:
        args: as `pyprof2.capture.script` parses them.
        undo: takes what ends it.
        prelude: see `TorchRecorder`.
    """
    steps = None if args.first is None else range(args.first, args.last + 1)
    root = args.source_root or str(args.folder)
    recorder: TorchRecorder | NsysWindow | None = None
    if args.trace is not None:
        recorder = TorchRecorder(
            args.trace, end_capture, memory=args.memory, snapshot=args.snapshot, prelude=prelude,
            graphs=GraphCaptures(args.trace),
        )  # fmt: skip
        recorder.source_root = root
    else:
        if sys.platform != "win32":
            leave_on_signal()
        if steps is not None:
            recorder = NsysWindow(end_capture)
    undo.callback(shutdown)
    if recorder is not None:
        undo.callback(recorder.finish)
    sink: Any = "nvtx" if args.trace is None else "kineto"
    # Only torch.profiler gets to know what memory is for.
    memory = args.memory and args.trace is not None
    is_marked = begin_capture(
        Capture(sink, steps, root, recorder, memory=memory, keep_cache=args.keep_cache)
    )
    if is_marked and recorder is not None and steps is not None:
        undo.push(partial(_say_where_it_ended, recorder, steps))


def _say_where_it_ended(
    recorder: TorchRecorder | NsysWindow,
    steps: range,
    _kind: object,
    error: BaseException | None,
    _trace: object,
) -> None:
    # An error says itself why there were no more steps.
    if not recorder.has_begun and not isinstance(error, Exception):
        say(f"step {steps[0]} did not begin: the script made fewer steps, or none that shows")
