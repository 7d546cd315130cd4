"""Run the iterations of an entry point, recorded or timed, in the process that is there for it.

Whoever started the process reads what it writes into a file, even where the code failed:
`EntryFacts`.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import torch

if sys.platform != "win32":
    import resource

from pyprof2.capture.entry_points import EntryPointError, load_entry_point, own_folder
from pyprof2.capture.entry_process import EntryFacts
from pyprof2.capture.on_cpu import OnCpu
from pyprof2.capture.recorders import Prelude
from pyprof2.errors import CaptureError
from pyprof2.markers import Marker
from pyprof2.nvtx.annotation import count_from, current_memory, current_session, step
from pyprof2.nvtx.sources import Sources
from pyprof2.nvtx.steps import OptimizerClock
from pyprof2.nvtx.weights import note_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyprof2.nvtx.session import AnnotationSession

WARM_UP: Final = 3
"""Iterations before the first that is timed: optimizers make their state, kernels are chosen."""
_LEAST, _MOST, _ENOUGH_NS = 5, 200, 400_000_000
"""How many iterations are timed, and after which time it is enough."""


def run(args: argparse.Namespace, begin: Callable[[ExitStack, Prelude | None], None]) -> int:
    """Run the entry point `args.script`, and return the exit code of the process.

    Args:
        args: as `pyprof2.capture.script` parses them.
        begin: begins to annotate and to record; the stack takes what ends it, and the count of
            what is allocated before goes on until then.
    """
    # The code's own output is no result of ours.
    os.dup2(2, 1)
    facts = EntryFacts()
    try:
        with ExitStack() as undo:
            _run(args, begin, undo, facts)
    except CaptureError as error:
        facts.error = str(error)
        facts.out_of_memory = isinstance(error, EntryPointError) and error.out_of_memory
    if args.facts is not None:
        args.facts.write_bytes(msgspec.json.encode(asdict(facts)))
    return 1 if facts.error else 0


def _run(
    args: argparse.Namespace,
    begin: Callable[[ExitStack, Prelude | None], None],
    undo: ExitStack,
    facts: EntryFacts,
) -> None:
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    path = Path(args.script)
    mode = None
    if args.on_cpu or not torch.cuda.is_available():
        mode = undo.enter_context(OnCpu(str(path.absolute().parent)))
    _limit_memory(args.memory_limit)
    prelude = None
    if args.trace is not None and args.memory:
        note_lines(Sources(str(own_folder(path.absolute()))), undo)
        prelude = Prelude()
        undo.callback(prelude.end)
    entry = load_entry_point(path)
    facts.prefix, facts.default_batch_size = entry.prefix, entry.batch_size
    facts.batch_size = args.batch or entry.batch_size
    model, iteration, inputs = entry.build(facts.batch_size)

    def iterate() -> None:
        entry.run(iteration, inputs)

    try:
        if args.timed:
            _time(iterate, facts)
        else:
            args.folder = own_folder(entry.path)
            begin(undo, prelude)

            def introduce(session: AnnotationSession) -> None:
                device = "cpu" if mode is not None and mode.count else None
                marker = Marker(
                    "entry", name=str(entry.path), batch=facts.batch_size, device=device
                )
                session.mark(marker)
                memory = current_memory()
                if memory is not None:
                    cpu_bytes = None if prelude is None else prelude.cpu_bytes
                    memory.follow(model, inputs, cpu_bytes)

            _record(iterate, args.first, args.last, introduce)
    finally:
        facts.on_cpu = None if mode is None or not mode.count else (mode.first or entry_line(path))
        facts.threads = torch.get_num_threads()
        facts.used_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def entry_line(path: Path) -> str:
    """Return the first line of a file as a place, for a call that no line of the user's makes."""
    return f"{path}:1"


def _limit_memory(limit: int | None) -> None:
    """Let the allocator of the GPU have no more than some bytes.

    Raises:
        CaptureError: there is no GPU, or it has less: what fits the wanted one cannot be tried.
    """
    if limit is None:
        return
    total = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0
    if limit > total:
        msg = f"a device with {limit:,} bytes cannot be tried here: this one has {total:,}"
        raise CaptureError(msg)
    torch.cuda.set_per_process_memory_fraction(limit / total)


def _record(
    iterate: Callable[[], None],
    first: int,
    last: int,
    introduce: Callable[[AnnotationSession], None],
) -> None:
    """Run iterations up to the last that is wanted, each of them a step.

    Args:
        iterate: runs one.
        first: that is recorded.
        last: that is recorded.
        introduce: called when the recording begins: it marks what is recorded.
    """
    # Whatever optimizers do: a step is one call of the iteration.
    count_from(OptimizerClock(), -1)
    for number in range(last + 1):
        session = current_session()
        if number == first and session is not None:
            introduce(session)
        iterate()
        step()


def _time(iterate: Callable[[], None], facts: EntryFacts) -> None:
    """Take the time of iterations, after some that warm up."""
    for _ in range(WARM_UP):
        iterate()
    while len(facts.wall_ns) < _LEAST or (
        len(facts.wall_ns) < _MOST and sum(facts.wall_ns) < _ENOUGH_NS
    ):
        _wait()
        waits = _waits()
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        iterate()
        _wait()
        facts.wall_ns.append(time.perf_counter_ns() - wall)
        facts.cpu_ns.append(time.process_time_ns() - cpu)
        facts.waits.append(_waits() - waits)


def _waits() -> int:
    """Return how often the process has let go of the CPU; Windows does not say, so always 0."""
    if sys.platform == "win32":
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def _wait() -> None:
    """Wait for a GPU, if the program uses one."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
