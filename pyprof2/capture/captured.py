"""Annotate and record the process that `pyprof2 capture` has started, see `script`."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from pyprof2.capture.recorders import NsysWindow, TorchRecorder, leave_on_signal, say
from pyprof2.nvtx.annotation import Capture, begin_capture, end_capture, shutdown

if TYPE_CHECKING:
    import argparse
    from contextlib import ExitStack

    from pyprof2.capture.recorders import Prelude


def begin(args: argparse.Namespace, undo: ExitStack, prelude: Prelude | None = None) -> None:
    """Begin to annotate, and to record when it is time.

    Args:
        args: as `pyprof2.capture.script` parses them.
        undo: takes what ends it.
        prelude: see `TorchRecorder`.
    """
    steps = None if args.first is None else range(args.first, args.last + 1)
    recorder: TorchRecorder | NsysWindow | None = None
    if args.trace is not None:
        recorder = TorchRecorder(
            args.trace, end_capture, memory=args.memory, snapshot=args.snapshot, prelude=prelude
        )
    else:
        if sys.platform != "win32":
            leave_on_signal()
        if steps is not None:
            recorder = NsysWindow(end_capture)
    undo.callback(shutdown)
    if recorder is not None:
        undo.callback(recorder.finish)
        if steps is not None:
            undo.push(partial(_say_where_it_ended, recorder, steps))
    sink: Any = "nvtx" if args.trace is None else "kineto"
    root = args.source_root or str(args.folder)
    # Only torch.profiler gets to know what memory is for.
    memory = args.memory and args.trace is not None
    begin_capture(Capture(sink, steps, root, recorder, memory=memory))


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
