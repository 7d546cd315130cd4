"""Recordings of replayed graphs, made of others: an oracle knows what was changed.

`graphify` makes of each step of an eager recording but the first one replay of a graph: what was
known of its kernels is the truth. `Replay` has the kernels of one replay of a real recording, to be
damaged; `forget_names` takes from a capture what AMD's recorder says and NVIDIA's does not.
"""

from __future__ import annotations

import copy
import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Event: TypeAlias = dict[str, Any]
Document: TypeAlias = dict[str, Any]

_GPU: Final = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
_CALLS: Final = ("cuda_runtime", "cuda_driver", "runtime")
_FIRST_REPLAY: Final = 10**9


class Exact:
    """A number of a recording with all of its digits: a time in ns is more than a float holds."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __float__(self) -> float:
        return float(self.text)


def read_document(path: Path) -> Document:
    """Return a recording as JSON."""
    with gzip.open(path) as file:
        document: Document = msgspec.json.Decoder(float_hook=Exact).decode(file.read())
    return document


def write_document(document: Document, path: Path) -> Path:
    """Write a recording."""
    path.write_bytes(
        msgspec.json.encode(document, enc_hook=lambda number: msgspec.Raw(number.text.encode()))
    )
    return path


def graphify(document: Document) -> tuple[Document, int]:
    """Return a recording whose steps, but the first, are replays; and how many these are."""
    events = [each for each in document["traceEvents"] if each.get("ph") == "X"]
    steps = sorted(
        (float(each["ts"]), float(each["ts"]) + float(each["dur"]))
        for each in events
        if each.get("name", "").startswith("ProfilerStep#") and "gpu" not in each.get("cat", "")
    )
    work: dict[Any, list[Event]] = {}
    for each in events:
        if each.get("cat") in _GPU:
            work.setdefault(each["args"].get("correlation"), []).append(each)
    calls = [
        each
        for each in events
        if each.get("cat", "").lower() in _CALLS and each["args"].get("correlation") in work
    ]
    gone: set[int] = set()
    replays: list[Event] = []
    for number, (begin, end) in enumerate(steps[1:]):
        own = [each for each in calls if begin <= float(each["ts"]) < end]
        gone.update(id(each) for each in own)
        for each in own:
            for activity in work[each["args"]["correlation"]]:
                args = activity["args"]
                activity["args"] = {k: v for k, v in args.items() if k.lower() != "external id"} | {
                    "correlation": _FIRST_REPLAY + number
                }
        if own:
            first = min(own, key=lambda each: float(each["ts"]))
            place = {name: first[name] for name in ("cat", "pid", "tid", "ts")}
            args = {"correlation": _FIRST_REPLAY + number}
            replays.append(place | {"ph": "X", "name": "cudaGraphLaunch", "dur": 1, "args": args})
    left = [each for each in document["traceEvents"] if id(each) not in gone]
    return document | {"traceEvents": left + replays}, len(replays)


def activities(store: Path) -> pd.DataFrame:
    """Return kernels and copies of a store, in an order that links do not change."""
    parts = [pd.read_parquet(store / name) for name in ("kernels", "copies")]
    texts = parts[0].select_dtypes("category").columns
    both = pd.concat([part.astype(dict.fromkeys(texts, object)) for part in parts])
    columns = ["start_ns", "dur_ns", "device", "stream", "kernel", "grid"]
    return both.sort_values(columns, kind="stable", ignore_index=True)


def forget_names(capture: Document) -> Document:
    """Return a capture without the names of what is launched."""
    found = copy.deepcopy(capture)
    for each in found["traceEvents"]:
        if isinstance(each.get("args"), dict):
            each["args"].pop("kernel", None)
    return found


@dataclass
class Replay:
    """A recording with one replay.

    Attributes:
        document: all of it.
        kernels: those of the replay, in order of time; events of `document`.
    """

    document: Document
    kernels: list[Event]

    @classmethod
    def of(cls, document: Document) -> Replay:
        """Find the replay; the document is copied."""
        document = copy.deepcopy(document)
        events = document["traceEvents"]
        (call,) = (each for each in events if each.get("name") == "hipGraphLaunch")
        number = call["args"]["correlation"]
        kernels = [
            each
            for each in events
            if each.get("cat") in _GPU and each["args"].get("correlation") == number
        ]
        for place, each in enumerate(sorted(kernels, key=lambda each: float(each["ts"]))):
            each["args"]["truth"] = place
        return cls(document, sorted(kernels, key=lambda each: float(each["ts"])))

    def drop(self, place: int) -> None:
        """Lose a kernel."""
        self.document["traceEvents"].remove(self.kernels.pop(place))

    def insert(self, place: int, name: str) -> None:
        """Plant a kernel behind another one."""
        before = self.kernels[place]
        planted = copy.deepcopy(before) | {
            "name": name, "ts": float(before["ts"]) + 0.001, "dur": 0.001
        }  # fmt: skip
        planted["args"]["truth"] = -1
        self.kernels.insert(place + 1, planted)
        self.document["traceEvents"].append(planted)

    def swap(self, one: int, other: int) -> None:
        """Let two kernels run at each other's time."""
        a, b = self.kernels[one], self.kernels[other]
        a["ts"], b["ts"] = b["ts"], a["ts"]

    def rename(self, new_name: Callable[[str], str]) -> None:
        """Give kernels other names."""
        for each in self.kernels:
            each["name"] = new_name(each["name"])

    def rename_ranges(self, old: str, new: str) -> None:
        """Give ranges other names."""
        for each in self.document["traceEvents"]:
            if each.get("cat") == "user_annotation":
                each["name"] = each["name"].replace(old, new)

    def truth(self) -> list[int]:
        """Return of each kernel of the replay, in order of time, the node that it is; -1: none."""
        order = sorted(self.kernels, key=lambda each: float(each["ts"]))
        return [each["args"]["truth"] for each in order]


def captured_launches(capture: Document) -> list[Event]:
    """Return the launches between begin and end of the one capture, in order of time."""
    events = [each for each in capture["traceEvents"] if each.get("cat") == "cuda_runtime"]
    (begin,) = (float(e["ts"]) for e in events if e["name"] == "hipStreamBeginCapture")
    (end,) = (float(e["ts"]) for e in events if e["name"] == "hipStreamEndCapture")
    launches = [
        each
        for each in events
        if "Launch" in each["name"] and "Kernel" in each["name"] and begin < float(each["ts"]) < end
    ]
    return sorted(launches, key=lambda each: float(each["ts"]))


def ops_around(capture: Document, launches: list[Event]) -> list[str | None]:
    """Return the innermost op that holds the start of each launch, found one by one."""
    ops = [each for each in capture["traceEvents"] if each.get("cat") == "cpu_op"]
    start = np.array([float(each["ts"]) for each in ops])
    end = start + np.array([float(each["dur"]) for each in ops])
    found: list[str | None] = []
    for launch in launches:
        time = float(launch["ts"])
        around = np.flatnonzero((start <= time) & (time < end))
        same = [at for at in around.tolist() if ops[at]["tid"] == launch["tid"]]
        latest = max(same, key=lambda at: (start[at], -end[at]), default=None)
        found.append(None if latest is None else ops[latest]["name"])
    return found
