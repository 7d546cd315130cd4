"""A host that pauses in one step of many: blame has the line where it paused, not the next launch.

Ranks launch kernels, meet in an all_reduce on the same stream, and wait for it, once in each step.
Times are us.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pyprof2.analysis.job.slow_ranks import cost_words
from pyprof2.api.run import load
from pyprof2.reports.ranks import answers

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.job import JobOfRanks

STEPS = 12
OPS = ("aten::conv2d", "aten::relu", "aten::addmm")


@dataclass
class Pauses:
    """What is made up: by rank and step pauses of hosts at train.py:20, and factors of kernels."""

    ranks: int = 4
    pauses: dict[tuple[int, int], float] = field(default_factory=dict)
    slow: dict[tuple[int, int], float] = field(default_factory=dict)
    seed: int = 5


@dataclass
class Rank:
    """One rank's events, and when its host and its stream are free."""

    number: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    host: float = 0.0
    stream: float = 0.0
    calls: int = 0

    def add(self, category: str, name: str, start: float, dur: float, **args: Any) -> None:
        """Note an event; of a kernel on the device."""
        on = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 9, "tid": 9}
        times = {"ts": round(1_700_000_000_000_000 + start, 3), "dur": round(dur, 3)}
        self.rows.append({"ph": "X", "cat": category, "name": name, "args": args} | on | times)

    def call(self, op: str, line: int | None = None, **said: Any) -> float:
        """Launch from an op; return when the kernel may start."""
        begin, self.calls = self.host + 5, self.calls + 1
        if line is not None:
            ids = {"Python id": self.calls, "Python parent id": None}
            self.add("python_function", f"model.py({line}): forward", begin - 1, 10, **ids)
        self.add("cpu_op", op, begin, 8)
        if said:
            self.add("cpu_op", "record_param_comms", begin + 1, 6, **said)
        self.add("cuda_runtime", "cudaLaunchKernel", begin + 2, 4, correlation=self.calls)
        self.host = begin + 9
        return max(self.stream + 1, begin + 8)

    def run(self, name: str, start: float, end: float) -> None:
        """Note what the last call launched."""
        args = {"device": 0, "stream": 7, "correlation": self.calls}
        self.add("kernel", name, start, end - start, **args)
        self.stream = end


def made(job: Pauses, folder: Path) -> JobOfRanks:
    """Return what is read of the recordings."""
    rng = np.random.default_rng(job.seed)
    ranks = [Rank(number) for number in range(job.ranks)]
    group: dict[str, Any] = {
        "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20,
        "dtype": "Float", "Group size": job.ranks, "Process Group Name": "0",
        "Process Group Description": "dp", "Process Group Ranks": str(list(range(job.ranks))),
    }  # fmt: skip
    for step in range(STEPS):
        begins, meet = [rank.host for rank in ranks], []
        for rank in ranks:
            pause = job.pauses.get((rank.number, step), 0.0)
            if pause:
                ids = {"Python id": 900 + step, "Python parent id": None}
                rank.add("python_function", "train.py(20): main", rank.host + 1, pause - 2, **ids)
            rank.host += pause
            for at in range(6):
                start = rank.call(OPS[at % 3], 30 + at)
                took = rng.lognormal(4.4, 0.02) * job.slow.get((rank.number, step), 1.0)
                rank.run(f"kernel_{OPS[at % 3][6:]}", start, start + took)
            meet.append(rank.call("c10d::allreduce_", **group, Seq=step))
        for rank, start, begin in zip(ranks, meet, begins, strict=True):
            rank.run("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, max(meet) + 120)
            until = rank.stream + 4
            rank.add("cpu_op", "aten::item", rank.host, until - rank.host + 2)
            rank.calls += 1
            rank.add("cuda_runtime", "cudaStreamSynchronize", rank.host + 1, until - rank.host - 1,
                     correlation=rank.calls)  # fmt: skip
            rank.host = until + 3
            rank.add("user_annotation", f"ProfilerStep#{step}", begin, rank.host - begin)
    files = [folder / f"rank{rank.number}.json" for rank in ranks]
    for rank, path in zip(ranks, files, strict=True):
        about = {"rank": rank.number, "world_size": job.ranks, "backend": "nccl"}
        path.write_text(json.dumps({"distributedInfo": about, "traceEvents": rank.rows}))
    return load(files).ranks


@pytest.mark.kept("short", "two")
@pytest.mark.parametrize(
    ("ranks", "pause"), [(4, 30_000.0), (4, 300.0), (2, 30_000.0)], ids=["long", "short", "two"]
)
def test_a_pause_belongs_to_the_line_where_it_was(tmp_path: Path, ranks: int, pause: float) -> None:
    found = made(Pauses(ranks, pauses={(1, 7): pause}), tmp_path)
    worst = found.blame.iloc[0]
    (slow,) = [*found.slow_ranks, *found.slower_of_two]

    assert (worst["rank"], worst["step"], worst["kind"]) == (1, 7, "host")
    assert (worst["cause"], worst["source"]) == ("host_python", "train.py:20")
    assert worst["worst_ns"] == pytest.approx(1000 * pause, rel=0.1)
    assert (slow.rank, slow.verdict) == (1, "straggler in steps 7")
    assert slow.place is not None
    assert slow.place.source == "train.py:20"
    assert "at train.py:20 (host python" in answers(found)[0]


def test_a_rank_that_is_slow_in_one_step_is_named_with_it(tmp_path: Path) -> None:
    """Its mean is 4 % above the others', of which the replay gains 40 % of one step."""
    found = made(Pauses(slow={(2, 9): 1.5}), tmp_path)

    assert answers(found)[0].startswith("rank 2 is slow: it computes")
    assert " of step 9 (by replay, " in answers(found)[0]
    assert found.blame["step"].iloc[0] == 9
    (slow,) = found.slow_ranks
    least = slow._replace(gain=replace(slow.gain, lo_ns=0))
    assert slow.gain.hi_ns is not None
    most = f"{slow.gain.hi_ns / 1000:.3f} us"
    assert cost_words(least).endswith(f" of step 9 (by replay, at most {most})")


@pytest.mark.kept("2")
@pytest.mark.parametrize("ranks", [2, 4])
def test_noise_of_steps_accuses_nobody(tmp_path: Path, ranks: int) -> None:
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = made(Pauses(ranks, seed=seed), folder)

        assert answers(found)[0].startswith("no rank is slow")
        assert not found.slow_ranks
        assert not found.slower_of_two
