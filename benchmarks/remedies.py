"""Say what remedies gain, and whether it lies in the interval that `pyprof2 advise` gave before.

Usage: python -m benchmarks.remedies [REMEDY…] [--rounds N] [--write PAGE]

A small training runs on the CPU as it is and after each remedy, and is recorded. The host's times
are those of the runs; what a device would have done is simulated (`tests/simulated_device.py`), as
the remedies need a GPU and this does not. Of several rounds the one counts whose host was least
disturbed. With `--write` the table is put into a page of the documentation.

Exit code 1 if a remedy gained more than its most, or less than its least where work was deleted.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyprof2
from tests.simulated_device import Call, Recording, device_end, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulated_device import Event

ROOT: Final = Path(__file__).resolve().parent.parent
SCRIPT: Final = Path(__file__).with_name("remedied_training.py")
US: Final = 1000
MS: Final = 1000 * US
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
        deletes: whether it deletes work of the host, so that the least holds.
        product_ns: how long the device takes for a product of matrices.
        calls: what an op calls beside a launch, which only a device needs.
    """

    words: str
    rule: str
    deletes: bool = False
    product_ns: int = 200 * US
    calls: Callable[[Recording], list[Call]] = field(default=lambda _: [])


class Outcome(NamedTuple):
    """What was advised before a remedy, and what the remedy gained, in ns."""

    before_ns: int
    lo_ns: int
    expected_ns: int
    hi_ns: int
    gain_ns: int

    def holds(self, *, deletes: bool) -> bool:
        """Return whether it gained no more than the most, and not less than a least that holds."""
        return self.gain_ns <= self.hi_ns and (not deletes or self.gain_ns >= self.lo_ns)


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


def _transfers(recording: Recording) -> list[Call]:
    """Return the copies of batches to the device: from pageable memory the host waits for them."""
    ops = recording.outside_loader(recording.named("aten::copy_"))
    batches = [op for op in ops if op["args"]["Input Dims"][:2] == [[1024], [1024]]]
    return [_transfer(recording, op) for op in batches]


def _transfer(recording: Recording, op: Event) -> Call:
    pinned = op["args"]["Concrete Inputs"][2] == "True"
    return Call(
        recording.inside(op), "cudaMemcpyAsync", waits=not pinned,
        work_ns=PINNED_NS if pinned else PAGEABLE_NS, op=op, args={"bytes": TRANSFER_BYTES},
        work=f"Memcpy HtoD ({'Pinned' if pinned else 'Pageable'} -> Device)",
    )  # fmt: skip


REMEDIES: Final = {
    "workers": Remedy("a worker loads the data", "data-loading"),
    "item": Remedy(
        "no `.item()` in the loop", "sync", deletes=True,
        calls=_waits("aten::_local_scalar_dense", "float"),
    ),
    "mask": Remedy(
        "a sum on the device, no `nonzero()`", "sync", deletes=True, calls=_waits("aten::nonzero"),
    ),
    "allocator": Remedy(
        "no `empty_cache()` in the loop", "allocator", deletes=True, calls=_allocations,
    ),
    "pinned": Remedy("pinned memory and `non_blocking`", "pageable-copies", calls=_transfers),
    "garbage": Remedy("no `gc.collect()` in each step", "garbage-collection", deletes=True),
    "optimizer": Remedy("`foreach=True`", "unfused-optimizer", product_ns=20 * US),
    "python": Remedy("no loop in Python per layer", "host-bound", product_ns=20 * US),
    "fused": Remedy("one op for nine elementwise ones", "host-bound", product_ns=3 * US),
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
        outcomes[name] = outcome(name, args.rounds)
        print(f"{name}: {outcomes[name]}", file=sys.stderr)
    table = "\n".join(_table(outcomes))
    print(table)
    if args.write:
        page = args.write.read_text(encoding="utf-8")
        new = _PART.sub(lambda part: f"{part[1]}\n{table}\n\n{part[2]}", page)
        args.write.write_text(new, encoding="utf-8")
    return not all(each.holds(deletes=REMEDIES[n].deletes) for n, each in outcomes.items())


def outcome(name: str, rounds: int) -> Outcome:
    """Return what a remedy was said to gain, and what it gains."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = (
            _run(name, side, Path(folder) / side, rounds) for side in ("before", "after")
        )
        windows = [int(run.idle_windows["window_ns"].sum()) for run in (before, after)]
        found = before.advise().set_index("rule").loc[REMEDIES[name].rule]
        if found["status"] != "fires":
            msg = f"{name}: rule {REMEDIES[name].rule} is {found['status']}"
            raise RuntimeError(msg)
        names = ("at_stake_lo_ns", "expected_ns", "at_stake_hi_ns")
        lo_ns, expected_ns, hi_ns = (int(str(found[name])) for name in names)
        return Outcome(windows[0], lo_ns, expected_ns, hi_ns, windows[0] - windows[1])


def _run(name: str, side: str, folder: Path, rounds: int) -> pyprof2.run.Run:
    """Return the calmest recording of a training on the simulated device."""
    folder.mkdir()
    subprocess.run(
        [sys.executable, str(SCRIPT), name, side, str(folder), str(rounds)], check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
    )  # fmt: skip
    simulated = []
    for path in sorted(folder.glob("*.json")):
        recording = Recording(path)
        calls = recording.kernels(_works(REMEDIES[name])) + REMEDIES[name].calls(recording)
        slow = [recording.interval(event) for event in recording.named(*_SLOW)]
        cut = recording.preempted(slow)
        done = simulate(calls, cut)
        simulated.append((device_end(done), path, recording, done, cut))
    _, path, recording, done, cut = min(simulated, key=lambda each: each[:2])
    return pyprof2.load(recording.write(path, done, cut))


def _works(remedy: Remedy) -> Callable[[Event], int]:
    """Return how long the kernel of an op takes: small tensors take 3 us, all of them 1 us each."""

    def work_ns(op: Event) -> int:
        if op["name"] in ("aten::mm", "aten::addmm"):
            return remedy.product_ns
        return PARAMETERS * US if "_foreach_" in op["name"] else 3 * US

    return work_ns


def _table(outcomes: dict[str, Outcome]) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: 32 24 11 11 11 11", "")
    yield from _row("remedy", "rule", "least", "expected", "most", "gained")
    for name, each in outcomes.items():
        remedy = REMEDIES[name]
        shares = (each.lo_ns, each.expected_ns, each.hi_ns, each.gain_ns)
        words = [f"{100 * share / each.before_ns:.1f} %" for share in shares]
        rule = f":ref:`{remedy.rule} <advice-{remedy.rule}>`"
        yield from _row(remedy.words.replace("`", "``"), rule, *words)
    inside = [each.lo_ns <= each.gain_ns <= each.hi_ns for each in outcomes.values()]
    close = [abs(each.gain_ns - each.expected_ns) / each.before_ns for each in outcomes.values()]
    yield ""
    yield f"Inside of the interval: {sum(inside)} of {len(inside)}. On average the gain differs by"
    yield f"{100 * sum(close) / len(close):.1f} % of the recorded time from what was expected."


def _row(*cells: str) -> Iterator[str]:
    for at, cell in enumerate(cells):
        yield f"   {' ' if at else '*'} - {cell}"


if __name__ == "__main__":
    sys.exit(main())
