"""Where a training step begins and where it ends.

A training step ends in the step of an optimizer. It begins with the wait for its first batch, where
it waits for one, else with the first call of a module with gradients; and it lasts until the next
one begins, or until something else does: a module is called without gradients, a DataLoader has no
more batches. That is evaluation, generation, or the end, and belongs to no step. Modules that run
without gradients between the wait for a batch and the forward with gradients are part of the step,
such as a frozen teacher, but not a model in evaluation mode whose parameters are trained.

Whether what has begun is a step is known only when an optimizer steps. So instants are marked, and
the reader of the recording makes steps of them. Several optimizers that take turns make one step
together: the next one begins when an optimizer steps again that was in this one already.
"""

from __future__ import annotations

import enum
import platform
import threading
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from pyprof2.markers import Marker, place_in_job
from pyprof2.nvtx.cpu_peaks import cpu_name, machine_bytes
from pyprof2.nvtx.energy import why_uncounted
from pyprof2.nvtx.internals import NO_TASK, current_task

if TYPE_CHECKING:
    from pyprof2.markers import StepEvent
    from pyprof2.nvtx.energy import Meter
    from pyprof2.nvtx.session import AnnotationSession


class _Phase(enum.Enum):
    """Where the training is: what came last."""

    NOTHING = enum.auto()
    """Nothing that is part of a step."""
    WAIT = enum.auto()
    """The wait for a batch, and perhaps calls of modules without gradients."""
    FORWARD = enum.auto()
    """A call of a module with gradients."""
    OPTIMIZER = enum.auto()
    """The step of an optimizer."""


class OptimizerClock:
    """Counts steps by those of optimizers; several that take turns make one step together.

    Attributes:
        step: the number of the step in which an optimizer stepped last.
    """

    def __init__(self, first: int = 0) -> None:
        """Begin before the step with the number `first`."""
        self.step = first - 1
        self._alone: weakref.ref[torch.optim.Optimizer] | None = None
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._usual = 0

    @property
    def is_new(self) -> bool:
        """Whether no optimizer has stepped that still exists."""
        return not self._optimizers

    @property
    def next(self) -> int:
        """The number of what begins now, if it is a step."""
        # As many optimizers as in the step before have to step yet.
        return self.step + (len(self._optimizers) >= self._usual)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer has made its step."""
        if self._alone is not None and self._alone() is optimizer:
            self.step += 1  # the usual case, made fast
            return
        if not self._optimizers or optimizer in self._optimizers:
            self._alone = weakref.ref(optimizer) if len(self._optimizers) == 1 else None
            self._usual = len(self._optimizers)
            self._optimizers = weakref.WeakSet()
            self.step += 1
        else:
            self._alone = None
        self._optimizers.add(optimizer)


@cache
def step_marker(event: StepEvent) -> Marker:
    """Return the marker of an event, which is made once: there are several in every step."""
    return Marker("step", event=event)


class StepTracker:
    """Marks where steps may begin and what ends them, and counts them.

    Attributes:
        waiting: whether calls of modules are to be passed to `called`.
    """

    def __init__(
        self, session: AnnotationSession, cpu: Marker | None = None, meter: Meter | None = None
    ) -> None:
        """Begin before the first step.

        Args:
            session: writes the marks.
            cpu: what the CPU can do.
            meter: reads how much energy the machine uses.
        """
        self.waiting = True
        self._session = session
        self._cpu = cpu
        self._meter = meter
        self._said: tuple[Marker | None, ...] = ()
        self._place: tuple[int, int] | None = None
        self._phase = _Phase.NOTHING
        self._again = self._called = self._trains = False
        self._thread: int | None = None
        self._clock = OptimizerClock()
        self._batch = -1
        self._loader: weakref.ref[Any] | None = None
        self._ended: int | None = None

    def count_from(self, clock: OptimizerClock, ended: int | None) -> None:
        """Go on with what was counted until now.

        Args:
            clock: the steps of optimizers.
            ended: the number of the last step that the program itself ended, if it does.
        """
        self._clock, self._ended = clock, ended
        self._trains = clock.step >= 0
        if self._trains:
            self._thread = threading.get_ident()
        if ended is not None and self._is_due():
            self._begin()

    # -- what the training does ----------------------------------------------------------------

    def called(self, module: torch.nn.Module) -> None:
        """Note that a module is called, outside of backward."""
        if self._is_elsewhere():
            return
        if torch.is_grad_enabled():
            self._trains = True
            if self._phase in (_Phase.NOTHING, _Phase.OPTIMIZER) or self._again or self._is_due():
                self._begin()
            self._phase = _Phase.FORWARD
            self.waiting = False
        elif self._phase is _Phase.OPTIMIZER or (
            self._phase is _Phase.WAIT
            and not self._called
            # A model that is trained, in evaluation mode.
            and not module.training
            and any(p.requires_grad for p in module.parameters())
        ):
            self._stop()
        self._called = True

    def waits(self, iterator: Any) -> None:
        """Note that a DataLoader is asked for a batch."""
        if self._is_elsewhere():
            return
        if self._loader is None or self._loader() is None:
            self._loader = weakref.ref(iterator)
        is_clock = self._loader() is iterator
        self._batch += is_clock
        if self._phase is _Phase.FORWARD:
            if self._again:
                self._begin()
        elif self._phase is not _Phase.WAIT or self._called or self._again or self._is_due():
            self._begin()
            self._phase, self._called = _Phase.WAIT, False
        if is_clock:
            self._mark("batch", self._batch)

    def got_no_batch(self, iterator: Any) -> None:
        """Note that the DataLoader had none: what began with the wait is no step."""
        if self._is_elsewhere():
            return
        if self._loader is not None and self._loader() is iterator:
            self._loader = None
            self._batch -= 1
            self._mark("batch", None)
        if self._phase is _Phase.WAIT:
            self._stop()

    def optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer has made its step."""
        if current_task() == NO_TASK:
            # In backward, any thread may work for the one that trains.
            if self._clock.is_new:
                self._thread = threading.get_ident()
            elif self._is_elsewhere():
                return
        self._clock.stepped(optimizer)
        self._mark("stepped", self._clock.step)
        self._phase, self._trains, self.waiting = _Phase.OPTIMIZER, True, True

    def end_step(self) -> None:
        """End a step because the program says so; from now on it alone says which are recorded."""
        self._ended = 0 if self._ended is None else self._ended + 1
        self._mark("ended", self._ended)
        if self._is_due():
            self._begin()

    # -- what is written -----------------------------------------------------------------------

    def introduce(self) -> None:
        """Say who this process is, and what its CPU can do, unless that was said already."""
        place = _place_by_group()
        if not self._session.recording or (self._said and place == self._place):
            return
        self._place = place
        said = (_process_marker(self._session.source_root), self._cpu)
        for marker in said:
            if marker is not None and marker not in self._said:
                self._session.mark(marker)
        self._said = said

    def mark_again(self) -> None:
        """Mark anew when the training goes on what runs: another recorder has begun to listen."""
        self.waiting = self._again = True
        self._loader = None
        self._said = ()
        if self._meter is not None:
            self._meter.restart()

    def finish(self) -> None:
        """End the last step."""
        if self._phase is not _Phase.NOTHING:
            self._stop()

    def _begin(self) -> None:
        if self._is_due():
            self._mark("over")
            self._session.write(recording=not self._session.recording)
        if self._session.recorder is not None:
            self._session.recorder.step()
        # The rank may be known only now.
        self.introduce()
        if self._meter is not None and self._session.recording:
            energy = self._meter.due()
            if energy is not None:
                self._session.mark_range(energy)
        self._mark("begins")
        self._again = False

    def _stop(self) -> None:
        self._mark("over")
        self._phase, self.waiting = _Phase.NOTHING, True

    def _is_due(self) -> bool:
        """Return whether recording is to begin, or to end, with what begins now."""
        wanted = self._session.options.steps
        if wanted is None:
            return False
        if self._ended is not None:
            number = self._ended + 1
        else:
            number = self._clock.next if self._trains else max(0, self._batch)
        return (number in wanted) != self._session.recording

    def _mark(self, event: StepEvent, step: int | None = None) -> None:
        self._session.mark(step_marker(event), step)

    def _is_elsewhere(self) -> bool:
        return self._thread not in (None, threading.get_ident())


def _place_by_group() -> tuple[int, int] | None:
    """Return rank and number of ranks as the default process group has them, once there is one."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return None


def _process_marker(source_root: str | None) -> Marker:
    rank, size = _place_by_group() or place_in_job()
    return Marker(
        "process",
        rank=rank,
        world_size=size,
        torch=str(torch.__version__),
        source_root=source_root,
        **_machine(),
        uncounted=why_uncounted(),
    )


@cache
def _machine() -> dict[str, Any]:
    """Return what the machine is, as fields of a marker."""
    system = " ".join(part for part in (platform.system(), platform.release()) if part)
    return {
        "host": platform.node() or None,
        "system": system or None,
        "name": cpu_name(),
        "bytes": machine_bytes(),
    }
