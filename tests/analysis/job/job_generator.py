"""Recordings of made-up jobs, whose effects are known: written without any code of the analyses.

Every rank runs the same program: kernels on one stream, all_reduce on another one after each few of
them, and at the end of a step a kernel that waits for the last all_reduce. Ranks are simulated call
by call, all at once; what is asked for (a slow device, a pause of a host, a slow link) is put in,
and the same random numbers without it say what it cost. Times are us.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LAUNCH_US, LATENCY_US = 4.0, 3.0
KERNELS = 24
REDUCED = (2, 6, 10, 14)
"""After which kernels of a step there is an all_reduce: the rest of the step hides the last one."""
SIZES = (1 << 22, 1 << 24)


@dataclass
class Job:
    """A made-up job.

    Attributes:
        ranks, steps: how many.
        gap_us: what the host does between two launches: more than a kernel takes, and it is late.
        slow: factor of the durations of kernels, by rank.
        pause: by rank: the step and how long its host does nothing at the middle of it, in us.
        late: by rank: how much later than the others its host begins, in us.
        uneven: factor of the durations of kernels of one rank, another one in each step.
        links: factor of the transfers of all ranks.
        one_stream: whether collectives are on the stream of the other kernels.
        offsets_us, drift: of the clocks.
        bias_us: by which a larger message ends earlier on odd ranks.
    """

    ranks: int
    steps: int = 4
    gap_us: float = 20.0
    slow: dict[int, float] = field(default_factory=dict)
    pause: dict[int, tuple[int, float]] = field(default_factory=dict)
    late: dict[int, float] = field(default_factory=dict)
    uneven: float = 1.0
    links: float = 1.0
    one_stream: bool = False
    offset_us: float = 2000.0
    drift: float = 5e-6
    bias_us: float = 0.0
    seed: int = 7
    noise: float = 0.01


@dataclass
class Made:
    """What was made.

    Attributes:
        events: of each rank: dicts of `what` (`kernel`, `reduce`, `step`) and times in us.
        end_us: when the last work of each step ended, on the true clock.
        offsets_us, drifts: of the ranks' clocks.
        waits_us: how long each rank waited in collectives.
    """

    events: list[list[dict[str, Any]]]
    end_us: list[float]
    offsets_us: np.ndarray[Any, Any]
    drifts: np.ndarray[Any, Any]
    waits_us: np.ndarray[Any, Any]


def simulate(job: Job) -> Made:
    """Return what happens in a job."""
    rng = np.random.default_rng(job.seed)
    n = job.ranks
    slow = np.array([job.slow.get(rank, 1.0) for rank in range(n)])
    host = np.array([job.late.get(rank, 0.0) for rank in range(n)])
    comp, comm = np.zeros(n), np.zeros(n)
    events: list[list[dict[str, Any]]] = [[] for _ in range(n)]
    waits, ends = np.zeros(n), []
    for step in range(job.steps):
        begin = host.copy()
        work = slow * np.where(np.arange(n) == step % n, job.uneven, 1.0)
        for call in range(KERNELS):
            host = host + job.gap_us * rng.lognormal(0, job.noise, n)
            if call == KERNELS // 2:
                host = host + [
                    job.pause.get(r, (-1, 0.0))[1] * (job.pause.get(r, (-1, 0))[0] == step)
                    for r in range(n)
                ]
            launched, host = host, host + LAUNCH_US
            is_last = call == KERNELS - 1
            # Behind a wait for another stream a kernel starts a little later than it might.
            start = np.maximum(np.maximum(comp, host + LATENCY_US), comm + 2.0 if is_last else 0.0)
            dur = (60.0 if call % 2 else 110.0) * rng.lognormal(0, job.noise, n) * work
            comp = start + dur
            said = {"what": "kernel", "name": f"gemm_{call % 5}", "step": step, "stream": 7}
            _note(events, said, launched, start, dur)
            if call not in REDUCED:
                continue
            host = host + 3.0 * rng.lognormal(0, job.noise, n)
            launched, host = host, host + LAUNCH_US
            behind = comp if job.one_stream else np.maximum(comm, comp + 2.0)
            arrival = np.maximum(behind, host + LATENCY_US)
            size = SIZES[call // 8 % 2]
            transfer = (
                job.links * (150.0 if size == SIZES[0] else 300.0) * rng.lognormal(0, 2 * job.noise)
            )
            skew = rng.uniform(0, 2 * job.noise * 100, n)
            biased = job.bias_us * (np.arange(n) % 2) * (size == SIZES[1])
            comm = arrival.max() + transfer + skew - biased
            comp = comm if job.one_stream else comp
            waits += arrival.max() - arrival
            said = {
                "what": "reduce",
                "name": str(size),
                "step": step,
                "stream": 7 if job.one_stream else 20,
            }
            _note(events, said, launched, arrival, comm - arrival)
        for rank in range(n):
            events[rank].append(
                {
                    "what": "step",
                    "step": step,
                    "launch": begin[rank],
                    "dur": host[rank] - begin[rank],
                }
            )
        ends.append(float(max(comp.max(), comm.max())))
    offsets = rng.normal(0, job.offset_us, n)
    drifts = rng.normal(0, job.drift, n)
    offsets[0] = drifts[0] = 0
    return Made(events, ends, offsets, drifts, waits)


def _note(
    events: list[list[dict[str, Any]]], said: dict[str, Any], launch: Any, start: Any, dur: Any
) -> None:
    for rank, own in enumerate(events):
        times = {"launch": launch[rank], "start": start[rank], "dur": dur[rank]}
        own.append(said | times)


def write(
    made: Made, folder: Path, *, ranks: list[int] | None = None, seq: bool = True
) -> list[Path]:
    """Write a trace for each rank, or for some, on its own clock; return the files."""
    chosen = range(len(made.events)) if ranks is None else ranks
    return [_write_rank(made, rank, folder / f"rank{rank}.json", seq=seq) for rank in chosen]


def _write_rank(made: Made, rank: int, path: Path, *, seq: bool) -> Path:
    size = len(made.events)
    base = 1_700_000_000_000_000.0

    def at(time: float) -> Any:
        own = time * (1 + made.drifts[rank]) + made.offsets_us[rank]
        return round(base + 10_000 + own, 3)

    rows, number, reduces = [], 0, 0
    host = {"ph": "X", "pid": 100 + rank, "tid": 100 + rank}
    for event in made.events[rank]:
        if event["what"] == "step":
            rows.append(
                host
                | {
                    "cat": "user_annotation",
                    "name": f"ProfilerStep#{event['step']}",
                    "ts": at(event["launch"]),
                    "dur": round(event["dur"], 3),
                }
            )
            continue
        number += 1
        launch = {
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "ts": at(event["launch"]),
            "dur": LAUNCH_US,
            "args": {"correlation": number},
        }
        rows.append(host | launch)
        around = {"ts": at(event["launch"] - 0.5), "dur": LAUNCH_US + 1}
        name = event["name"]
        if event["what"] == "reduce":
            count = int(name) // 4
            said = {
                "Collective name": "allreduce",
                "In msg nelems": count,
                "Out msg nelems": count,
                "dtype": "Float",
                "Group size": size,
                "Process Group Name": "0",
                "Process Group Description": "dp",
                "Process Group Ranks": str(list(range(size))),
                "Global rank start": 0,
                "Global rank stride": 1,
            } | ({"Seq": reduces} if seq else {})
            reduces += 1
            rows.append(
                host | {"cat": "cpu_op", "name": "c10d::allreduce_"} | around | {"args": {}}
            )
            rows.append(
                host | {"cat": "cpu_op", "name": "record_param_comms"} | around | {"args": said}
            )
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
        else:
            rows.append(host | {"cat": "cpu_op", "name": f"aten::{name}"} | around | {"args": {}})
        args = {"device": 0, "stream": event["stream"], "correlation": number}
        rows.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": name,
                "pid": 0,
                "tid": event["stream"],
                "ts": at(event["start"]),
                "dur": round(event["dur"], 3),
                "args": args,
            }
        )
    job = {"rank": rank, "world_size": size, "backend": "nccl"}
    path.write_text(json.dumps({"distributedInfo": job, "traceEvents": rows}))
    return path


def rename_ops(files: Sequence[Path], name: str, by: str) -> None:
    """Call the ops and kernels of traces that were written by another name, or part of one."""
    for path in files:
        document = json.loads(path.read_text())
        for row in document["traceEvents"]:
            row["name"] = row["name"].replace(name, by)
        path.write_text(json.dumps(document))


def name_pause(rank: int, path: Path) -> None:
    """Say in a trace what the longest pause of its host was: loading of data, at a line."""
    document = json.loads(path.read_text())
    rows = document["traceEvents"]
    launches = sorted(
        (row for row in rows if row["cat"] == "cuda_runtime"), key=lambda row: row["ts"]
    )
    ends = [row["ts"] + row["dur"] for row in launches]
    gaps = [b["ts"] - a for a, b in zip(ends, launches[1:], strict=False)]
    at = int(np.argmax(gaps))
    host = {
        "ph": "X",
        "pid": 100 + rank,
        "tid": 100 + rank,
        "ts": ends[at] + 2,
        "dur": gaps[at] - 4,
    }
    rows += [
        host | {"cat": "user_annotation", "name": "enumerate(DataLoader)#_Iter.__next__"},
        host | {"cat": "python_function", "name": "train.py(88): batches",
                "args": {"Python id": 1, "Python parent id": None}},
    ]  # fmt: skip
    path.write_text(json.dumps(document))
