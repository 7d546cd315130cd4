"""An independent reader of memory: event by event, with plain lists and dictionaries.

It shares nothing with the package: it reads the JSON or the pickle itself.
"""

from __future__ import annotations

import gzip
import json
import pickle
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Device(NamedTuple):
    """What is known of a device: base and peak over it, and the sizes that live at the peak."""

    base: int | None
    over: int
    live: list[int]


def read_kineto(path: Path) -> dict[tuple[int, int], Device]:
    """Return what a Kineto trace says, by its numbers of device type and device."""
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        events = json.load(file, strict=False)["traceEvents"]
    by_device: dict[tuple[int, int], list[tuple[float, int, Any]]] = {}
    for at, event in enumerate(events):
        if event.get("name") == "[memory]":
            args = event["args"]
            key = (args["Device Type"], args["Device Id"])
            by_device.setdefault(key, []).append((event["ts"], at, args))
    return {key: _follow(sorted(rows, key=lambda r: r[:2])) for key, rows in by_device.items()}


def _follow(rows: list[tuple[float, int, Any]]) -> Device:
    first = rows[0][2]
    base = first.get("Total Allocated")
    base = None if base is None else base - first["Bytes"]
    total = best = 0
    live: dict[Any, int] = {}
    at_best: list[int] = []
    for _, _, args in rows:
        total += args["Bytes"]
        if "Addr" in args:
            if args["Bytes"] > 0:
                live[args["Addr"]] = args["Bytes"]
            else:
                live.pop(args["Addr"], None)
        if total > best:
            best, at_best = total, sorted(live.values())
    return Device(base, best, at_best)


def snapshot_lines(path: Path, device: int) -> tuple[int, int, Counter[str], int]:
    """Return base, peak over it, and bytes by `file:line` of what lives at the peak; and a count.

    The innermost frame outside of packages and of what no file holds.
    """
    whole: dict[str, Any] = pickle.loads(path.read_bytes())  # noqa: S301 - a file of our own tests
    total = best = 0
    live: dict[int, tuple[int, str]] = {}
    at_best: dict[int, tuple[int, str]] = {}
    for event in whole["device_traces"][device]:
        if event["action"] == "alloc":
            total += event["size"]
            live[event["addr"]] = (event["size"], _line(event["frames"]))
        elif event["action"] == "free_requested":
            total -= event["size"]
            live.pop(event["addr"], None)
        if total > best:
            best, at_best = total, dict(live)
    end = sum(s["allocated_size"] for s in whole["segments"] if s["device"] == device)
    lines: Counter[str] = Counter()
    for size, line in at_best.values():
        lines[line] += size
    return end - total, best, lines, len(at_best)


def _line(frames: list[dict[str, Any]]) -> str:
    for frame in frames:
        name = frame["filename"].replace("\\", "/")
        if "site-packages" not in name and not name.startswith("<") and "/Lib/" not in name:
            return f"{name.rpartition('/')[2]}:{frame['line']}"
    return ""
