"""Record some steps of this process, write their store, and print their summary."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.capture.runner import environment
from pyprof2.errors import OutputExistsError, Pyprof2Error, fault, refuse, say
from pyprof2.integrations.environment import be_recordable, is_off, steps_asked, steps_for
from pyprof2.markers import place_in_job
from pyprof2.store.unfinished import claim_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pyprof2.integrations.environment import Steps

_TRACE: Final = ".json.gz"
_STORE: Final = ".pyprof2"
_SUFFIX: Final = re.compile(r"\.pyprof2$|\.json(\.gz)?$")

_NOTHING: Final = (
    "step {step} did not begin: the program made fewer steps, or none that shows; pyprof2.step() "
    "says where one ends"
)
_TOO_LATE: Final = (
    "torch is imported already, so this process cannot be recorded on demand: call "
    "record(on_demand=True) before import torch, or start it with KINETO_USE_DAEMON=1"
)
_SHOW: Final = """
import contextlib, io, sys
from pyprof2.cli import main
trace, store, *force = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()):
    code = main(["parse", trace, "-o", store, *force])
sys.exit(code or main(["prof", store]))
"""
"""A process of its own reads the trace: the training gets neither its libraries nor its memory."""


def record(
    steps: int | tuple[int, int] | range | None = None,
    out: Path | str | None = None,
    *,
    force: bool = False,
    on_demand: bool = False,
) -> AbstractContextManager[None]:
    """Record some steps of the loop inside, write their store, and print their summary.

    ::

        with pyprof2.record(steps=(3, 6)):
            for x, y in loader:
                train(x, y)

    Recorded is what `pyprof2 capture --kineto` records, and PyTorch computes what it computes
    without. A step ends with the step of an optimizer, or where `pyprof2.step` is called. As soon
    as the last one is over, or the block ends, the trace `OUT.json.gz` and the store `OUT.pyprof2`
    are written, and what `pyprof2 prof` shows of it is printed, in a job of several processes by
    rank 0. The names then end with the rank, and `pyprof2 parse` puts the traces together.

    Args:
        steps: a step, or the first and the last one, as in `(3, 6)`, or a range; steps count from
            0. By default the whole block. The environment variable `PYPROF2` counts more: `0`
            records nothing, `A:B` those steps.
        out: the name of what is written; by default that of the script, in the current folder,
            with a number if it is taken.
        force: replace what is there of that name.
        on_demand: record nothing now, and let `pyprof2 watch` record this process while it runs.
            It holds from the call on, which comes before torch is imported; a `with` is not needed.

    Raises:
        OutputExistsError: something is there, and `force` is not given.
        UsageError: the steps make no sense.
    """
    if not on_demand:
        return _recorded(steps, out, force=force)
    if not is_off() and not be_recordable():
        say(_TOO_LATE)
    return nullcontext()


@contextmanager
def _recorded(steps: Steps | None, out: Path | str | None, *, force: bool) -> Iterator[None]:
    if is_off():
        yield
        return
    recording = _begun(lambda: StepRecording(steps_asked() or steps, out, force=force))
    try:
        yield
    finally:
        if recording is not None:
            recording.finish()


def _begun(make: Callable[[], StepRecording], step: int = 0) -> StepRecording | None:
    """Make a recording that begins; None: a fault of ours, which ends no training.

    Raises:
        Pyprof2Error: what is asked for makes no sense, or is there already.
    """
    try:
        recording = make()
        recording.begin(step)
    except Pyprof2Error:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever it is
        say(f"{fault(error)}: nothing is recorded; the script runs on")
        return None
    return recording


class StepRecording:
    """Some steps of this process, from the wait for the first one to the summary."""

    def __init__(self, steps: Steps | None, out: Path | str | None, *, force: bool = False) -> None:
        """Check the options; what they mean stands at `record`."""
        self._rank = _rank()
        self._steps = None if steps is None else as_range(steps)
        self._force = force
        self._wanted = None if out is None else _stem(Path(out), self._rank)
        self._claims = ExitStack()
        self._name(self._wanted or _free_stem(self._rank))

    def _name(self, stem: Path) -> None:
        """Name what is written.

        Raises:
            OutputExistsError: something of that name is there already.
        """
        self._trace, self._store = (stem.with_name(stem.name + end) for end in (_TRACE, _STORE))
        for path in (self._trace, self._store):
            if path.exists() and not self._force:
                msg = f"{path}: exists; name another, or say force=True"
                raise OutputExistsError(msg)
        from pyprof2.capture.window import StepsRecording  # torch, which comes after on_demand

        self._window = StepsRecording(self._trace, self._steps, self._show)

    def begin(self, step: int = 0) -> None:
        """Begin with the step of that number."""
        if _unasked.recording is not None and _unasked.recording is not self:
            _unasked.recording.forget()
        self._trace.parent.mkdir(parents=True, exist_ok=True)
        # Another process may have taken a name that was free.
        self._name(claim_path(self._wanted or _free_stem(self._rank), self._claims))
        self._window.begin(step)

    def finish(self) -> None:
        """End, with what was recorded up to here; afterwards it does nothing."""
        self._window.finish()

    def forget(self) -> None:
        """End as if it had never begun, unless it records already."""
        if self._window.cancel():
            self._claims.close()

    def _show(self) -> None:
        """Write the store and print the summary, if anything was recorded."""
        with self._claims:
            self._write()

    def _write(self) -> None:
        if not self._trace.is_file():
            # An error that ends the program, or the block, says itself what is wrong.
            is_at_exit = not threading.main_thread().is_alive()
            error = getattr(sys, "last_value", None) if is_at_exit else sys.exception()
            if self._steps is not None and not isinstance(error, Exception):
                say(_NOTHING.format(step=self._steps[0]))
            return
        options = ["--force"] if self._force else []
        done = subprocess.run(  # noqa: S603 -- our own program
            [sys.executable, "-P", "-c", _SHOW, self._trace, self._store, *options],
            capture_output=True, text=True, encoding="utf-8", check=False, env=_environment(),
        )  # fmt: skip
        if self._rank in (None, 0):
            sys.stdout.write(done.stdout)
            sys.stdout.flush()
        sys.stderr.write(done.stderr)
        say(f"recorded {self._trace}" + ("" if done.returncode else f" and {self._store}"))


class _Unasked:
    """The recording that the program did not ask for, until it asks for one."""

    def __init__(self) -> None:
        self.recording: StepRecording | None = None


_unasked = _Unasked()


def begin_unasked(steps: Steps | None) -> None:
    """Record some steps of this process, unless the program itself asks for a recording."""
    _unasked.recording = _begun(lambda: StepRecording(steps, None))


class RecordsTraining:
    """Base of the callbacks of all trainers: a recording that begins with the training, once.

    Attributes:
        begins_when_made: whether the training begins when the callback is made.
    """

    begins_when_made = False

    def __init__(
        self, steps: Steps | None = None, out: Path | str | None = None, *, force: bool = False
    ) -> None:
        """Prepare, as `pyprof2.record` does.

        Args:
            steps: which; by default those that the environment variable `PYPROF2` asks for.
            out: the name of what is written, as of `pyprof2.record`.
            force: replace what is there of that name.
        """
        super().__init__()
        found = steps_for(steps)
        self._steps = None if found is None else as_range(found)
        self._out, self._force = out, force
        self._recording: StepRecording | None = None
        if self.begins_when_made:
            self.begin_recording()

    def begin_recording(self, step: int = 0) -> None:
        """Begin with the step of that number; the process knows its rank by now."""
        if self._steps is not None and self._recording is None:
            make = partial(StepRecording, self._steps, self._out, force=self._force)
            self._recording = _begun(make, step)

    def end_recording(self) -> None:
        """End, if the training ends before the last step that is wanted."""
        if self._recording is not None:
            self._recording.finish()


def as_range(steps: Steps) -> range:
    """Return the steps as a range of numbers in one piece.

    Raises:
        UsageError: they are none.
    """
    given: Any = (steps, steps) if isinstance(steps, int) else steps
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(n, int) for n in given):
        given = range(given[0], given[1] + 1)
    if not isinstance(given, range) or not given or given[0] < 0 or given.step != 1:
        refuse(f"steps is {steps!r}; give the first and the last one, as in steps=(3, 6)")
    return given


def _rank() -> int | None:
    """Return the rank of this process in its job; None where it is alone."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() if dist.get_world_size() > 1 else None
    rank, size = place_in_job()
    return rank if size != 1 else None


def _stem(wanted: Path, rank: int | None) -> Path:
    """Return the path of what is written without its suffix, absolute: programs change folders."""
    name = _SUFFIX.sub("", wanted.name)
    return wanted.absolute().with_name(name if rank is None else f"{name}-rank{rank}")


def _free_stem(rank: int | None) -> Path:
    """Return a path in the current folder, after the script, at which nothing is yet."""
    name = re.sub(r"\.pyw?$", "", Path(sys.argv[0]).name)
    if not name or name.startswith("-"):
        name = "recording"
    stems = (_stem(Path(name if n == 1 else f"{name}-{n}"), rank) for n in count(1))
    return next(
        stem
        for stem in stems
        if not any(stem.with_name(stem.name + end).exists() for end in (_TRACE, _STORE))
    )


def _environment() -> dict[str, str]:
    """Return the environment of a process that imports this pyprof2, and prints for this one."""
    found = environment(PYTHONIOENCODING="utf-8", PYPROF2="0")
    if sys.stdout.isatty():
        found["COLUMNS"] = str(shutil.get_terminal_size().columns)
    return found
