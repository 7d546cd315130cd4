"""A snapshot of the allocator as curves: the same that a store's table `memory` gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.memory.categories import PHASES
from pyprof2.analysis.memory.curves import LINELESS, START, HeldBlocks, MemoryCurve
from pyprof2.columns import int_array, lookup, text_array
from pyprof2.frames import is_own_path
from pyprof2.recording import Stack, code_column, int_column
from pyprof2.tables import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.recording import Snapshot

NO_FRAMES: Final = "(no frames: autograd thread)"
_SEGMENT_SIGNS: Final = {
    "segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1
}  # fmt: skip
_MEANT: Final = frozenset(
    {
        "alloc", "free_requested", "free_completed", *_SEGMENT_SIGNS, "snapshot", "oom",
        "user_defined", "workspace_snapshot",
    }
)  # fmt: skip
_PENDING: Final = frozenset({"active_pending_free", "active_awaiting_free"})
_LIVES: Final = "active_allocated"
_FORWARD, _BACKWARD, _OPTIMIZER, _OTHER, _ZERO_GRAD = range(len(PHASES))
_SIGNS: Final = (
    ("step", "torch/optim/", _OPTIMIZER),
    ("zero_grad", "torch/", _ZERO_GRAD),
    ("backward", "torch/_tensor.py", _BACKWARD),
    ("backward", "torch/autograd/", _BACKWARD),
    ("_apply", "torch/nn/modules/", _OTHER),
    ("__init__", "torch/nn/", _OTHER),
    ("reset_parameters", "torch/nn/", _OTHER),
)
"""Functions, where they are, and the phase that is inside of them."""


class _StackFacts(NamedTuple):
    """Facts from a stack: the user's line, the phase, the layer."""

    line: str | None
    phase: int
    layer: str | None


class _Device(NamedTuple):
    """A device of a snapshot, with the rows of its events and what each stack says."""

    snapshot: Snapshot
    number: int
    rank: int
    rows: Int
    stacks: Sequence[_StackFacts]


def curves_of_snapshot(snapshot: Snapshot, rank: int = 0) -> Iterator[MemoryCurve]:
    """Yield a curve for each device that has memory or events in a snapshot.

    A release is what frees a block for others (`free_requested`); where none was recorded, the
    end of its use (`free_completed`) is.
    """
    snapshot = _with_python_frames(snapshot)
    stacks = [_stack_facts(stack) for stack in snapshot.stacks]
    device = int_column(snapshot.events, "device", -1)
    columns = (snapshot.events["device"], snapshot.segments["device"])
    for number in sorted({n for column in columns for n in pc.unique(column).to_pylist()}):
        at = _Device(snapshot, number, rank, np.flatnonzero(device == number), stacks)
        yield _curve(at)


def _with_python_frames(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot whose stacks have Python frames alone; one without any is no stack.

    By default PyTorch records frames of C++ and of the interpreter too. They are in front of the
    user's line, and the thread of autograd has them as well: what is in which phase would differ.
    """
    stacks = [
        Stack(tuple(each for each in stack.frames if each[0].endswith(".py") or each[0][:1] == "<"))
        for stack in snapshot.stacks
    ]
    is_kept = np.array([bool(stack.frames) for stack in stacks], bool)

    def without(table: pa.Table) -> pa.Table:
        place = table.column_names.index("stack")
        stack = int_column(table, "stack", -1)
        kept = np.where(lookup(is_kept, stack, False), stack, -1)  # noqa: FBT003
        return table.set_column(place, "stack", int_array(kept, -1))

    return replace(
        snapshot,
        stacks=stacks,
        events=without(snapshot.events),
        blocks=without(snapshot.blocks),
    )


def _stack_facts(stack: Stack) -> _StackFacts:
    """Return what the frames say, which are innermost first."""
    frames = [(path.replace("\\", "/"), line, name) for path, line, name in stack.frames]
    own = (
        f"{path}:{line}"
        for (path, line, _), (slashed, _, _) in zip(stack.frames, frames, strict=True)
        if is_own_path(slashed)
    )
    phases = (
        phase for path, _, name in frames for word, folder, phase in _SIGNS
        if name == word and folder in path
    )  # fmt: skip
    classes = [name.removesuffix(".forward") for _, _, name in frames if name.endswith(".forward")]
    # A line of the user's that calls torch is forward, as an op is in a trace.
    phase = next(phases, _FORWARD)
    return _StackFacts(next(own, None), phase, ".".join(reversed(classes)) or None)


def _curve(at: _Device) -> MemoryCurve:
    """Return the curve of a device; see `MemoryCurve`."""
    actions = _Actions.of(at)
    events = _events(at, actions)
    change = int_column(events, "bytes", 0)
    segments = at.snapshot.segments.filter(pa.array(_of_device(at)))
    allocated = int(int_column(segments, "allocated_bytes", 0).sum())
    base: int | None = allocated - int(change.sum())
    notes = list(_notes(at, actions))
    if base is not None and base < 0:
        base = None
        notes.append("releases are missing: what is before the recording is not known")
    has_frames = (int_column(at.snapshot.events, "stack", -1) >= 0).any()
    bare = NO_FRAMES if has_frames else LINELESS[1]
    curve = MemoryCurve(
        at.rank, "cuda", at.number, events, base, (bare, bare), notes=notes,
        failures=_failures(at, actions),
    )  # fmt: skip
    if curve.blocks.reused:
        curve = curve.but(base=None)
        curve.notes.append("releases are missing: what is before the recording is not known")
    held, rounding = _held(at, curve)
    facts = _state(at, segments, allocated) | _reserved(actions, curve, segments)
    facts |= {
        "peak_active_bytes": _peak_active(actions, segments),
        "non_torch_bytes": at.snapshot.non_torch.get(at.number),
    }
    return curve.but(held=held, rounding=rounding, facts=facts)


class _Actions(NamedTuple):
    """The actions of the events of a device.

    Attributes:
        names: the text of each code.
        code: of each event, -1 for none.
        size: of each event, bytes.
        ends: the action that releases a block.
    """

    names: list[str]
    code: Int
    size: Int
    ends: str

    @classmethod
    def of(cls, at: _Device) -> _Actions:
        """Read them."""
        code, names = code_column(at.snapshot.events, "action")
        code = np.asarray(code, np.int64)[at.rows]
        size = int_column(at.snapshot.events, "bytes", 0)[at.rows]
        asked = "free_requested" in names and bool((code == names.index("free_requested")).any())
        return cls(names, code, size, "free_requested" if asked else "free_completed")

    def where(self, name: str) -> Bool:
        """Return which events are of an action."""
        place = self.names.index(name) if name in self.names else -2
        return np.asarray(self.code == place)


def _events(at: _Device, actions: _Actions) -> pa.Table:
    """Return allocations and releases as rows of the table `memory`."""
    kept = actions.where("alloc") | actions.where(actions.ends)
    rows = at.snapshot.events.take(pa.array(at.rows[kept]))
    sign = np.where(actions.where("alloc")[kept], 1, -1)
    stack = int_column(rows, "stack", -1)
    phase = _phases(at, stack, sign > 0)
    notes, words = code_column(rows, "note")
    columns = {
        "rank": pa.array(np.full(len(stack), at.rank)),
        "time_ns": rows["time_ns"].fill_null(0),
        "device_type": text_array((np.zeros(len(stack), np.int64), ["cuda"])),
        "device": pa.array(np.full(len(stack), at.number)),
        "address": rows["address"].cast(pa.uint64()),
        "bytes": pa.array(sign * actions.size[kept]),
        "op": text_array((notes, words)),
        "layer": text_array(_text_of(at, "layer", stack)),
        "source": text_array(_text_of(at, "line", stack)),
        "stack_id": int_array(stack, -1),
        "phase": text_array((phase, PHASES)),
        "span": pa.array(np.zeros(len(stack), np.int64)),
    }
    table = MEMORY.conform(pa.table(columns))
    # Before torch 2.1 events have no time.
    place = table.column_names.index("time_ns")
    return table.set_column(place, "time_ns", rows["time_ns"])


def _text_of(at: _Device, name: str, stack: Int) -> tuple[Int, list[str | None]]:
    """Return what the stacks say as a column of text."""
    words = [getattr(each, name) for each in at.stacks]
    known = np.array([code if word else -1 for code, word in enumerate(words)], np.int64)
    return lookup(known, stack, -1), words


def _phases(at: _Device, stack: Int, is_alloc: Bool) -> Int:
    """Return the phase of each event; without frames it is backward between forward and optimizer.

    The thread of autograd has no Python frames. Where nothing has frames nothing is known.
    """
    phase = lookup(np.array([each.phase for each in at.stacks], np.int64), stack, -1)
    if not (is_alloc & (stack < 0)).any() or not (phase >= 0).any():
        return phase
    known = np.maximum.accumulate(np.where(phase >= 0, np.arange(len(phase)), -1))
    last = lookup(phase, known, -1)
    return np.where((stack < 0) & np.isin(last, (_FORWARD, _BACKWARD)), _BACKWARD, phase)


def _of_device(at: _Device) -> Bool:
    return np.asarray(int_column(at.snapshot.segments, "device", -1) == at.number)


def _notes(at: _Device, actions: _Actions) -> Iterator[str]:
    """Say what is odd in the events of a device."""
    if actions.ends == "free_completed" and actions.where("free_completed").any():
        yield "releases are not recorded (free_requested): the ends of use stand for them"
    known = [name for name in actions.names if name not in _MEANT]
    for name in known:
        if count := int(actions.where(name).sum()):
            yield f"{count} events of an unknown action were not read: {name}"
    for what, count in at.snapshot.unread.items():
        yield f"not read: {what} ({count})"


def _failures(at: _Device, actions: _Actions) -> list[dict[str, Any]]:
    """Return the moments at which memory ran out."""
    kept = actions.where("alloc") | actions.where(actions.ends)
    moment = np.cumsum(kept) - 1
    free = int_column(at.snapshot.events, "device_free_bytes", -1)[at.rows]
    return [
        {
            "moment": int(moment[row]),
            "requested_bytes": int(actions.size[row]),
            "device_free_bytes": int(free[row]) if free[row] >= 0 else None,
        }
        for row in np.flatnonzero(actions.where("oom")).tolist()
    ]


def _blocks(at: _Device) -> tuple[pa.Table, Int]:
    """Return the blocks of the device, and the address of each; torch 2.0 has only sizes."""
    segment = int_column(at.snapshot.blocks, "segment", 0)
    mine = lookup(_of_device(at).astype(np.int64), segment, 0) > 0
    size = int_column(at.snapshot.blocks, "bytes", 0)
    address = int_column(at.snapshot.blocks, "address", -1)
    starts = np.cumsum(size) - size
    first = np.searchsorted(segment, segment)
    base = lookup(int_column(at.snapshot.segments, "address", -1), segment, -1)
    summed = np.where(base >= 0, base + starts - lookup(starts, first, 0), -1)
    address = np.where(address >= 0, address, summed)
    return at.snapshot.blocks.filter(pa.array(mine)), address[mine]


def _held(at: _Device, curve: MemoryCurve) -> tuple[list[HeldBlocks], int | None]:
    """Return what was there before the first event and still is, and the bytes of rounding."""
    blocks, address = _blocks(at)
    code, states = code_column(blocks, "state")
    lives = np.array([state == _LIVES for state in states] or [False])[code]
    size, asked = (int_column(blocks, name, -1) for name in ("bytes", "requested_bytes"))
    if curve.base is None or not lives.any() or (asked[lives] < 0).any():
        return [], None
    rounding = int((size - asked)[lives].sum())
    own = curve.blocks.alloc[curve.blocks.free < 0]
    before = lives & ~np.isin(address, curve.addresses[own])
    if (address[lives] < 0).any():
        return [], rounding
    sums: Counter[tuple[str | None, str, str]] = Counter()
    stack = int_column(blocks, "stack", -1)[before]
    # A block that stays from before the recording is for what its stack says was done there.
    kinds = {_OPTIMIZER: "optimizer_state", _OTHER: "parameter_or_buffer"}
    has_phases = bool(code_column(curve.events, "phase")[1])
    for place, size_of in zip(stack.tolist(), asked[before].tolist(), strict=True):
        facts = at.stacks[place] if place >= 0 else _StackFacts(None, _OTHER, None)
        is_known = has_phases and facts.phase in kinds
        words = (kinds[facts.phase], "inferred") if is_known else ("unknown", "none")
        sums[facts.line, *words] += size_of
    held = [HeldBlocks(*words, total) for words, total in sums.items() if total]
    return held, rounding


def _state(at: _Device, segments: pa.Table, allocated: int) -> dict[str, int | None]:
    """Return what is reserved at the end, in parts that add up to it."""
    blocks, _ = _blocks(at)
    code, states = code_column(blocks, "state")
    pending = np.array([state in _PENDING for state in states] or [False])[code]
    used = np.zeros(at.snapshot.segments.num_rows, bool)
    segment, size = (int_column(blocks, name, 0) for name in ("segment", "bytes"))
    is_used = pending | np.array([state == _LIVES for state in states] or [False])[code]
    used[segment[is_used]] = True
    total = int_column(segments, "total_bytes", 0)
    reserved, waiting = int(total.sum()), int(size[pending].sum())
    rows = np.flatnonzero(_of_device(at))
    is_private = int_column(segments, "private", 0) > 0
    free = int(total[~used[rows] & ~is_private].sum())
    held = np.bincount(segment[is_used], size[is_used], minlength=len(used))[rows]
    private = int(total[is_private].sum() - held[is_private].sum())
    return {
        "reserved_bytes": reserved,
        "allocated_bytes": allocated,
        "pending_bytes": waiting,
        "free_segments_bytes": free,
        "private_bytes": private,
        "fragmentation_bytes": reserved - allocated - waiting - free - private,
    }


def _reserved(actions: _Actions, curve: MemoryCurve, segments: pa.Table) -> dict[str, int | None]:
    """Return what was reserved at the peak, and at most; known only with events of segments."""
    sign = np.zeros(len(actions.code), np.int64)
    for name, value in _SEGMENT_SIGNS.items():
        sign[actions.where(name)] = value
    if not sign.any():
        return {"reserved_at_peak_bytes": None, "peak_reserved_bytes": None}
    change = np.cumsum(sign * actions.size)
    start = int(int_column(segments, "total_bytes", 0).sum()) - int(change[-1])
    kept = np.flatnonzero(actions.where("alloc") | actions.where(actions.ends))
    at_peak = start if curve.peak == START else start + int(change[kept[curve.peak]])
    return {
        "reserved_at_peak_bytes": at_peak,
        "peak_reserved_bytes": start + max(0, int(change.max())),
    }


def _peak_active(actions: _Actions, segments: pa.Table) -> int | None:
    """Return the most bytes that are allocated or still in use by another stream."""
    active = int_column(segments, "active_bytes", -1)
    done = actions.where("free_completed")
    if (active < 0).any() or not done.any():
        return None
    change = np.cumsum((actions.where("alloc").astype(np.int64) - done) * actions.size)
    return int(active.sum()) - int(change[-1]) + max(0, int(change.max()))
