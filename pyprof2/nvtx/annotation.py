"""Begin and end the annotation of this process."""

from __future__ import annotations

import atexit
import os
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyprof2.errors import UsageError
from pyprof2.nvtx import hooks
from pyprof2.nvtx.cpu_peaks import cpu_marker
from pyprof2.nvtx.internals import hide_from_dynamo
from pyprof2.nvtx.options import Options, SinkName
from pyprof2.nvtx.session import Session
from pyprof2.nvtx.sinks import Sink, nvtx_sink
from pyprof2.nvtx.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Container


class _Annotation:
    """The annotation that is on, if one is."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.steps: Steps | None = None
        self.undo = ExitStack()


_current = _Annotation()


def current_session() -> Session | None:
    """Return what is on at the moment."""
    return _current.session


def init(  # noqa: PLR0913 -- options, each by its name
    *,
    sink: SinkName = "auto",
    shapes: bool = True,
    source: bool = True,
    layers: bool = True,
    scalars: bool = True,
    cpu_peaks: bool = True,
    steps: Container[int] | None = None,
) -> None:
    """Mark every op, layer and step of this process from now on, until `shutdown`.

    Ops of forward and backward, optimizers and data loading get a range, with the shapes and
    dtypes of the arguments, the layer, the line of user code, and for backward the forward op. It
    changes nothing in what the program computes. Threads that are started later are annotated
    too, worker processes of a DataLoader are not; other processes call it for themselves.

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
        steps: the steps to record, such as `range(10, 20)`; everything by default. Steps count
            from 0, see `pyprof2.nvtx.steps`; what comes before the first one is in none.

    Raises:
        UsageError: an option makes no sense, or `nvtx` is wanted and the package is missing.
    """
    options = Options(sink, shapes, source, layers, scalars, cpu_peaks, steps)
    if _current.session is not None:
        if _current.session.options == options:
            return
        shutdown()
    start(options, _sink_for(options))


def _sink_for(options: Options) -> Sink | None:
    if options.sink == "kineto":
        return None
    try:
        return nvtx_sink()
    except UsageError as error:
        if options.sink == "nvtx":
            raise
        warnings.warn(f"{error}; without it only torch.profiler gets ranges", stacklevel=3)
        return None


def start(options: Options, sink: Sink | None) -> None:
    """Begin an annotation; none must be on."""
    session = Session(options, sink)
    steps = Steps(session, cpu_marker() if options.cpu_peaks else None)
    with ExitStack() as undo:
        hooks.hook_modules(session, steps, undo)
        hooks.hook_optimizers(steps, undo)
        hooks.hook_dataloaders(session, steps, undo)
        hooks.hook_threads(session, undo)
        if options.sink != "nvtx":
            hooks.hook_profiler(session, steps, undo)
        undo.callback(session.close)
        session.enter_thread()
        undo.callback(steps.finish)
        steps.introduce()
        _current.session, _current.steps, _current.undo = session, steps, undo.pop_all()
    atexit.register(shutdown)


def introduce() -> None:
    """Say who this process is to a recorder that has just begun to listen."""
    if _current.steps is not None:
        _current.steps.introduce()


def shutdown() -> None:
    """End the annotation, and leave PyTorch as it was before `init`.

    Threads that run already keep a mode that lets everything through, until they end. Without
    `init` it does nothing.
    """
    if _current.session is None:
        return
    atexit.unregister(shutdown)
    undo, _current.undo = _current.undo, ExitStack()
    _current.session = _current.steps = None
    undo.close()


# A forked process, such as a worker of a DataLoader, is not what is being watched.
os.register_at_fork(after_in_child=shutdown)

hide_from_dynamo(
    tuple(
        f"pyprof2.{name}"
        for name in (
            "markers", "signatures", "nvtx.calls", "nvtx.catalog", "nvtx.collectives",
            "nvtx.describe", "nvtx.hooks", "nvtx.layers", "nvtx.ops", "nvtx.pairing",
            "nvtx.schema", "nvtx.session", "nvtx.sinks", "nvtx.source_mode", "nvtx.sources",
            "nvtx.steps", "nvtx.threads",
        )
    )
)  # fmt: skip
