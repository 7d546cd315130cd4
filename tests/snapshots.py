"""Snapshots of an allocator as each version of torch writes them, with what a test states."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]

TRAIN: Final = "/home/me/train.py"
MODEL: Final = "/home/me/model.py"
TORCH: Final = "/venv/lib/python3.11/site-packages/torch"


def frame(path: str, line: int, name: str) -> Json:
    """Return a frame."""
    return {"filename": path, "line": line, "name": name}


def forward(line: int = 10) -> list[Json]:
    """Return the frames of a line of the model's forward, innermost first."""
    return [
        frame(f"{TORCH}/nn/functional.py", 5, "linear"),
        frame(MODEL, line, "forward"),
        frame(f"{TORCH}/nn/modules/module.py", 1787, "_call_impl"),
        frame(TRAIN, 3, "<module>"),
    ]


def optimizer() -> list[Json]:
    """Return the frames of an optimizer's step."""
    return [frame(f"{TORCH}/optim/adam.py", 9, "step"), frame(TRAIN, 5, "<module>")]


def zero_grad() -> list[Json]:
    """Return the frames of clearing gradients."""
    return [frame(f"{TORCH}/optim/optimizer.py", 9, "zero_grad"), frame(TRAIN, 6, "<module>")]


def event(action: str, addr: int | None, size: int, frames: list[Json] | None = None) -> Json:
    """Return an event as torch 2.1 and later write it, but for its time."""
    fields: Json = {"action": action, "size": size, "stream": 0, "frames": frames or []}
    return fields if addr is None else fields | {"addr": addr}


def alloc(addr: int, size: int, frames: list[Json] | None = None) -> Json:
    """Return an allocation."""
    return event("alloc", addr, size, frames)


def free(addr: int, size: int, frames: list[Json] | None = None) -> list[Json]:
    """Return a release, and the end of its use."""
    return [
        event("free_requested", addr, size, frames),
        event("free_completed", addr, size, frames),
    ]


def block(size: int, state: str = "active_allocated", **fields: Any) -> Json:
    """Return a block; `fields` are `requested_size`, `address`, `frames`, `history`."""
    return {"size": size, "state": state} | fields


def segment(*blocks: Json, device: int = 0, address: int = 1 << 20, **fields: Any) -> Json:
    """Return a segment of these blocks, with the sums that torch writes."""
    lives = [b["size"] for b in blocks if b["state"] == "active_allocated"]
    active = [b["size"] for b in blocks if b["state"].startswith("active")]
    return {
        "device": device,
        "address": address,
        "total_size": sum(b["size"] for b in blocks),
        "allocated_size": sum(lives),
        "active_size": sum(active),
        "stream": 0,
        "segment_type": "small",
        "blocks": list(blocks),
    } | fields


def flat(*events: Json | list[Json]) -> list[Json]:
    """Return the events in order, with times of a microsecond each."""
    found = [e for item in events for e in (item if isinstance(item, list) else [item])]
    return [e | {"time_us": 1_700_000_000_000_000 + at} for at, e in enumerate(found)]


def snapshot(segments: list[Json], *traces: list[Json], **fields: Any) -> Json:
    """Return a snapshot as torch 2.4 and later write it."""
    whole = {"segments": segments, "device_traces": list(traces)}
    return whole | {"allocator_settings": {}, "external_annotations": []} | fields


def dump(folder: Path, content: Any, name: str = "snapshot.pickle", protocol: int = 4) -> Path:
    """Write it as a pickle, and return where it is."""
    path = folder / name
    path.write_bytes(pickle.dumps(content, protocol))
    return path
