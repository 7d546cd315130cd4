"""Jobs of many ranks, each of which does what one real rank did: what slows them is put in.

All ranks run the program of a step, several times; kernels, gaps of the host and transfers vary by
chance. Calls are simulated in the order of their launches, all ranks at once: so ranks wait for one
another as real ones do. The same random numbers without a change say what the change cost. Written
without any code of the analyses. Times are us.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tests.analysis.job.real_program import COMPUTE, Call

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LATENCY_US = 3.0
WAKE_US = 2.0
BASE_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Setup:
    """A job.

    Attributes:
        program: of each step.
        ranks, steps: how many.
        host: factor of everything that the host does; 0.3: it is far ahead of the device.
        message: factor of the transfers, as of a job that sends more.
        slow: factor of the durations of kernels, by rank.
        pause: by rank: the step, the call before which its host does nothing, and for how long.
        links: factor of all transfers.
        bias: by which the larger messages end earlier on odd ranks.
        spread: of the ranks' clocks; `drift` of their rates.
    """

    program: Sequence[Call]
    ranks: int
    steps: int = 2
    host: float = 1.0
    message: float = 1.0
    slow: dict[int, float] = field(default_factory=dict)
    pause: dict[int, tuple[int, int, float]] = field(default_factory=dict)
    links: float = 1.0
    bias: float = 0.0
    spread: float = 2000.0
    drift: float = 5e-6
    seed: int = 11
    blocks: bool = True

    def healthy(self) -> Setup:
        """Return the same job, with the same random numbers, and nothing put in."""
        return replace(self, slow={}, pause={}, links=1.0)


class Times(NamedTuple):
    """When everything happened, on the true clock: arrays of calls by ranks, steps one by one."""

    launch: Floats
    returned: Floats
    start: Floats
    end: Floats
    begins: Floats
    waits: Floats
    offsets: Floats
    drifts: Floats

    @property
    def last(self) -> float:
        """When the last work ended."""
        return float(self.end.max())


def simulate(setup: Setup) -> Times:
    """Return what happens in a job."""
    rng, n = np.random.default_rng(setup.seed), setup.ranks
    count = len(setup.program) * setup.steps
    launch, returned, start, end = (np.zeros((count, n)) for _ in range(4))
    begins, waits, host = np.zeros((setup.steps + 1, n)), np.zeros(n), np.zeros(n)
    slow = np.array([setup.slow.get(rank, 1.0) for rank in range(n)])
    streams: dict[int, Floats] = {}
    for at in range(count):
        step, place = divmod(at, len(setup.program))
        call = setup.program[place]
        if not place:
            begins[step] = host
        gap, took, dur, transfer, skew = _chances(rng, n)
        host = host + setup.host * call.gap * gap
        for rank, (when, before, pause) in setup.pause.items():
            host[rank] += pause * ((when, before) == (step, place))
        launch[at] = host
        host = host + setup.host * call.launch * took
        begin = np.maximum(host + LATENCY_US, streams.get(call.stream, 0.0))
        if call.kind == "comm":
            # c10d's stream waits for what was queued on the current one.
            begin = np.maximum(begin, streams.get(COMPUTE, np.zeros(n)) + WAKE_US)
            waits += begin.max() - begin
            stop = begin.max() + _moved(setup, call, transfer) + skew
        else:
            if call.after and call.after <= at:
                begin = np.maximum(begin, end[at - call.after] + WAKE_US)
            stop = begin + call.dur * dur * (slow if call.kind == "kernel" else 1.0)
        start[at], end[at], streams[call.stream] = begin, stop, stop
        if call.blocks and setup.blocks:
            host = np.maximum(host, stop + 5.0)
        returned[at] = host
    begins[-1] = host
    offsets, drifts = rng.normal(0, setup.spread, n), rng.normal(0, setup.drift, n)
    offsets[0] = drifts[0] = 0
    return Times(launch, returned, start, end, begins, waits, offsets, drifts)


def _moved(setup: Setup, call: Call, chance: float) -> Floats:
    """Return how long after the last member's start each member ends."""
    biased = setup.bias * (call.dur > 300) * (np.arange(setup.ranks) % 2)
    return (setup.links * setup.message * call.dur * chance - biased).astype(np.float64)


def _chances(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats, float, Floats]:
    """Return factors of a gap, a launch and a kernel of each rank, of a transfer, and skews."""
    gap, took, dur = (np.exp(rng.normal(0, 0.01, n)) for _ in range(3))
    return gap, took, dur, float(np.exp(rng.normal(0, 0.02))), rng.uniform(0, 2, n)


def write(setup: Setup, times: Times, folder: Path, ranks: Sequence[int] | None = None) -> None:
    """Write a trace for each rank, or for some, on its own clock."""
    for rank in range(setup.ranks) if ranks is None else ranks:
        events = ",\n".join(_events(setup, times, rank))
        head = json.dumps({"rank": rank, "world_size": setup.ranks, "backend": "nccl"})
        text = f'{{"distributedInfo": {head}, "traceEvents": [\n{events}\n]}}'
        (folder / f"rank{rank}.json").write_text(text)


def _events(setup: Setup, times: Times, rank: int) -> Iterator[str]:
    """Yield the rows of a trace; written as text, for there are many."""

    def own(column: Floats) -> Floats:
        found: Floats = column[:, rank] * (1 + times.drifts[rank]) + times.offsets[rank] + 50_000
        return found

    def stamp(time: float) -> str:
        return f"{BASE_US + int(time // 1)}.{int(time % 1 * 1000):03}"

    begins = own(times.begins)
    for step in range(setup.steps):
        span = f'"ts": {stamp(begins[step])}, "dur": {begins[step + 1] - begins[step]:.3f}'
        yield (
            f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 9, '
            f'"tid": 100, {span}}}'
        )
    launch, back, start, end = (own(c) for c in times[:4])
    sent = 0
    for at in range(len(launch)):
        call = setup.program[at % len(setup.program)]
        where = f'"ph": "X", "pid": 9, "tid": {100 + call.thread}'
        around = f'"ts": {stamp(launch[at] - 0.2)}, "dur": {back[at] - launch[at] + 0.4:.3f}'
        name, op, category = json.dumps(call.name), json.dumps(call.op), call.kind
        said = "{}"
        if category == "comm":
            op, said, category = '"record_param_comms"', _said(setup, call, sent), "kernel"
            sent += 1
        yield f'{{{where}, "cat": "cpu_op", "name": {op}, {around}, "args": {said}}}'
        api = {"gpu_memcpy": "cudaMemcpyAsync", "gpu_memset": "cudaMemsetAsync"}
        called = f'"ts": {stamp(launch[at])}, "dur": {back[at] - launch[at]:.3f}'
        yield (
            f'{{{where}, "cat": "cuda_runtime", "name": "{api.get(category, "cudaLaunchKernel")}", '
            f'{called}, "args": {{"correlation": {at + 1}}}}}'
        )
        yield (
            f'{{"ph": "X", "cat": "{category}", "name": {name}, "pid": 0, "tid": {call.stream}, '
            f'"ts": {stamp(start[at])}, "dur": {end[at] - start[at]:.3f}, "args": '
            f'{{"device": 0, "stream": {call.stream}, "correlation": {at + 1}}}}}'
        )


def _said(setup: Setup, call: Call, number: int) -> str:
    """Return the arguments of `record_param_comms`, as PyTorch writes them since 2026."""
    count = int(call.dur) * 10_000 * setup.ranks
    said: dict[str, Any] = {
        "Collective name": "allreduce" if "AllReduce" in call.name else "all_to_allv",
        "In msg nelems": count, "Out msg nelems": count, "dtype": "Float",
        "Group size": setup.ranks, "Process Group Name": "0",
        "Process Group Description": "default_pg", "Global rank start": 0,
        "Process Group Ranks": str(list(range(setup.ranks))), "Global rank stride": 1,
        "In split size": "[]", "Out split size": "[]", "Seq": number,
    }  # fmt: skip
    return json.dumps(said)
