"""Run pyprof2 on damaged files: each must give a result, or be refused in one clear line.

Usage: python -m tests.fuzz_traces [--exports] [--count N] [--seed S] [--jobs N] [--keep DIR]

Mutant number S + i is the same in every run with the same traces at hand. For each of them a
process of its own runs `parse`, `prof --format csv` and `check` with limits on memory and time,
and what it printed and left behind is looked at. Exit code 1 if any mutant fails.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import importlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.cli import main as pyprof2_main
from tests import mutate_sqlite, mutate_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

ADDRESS_BYTES_MAX: Final = 4 << 30
RESIDENT_BYTES_MAX: Final = 600 << 20
SECONDS_MAX: Final = 60

_ROOT: Final = Path(__file__).resolve().parent.parent
_SHARED: Final = Path(os.environ.get("PYPROF2_SHARED") or _ROOT.parent / "shared")
_PARSERS: Final = ("pyprof2.parsers.kineto", "pyprof2.parsers.nsight")
_BASE_BYTES_MAX: Final = {".json.gz": 200_000, ".sqlite": 3_000_000}
_CRASHED: Final = 99


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant; `faults` is empty if all is well."""

    seed: int
    result: str
    faults: tuple[str, ...]
    resident_bytes: int
    seconds: float


def fuzz(
    seeds: Sequence[int], jobs: int = 1, keep: Path | None = None, *, exports: bool = False
) -> Iterator[Outcome]:
    """Yield what becomes of each mutant, in the order in which they are done.

    Args:
        seeds: numbers of the mutants.
        jobs: how many to run at a time.
        keep: folder for the files of the mutants that fail.
        exports: damage exports of Nsight Systems instead of Kineto traces.
    """
    maker: ModuleType = mutate_sqlite if exports else mutate_trace
    bases = maker.read_bases(_base_paths("nsight", ".sqlite") if exports else _base_paths())
    _import_everything()
    running: dict[int, tuple[int, Path, float]] = {}
    todo = list(reversed(seeds))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        while todo or running:
            while todo and len(running) < jobs:
                seed = todo.pop()
                place = Path(folder, str(seed))
                place.mkdir()
                running[_start(partial(maker.mutate, seed, bases), place)] = (
                    seed,
                    place,
                    time.monotonic(),
                )
            pid, status, usage = os.wait4(-1, 0)
            seed, place, began = running.pop(pid)
            outcome = _judge(seed, place, status, usage, time.monotonic() - began)
            if keep and outcome.faults:
                shutil.copytree(place, keep / str(seed), dirs_exist_ok=True)
            shutil.rmtree(place)
            yield outcome


def _base_paths(kind: str = "kineto", suffix: str = ".json.gz") -> list[Path]:
    """Return real traces that are small, where they are at hand."""
    paths = (_SHARED / "traces" / kind).glob(f"*{suffix}")
    return sorted(path for path in paths if path.stat().st_size < _BASE_BYTES_MAX[suffix])


def _import_everything() -> None:
    """Import what the commands import late, so that each process need not do it again."""
    for name in ("pandas", "pyarrow.parquet", "pyprof2.run", *_PARSERS):
        importlib.import_module(name)


def _start(make: Callable[[], mutate_trace.Mutant], place: Path) -> int:
    """Start a process that makes the mutant and runs the commands on it; return its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = _CRASHED
    try:
        _run_commands(make(), place)
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        # Not the way of sys.exit: what the parent wants done at its end is not for its children.
        os._exit(code)


def _run_commands(mutant: mutate_trace.Mutant, place: Path) -> None:
    (place / "damage").write_text(" ".join(mutant.damage))
    trace = place / "trace"  # what it is shows in its content alone
    trace.write_bytes(mutant.content)
    (place / "tmp").mkdir()
    tempfile.tempdir = str(place / "tmp")
    _set_limits()
    store = place / "store"
    with (place / "errors").open("w") as errors:
        _send_to(2, errors.fileno())
        faulthandler.enable(errors)
    for name, words in {
        "parse": ["parse", "-q", str(trace), "-o", str(store)],
        "prof": ["prof", "-q", "--format", "csv", str(store if store.exists() else trace)],
        "check": ["check", "-q", str(trace)],
    }.items():
        before = (place / "errors").stat().st_size
        with (place / f"{name}.out").open("w") as out:
            _send_to(1, out.fileno())
            code = pyprof2_main(words)
            sys.stdout.flush()
        after = (place / "errors").stat().st_size
        with (place / "codes").open("a") as codes:
            codes.write(f"{name} {code} {before} {after}\n")
        if name == "prof":
            shutil.rmtree(store, ignore_errors=True)
    gc.collect()


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
    if resident > RESIDENT_BYTES_MAX:
        faults.append(f"{resident >> 20} MB of memory")
    codes = _lines(place / "codes")
    errors = (place / "errors").read_bytes() if (place / "errors").exists() else b""
    said = 0
    for line in codes:
        name, code, before, after = line.split()
        said = int(after)
        faults += _faults_of(name, int(code), errors[int(before) : said].decode("utf-8", "replace"))
    if errors[said:]:
        faults.append(errors[said:].decode("utf-8", "replace").strip())
    faults += _left_behind(place, parsed="parse 0 0 0" in codes)
    result = "refused" if any(line.startswith("parse 1") for line in codes) else "read"
    return Outcome(seed, result, tuple(faults), resident, seconds)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _faults_of(name: str, code: int, said: str) -> Iterator[str]:
    """Yield what is wrong with what a command said, given its exit code."""
    if code == 0:
        if said:
            yield f"{name}: a result, and on stderr: {said.strip()}"
    elif code != 1:
        yield f"{name}: exit code {code}: {said.strip()}"
    elif not said.startswith("pyprof2: ") or said.count("\n") != 1 or not said[:-1].isprintable():
        yield f"{name}: not one clear line: {said!r}"


def _left_behind(place: Path, *, parsed: bool) -> Iterator[str]:
    ours = {"damage", "codes", "errors", "tmp", "parse.out", "prof.out", "check.out"}
    for path in [*place.iterdir(), *(place / "tmp").glob("*")]:
        if path.name not in ours and path.name != "trace":
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
    parser.add_argument(
        "--exports", action="store_true", help="damage exports of Nsight Systems, not traces"
    )
    args = parser.parse_args()
    kind, option = ("exports", " --exports") if args.exports else ("traces", "")
    seeds = range(args.seed, args.seed + args.count)
    results: Counter[str] = Counter()
    failed, resident, seconds, began = 0, 0, 0.0, time.monotonic()
    for outcome in fuzz(seeds, args.jobs, args.keep, exports=args.exports):
        results[outcome.result] += 1
        resident, seconds = max(resident, outcome.resident_bytes), max(seconds, outcome.seconds)
        failed += bool(outcome.faults)
        for fault in outcome.faults:
            print(f"--seed {outcome.seed} --count 1{option}: {fault}")
    print(
        f"{args.count} damaged {kind} in {time.monotonic() - began:.0f} s: {results['read']} read, "
        f"{results['refused']} refused in one line, {failed} failed; at most "
        f"{resident / 1e6:.0f} MB and {seconds:.1f} s for one"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
