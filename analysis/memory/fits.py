"""Whether the recorded program fits a device, and which settings of the allocator would help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MARGIN: Final = 0.02
"""The share that should stay free: a device that is full to the last byte allocates slowly."""
_MUCH: Final = 0.05
"""The share of what is reserved from which on fragmentation is worth a setting."""


def fits(totals: Mapping[str, Any], capacity: int) -> dict[str, Any]:
    """Return whether what a device held fits into `capacity` bytes.

    Args:
        totals: a row of `profile.DEVICE_COLUMNS`; what others use there is taken to be used on
            the other device too.
        capacity: bytes of the other device.

    Returns:
        `capacity_bytes`; `needs_bytes`, the least that is needed; `takes_bytes`, what the
        allocator took here; `non_torch_bytes`, what others use; `verdict`: `fits`, `may fit`
        (what is allocated does, what the allocator keeps does not), `does not fit` or
        `not known`.
    """
    peak, over = totals["peak_allocated_bytes"], int(totals["peak_over_base_bytes"])
    known = not pd.isna(peak)
    needs = int(peak) if known else over
    reserved = [totals[name] for name in ("peak_reserved_bytes", "reserved_bytes")]
    takes = max([needs, *(int(value) for value in reserved if not pd.isna(value))])
    others = totals["non_torch_bytes"]
    usable = capacity - (0 if pd.isna(others) else int(others))
    if needs > usable:
        verdict = "does not fit"
    elif not known:
        verdict = "not known"
    else:
        verdict = "fits" if takes <= usable - capacity * _MARGIN else "may fit"
    return {
        "capacity_bytes": capacity,
        "needs_bytes": needs,
        "takes_bytes": takes if known else None,
        "non_torch_bytes": None if pd.isna(others) else int(others),
        "verdict": verdict,
    }


def allocator_advice(
    totals: Mapping[str, Any], settings: Mapping[str, Any], *, ran_out: bool
) -> Iterator[dict[str, Any]]:
    """Yield settings that would help: `setting`, `bytes` at stake, and `why`.

    Args:
        totals: a row of `profile.DEVICE_COLUMNS`.
        settings: those that are recorded; a setting is proposed only where it is not set.
        ran_out: whether memory ran out.
    """
    reserved = totals["reserved_bytes"]
    if pd.isna(reserved) or not reserved:
        return
    fragments, free = (
        0 if pd.isna(totals[name]) else int(totals[name])
        for name in ("fragmentation_bytes", "free_segments_bytes")
    )
    if fragments > _MUCH * reserved and not settings.get("expandable_segments"):
        yield {
            "setting": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "bytes": fragments,
            "why": "free inside segments that are used: segments that grow leave fewer holes",
        }
    if ran_out and free > _MUCH * reserved and not settings.get("garbage_collection_threshold"):
        yield {
            "setting": "PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8",
            "bytes": free,
            "why": "whole segments are free and kept: give them back before memory runs out",
        }
    rounding = totals["rounding_bytes"]
    divisions = settings.get("roundup_power2_divisions") or []
    if not pd.isna(rounding) and rounding > _MUCH * reserved and any(divisions):
        yield {
            "setting": "PYTORCH_CUDA_ALLOC_CONF without roundup_power2_divisions",
            "bytes": int(rounding),
            "why": "blocks are larger than what is asked for",
        }
