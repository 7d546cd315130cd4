"""Rules on memory: what grows, what the allocator wastes, and what backward could compute again.

They name bytes, and no time at stake: what they free is worth what the program does with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.memory.curves import LINELESS, NO_NUMBER, MemoryCurve
from pyprof2.analysis.memory.timeline import growth, step_ends
from pyprof2.analysis.summaries.advice.facts import int_values
from pyprof2.analysis.summaries.advice.findings import RuleFinding, unknown
from pyprof2.columns import short, values_of
from pyprof2.recording import int_column
from pyprof2.units import counted, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.summaries.advice.facts import RankFacts

NEAR_PCT: Final = 80
"""Share of a device's memory below which a checkpoint is not worth its time."""
HOLES_PCT: Final = 10
GROWTH_BYTES: Final = 1 << 20
STEPS: Final = 4
"""The first and the last step are left out, and two must be left."""
_NOT_RECORDED: Final = "allocations on the device are not recorded"


def memory_growth(facts: RankFacts) -> RuleFinding | None:
    """A line allocates in every step what nobody releases: memory will run out.

    Often it is a list of losses with their graphs, or a cache without a bound.
    """
    if _keeps_nothing(facts):
        return None
    curves = list(_of_gpus(facts))
    if not curves:
        return _unrecorded(facts, _NOT_RECORDED)
    if all(len(step_ends(curve)) < STEPS for _, curve in curves):
        return unknown("growth shows in four steps or more", "more steps")
    for number, curve in curves:
        rows = growth(curve, facts.memory.entries[number])
        rows = rows[rows["bytes_per_step"] >= GROWTH_BYTES]
        if len(rows):
            first = rows.iloc[0]
            size = format_bytes(int(first["bytes_per_step"]))
            text = (
                f"device {curve.device} holds {size} more after each of "
                f"{counted(first['steps'], 'step')}, allocated in {first['op']}"
            )
            line = str(first["line"])
            return RuleFinding(text, source=None if line.startswith("(") else line)
    return None


def _keeps_nothing(facts: RankFacts) -> bool:
    """Whether no line can leave enough in every step, because the last but one keeps less."""
    known = facts.rows("memory", "device_type", "device", "step")
    kind, found = known["device_type"].cat.codes.to_numpy(), False
    number, every = (short(int_values(known[name])) for name in ("device", "step"))
    kinds = values_of(kind[~facts.are("memory", "device_type", ("cpu",))]).tolist()
    for each, device in ((k, n) for k in kinds for n in values_of(number[kind == k]).tolist()):
        own = (kind == each) & (number == device)
        step = np.maximum.accumulate(every[own])
        steps = values_of(step[step >= 0])
        if len(steps) < STEPS:
            return False
        events = facts.tables.read("memory", ("address", "bytes", "pid", "tid"), own)
        curve = MemoryCurve(facts.rank, "", None, events, None, LINELESS)
        kept = curve.blocks.alloc[curve.blocks.free < 0]
        if curve.change[kept[step[kept] == steps[-2]]].sum() >= GROWTH_BYTES:
            return False
        found = found or bool(curve.change.any())
    return found


def fragmentation(facts: RankFacts) -> RuleFinding | None:
    """The allocator holds much more than was ever allocated: holes that no block fits into."""
    known = False
    for _, curve in () if facts.lacks_totals else _of_gpus(facts):
        reserved, allocated = (
            int_column(curve.events, f"{name}_bytes", NO_NUMBER).max(initial=NO_NUMBER)
            for name in ("reserved", "allocated")
        )
        if NO_NUMBER in (reserved, allocated):
            continue
        known = True
        holes = int(reserved - allocated)
        if 100 * holes >= HOLES_PCT * reserved:
            return RuleFinding(
                f"device {curve.device}: {reserved / 1e9:.2f} GB were reserved, and at most "
                f"{allocated / 1e9:.2f} GB allocated: {holes / 1e9:.2f} GB more"
            )
    return None if known else _unrecorded(facts, "what the allocator reserves is not recorded")


def kept_for_backward(facts: RankFacts) -> RuleFinding | None:
    """Memory is nearly full, much of it with what forward keeps for backward.

    A checkpointed layer keeps what goes into it, and computes the rest again in backward.
    """
    sizes = {row.get("device"): row.get("memory_bytes") for row, _ in facts.devices}
    every = () if facts.lacks_totals else _of_gpus(facts)
    curves = [(n, c) for n, c in every if sizes.get(c.device) and c.base is not None]
    if not curves:
        return _unrecorded(facts, "how full the memory of the device is, is not recorded")
    for number, curve in curves:
        peak = int(curve.base or 0) + curve.over_base(curve.peak)
        found = facts.memory.retained(number)
        if 100 * peak < NEAR_PCT * int(sizes[curve.device] or 0) or found is None:
            continue
        layers = found[1]
        if len(layers):
            first = layers.iloc[0]
            text = (
                f"{100 * peak / int(sizes[curve.device] or 1):.0f} % of the memory of device "
                f"{curve.device} was allocated; checkpoints of {first['layer']} are predicted to "
                f"free {first['frees_bytes'] / 1e9:.2f} GB at the start of backward"
            )
            return RuleFinding(text, source=first["line"])
    return None


def _unrecorded(facts: RankFacts, text: str) -> RuleFinding:
    return unknown(text, f"allocations of ops: {facts.advice.allocations}")


def _of_gpus(facts: RankFacts) -> Iterator[tuple[int, MemoryCurve]]:
    """Yield the curves of GPUs that have events, with their places."""
    for number, curve in enumerate(facts.memory.curves):
        if curve.device_type != "cpu" and bool(np.any(curve.change != 0)):
            yield number, curve
