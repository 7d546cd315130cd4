"""The arithmetic of one op's roof: the peaks, the time each needs, and what follows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.hardware.roofline import FLAG_PCT
from pyprof2.analysis.summaries.rows import only_helps

if TYPE_CHECKING:
    from pyprof2.analysis.hardware.verdict import Judged


_NO_PEAKS: Final = "no peaks are known of the device: name it, or a file, with --device"
_NO_CPU_PEAKS: Final = (
    "the CPU was not measured: pyprof2.init() and pyprof2 capture do that; or give a file that "
    "describes it with --device"
)


def roof_of(judged: Judged) -> dict[str, Any] | None:
    """Return what the roof of an op is made of; None without kernels.

    Args:
        judged: all kernels of the op.
    """
    if not judged.table.num_rows:
        return None
    at = int(np.argmin(only_helps(judged.table)))  # the first kernel that works: it has the rates
    row = judged.table.slice(at, 1).to_pylist()[0]
    facts = _device_of(judged, at) | {
        "device_type": row["device_type"],
        "category": row["category"],
        "dtype": row["compute_dtype"],
        "time_ns": row["op_time_ns"],
        "flag": row["roofline_flag"],
        **_limits(judged, at),
        **{name: row[name] for name in ("tflops", "gbps", "intensity", "roofline_pct", "bound")},
    }
    return facts | {"cache_ns": _cache_ns(facts), "unknown_because": _why_unknown(facts)}


def _device_of(judged: Judged, at: int) -> dict[str, Any]:
    """Return which device did it, and which of its units."""
    recorded, device = judged.devices[judged.place[at]]
    best = {row["tensor_core"] for row in judged.table.select(["tensor_core"]).to_pylist()}
    return {
        "recorded_device": recorded.get("name"),
        "device": None if device is None else device.name,
        "device_source": None if device is None else device.source,
        "unit": "matrix" if "yes" in best else "unknown" if "unknown" in best else "vector",
    }


def _limits(judged: Judged, at: int) -> dict[str, Any]:
    """Return what the op did, what the device can do, and how long it needs at least."""
    limits = judged.roofs
    peak, bandwidth = float(limits.peak[at]), float(limits.bandwidth[at])
    saving = limits.savings[limits.saving[at]] if limits.saving[at] >= 0 else None
    flops, nbytes = (_sum(judged, name) for name in ("flops", "bytes"))
    return {
        "peak_flop_per_s": _known(peak if saving is None else peak / saving.factor),
        "saving": None if saving is None else saving._asdict(),
        "memory_bytes_per_s": _known(bandwidth),
        "cache_bytes": _known(float(limits.cache[at])),
        "cache_bytes_per_s": _known(float(limits.cache_bandwidth[at])),
        "flops": flops,
        "bytes": nbytes,
        "compute_ns": _needed(flops, peak),
        "memory_ns": _needed(nbytes, bandwidth),
    }


def _sum(judged: Judged, name: str) -> int | None:
    counts = judged.table[name].to_pylist()
    return None if None in counts else sum(counts)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _needed(count: int | None, per_s: float) -> float | None:
    """Return the ns that a count takes at least; None where it or the rate is not known."""
    if count == 0:
        return 0.0
    return None if count is None or math.isnan(per_s) else count / per_s * 1e9


def _in_cache(facts: dict[str, Any]) -> bool:
    """Whether the bytes came faster than the memory gives them, and fit in the cache."""
    needed, cache = facts["memory_ns"], facts["cache_bytes"]
    if needed is None or cache is None or not facts["time_ns"]:
        return False
    return bool(needed > FLAG_PCT / 100 * facts["time_ns"] and facts["bytes"] <= cache)


def _cache_ns(facts: dict[str, Any]) -> float | None:
    if not _in_cache(facts) or facts["cache_bytes_per_s"] is None:
        return None
    return float(facts["bytes"] / facts["cache_bytes_per_s"] * 1e9)


def _why_unknown(facts: dict[str, Any]) -> str | None:
    """Say why there is no percentage; None where there is one."""
    if facts["roofline_pct"] is not None:
        return None
    either = ", nor whether matrix units did it" if facts["unit"] == "unknown" else ""
    dtype = facts["dtype"] or "an unknown dtype"
    reasons = (
        (
            facts["category"] == "comm",
            "the links between devices bound a collective, and what they can do is not recorded",
        ),
        (facts["device"] is None, _NO_CPU_PEAKS if facts["device_type"] == "cpu" else _NO_PEAKS),
        (None in (facts["flops"], facts["bytes"]), "the op's FLOPs or bytes are not known"),
        (
            not facts["flops"] and not facts["bytes"],
            "the op moves nothing and computes nothing",
        ),
        (facts["compute_ns"] is None, f"the peak for {dtype} is not known{either}"),
        (facts["memory_bytes_per_s"] is None, "cards of this name differ in their memory"),
        (
            _in_cache(facts),
            "its bytes came out of the cache, whose bandwidth the vendor does not state",
        ),
    )
    refuted = "the counts are an estimate that the clock refutes; their lower bound is possible"
    return next((reason for holds, reason in reasons if holds), refuted)
