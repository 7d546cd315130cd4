"""Recordings of a made-up training loop that nothing is wrong with, and how to spoil it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.summaries.advice import advice_of_facts
from pyprof2.analysis.summaries.advice.facts import INPUT, facts_of_parts
from pyprof2.analysis.time.idle import INPUT as IDLE_INPUT
from pyprof2.analysis.time.idle import idle_of_ranks
from pyprof2.analysis.time.recordings import windows_of_ranks
from pyprof2.analysis.time.step_windows import step_windows
from pyprof2.parsers.formats import FORMATS
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.summaries.advice.facts import RankFacts
    from pyprof2.analysis.time.step_windows import StepWindows

US: Final = 1000
STEPS: Final = 4
KERNELS: Final = 50
"""In a step."""

DEVICE: Final = """{
  "name": "round", "vendor": "nvidia", "compute_capability": "9.0", "memory_gb_per_s": 1000,
  "matrix_tflops": {"bf16": 1000, "f16": 1000, "tf32": 500}, "vector_tflops": {"f32": 100}
}"""
"""A device with round numbers: 1 byte takes 1 ps, 1e9 FLOPs in bf16 1 us."""

Rows = dict[str, list[dict[str, Any]]]
_HEALTHY: Final = {
    "device": 0, "device_type": "cuda", "stream": 7, "kernel": "gemm", "kernel_short": "gemm",
    "category": "matmul", "direction": "forward", "compute_dtype": "bf16", "tensor_core": "yes",
    "tensor_core_eligible": True, "flops": 10**10, "bytes": 10**6, "params": "M=64,N=64,K=64",
    "blocks_per_sm": 4.0, "grid": "528,1,1", "block": "128,1,1", "signature": "aten::mm([64,64])",
}  # fmt: skip


def advise(
    made: Mapping[str, pa.Table],
    devices: Sequence[Mapping[str, Any]],
    override: Path | str | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what all rules find in tables, and the joint bounds."""
    return advice_of_facts(facts_of_ranks(made, devices, override))


def training(
    kernel_us: float = 199,
    *,
    pause_us: float | Callable[[int], float] = 0,
    kernels: int = KERNELS,
    late: bool = False,
    **columns: Any,
) -> Rows:
    """Return the rows of four steps, whose kernels come one after another, 200 us apart.

    Args:
        kernel_us: how long each takes.
        pause_us: how long the host does something else at the start of a step.
        kernels: how many there are in a step.
        late: launch each kernel 20 us before it starts, and not one or two kernels ahead.
        **columns: of the kernels; a function of the number in the step, or the value of all.
    """
    rows: Rows = {name: [] for name in ("kernels", "copies", "launches", "ops", "ranges", "stalls")}
    base = 0.0
    for step in range(STEPS):
        pause = pause_us(step) if callable(pause_us) else pause_us
        begin, length = base + pause, 20 + 200 * (kernels - 1) + kernel_us
        rows["ranges"].append(event(base, pause + length, name=f"ProfilerStep#{step}", kind="step"))
        for number in range(kernels):
            start = begin + 20 + 200 * number
            launch = start - 20 if late else begin + max(15 * number, 200 * number - 400)
            own = {n: c(number) if callable(c) else c for n, c in (_HEALTHY | columns).items()}
            _launched(rows, launch, (start, kernel_us), own | {"step": step})
        base += pause + length
    rows["devices"] = [
        {"device": 0, "name": "round", "multiprocessors": 132, "memory_bytes": 80 * 10**9,
         "compute_capability": "9.0"}
    ]  # fmt: skip
    rows["memory"] = [
        {
            "rank": 0, "time_ns": 2 * step + gone, "device": 0, "device_type": "cuda",
            "address": 64, "bytes": -(10**9) if gone else 10**9, "step": step, "phase": "forward",
            "allocated_bytes": (9 if gone else 10) * 10**9, "reserved_bytes": 105 * 10**8,
        }
        for step in range(STEPS)
        for gone in (0, 1)
    ]  # fmt: skip
    rows["memory_tags"] = []
    rows["trace"] = [{"start_ns": 0, "end_ns": int(base * US), "profiler": "kineto"}]
    rows["signatures"] = []
    return rows


def _launched(
    rows: Rows, launch: float, work: tuple[float, float], columns: dict[str, Any]
) -> None:
    """Add an op that launches a kernel."""
    number = len(rows["launches"])
    start, length = work
    rows["ops"].append(event(launch - 5, 17, op="aten::mm", op_id=number, source="train.py:7"))
    rows["launches"].append(event(launch, 10, name="cudaLaunchKernel", launch_id=number))
    known = {"kernel_id": number, "launch_id": number, "op_id": number, "source": "train.py:7"}
    times = {"start_ns": round(start * US), "dur_ns": round(length * US)}
    rows["kernels"].append(known | times | {"launch_ns": round(launch * US)} | columns)


def event(start_us: float, length_us: float, **columns: Any) -> dict[str, Any]:
    """Return an event of the host's main thread."""
    start = max(0, round(start_us * US))
    return {"start_ns": start, "dur_ns": round(length_us * US), "pid": 1, "tid": 1, **columns}


def at_steps(rows: Rows) -> list[float]:
    """Return when each step begins, in us."""
    return [row["start_ns"] / US for row in rows["ranges"] if row["kind"] == "step"]


def with_calls(
    rows: Rows, name: str, length_us: float, before_us: float = 0, every: int = 1
) -> Rows:
    """Add a GPU call at the start of each step, or of some, which may begin before it."""
    for at in at_steps(rows)[every - 1 :: every]:
        begin = max(0.0, at - before_us)
        number = 1000 + len(rows["launches"])
        length = at + length_us - begin
        rows["launches"].append(event(begin, length, name=name, launch_id=number))
    rows["launches"].sort(key=lambda row: row["launch_id"])
    return rows


def with_ranges(rows: Rows, name: str, length_us: float, kind: str = "annotation") -> Rows:
    """Add a range at the start of each step."""
    more = [event(at, length_us, name=name, kind=kind) for at in at_steps(rows)]
    rows["ranges"] += more
    return rows


def tables(rows: Rows) -> dict[str, pa.Table]:
    """Return the canonical tables, with the idle time that is in them."""
    made = {name: canonical(name, *each) for name, each in rows.items()}
    idle = idle_of_ranks({name: made[name].select(names) for name, names in IDLE_INPUT.items()})
    made["idle"] = idle
    return {name: made[name].select(names) for name, names in INPUT.items()}


def facts_of_ranks(
    made: Mapping[str, pa.Table],
    devices: Sequence[Mapping[str, Any]],
    override: Path | str | None = None,
) -> Iterator[RankFacts]:
    """Yield what was recorded of each rank whose devices did anything."""

    def of_rank(rank: int) -> tuple[int, Callable[[str], ChunkedTable], StepWindows]:
        own = {name: each.filter(pc.equal(each["rank"], rank)) for name, each in made.items()}
        work = [own["kernels"], own["copies"]]
        return rank, lambda name: InMemory(own[name]), step_windows(own["ranges"], work)

    ranks = map(of_rank, sorted(set(made["trace"]["rank"].to_pylist())))
    windows = windows_of_ranks(made)
    yield from facts_of_parts(ranks, windows, devices, FORMATS[0].advice, override)
