"""`pyprof2 watch`: record jobs that run, without touching them."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from datetime import datetime, timedelta
from datetime import time as time_of_day
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from pyprof2.cli import arguments
from pyprof2.errors import CaptureError, OutputExistsError
from pyprof2.integrations.environment import on_demand
from pyprof2.reports.cells import clean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyprof2.watch.daemon import Daemon
    from pyprof2.watch.recording import OnDemandRecording, Wanted, WatchSettings

_EXAMPLES: Final = """examples:
  pyprof2 watch --env                   variables for the shell of a job
  pyprof2 watch --list                  which jobs ask
  pyprof2 watch                         record 2 s of all, show the profile
  pyprof2 watch --pid 4711 --steps 3 -o slow
  pyprof2 watch --at 14:30:00           on each host: all begin together
  pyprof2 watch --every 10m --keep 24   says what became slower
  pyprof2 watch --serve                 stays, for --trigger in another shell"""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)")
_LONGEST_S: Final = 600.0
_ENVIRONMENT: Final = """\
# Jobs started with these variables can be recorded while they run, by pyprof2 watch.
# They ask a local socket every 5 s, without a word on stderr; nothing is recorded before."""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "watch",
        help="record jobs that run, without touching them",
        description="Record PyTorch programs while they run, all their processes at one instant, "
        "and show the profile. They must have been started with KINETO_USE_DAEMON=1 (--env), and "
        "by this user; nothing else about them changes. Linux only.",
        epilog=_EXAMPLES,
    )
    _add_actions(command)
    _add_choice(command)
    _add_options(command)
    command.set_defaults(run=run)


def _add_actions(command: argparse.ArgumentParser) -> None:
    action = command.add_mutually_exclusive_group()
    arguments.flags(
        action,
        env="print the variables for a job's shell",
        list="list the jobs that ask, and end",
        serve="stay, and record when --trigger asks for it",
        trigger="let the daemon of --serve record, and wait for it",
    )
    action.add_argument(
        "--every",
        type=_duration,
        metavar="TIME",
        help="record again and again, as every 10m, with a line for each recording that compares "
        "it with the first",
    )


def _add_choice(command: argparse.ArgumentParser) -> None:
    choice = command.add_argument_group("which jobs (default: all that ask)")
    choice.add_argument("--pid", type=arguments.positive, nargs="+", default=[], metavar="N")
    choice.add_argument(
        "--name", type=_pattern, default="", metavar="REGEX", help="found in the command line"
    )
    choice.add_argument("--job", type=arguments.positive, metavar="ID", help="the job of Slurm")


def _add_options(command: argparse.ArgumentParser) -> None:
    length = command.add_mutually_exclusive_group()
    length.add_argument(
        "--duration", type=_duration, default=2.0, metavar="TIME", help="as 500ms (default: 2s)"
    )
    length.add_argument(
        "--steps",
        type=arguments.positive,
        default=0,
        metavar="N",
        help="record N steps of the optimizer instead, the same on all ranks",
    )
    command.add_argument(
        "--at",
        type=_instant,
        metavar="+TIME|TIME",
        help="when to begin: +30s, 14:30:00, 2026-11-26T14:30:00 (default: +13s, by which all "
        "jobs have asked)",
    )
    arguments.flags(
        command,
        with_stack="record Python's stack, modules",
        memory="record memory",
        no_shapes="record no shapes of ops",
    )
    arguments.counts(command, keep="with --every: the latest N recordings")
    command.add_argument(
        "--patience",
        type=_duration,
        default=60.0,
        metavar="TIME",
        help="give a job up whose file does not come or grow for so long (default: 60s)",
    )
    arguments.flags(command, no_parse="leave the files, without a store and its profile")
    command.add_argument(
        "-o",
        "--output",
        type=arguments.output_folder,
        metavar="DIR",
        help="the folder of the recordings; the store is DIR.pyprof2 (default: watch-DATE-TIME)",
    )


def run(args: argparse.Namespace) -> None:
    """Do what the options say.

    Raises:
        CaptureError: nothing can be recorded, or a part of it was not.
    """
    _check(args)
    if args.env:
        variables = on_demand()
        print(_ENVIRONMENT)
        for name, value in variables.items():
            print(f"export {name}={value}")
        return
    if sys.platform != "linux":
        msg = "jobs can be recorded while they run on Linux only"
        raise CaptureError(msg)
    from pyprof2.watch import daemon as control

    if args.list:
        _list(args)
    elif args.trigger:
        _trigger(args)
    elif args.serve:
        with _daemon() as daemon:
            _say(args, "answering jobs; pyprof2 watch --trigger records them; Ctrl-C ends it")
            control.serve(daemon, lambda text: _say(args, text))
    elif args.every is not None:
        with _daemon() as daemon:
            _record_again(args, daemon)
    else:
        with _daemon() as daemon, _Bar(args) as bar:
            found = daemon.record(*_asked(args), _output(args), bar.show)
            answer = control.result(found)
        _finish(args, answer)


def _check(args: argparse.Namespace) -> None:
    """Refuse options that have no meaning together.

    Raises:
        UsageError: they have none.
        OutputExistsError: the folder is there.
    """
    arguments.refuse({
        "--keep is how many recordings of --every are kept: say --every TIME":
            args.keep is not None and args.every is None,
        "--at is when one recording of a duration begins: leave it out":
            args.at is not None and (args.every is not None or args.steps or args.serve),
        f"--duration can be up to {_LONGEST_S:.0f} s: a file has every op of it":
            args.duration > _LONGEST_S or not args.duration,
    })  # fmt: skip
    if not (args.env or args.list or args.serve):
        output = _output(args)
        if sys.platform == "linux":
            from pyprof2.watch.recording import remove_abandoned

            remove_abandoned(output)
        for path in (output, _store_of(output)):
            if path.exists():
                msg = f"{path}: exists; name another folder with -o"
                raise OutputExistsError(msg)


@contextlib.contextmanager
def _daemon() -> Iterator[Daemon]:
    from pyprof2.watch.daemon import Daemon
    from pyprof2.watch.datagrams import endpoints

    daemon = Daemon(*endpoints())
    try:
        yield daemon
    finally:
        daemon.close()


def _list(args: argparse.Namespace) -> None:
    """Print the processes that ask."""
    from tabulate import tabulate

    from pyprof2.watch import daemon as control
    from pyprof2.watch.recording import POLL_S

    seconds = POLL_S + 1
    try:
        (answer,) = control.ask({"list": seconds})
        rows = answer["processes"]
    except CaptureError:  # none serves: listen here
        with _daemon() as daemon:
            daemon.wait(lambda: False, seconds)
            rows = [control.row(each) for each in daemon.listed()]
    if not rows:
        msg = f"no job asked within {seconds:.0f} s; pyprof2 watch --env shows how to start one"
        raise CaptureError(msg)
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    width = max(20, shutil.get_terminal_size((200, 24)).columns - 60)
    cells = [[clean(str(row[name]))[:width] if row[name] is not None else "-" for name in names]
             for row in rows]  # fmt: skip
    print(tabulate(cells, headers=names, disable_numparse=True))
    _say(args, "next: pyprof2 watch")


def _asked(args: argparse.Namespace) -> tuple[Wanted, WatchSettings]:
    from pyprof2.watch.recording import Wanted, WatchSettings

    start = None if args.at is None else args.at()
    return Wanted(tuple(args.pid), args.name, args.job), WatchSettings(
        duration_ms=round(1000 * args.duration), steps=args.steps, start=start,
        shapes=not args.no_shapes, stack=args.with_stack, memory=args.memory,
        patience_s=args.patience,
    )  # fmt: skip


def _output(args: argparse.Namespace) -> Path:
    if args.output is None:
        args.output = Path(f"watch-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    path: Path = args.output
    return path.absolute() if path.is_absolute() or args.trigger else path


def _store_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.pyprof2")


def _trigger(args: argparse.Namespace) -> None:
    """Let the daemon that serves record, and show what came."""
    from pyprof2.watch import daemon as control

    wanted, options = _asked(args)
    request = {
        "wanted": wanted._asdict(), "options": options._asdict(), "output": str(_output(args)),
    }  # fmt: skip
    with _Bar(args) as bar:
        *_, answer = map(bar.seen, control.ask(request))
    _finish(args, answer["result"])


def _finish(args: argparse.Namespace, found: dict[str, Any]) -> None:
    """Say what became of each process, make the stores, and show their profiles.

    Raises:
        CaptureError: a process has no recording.
    """
    failed = [part for part in found["parts"] if part["error"]]
    for part in failed:
        _say(args, f"process {part['pid']}: {part['error']}: {part['command']}", always=True)
    complete = sum(part["trace"] is not None for part in found["parts"])
    for part in found["parts"]:
        if part["trace"] is None and not part["error"]:
            _say(args, f"process {part['pid']}: no op ran in it: {part['command']}")
    if found["busy"]:
        _say(args, f"recording already, left out: {', '.join(map(str, found['busy']))}")
    if complete > 1 and found["spread_ms"] is not None:
        _say(args, f"{complete} recordings, which begin within {found['spread_ms']:g} ms")
    for folder in map(Path, found["folders"]):
        if args.no_parse:
            print(clean(str(folder)))
            continue
        store = _store_of(folder)
        _command(args, "parse", str(folder), "-o", str(store), quiet=True)
        _command(args, "prof", str(store))
        _say(args, f"recorded {folder} and {store}; next: pyprof2 report {shlex.quote(str(store))}")
    if failed or not complete:
        msg = (
            f"{len(found['parts']) - complete} of {len(found['parts'])} processes have no recording"
        )
        raise CaptureError(msg)


def _command(args: argparse.Namespace, *words: str, quiet: bool = False) -> None:
    """Run another command of ours, and exit as it does where it fails.

    A process of its own, as the libraries that read recordings are none of the daemon's.
    """
    options = ["-q"] if quiet or args.quiet else []
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-P", "-m", "pyprof2", *words, *options],
        stdout=subprocess.DEVNULL if quiet else None,
        check=False,
    )
    if done.returncode:
        sys.exit(done.returncode)


def _record_again(args: argparse.Namespace, daemon: Daemon) -> NoReturn:
    """Record every so often, keep the latest ones, and say how each compares with the first."""
    from pyprof2.watch import summary

    first: dict[str, Any] | None = None
    kept: list[Path] = []
    while True:
        began, now = time.monotonic(), datetime.now().astimezone()
        one = _output(args) / f"{now:%Y%m%d-%H%M%S}"
        try:
            found = daemon.record(*_asked(args), one)
            text = []
            for folder in found.folders():
                figures = _figures(daemon, folder)
                text.append("no profile" if figures is None else summary.line(figures, first))
                first = first or figures
            if failed := sum(part.error is not None for part in found.parts.values()):
                text.append(f"{failed} processes without a recording")
            kept += [one] if found.folders() else []
        except CaptureError as error:
            text = [str(error)]
        except BaseException:
            _remove(one)
            raise
        print(f"{now:%H:%M:%S} {clean('; '.join(text))}", flush=True)
        while args.keep and len(kept) > args.keep:
            # The first is what the others are compared with.
            _remove(kept.pop(1 if args.keep > 1 else 0))
        daemon.wait(lambda: False, max(0.0, args.every - (time.monotonic() - began)))


def _remove(folder: Path) -> None:
    """Remove the recordings of one time, and their stores."""
    for path in (folder, *folder.parent.glob(f"{folder.name}*.pyprof2")):
        shutil.rmtree(path, ignore_errors=True)


def _figures(daemon: Daemon, folder: Path) -> dict[str, Any] | None:
    """Parse in a process of its own, and return its figures; None: it failed, and said why."""
    module = "pyprof2.watch.summary"
    words = [sys.executable, "-P", "-m", module, str(folder), str(_store_of(folder))]
    with subprocess.Popen(  # noqa: S603 -- our own program
        words, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        try:
            daemon.wait(lambda: child.poll() is not None)
        finally:
            child.kill()
        out, _ = child.communicate()
    found: dict[str, Any] | None = json.loads(out) if child.returncode == 0 else None
    return found


class _Bar:
    """A line on the terminal that says how far a recording is."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._is_shown = arguments.wants_progress(args)
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write("")

    def show(self, recording: OnDemandRecording) -> None:
        """Draw the state of a recording."""
        if self._is_shown:
            from pyprof2.watch import daemon as control

            self.draw(control.progress(recording))

    def seen(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Draw an answer of the daemon, if it is a state, and return it."""
        if "progress" in answer:
            self.draw(answer["progress"])
        return answer

    def draw(self, state: dict[str, Any]) -> None:
        """Draw what `control.progress` returned."""
        left = state["start"] - time.time()
        when = f"begins in {left:.0f} s" if left > 0 else "recording and writing"
        total = state["processes"]
        self._write(
            f"{when}: {total} process{'es' if total != 1 else ''}, {state['complete']} complete, "
            f"{state['bytes'] / 1e6:.1f} MB"
        )

    def _write(self, text: str) -> None:
        if self._is_shown and text != self._text:
            print(f"\r{text:<{len(self._text)}}", end="", file=sys.stderr, flush=True)
            if not text:
                print("\r", end="", file=sys.stderr)
            self._text = text


def _say(args: argparse.Namespace, text: str, *, always: bool = False) -> None:
    if always or not args.quiet:
        print(f"pyprof2: {clean(text)}", file=sys.stderr, flush=True)


def _duration(text: str) -> float:
    """Return a time such as `500ms`, `2s` or `10m` in seconds."""
    found = _DURATION.fullmatch(text)
    if found is None:
        arguments.unfit(f"{text!r} is not a time such as 500ms, 2s or 10m")
    return float(found[1]) * _UNITS[found[2]]


def _instant(text: str) -> Any:
    """Return what says the time since the epoch that `+30s` or `14:30:00` mean, when called."""
    if text.startswith("+"):
        seconds = _duration(text[1:])
        return lambda: time.time() + seconds
    now = datetime.now().astimezone()
    with contextlib.suppress(ValueError):
        if "T" in text or "-" in text:
            given = datetime.fromisoformat(text)
            found = given if given.tzinfo else given.astimezone()
        else:
            clock = time_of_day.fromisoformat(text)
            found = datetime.combine(now.date(), clock, now.tzinfo)
            found += timedelta(days=1) if found < now else timedelta()
        return found.timestamp
    return arguments.unfit(f"{text!r} is no instant such as +30s, 14:30:00 or 2026-11-26T14:30:00")


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        arguments.unfit(f"{text!r} is no regular expression: {error}")
    return text
