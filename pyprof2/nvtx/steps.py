"""Where a training step ends and the next one begins.

After the optimizer's step, the next one begins when the training asks a DataLoader for a batch
or calls a module, whichever comes first. Where there are several optimizers, the one that stepped
first is the clock.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from pyprof2.markers import Marker

if TYPE_CHECKING:
    from pyprof2.nvtx.session import Session


class Steps:
    """Counts the steps of a process and marks their beginnings.

    Attributes:
        waiting: whether there is something to do when the training goes on.
    """

    def __init__(self, session: Session, cpu: Marker | None = None) -> None:
        """Begin before the first step.

        Args:
            session: writes the marks.
            cpu: what the CPU can do.
        """
        self.waiting = True
        self._session = session
        self._cpu = cpu
        self._said: tuple[Marker | None, ...] = ()
        self._step = -1
        self._ended = True
        self._thread: int | None = None
        self._clock: weakref.ref[torch.optim.Optimizer] | None = None

    def go_on(self) -> None:
        """Begin the next step if the last one has ended: the training goes on."""
        if self._thread not in (None, threading.get_ident()):
            return
        self.waiting = False
        if self._ended:
            self._begin(self._step + 1)
        else:
            self._mark_step()

    def introduce(self) -> None:
        """Say who this process is, and what its CPU can do, unless that was said already."""
        if not self._session.recording:
            return
        said = (_process_marker(), self._cpu)
        for marker in said:
            if marker is not None and marker not in self._said:
                self._session.mark(marker)
        self._said = said

    def take_back(self) -> None:
        """End the step that has just begun: there is no batch for it."""
        self._session.mark(Marker("step"))
        self._step -= 1
        self._ended = self.waiting = True

    def optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer has made its step."""
        if self._clock is None or self._clock() is None:
            self._clock = weakref.ref(optimizer)
        if self._clock() is optimizer:
            self._thread = threading.get_ident()
            self._ended = self.waiting = True

    def mark_again(self) -> None:
        """Mark the step anew when the training goes on: another recorder has begun to listen."""
        self.waiting = True
        self._said = ()

    def finish(self) -> None:
        """End the last step."""
        if self._step >= 0:
            self._session.mark(Marker("step"))

    def _begin(self, step: int) -> None:
        session, wanted = self._session, self._session.options.steps
        self._step, self._ended = step, False
        if wanted is not None and (step in wanted) != session.recording:
            session.mark(Marker("step"))
            session.write(recording=not session.recording)
        self._mark_step()

    def _mark_step(self) -> None:
        # The rank may be known only now.
        self.introduce()
        self._session.mark(Marker("step", step=self._step))


def _process_marker() -> Marker:
    rank, size = _number_in_environment("RANK"), _number_in_environment("WORLD_SIZE")
    if dist.is_available() and dist.is_initialized():
        rank, size = dist.get_rank(), dist.get_world_size()
    return Marker("process", rank=rank, world_size=size, torch=str(torch.__version__))


def _number_in_environment(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
