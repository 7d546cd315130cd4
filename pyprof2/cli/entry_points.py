"""Arguments and messages of the commands that run an entry point of Skyline or DeepView."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof2.cli import arguments, messages
from pyprof2.errors import CaptureError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyprof2.capture.entry_process import EntryFacts, EntryRun


def add_to(
    command: argparse.ArgumentParser, *names: str, batch: bool = True, devices: bool = False
) -> None:
    """Declare the arguments.

    Args:
        command: the command, or its parser.
        names: more names of `--on`.
        batch: whether one batch size is run.
        devices: whether `--on` also names devices, where recordings are read.
    """
    group = command.add_argument_group(
        "entry points",
        "a file with the providers of Skyline (skyline_model_provider, …) or DeepView, whose code "
        "runs in a process of its own",
    )
    group.add_argument("--entry", type=Path, metavar="FILE", help="run this entry point")
    if batch:
        arguments.counts(group, batch="its batch size; default: that of its input provider")
    on_cpu = "run on the CPU what the code asks of a GPU"
    if devices:
        words = f"cpu: {on_cpu}; without --entry, other GPUs to answer for, as predict does"
        group.add_argument("--on", *names, metavar="cpu|NAME[,NAME…]|all", help=words)
    else:
        group.add_argument("--on", *names, choices=("cpu",), help=on_cpu)
    arguments.counts(group, threads="threads that share the work of an op on the CPU")
    group.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="most time of one process"
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        arguments.unfit(f"{text!r} is not a number of seconds")
    return seconds


def check(args: argparse.Namespace, given: Any, what: str) -> None:
    """Refuse unless there is an entry point, or the command's other input, and not both.

    Args:
        args: as parsed.
        given: the command's other input; None or empty: not given.
        what: its name in messages.

    Raises:
        UsageError: both are given, or neither, or an option is for entry points only.
        CaptureError: torch is missing, or the file.
    """
    has_entry = args.entry is not None
    arguments.refuse({
        **{
            f"--{name} is for entry points: say --entry FILE, or leave it out":
                not has_entry and getattr(args, name, None) is not None
            for name in ("batch", "on", "threads", "timeout")
        },
        f"name {what}, or an entry point to run: --entry FILE": not has_entry and not given,
        f"--entry runs a file, and {what} is given as well: leave one of them out":
            has_entry and given,
    })  # fmt: skip
    if not has_entry:
        return
    from pyprof2.capture.entry_process import require_file

    require_file(args.entry)
    require_packages("torch")


def require_packages(*names: str) -> None:
    """Refuse unless packages are installed.

    Raises:
        CaptureError: one is not.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        msg = (
            f"{sys.executable} has no {' and no '.join(missing)}, which capture needs: "
            f"pip install {' '.join(missing)}, or start pyprof2 with the Python of the script"
        )
        raise CaptureError(msg)


def run_of(args: argparse.Namespace) -> EntryRun:
    """Return how the entry point is to run."""
    from pyprof2.capture.entry_process import EntryRun

    batch = getattr(args, "batch", None)
    return EntryRun(args.entry, batch, args.on == "cpu", args.threads, args.timeout)


@contextlib.contextmanager
def recording(args: argparse.Namespace) -> Iterator[Path]:
    """Give the recording to read: the command's input, or one of the entry point.

    Raises:
        UsageError, CaptureError: see `check`; or the entry point cannot be run.
    """
    check(args, args.input, "what was recorded")
    if args.entry is None:
        yield args.input
        return
    from pyprof2.capture.entry_process import record

    with tempfile.TemporaryDirectory(prefix="pyprof2-entry-") as folder:
        trace = Path(folder, f"{args.entry.stem}.json.gz")
        say_ran(args, record(run_of(args), trace))
        yield trace


def say_ran(args: argparse.Namespace, facts: EntryFacts) -> None:
    """Say how an entry point ran."""
    if args.quiet:
        return
    messages.say(f"ran {args.entry} with a batch size of {facts.batch_size}")
    say_place(facts)


def say_place(facts: EntryFacts) -> None:
    """Say if the CPU took the place of a GPU."""
    if facts.on_cpu is not None:
        messages.say(f"on the CPU: what the code asks of a GPU ran there, first {facts.on_cpu}")
