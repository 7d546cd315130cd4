"""What a recording holds that might be made again, or held by other processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyprof2.analysis.memory.tags import tagged_bytes

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.analysis.memory.profile import MemoryProfile

_STATE = "optimizer_state"


@dataclass(frozen=True)
class Savable:
    """What the device with most memory holds when a backward begins.

    Attributes:
        checkpoints: the layers that are worth a checkpoint: `retained.CHECKPOINT_COLUMNS`.
        optimizer: bytes of the optimizer's state; None: not known.
    """

    checkpoints: pd.DataFrame
    optimizer: int | None


def savable_of(profile: MemoryProfile) -> Savable | None:
    """Return what a recording holds; None: it has no backward, or no memory."""
    if not profile.curves:
        return None
    number = max(range(len(profile.curves)), key=lambda at: _most(profile, at))
    found, moment = profile.retained(number), profile.moment(number, "backward")
    if found is None or moment is None:
        return None
    tagged = profile.tagged[number]
    told = {} if tagged is None else tagged_bytes(profile.curves[number], tagged, moment)
    return Savable(found[1], told.get(_STATE) or _inferred(profile.entries[number], moment))


def _most(profile: MemoryProfile, at: int) -> tuple[bool, int]:
    """Return what to choose a device by: a GPU, where there is one, and how much is on it."""
    curve = profile.curves[at]
    return curve.device_type != "cpu", (curve.base or 0) + curve.over_base(curve.peak)


def _inferred(entries: pd.DataFrame, moment: int) -> int | None:
    """Return the bytes that look like state; None: none, so it is from before the recording."""
    lives = (entries["begin"] <= moment) & (entries["end"] > moment)
    own = entries[lives & (entries["category"].astype(str) == _STATE).to_numpy()]
    return int(own["bytes"].sum()) or None
