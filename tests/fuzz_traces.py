"""Run pyprof2 on damaged files: each must give a result, or be refused in one clear line.

Usage: python -m tests.fuzz_traces [--kind traces|exports|pages|stores|names] [--count N]
                                   [--seed S] [--jobs N] [--keep DIR]

Mutant number S + i is the same in every run with the same traces at hand. For each of them a
process of its own runs `parse`, `prof --format csv`, and command lines that are drawn of all
commands and options, with limits on memory and time, and what it printed and left behind is
looked at. Exit code 1 if any mutant fails.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import random
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.cli import main as pyprof2_main
from tests import mutate_names, mutate_pages, mutate_sqlite, mutate_store, mutate_trace
from tests.draw_commands import draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType
    from typing import TypeAlias

    Mutant: TypeAlias = mutate_trace.Mutant | mutate_store.StoreMutant

ADDRESS_BYTES_MAX: Final = 4 << 30
RESIDENT_BYTES_MAX: Final = 600 << 20
RESIDENT_TIMES_SIZE: Final = 4
"""So many bytes more for each byte of the file: a few of the stores become 50 MB large."""
SECONDS_MAX: Final = 60

_ROOT: Final = Path(__file__).resolve().parent.parent
_SHARED: Final = Path(os.environ.get("PYPROF2_SHARED") or _ROOT.parent / "shared")
_CRASHED: Final = 99
_USAGE: Final = 2
_FIRST: Final = 5
_FIXED: Final = ("parse", "prof")
_FAULT: Final = "a fault in pyprof2"
_DRAWN: Final = 5
"""So many command lines are drawn for each mutant."""


@dataclass(frozen=True)
class Kind:
    """A kind of mutants: what makes them, and the real recordings that it begins with."""

    maker: ModuleType
    traces: str
    bytes_max: int

    def bases(self) -> Any:
        """Return what to damage: recordings made here, and real small ones, where at hand."""
        paths = (_SHARED / "traces").glob(self.traces)
        return self.maker.read_bases(sorted(p for p in paths if p.stat().st_size < self.bytes_max))


KINDS: Final = {
    "traces": Kind(mutate_trace, "kineto/*.json.gz", 200_000),
    "exports": Kind(mutate_sqlite, "nsight/*.sqlite", 3_000_000),
    "pages": Kind(mutate_pages, "nsight/*.sqlite", 0),
    "stores": Kind(mutate_store, "kineto/*.json.gz", 50_000),
    "names": Kind(mutate_names, "kineto/*.json.gz", 0),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant; `faults` is empty if all is well, `runs` counts the commands."""

    seed: int
    runs: int
    result: str
    faults: tuple[str, ...]
    resident_bytes: int
    seconds: float


def fuzz(
    seeds: Sequence[int], jobs: int = 1, keep: Path | None = None, *, kind: str = "traces"
) -> Iterator[Outcome]:
    """Yield what becomes of each mutant, in the order in which they are done.

    Args:
        seeds: numbers of the mutants.
        jobs: how many to run at a time.
        keep: folder for the files of the mutants that fail.
        kind: of `KINDS`: traces of Kineto, exports of Nsight Systems, their pages, stores, or long
            names.
    """
    maker, bases = KINDS[kind].maker, KINDS[kind].bases()
    for seed in range(_FIRST):
        _warm_up(seed, partial(maker.mutate, seed, bases))
    running: dict[int, tuple[int, Path, float]] = {}
    todo = list(reversed(seeds))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        while todo or running:
            while todo and len(running) < jobs:
                seed = todo.pop()
                place = Path(folder, str(seed))
                place.mkdir()
                running[_start(seed, partial(maker.mutate, seed, bases), place)] = (
                    seed,
                    place,
                    time.monotonic(),
                )
            pid, status, usage = os.wait4(-1, 0)
            seed, place, began = running.pop(pid)
            outcome = _judge(seed, place, status, usage, time.monotonic() - began)
            if keep and outcome.faults:
                with suppress(shutil.Error):  # pipes are not copied
                    shutil.copytree(place, keep / str(seed), symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(place)
            yield outcome


def _warm_up(seed: int, make: Callable[[], Mutant]) -> None:
    """Run the commands here: what they import and compile, each process then has.

    Arrow, whose threads do not come along, makes new ones in a process that was forked.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-first-") as folder, suppress(SystemExit):
        make().write(trace := Path(folder, "trace"))
        with Path(folder, "said").open("w") as said, redirect_stdout(said), redirect_stderr(said):
            for _, words in _commands(seed, trace, Path(folder, "store")):
                pyprof2_main(words)


def _start(seed: int, make: Callable[[], Mutant], place: Path) -> int:
    """Start a process that makes the mutant and runs the commands on it; return its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = _CRASHED
    _set_limits()
    try:
        _run_commands(seed, make(), place)
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        # Not the way of sys.exit: what the parent wants done at its end is not for its children.
        os._exit(code)


def _run_commands(seed: int, mutant: Mutant, place: Path) -> None:
    (place / "damage").write_text(" ".join(mutant.damage))
    trace = place / "trace"  # what it is shows in its content alone
    mutant.write(trace)
    (place / "tmp").mkdir()
    tempfile.tempdir = str(place / "tmp")
    store = place / "store"
    with (place / "errors").open("w") as errors:
        _send_to(2, errors.fileno())
        faulthandler.enable(errors)
    for name, words in _commands(seed, trace, store):
        before = (place / "errors").stat().st_size
        with (place / f"{name}.out").open("w") as out:
            _send_to(1, out.fileno())
            code = pyprof2_main(words)
            sys.stdout.flush()
        after = (place / "errors").stat().st_size
        with (place / "codes").open("a") as codes:
            codes.write(f"{name} {code} {before} {after} {shlex.join(words)}\n")
    shutil.rmtree(store, ignore_errors=True)
    gc.collect()


def _commands(seed: int, trace: Path, store: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each command, once the one before it is done."""
    rng = random.Random(seed)  # noqa: S311
    if not trace.is_dir():
        yield "parse", ["parse", "-q", str(trace), "-o", str(store)]
    read = store if store.exists() else trace
    yield "prof", ["prof", "-q", "--format", "csv", str(read)]
    # Half of them find what is stored, half read the recording themselves, as users do.
    yield from draw(rng, rng.choice((read, trace)), store.parent, _DRAWN)


def _set_limits() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_MAX, SECONDS_MAX))
    signal.alarm(4 * SECONDS_MAX)


def _send_to(descriptor: int, target: int) -> None:
    os.dup2(target, descriptor)


def _judge(seed: int, place: Path, status: int, usage: Any, seconds: float) -> Outcome:
    """Look at how the process ended, what it printed, and what it left."""
    faults = []
    if os.WIFSIGNALED(status):
        faults.append(f"ended by signal {signal.Signals(os.WTERMSIG(status)).name}")
    elif os.WEXITSTATUS(status):
        faults.append(f"ended with code {os.WEXITSTATUS(status)}")
    resident = usage.ru_maxrss * 1024
    size = sum(path.lstat().st_size for path in [place / "trace", *place.glob("trace/**/*")])
    if resident > RESIDENT_BYTES_MAX + RESIDENT_TIMES_SIZE * size:
        faults.append(f"{resident >> 20} MB of memory")
    codes = _lines(place / "codes")
    errors = (place / "errors").read_bytes() if (place / "errors").exists() else b""
    said = 0
    for line in codes:
        name, code, before, after, words = line.split(maxsplit=4)
        said = int(after)
        text = errors[int(before) : said].decode("utf-8", "replace")
        faults += [f"{fault} ({words})" for fault in _faults_of(name, int(code), text)]
    if errors[said:]:
        faults.append(errors[said:].decode("utf-8", "replace").strip())
    faults += _left_behind(place, parsed=any(line.startswith("parse 0 0 0 ") for line in codes))
    refused = any(line.split()[0] in _FIXED and line.split()[1] != "0" for line in codes)
    result = "refused" if refused else "read"
    return Outcome(seed, len(codes), result, tuple(faults), resident, seconds)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _faults_of(name: str, code: int, said: str) -> Iterator[str]:
    """Yield what is wrong with what a command said, given its exit code."""
    if _FAULT in said:
        yield f"{name}: {said.strip()}"
    elif code == 0:
        if said:
            yield f"{name}: a result, and on stderr: {said.strip()}"
    elif code != 1 and (name in _FIXED or code != _USAGE):
        yield f"{name}: exit code {code}: {said.strip()}"
    elif not said.startswith("pyprof2") or said.count("\n") != 1 or not said[:-1].isprintable():
        yield f"{name}: not one clear line: {said!r}"


def _left_behind(place: Path, *, parsed: bool) -> Iterator[str]:
    ours = {"damage", "codes", "errors", "tmp", "trace"}
    for path in [*place.iterdir(), *(place / "tmp").glob("*")]:
        if path.name not in ours and path.suffix != ".out":
            yield f"left behind: {path.name}"
    if parsed and not (place / "prof.out").read_bytes().startswith(b'"kernel_id"'):
        yield "prof: no table"


def main() -> int:
    """Fuzz, print what came out, and say which mutants fail."""
    parser = argparse.ArgumentParser(description="Run pyprof2 on damaged traces.")
    parser.add_argument("--count", type=int, default=2000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the first; default: %(default)s")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="at a time")
    parser.add_argument("--keep", type=Path, help="folder for what the failing ones left")
    parser.add_argument("--kind", choices=KINDS, default="traces", help="default: %(default)s")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.count)
    results: Counter[str] = Counter()
    failed, runs, resident, seconds, began = 0, 0, 0, 0.0, time.monotonic()
    for outcome in fuzz(seeds, args.jobs, args.keep, kind=args.kind):
        results[outcome.result] += 1
        resident, seconds = max(resident, outcome.resident_bytes), max(seconds, outcome.seconds)
        failed, runs = failed + bool(outcome.faults), runs + outcome.runs
        for fault in outcome.faults:
            print(f"--seed {outcome.seed} --count 1 --kind {args.kind}: {fault}", flush=True)
    print(
        f"{args.count} damaged {args.kind}, {runs} commands in {time.monotonic() - began:.0f} s: "
        f"{results['read']} read, {results['refused']} refused in one line, {failed} failed; "
        "at most "
        f"{resident / 1e6:.0f} MB and {seconds:.1f} s for one"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
