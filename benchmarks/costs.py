"""How long costs take on a trace of a million ops: formulas run per distinct call, not per op.

Usage: python -m benchmarks.costs [TRACE …] [--ops N] [--rounds N]

From each real trace one with so many ops is made and read. Then what `parse` does for costs runs
some times: finding what is known of each call, and the formulas; the rest of the linking is not
measured. `prof` on a store does none of it. The claim: under a second of CPU time for a million
ops; on a noisy machine the least of the rounds.
"""

from __future__ import annotations

import argparse
import gzip
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from benchmarks.scale_trace import scaled
from benchmarks.traces import add_traces, existing
from pyprof2.analysis.assembly import linked
from pyprof2.analysis.costs.attribute import cost_ops
from pyprof2.analysis.costs.evidence import DistinctCalls, find_evidence
from pyprof2.api.run import load
from pyprof2.parsers import read_recordings

if TYPE_CHECKING:
    from pyprof2.analysis.costs.evidence import OpEvidence
    from pyprof2.recording import Recording

TRACES: Final = ("tl_owlv2_h100", "rn50_v100_w0", "hta_diff_control_a100")
LIMIT_S: Final = 1.0


def main() -> int:
    """Measure, print, and say whether the claim holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add_traces(parser, TRACES)
    parser.add_argument("--ops", type=int, default=10**6, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    args = parser.parse_args()
    traces = existing(args.trace)
    return max((_measure(trace, args.ops, args.rounds) for trace in traces), default=0)


def _inputs(recording: Recording) -> tuple[Any, ...]:
    """Link a recording, and return what its calls are found out from."""
    found: list[tuple[Any, ...]] = []

    def noted(*inputs: Any) -> OpEvidence:
        found.append(inputs)
        return find_evidence(*inputs)

    with mock.patch.object(linked, "find_evidence", noted):
        linked.link_recording(recording)
    return found[0]


def _measure(trace: Path, ops: int, rounds: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = gzip.decompress(trace.read_bytes())
        copies = math.ceil(ops / len(load(trace).ops))
        big = folder / "big.json"
        with big.open("wb") as file:
            file.writelines(scaled(data, copies))
        (recording,) = read_recordings(big, folder)
        calls: list[tuple[float, float, int]] = []
        ops_, pairs, signature, _, kernels = _inputs(recording)
        for _ in range(rounds):
            begin = time.process_time()
            fresh = DistinctCalls(recording.signatures)
            known = find_evidence(ops_, pairs, signature, fresh, kernels)
            middle = time.process_time()
            estimates = cost_ops(ops_, known).estimates
            calls.append((middle - begin, time.process_time() - middle, len(estimates)))
    count = len(ops_)
    least = min(calls, key=sum)
    seconds = least[0] + least[1]
    holds = seconds < LIMIT_S * count / 10**6
    print(
        f"{trace.name}: {count} ops, {least[2]} distinct calls: {seconds:.2f} s "
        f"({least[0]:.2f} s what is known of them, {least[1]:.2f} s formulas and accounts); "
        f"under {LIMIT_S:g} s for a million? {'yes' if holds else 'NO'}"
    )
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
