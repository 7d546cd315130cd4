"""Say what remedies gain, and whether it lies in the interval that `pyprof2 advise` gave before.

Usage: python -m benchmarks.remedies [REMEDY…] [--rounds N] [--write PAGE]

A small training runs on the CPU as it is and after each remedy, and is recorded. The host's times
are those of the runs; what a device would have done is simulated (`tests/simulated_device.py`), as
the remedies need a GPU and this does not. Each is tried where the host is the limit and where the
device is, whose products of matrices are short or long. What a remedy gains is simulated, too,
where it only leaves out what the host does: the same recording without that. Else it is a second
run; of several rounds the one counts whose host was least disturbed. With `--write` the table is
put into a page of the documentation.

Exit code 1 if fewer than 95 % of the remedies gained what lies in the interval.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyprof2
from pyprof2.api import run_time
from tests.simulated_device import Call, Interval, Recording, device_end, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulated_device import Done, Event

ROOT: Final = Path(__file__).resolve().parent.parent
SCRIPT: Final = Path(__file__).with_name("remedied_training.py")
US: Final = 1000
MS: Final = 1000 * US
LIMITS: Final = {"host": 3 * US, "device": 1 * MS}
"""How long a product of matrices takes where the host or the device is the limit."""
SILENT_PCT: Final = {"data-loading": 5, "host-bound": 10}
"""Below this share of the time these rules say nothing; the others below 1."""
LEAST_HELD: Final = 0.95
SCATTER: Final = 1000
"""Two runs of the same training differ by one in so many parts, the last digit that is shown."""
PARAMETERS: Final = 62
TRANSFER_BYTES: Final = 2_000_000
PAGEABLE_NS: Final = 160 * US
PINNED_NS: Final = 80 * US
_SLOW: Final = ("<built-in function sum>", "<built-in function collect>")
"""What the training does on purpose."""
_PART: Final = re.compile(r"(\.\. table: remedies\n).*?(\.\. end table\n)", re.DOTALL)


@dataclass(frozen=True)
class Remedy:
    """A remedy of the training.

    Attributes:
        words: what it changes.
        rule: which advises it.
        calls: what an op calls beside a launch, which only a device needs.
        cut: what the host no longer does; None: the remedy is a run of its own.
        calls_after: what an op calls beside a launch afterwards, if that is another call.
    """

    words: str
    rule: str
    calls: Callable[[Recording], list[Call]] = field(default=lambda _: [])
    cut: Callable[[Recording], list[Interval]] | None = None
    calls_after: Callable[[Recording], list[Call]] | None = None


class Outcome(NamedTuple):
    """What was advised before a remedy, and what the remedy gained, in ns.

    A rule that is silent says 0 at least, and at most the share of the time that it fires at.
    """

    before_ns: int
    lo_ns: int
    expected_ns: int
    hi_ns: int
    gain_ns: int
    fires: bool

    @property
    def holds(self) -> bool:
        """Whether the gain lies in the interval, but for what two runs differ by themselves."""
        scatter_ns = self.before_ns // SCATTER
        return self.lo_ns - scatter_ns <= self.gain_ns <= self.hi_ns + scatter_ns


def _waits(name: str, dtype: str | None = None) -> Callable[[Recording], list[Call]]:
    """Return what makes an op read a value back: a copy and a wait."""

    def calls(recording: Recording) -> list[Call]:
        ops = recording.outside_loader(recording.named(name))
        wanted = [op for op in ops if dtype in (None, *op["args"]["Input type"])]
        return [call for op in wanted for call in _read_back(recording, op)]

    return calls


def _read_back(recording: Recording, op: Event) -> Iterator[Call]:
    at, args = recording.inside(op), {"bytes": 4}
    copy = "Memcpy DtoH (Device -> Pageable)"
    yield Call(at, "cudaMemcpyAsync", work_ns=US, work=copy, op=op, args=args)
    yield Call(at, "cudaStreamSynchronize", waits=True, op=op)


def _allocations(recording: Recording) -> list[Call]:
    """Return what memory costs that PyTorch does not keep."""
    return [
        call
        for op in recording.named("aten::new_empty")
        for call in (
            Call(recording.inside(op), "cudaFree", 500 * US, waits=True, op=op),
            Call(recording.inside(op), "cudaMalloc", 1 * MS, op=op),
        )
    ]


def _transfers(recording: Recording, *, pinned: bool = False) -> list[Call]:
    """Return the copies of batches to the device: from pageable memory the host waits for them."""
    ops = recording.outside_loader(recording.named("aten::copy_"))
    batches = [op for op in ops if op["args"]["Input Dims"][:2] == [[1024], [1024]]]
    return [_transfer(recording, op, pinned=pinned) for op in batches]


def _transfer(recording: Recording, op: Event, *, pinned: bool) -> Call:
    return Call(
        recording.inside(op), "cudaMemcpyAsync", waits=not pinned,
        work_ns=PINNED_NS if pinned else PAGEABLE_NS, op=op, args={"bytes": TRANSFER_BYTES},
        work=f"Memcpy HtoD ({'Pinned' if pinned else 'Pageable'} -> Device)",
    )  # fmt: skip


def _named(*names: str) -> Callable[[Recording], list[Interval]]:
    """Return what finds the events of some names outside of the loader."""
    return lambda recording: [
        recording.interval(event) for event in recording.outside_loader(recording.named(*names))
    ]


REMEDIES: Final = {
    "workers": Remedy("a worker loads the data", "data-loading", cut=Recording.loading),
    "item": Remedy(
        "no `.item()` in the loop", "sync", _waits("aten::_local_scalar_dense", "float"),
        _named("aten::item"),
    ),
    "mask": Remedy("no `nonzero()`", "sync", _waits("aten::nonzero"), _named("aten::nonzero")),
    "allocator": Remedy(
        "no `empty_cache()` in the loop", "allocator", _allocations, _named("aten::new_empty")
    ),
    "pinned": Remedy(
        "pinned memory and `non_blocking`", "pageable-copies", _transfers, lambda _: [],
        partial(_transfers, pinned=True),
    ),
    "garbage": Remedy(
        "no `gc.collect()` in each step", "garbage-collection",
        cut=_named("<built-in function collect>"),
    ),
    "optimizer": Remedy("`foreach=True`", "unfused-optimizer"),
    "python": Remedy(
        "no loop in Python per layer", "host-bound", cut=_named("<built-in function sum>")
    ),
    "fused": Remedy("one op for nine elementwise ones", "host-bound"),
}  # fmt: skip


def main() -> int:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("remedies", nargs="*", metavar="REMEDY", default=list(REMEDIES))
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    args = parser.parse_args()
    outcomes = {}
    for name in args.remedies:
        for limit, each in outcomes_of(name, args.rounds):
            outcomes[name, limit] = each
            print(f"{name}, {limit}: {each}", file=sys.stderr)
    table = "\n".join(_table(outcomes))
    print(table)
    if args.write:
        page = args.write.read_text(encoding="utf-8")
        new = _PART.sub(lambda part: f"{part[1]}\n{table}\n\n{part[2]}", page)
        args.write.write_text(new, encoding="utf-8")
    return sum(each.holds for each in outcomes.values()) < LEAST_HELD * len(outcomes)


def outcomes_of(name: str, rounds: int) -> Iterator[tuple[str, Outcome]]:
    """Yield by limit what a remedy was said to gain, and what it gains."""
    remedy = REMEDIES[name]
    with tempfile.TemporaryDirectory() as folder:
        sides = ("before",) if remedy.cut else ("before", "after")
        recorded = [_record(name, side, Path(folder) / side, rounds) for side in sides]
        for limit, product_ns in LIMITS.items():
            runs = [_calmest(remedy, recordings, product_ns) for recordings in recorded]
            before, recording, cut = runs[0]
            if remedy.cut is None:
                after = runs[1][0]
            else:
                calls = remedy.calls_after or remedy.calls
                less = _united([*cut, *remedy.cut(recording)])
                after = simulate(_all_calls(recording, calls, product_ns), less)
            path = recording.write(Path(folder) / "simulated.json", before, cut)
            gain_ns = device_end(before) - device_end(after)
            yield limit, _outcome(pyprof2.load(path), remedy.rule, gain_ns)


def _outcome(run: pyprof2.api.run.Run, rule: str, gain_ns: int) -> Outcome:
    window_ns = int(run_time.idle_windows(run.tables)["window_ns"].sum())
    found = run.advise().set_index("rule").loc[rule]
    if found["status"] != "fires":
        most = SILENT_PCT.get(rule, 1) * window_ns // 100
        return Outcome(window_ns, 0, 0, most, gain_ns, fires=False)
    least, expected, most = (
        int(str(found[name])) for name in ("at_stake_lo_ns", "expected_ns", "at_stake_hi_ns")
    )
    return Outcome(window_ns, least, expected, most, gain_ns, fires=True)


def _record(name: str, side: str, folder: Path, rounds: int) -> list[Recording]:
    """Return the recordings of a training."""
    folder.mkdir()
    subprocess.run(
        [sys.executable, str(SCRIPT), name, side, str(folder), str(rounds)], check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
    )  # fmt: skip
    return [Recording(path) for path in sorted(folder.glob("*.json"))]


def _calmest(
    remedy: Remedy, recordings: list[Recording], product_ns: int
) -> tuple[list[Done], Recording, list[Interval]]:
    """Return what the simulated device did in the calmest recording, and what was cut from it."""
    found = []
    for recording in recordings:
        slow = [recording.interval(event) for event in recording.named(*_SLOW)]
        cut = recording.preempted(slow)
        found.append(
            (simulate(_all_calls(recording, remedy.calls, product_ns), cut), recording, cut)
        )
    return min(found, key=lambda each: device_end(each[0]))


def _all_calls(
    recording: Recording, calls: Callable[[Recording], list[Call]], product_ns: int
) -> list[Call]:
    """Return launches and other calls: small tensors take 3 us, all of them together 1 us each."""

    def work_ns(op: Event) -> int:
        if op["name"] in ("aten::mm", "aten::addmm"):
            return product_ns
        return PARAMETERS * US if "_foreach_" in op["name"] else 3 * US

    return recording.kernels(work_ns) + calls(recording)


def _united(intervals: list[Interval]) -> list[Interval]:
    """Return the intervals in order, those that touch or overlap as one."""
    found: list[Interval] = []
    for each in sorted(intervals):
        if found and each.start <= found[-1].end:
            found[-1] = Interval(found[-1].start, max(found[-1].end, each.end))
        else:
            found.append(each)
    return found


def _table(outcomes: dict[tuple[str, str], Outcome]) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: 30 10 20 10 10 10 10", "")
    yield from _row("remedy", "limit", "rule", "least", "expected", "most", "gained")
    for (name, limit), each in outcomes.items():
        remedy = REMEDIES[name]
        shares = (each.lo_ns, each.expected_ns, each.hi_ns, each.gain_ns)
        words = [f"{100 * share / each.before_ns:.1f} %" for share in shares]
        if not each.fires:
            words[:3] = ["silent", "", ""]
        rule = f":ref:`{remedy.rule} <advice-{remedy.rule}>`"
        yield from _row(remedy.words.replace("`", "``"), limit, rule, *words)
    holds = sum(each.holds for each in outcomes.values())
    fires = [each for each in outcomes.values() if each.fires]
    width = sum((each.hi_ns - each.lo_ns) / each.before_ns for each in fires)
    close = sum(abs(each.gain_ns - each.expected_ns) / each.before_ns for each in fires)
    yield ""
    yield f"Inside of the interval: {holds} of {len(outcomes)}. Where a rule fires the interval is"
    yield f"{100 * width / len(fires):.1f} % of the recorded time wide, and the gain is away by"
    yield f"{100 * close / len(fires):.1f} % of it from what was expected, on average."


def _row(*cells: str) -> Iterator[str]:
    for at, cell in enumerate(cells):
        yield f"   {' ' if at else '*'} - {cell}"


if __name__ == "__main__":
    sys.exit(main())
