"""The program of one step of a real rank: what its host calls, and what the device does of it.

Read from the events of the recording alone, without any code of the analyses.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    Event = dict[str, Any]

COMPUTE = 7
"""The stream of the recorded rank's own kernels."""
_BLOCKED_US = 100
_SOON_US = 30


class Call(NamedTuple):
    """A launch, and the kernel or copy that it queues; times in us.

    Attributes:
        name, op: of the kernel, and of the op around the launch.
        kind: `kernel`, `gpu_memcpy`, `gpu_memset`, or `comm`.
        thread, stream: where it is launched, and runs.
        gap: what the host does between the launch before and this one.
        launch: how long the launch takes.
        dur: how long it runs; of `comm` how long its transfer takes.
        blocks: whether the host waits for its end.
        after: how many calls before this one is the collective that its stream waits for; 0: none.
    """

    name: str
    op: str
    kind: str
    thread: int
    stream: int
    gap: float
    launch: float
    dur: float
    blocks: bool
    after: int


def step_program(path: Path, number: int) -> list[Call]:
    """Return the calls of step `number` of a recording, in the order in which they are launched."""
    with gzip.open(path, "rt", errors="replace") as file:
        events: list[Event] = json.load(file, strict=False)["traceEvents"]
    spans = [e for e in events if e.get("ph") == "X"]
    (step,) = (e for e in spans if e["name"] == f"ProfilerStep#{number}")
    begin, finish = step["ts"], step["ts"] + step["dur"]
    launches = {
        e["args"]["correlation"]: e
        for e in spans
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and begin <= e["ts"] < finish
    }
    kinds = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
    kinds |= {word: word for word in kinds.values()}
    work = [e for e in spans if e.get("cat") in kinds and e["args"]["correlation"] in launches]
    work.sort(key=lambda e: launches[e["args"]["correlation"]]["ts"])
    ops = [e for e in spans if e.get("cat") == "cpu_op" and begin <= e["ts"] < finish]
    at = {id(e): launches[e["args"]["correlation"]] for e in work}
    names = _innermost(ops, [at[id(e)] for e in work])
    return _calls(work, [at[id(e)] for e in work], names, begin)


def _calls(work: list[Event], launches: list[Event], names: list[str], begin: float) -> list[Call]:
    waits = _waits(work)
    threads = sorted({e["tid"] for e in launches})
    calls, until = [], begin
    for place, (event, launch) in enumerate(zip(work, launches, strict=True)):
        name = event["name"]
        is_comm = "nccl" in name
        blocks = launch["dur"] > _BLOCKED_US and event["cat"] == "gpu_memcpy"
        # Recorded in whole us: the host always does something.
        gap, took = max(0.5, launch["ts"] - until), max(1.0, min(launch["dur"], 50.0))
        # A collective's own duration has waits in it: what messages take is made up.
        dur = 100.0 * (1 + place % 7) if is_comm else max(1.0, event["dur"])
        kind = "comm" if is_comm else event["cat"]
        thread, stream = threads.index(launch["tid"]), event["args"]["stream"]
        took = 10.0 if blocks else took
        what = (names[place], kind, thread, stream, gap, took, dur, blocks, waits[place])
        calls.append(Call(name, *what))
        until = max(until, launch["ts"] + launch["dur"])
    return calls


def _waits(work: list[Event]) -> list[int]:
    """Return for each call how far before it is the collective that let it go on; 0: none."""
    found, open_ = [0] * len(work), []
    for place, event in enumerate(work):
        if "nccl" in event["name"]:
            open_.append(place)
            continue
        if event["args"]["stream"] != COMPUTE:
            continue
        for comm in list(open_):
            since = event["ts"] - (work[comm]["ts"] + work[comm]["dur"])
            if since >= 0:
                open_.remove(comm)
            if 0 <= since <= _SOON_US:
                found[place] = place - comm
    return found


def _innermost(ops: list[Event], launches: list[Event]) -> list[str]:
    """Return the innermost op around each launch; `aten::none` where there is none."""
    by_thread: dict[Any, list[Event]] = {}
    for op in sorted(ops, key=lambda e: (e["ts"], -e["dur"])):
        by_thread.setdefault(op["tid"], []).append(op)
    found = []
    for launch in launches:
        around = "aten::none"
        for op in by_thread.get(launch["tid"], []):
            if op["ts"] > launch["ts"]:
                break
            if launch["ts"] + launch["dur"] <= op["ts"] + op["dur"]:
                around = op["name"]
        found.append(around)
    return found
