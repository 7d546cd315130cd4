"""`pyprof2 capture`: run a script under a profiler, with its ops marked."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from pyprof2.capture import runner
from pyprof2.cli import arguments, entry_points, messages
from pyprof2.errors import CaptureError, OutputExistsError, TraceError, UsageError
from pyprof2.integrations.environment import on_demand
from pyprof2.store.places import Address
from pyprof2.store.unfinished import claimed_path

if TYPE_CHECKING:
    from collections.abc import Sequence

_NSYS: Final = "nsys"
_NO_NSYS: Final = (
    "nsys is not on the PATH: install Nsight Systems (developer.nvidia.com/nsight-systems, or the "
    "package nsight-systems), or record with torch.profiler: --kineto"
)
_KINETO: Final = ".json.gz"
_REPORT: Final = ".nsys-rep"
_EXPORT: Final = ".sqlite"
_SUFFIXES: Final = (_KINETO, ".json", _REPORT, _EXPORT)

_SNAPSHOT: Final = ".pickle"
_NO_MEMORY: Final = "--memory is what torch.profiler records: leave out --nsys"
_NO_OP: Final = "no op ran in this process; if it starts others, let them start capture"
_NO_STEP: Final = (
    "none of the steps of --steps took place, or no op ran in them; without --steps all is recorded"
)
# Ranges and CUDA calls with all kernels, those of graphs too; no sampling of the CPU, which makes
# reports of hundreds of MB.
_NSYS_OPTIONS: Final = (
    "--trace=cuda,nvtx",
    "--cuda-graph-trace=node",
    "--sample=none",
    "--cpuctxsw=none",
    "--force-overwrite=true",
)


_NSYS_WINDOW: Final = (
    "--capture-range=nvtx",
    "--capture-range-end=stop",
    "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
)
"""Record from the beginning of one range to its end, whose name need not be registered."""


_CONFIG: Final = "KINETO_CONFIG"
_ANYWAY: Final = "is recorded anyway"
_INSTEAD: Final = {
    "PROFILE_START_ITERATION": "--steps A:B",
    "ACTIVITIES_ITERATIONS": "--steps A:B",
    "ACTIVITIES_LOG_FILE": "-o OUT",
    "PROFILE_PROFILE_MEMORY": "--memory",
    "PROFILE_MEMORY": "--memory",
    "PROFILE_REPORT_INPUT_SHAPES": _ANYWAY,
    "CLIENT_INTERFACE_ENABLE_OP_INPUTS_COLLECTION": _ANYWAY,
    "PROFILE_WITH_STACK": _ANYWAY,
    "PYTHON_STACK_TRACE": _ANYWAY,
    "PROFILE_WITH_MODULES": _ANYWAY,
}
"""The option of `capture` for each setting of a file for libkineto."""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "capture",
        help="run a script under a profiler, with its ops, layers and lines marked",
        description="Run SCRIPT as python does, with pyprof2.init() done for it, and record it: "
        "with Nsight Systems, or with torch.profiler. What the script prints and its exit code "
        "are passed through. In a job of several processes each rank records itself: let the "
        "launcher start capture, e.g. torchrun --nproc-per-node 8 -m pyprof2 capture --kineto "
        "SCRIPT, or accelerate launch -m pyprof2 capture SCRIPT; the names of the recordings then "
        "end with the rank. A script that only starts other processes, or replaces itself "
        "(os.exec), runs no op of its own: record what it starts. In place of a script --entry "
        "FILE runs an entry point of Skyline or DeepView: 3 iterations to warm up, and 5 that are "
        "recorded, or those of --steps.",
    )
    _add_recording(command)
    entry_points.add_to(command, "--device")
    _add_script(command)
    command.set_defaults(run=run)


def _add_recording(command: argparse.ArgumentParser) -> None:
    """Declare the profiler, its options, and the output."""
    profiler = command.add_mutually_exclusive_group()
    arguments.flags(
        profiler,
        nsys="record with Nsight Systems: OUT.nsys-rep and OUT.sqlite; "
        "the default where nsys is on the PATH",
        kineto="record with torch.profiler: OUT.json.gz",
        on_demand="record nothing: run it so that pyprof2 watch can record it while it runs",
    )
    command.add_argument(
        "--steps",
        type=arguments.step_range,
        metavar="A[:B]",
        help="record step A, or the steps from A to B, and nothing else; steps count from 0",
    )
    arguments.flags(
        command,
        memory="record memory with torch.profiler, too, and what it is for: pyprof2 memory "
        "OUT.json.gz; on a GPU a snapshot of its allocator beside it, OUT.pickle, also when "
        "memory runs out",
        keep_cache="let torch.compile take graphs from its caches, of which no lines are known; by "
        "default each graph is compiled anew, once",
    )
    words = "prefer lines of code below DIR, and say so to whoever reads the recording"
    arguments.add(command, "source-root", help=words)
    command.add_argument(
        "-o",
        "--output",
        type=arguments.output_folder,
        metavar="OUT",
        help="the recording; by default named after the script, in the current folder",
    )
    arguments.flags(command, force="overwrite a recording that is there already")


def _add_script(command: argparse.ArgumentParser) -> None:
    """Declare the script, as for python itself."""
    kind = command.add_mutually_exclusive_group()
    kind.add_argument(
        "-m", "--module", action="store_true", help="SCRIPT is a module, as with python -m"
    )
    kind.add_argument(
        "-c", "--code", action="store_true", help="SCRIPT is code, as with python -c; with -o"
    )
    for flag in "WX":
        command.add_argument(
            f"-{flag}",
            action="append",
            default=[],
            metavar="OPTION",
            help=f"option of the Python that runs the script, as python -{flag}",
        )
    # All that follows the script is its own, `--` too.
    script = command.add_argument(
        "command",
        metavar="SCRIPT",
        nargs=argparse.PARSER,
        default=[""],
        help="what to run, and its arguments: a file, a folder or an archive with __main__.py, or "
        "-, with -o: stdin",
    )
    script.required = False  # --entry stands in for it


def run(args: argparse.Namespace) -> None:
    """Record the script, and exit as it did.

    Raises:
        CaptureError: something that is needed is missing, or the script was fine and nothing was
            recorded of it.
        OutputExistsError: a recording of that name is there.
        SystemExit: otherwise, with the exit code of the script.
    """
    args.script, *args.arguments = args.command
    entry_points.check(args, args.script, "a script")
    if args.entry is not None:
        words = "an entry point is a file without arguments: leave -m, -c and them out"
        arguments.refuse({words: args.module or args.code or args.arguments})
        from pyprof2.capture.entry_process import STEPS

        args.script, args.steps = str(args.entry), args.steps or STEPS
    _require_script(args)
    if args.on_demand:
        _run_recordable(args)
    arguments.refuse({_NO_MEMORY: args.nsys and args.memory})
    nsys = None if args.kineto or args.memory else shutil.which(_NSYS)
    if args.nsys and nsys is None:
        raise CaptureError(_NO_NSYS)
    entry_points.require_packages("torch", *(["nvtx"] if nsys else []))
    if nsys is None and not args.quiet:
        warn_of_config()
    wanted = _stem(args)
    if isinstance(wanted, Address):
        _record_as(args, wanted, nsys)
        return
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with claimed_path(wanted) as stem:
        _record_as(args, stem, nsys)


def _run_recordable(args: argparse.Namespace) -> NoReturn:
    """Run the script so that `pyprof2 watch` can record it, and exit as it did.

    Raises:
        UsageError: an option is for a recording.
    """
    words = "--on-demand records nothing: say -o, --steps and --memory to pyprof2 watch"
    arguments.refuse({words: args.memory or args.steps or args.output or args.entry})
    entry_points.require_packages("torch")
    code = runner.start(_python(args), environment=on_demand())
    sys.exit(code if code >= 0 else runner.BY_SIGNAL - code)


def warn_of_config() -> None:
    """Say that capture takes nothing from a file for libkineto, if one is named, and what to do."""
    name = os.environ.get(_CONFIG)
    if not name:
        return
    try:
        lines = Path(name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        messages.say(f"{_CONFIG}: {name}: {error.strerror or error}; capture takes nothing from it")
        return
    settings = (line.partition("#")[0].partition("=")[0].strip() for line in lines)
    found = dict.fromkeys(key for key in settings if key)
    advice = [f"{key}: {_INSTEAD[key]}" for key in found if key in _INSTEAD]
    also = f" ({'; '.join(advice)})" if advice else ""
    messages.say(f"{_CONFIG}: {name}: capture takes nothing from it, say it by options{also}")


def _record_as(args: argparse.Namespace, stem: Path, nsys: str | None) -> None:
    """Record the script into files of a name that is this process's own, and exit as it did.

    Raises:
        CaptureError: an entry point failed.
    """
    from pyprof2.markers import CAPTURES

    suffixes = (_REPORT, _EXPORT) if nsys else (_KINETO,)
    outputs = [stem.with_name(stem.name + suffix) for suffix in suffixes]
    snapshot = stem.with_name(stem.name + _SNAPSHOT)
    _refuse_existing([*outputs, *([snapshot] if args.memory else [])], force=args.force)
    # In a folder that nobody else can write to: a known name could be planted as a link.
    with tempfile.TemporaryDirectory(
        prefix=f".{stem.name}-",
        dir=None if isinstance(stem, Address) else stem.parent,
        ignore_cleanup_errors=True,
    ) as folder:
        code = _record(args, Path(folder).absolute(), outputs, nsys)
        if args.entry is not None:
            from pyprof2.capture.entry_process import facts_in

            entry_points.say_ran(args, facts_in(Path(folder), entry_points.run_of(args), code))
        recording = _recorded(Path(folder), outputs)
        graphs = 0 if recording is None else _keep_captures(Path(folder, CAPTURES), recording)
        if graphs:
            found = f"captures of CUDA graphs in {CAPTURES}, which parse reads: {graphs}"
            messages.say(found, quiet=args.quiet)
        # On a GPU the allocator wrote a snapshot too.
        if (written := Path(folder, snapshot.name)).is_file():
            _move(written, snapshot)
            next_one = f"next: pyprof2 memory {shlex.quote(str(snapshot))}"
            messages.say(f"recorded {snapshot}; {next_one}", quiet=args.quiet)
    _report(args, code, recording, "nsys" if nsys else "torch.profiler")
    sys.exit(code if code >= 0 else runner.BY_SIGNAL - code)


def _record(
    args: argparse.Namespace, folder: Path, outputs: Sequence[Path], nsys: str | None
) -> int:
    """Run the script under a profiler that writes into a folder, and return its exit code."""
    from pyprof2.markers import DOMAIN, WINDOW

    unfinished = folder / outputs[0].name
    entry = [] if args.entry is None else ["--memory", *entry_points.run_of(args).options(folder)]
    if nsys is None:
        stem = unfinished.name.removesuffix(_KINETO)
        memory = ["--memory", f"--snapshot={folder / (stem + _SNAPSHOT)}"] if args.memory else []
        return _start(args, _python(args, f"--trace={unfinished}", *memory, *entry))
    window = [] if args.steps is None else [*_NSYS_WINDOW, f"--nvtx-capture={WINDOW}@{DOMAIN}"]
    profile = [nsys, "profile", *_NSYS_OPTIONS, *window, f"--output={unfinished.with_suffix('')}"]
    # nsys forgets the exit code of its program when it gets a signal itself.
    code_file = folder / "exit-code"
    code = _start(args, [*profile, *_python(args, f"--exit-code={code_file}", *entry)])
    return int(code_file.read_text()) if code == 0 and code_file.is_file() else code


def _start(args: argparse.Namespace, program: Sequence[str]) -> int:
    if args.entry is None:
        return runner.start(program)
    from pyprof2.capture.entry_process import timed_out

    run = entry_points.run_of(args)
    try:
        return runner.start(program, timeout=run.timeout, environment=run.environment)
    except TimeoutError as error:
        raise timed_out(run) from error


def _recorded(folder: Path, outputs: Sequence[Path]) -> Path | None:
    """Return the recording, moved from a folder to where it belongs, if any work is in it."""
    from pyprof2.parsers import holds_work
    from pyprof2.parsers._nsys import export_report

    *reports, recording = unfinished = [folder / path.name for path in outputs]
    if reports and reports[0].is_file():
        try:
            export_report(reports[0], recording, shown_as=outputs[0])
        except TraceError:
            # A newer nsys may export it.
            _move(reports[0], outputs[0])
            raise
    if not recording.is_file():
        return None
    try:
        if not holds_work(recording):
            return None
    except ModuleNotFoundError as error:  # pyprof2 was installed without its dependencies
        messages.say(f"not checked, for want of {error.name}: read the recording elsewhere")
    for path, output in zip(unfinished, outputs, strict=True):
        _move(path, output)
    return outputs[-1]


def _keep_captures(folder: Path, recording: Path) -> int:
    """Move the recordings of captured graphs beside that of the steps; return how many."""
    found = sorted(folder.glob("*")) if folder.is_dir() else []
    for written in found:
        output = recording.with_name(folder.name) / written.name
        if not isinstance(output, Address):
            output.parent.mkdir(exist_ok=True)
        _move(written, output)
    return len(found)


def _move(written: Path, output: Path) -> None:
    """Move a file to its output."""
    if isinstance(output, Address):
        from pyprof2.store.remote import send

        send(written, output)
    else:
        written.replace(output)


def _report(args: argparse.Namespace, code: int, recording: Path | None, profiler: str) -> None:
    """Say what was recorded, and what to do next."""
    ended = runner.ending(code)
    if recording is None:
        name = "-c" if args.code else args.script
        msg = f"{name}: {ended}; {profiler} recorded nothing"
        if code == 0:
            msg += f": {_NO_STEP if args.steps else _NO_OP}"
            raise CaptureError(msg)
        messages.say(msg)
    elif not args.quiet:
        failed = f"; the script {ended}" if code else ""
        command = "memory" if args.memory else "prof"
        next_one = f"next: pyprof2 {command} {shlex.quote(str(recording))}"
        messages.say(f"recorded {recording}{failed}; {next_one}")


def _python(args: argparse.Namespace, *options: str) -> list[str]:
    """Return the command that runs the script, with the options of this very Python."""
    flags = [f"-{flag}{value}" for flag in "WX" for value in getattr(args, flag)]
    if args.steps is not None:
        options += (f"--first={args.steps[0]}", f"--last={args.steps[1]}")
    if args.source_root is not None:
        options += (f"--source-root={args.source_root.resolve()}",)
    options += ("--keep-cache",) * args.keep_cache
    kind = ["-m"] if args.module else ["-c"] if args.code else []
    return runner.command([*options, *kind, "--", args.script, *args.arguments], flags)


def _require_script(args: argparse.Namespace) -> None:
    """Refuse launchers of other processes, and scripts that are not there."""
    from pyprof2.markers import LAUNCHERS

    script = args.script
    launcher = None if args.code else LAUNCHERS.get(script if args.module else Path(script).name)
    if launcher is not None:
        msg = (
            f"{script}: starts other processes, which would not be recorded; let it start capture "
            f"in each: {launcher} {'' if launcher.endswith('--module') else '-m '}pyprof2 capture "
            f"SCRIPT"
        )
        raise CaptureError(msg)
    if args.module or _has_no_name(args) or Path(script).exists():
        return
    if shutil.which(script) is not None:
        msg = f"{script}: is a program; name the Python script: pyprof2 capture train.py"
    else:
        msg = f"{script}: no such file; name the script to run (-m for a module)"
    raise CaptureError(msg)


def _has_no_name(args: argparse.Namespace) -> bool:
    """Whether the script is no file or module after which a recording could be named."""
    return bool(args.code) or args.script == runner.STDIN


def _stem(args: argparse.Namespace) -> Path:
    """Return the path of the recording without its suffix; with the rank in a job of several."""
    from pyprof2.markers import place_in_job

    wanted: Path | None = args.output
    if wanted is None and _has_no_name(args):
        msg = "code of -c and of stdin has no name: name the recording with -o OUT"
        raise UsageError(msg)
    if wanted is None:
        script = args.script
        wanted = Path(script.rpartition(".")[2] if args.module else Path(script).resolve().stem)
    elif wanted.is_dir():
        msg = f"{wanted}: is a folder; name the recording in it, such as {wanted / 'net'}"
        raise UsageError(msg)
    name = wanted.name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    rank = place_in_job().rank
    return wanted.with_name(name if rank is None else f"{name}-rank{rank}")


def _refuse_existing(outputs: Sequence[Path], *, force: bool) -> None:
    for path in outputs:
        if isinstance(path, Address):
            from pyprof2.store.remote import check_address

            check_address(path, force=force)
            continue
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder or (os.path.lexists(path) and not force):
            instead = "" if is_folder else ", or say --force"
            msg = f"{path}: exists; name another with -o{instead}"
            raise OutputExistsError(msg)
