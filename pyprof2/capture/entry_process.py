"""One run of an entry point in a fresh process: recorded, or only timed.

Its code runs nowhere else, so nothing of one batch size stays for the next, and a process that
runs out of memory takes nothing with it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pyprof2.capture import runner
from pyprof2.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS: Final = (3, 7)
"""The iterations that are recorded: before them optimizers make their state, kernels are chosen."""
_FACTS: Final = "facts.json"


@dataclass
class EntryFacts:
    """Facts that a run of an entry point says of itself.

    Attributes:
        batch_size: samples in an iteration.
        default_batch_size: what the input provider says.
        prefix: `skyline` or `deepview`.
        on_cpu: the line that first asked for a GPU, where the CPU took its place; None: nothing
            did, or a GPU was there.
        threads: that share the work of an op on the CPU.
        used_gpu: whether the program used one.
        wall_ns, cpu_ns: of each iteration that was timed: time, and time that the process worked.
        waits: how often the process let go of the CPU in it, to wait for something.
        error: what went wrong, `file:line: …`; None: nothing.
        out_of_memory: whether it was for lack of memory.
    """

    batch_size: int = 0
    default_batch_size: int = 0
    prefix: str = ""
    on_cpu: str | None = None
    threads: int = 0
    used_gpu: bool = False
    wall_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    error: str | None = None
    out_of_memory: bool = False


class EntryRunError(CaptureError):
    """A run of an entry point failed.

    Attributes:
        out_of_memory: whether it was for lack of memory.
    """

    def __init__(self, text: str, *, out_of_memory: bool = False) -> None:
        super().__init__(text)
        self.out_of_memory = out_of_memory


@dataclass(frozen=True)
class EntryRun:
    """How an entry point is to run.

    Attributes:
        file: the entry point.
        batch: the batch size; None: the default of its input provider.
        on_cpu: whether the CPU takes the place of a GPU that is there.
        threads: that share the work of an op on the CPU; None: as the program says.
        timeout: seconds that one process may take; None: as long as it takes.
        memory_limit: bytes that the GPU gives at most; None: all it has.
    """

    file: Path
    batch: int | None = None
    on_cpu: bool = False
    threads: int | None = None
    timeout: float | None = None
    memory_limit: int | None = None

    def options(self, folder: Path) -> list[str]:
        """Return the options of `pyprof2.capture.script`; facts of the run go to `folder`."""
        numbers = {
            "batch": self.batch, "threads": self.threads, "memory-limit": self.memory_limit,
        }  # fmt: skip
        given = [f"--{name}={value}" for name, value in numbers.items() if value is not None]
        on_cpu = ["--on-cpu"] if self.on_cpu else []
        return ["--entry", f"--facts={folder / _FACTS}", *given, *on_cpu]

    @property
    def environment(self) -> dict[str, str]:
        """Variables of its process: libraries read the number of threads when they are loaded."""
        if self.threads is None:
            return {}
        return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(self.threads))


def record(run: EntryRun, trace: Path, steps: tuple[int, int] = STEPS) -> EntryFacts:
    """Record iterations with torch.profiler, their memory as well.

    Raises:
        EntryRunError: the entry point cannot be run.
    """
    first, last = steps
    return _run(run, [f"--trace={trace}", "--memory", f"--first={first}", f"--last={last}"])


def time_iterations(run: EntryRun) -> EntryFacts:
    """Take the times of iterations that nothing records; see `EntryFacts`.

    Raises:
        EntryRunError: the entry point cannot be run.
    """
    return _run(run, ["--timed"])


def _run(run: EntryRun, options: Sequence[str]) -> EntryFacts:
    require_file(run.file)
    with tempfile.TemporaryDirectory(prefix="pyprof2-entry-") as folder:
        words = [*options, *run.options(Path(folder)), "--", str(run.file)]
        program = runner.command(words)
        try:
            code = runner.start(program, timeout=run.timeout, environment=run.environment)
        except TimeoutError as error:
            raise timed_out(run) from error
        return facts_in(Path(folder), run, code)


def require_file(file: Path) -> None:
    """See that an entry point is there.

    Raises:
        CaptureError: it is not.
    """
    if not file.is_file():
        msg = f"{file}: no such file; name the file with the providers of the entry point"
        raise CaptureError(msg)


def timed_out(run: EntryRun) -> EntryRunError:
    """Return the error of a process that took too long."""
    return EntryRunError(f"{run.file}: did not end within {run.timeout:g} s; see --timeout")


def facts_in(folder: Path, run: EntryRun, code: int) -> EntryFacts:
    """Return what a process has said of itself.

    Raises:
        EntryRunError: it says that it failed, or ended without a word.
    """
    path = folder / _FACTS
    if not path.is_file():
        hint = "; where memory runs out, systems do that" if code < 0 else " without a word"
        msg = f"{run.file}: its process {runner.ending(code)}{hint}"
        raise EntryRunError(msg)
    facts = msgspec.json.decode(path.read_bytes(), type=EntryFacts)
    if facts.error is not None:
        raise EntryRunError(facts.error, out_of_memory=facts.out_of_memory)
    return facts
