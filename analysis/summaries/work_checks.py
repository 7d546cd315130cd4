"""What keeps work from being counted, and what keeps it off the Tensor Cores, as findings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.costs.registry import FORMULA_FAILED
from pyprof2.analysis.hardware.missed_tensor_cores import advice_on, missed_time
from pyprof2.analysis.hardware.verdict import find_peaks
from pyprof2.analysis.summaries.checks import COLUMNS
from pyprof2.analysis.summaries.ledger import uncosted_ops

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    import pyarrow as pa

Finding = tuple[str, str, int, float | None, str, int | None]

_OPS_SHOWN: Final = 5
_PLACES_SHOWN: Final = 3
_LEAST_PCT: Final = 0.05
_OWN_FORMULA: Final = (
    "register a formula of your own, pyprof2.analysis.costs.cost_of, and parse the recording again"
)
_MEND: Final = "mend the formula, and parse the recording again"
_RECORD_SHAPES: Final = {
    "kineto": "profile(record_shapes=True)",
    "nsight": "call pyprof2.init() in the script",
}
_PARTLY_RECORDED: Final = "newer PyTorch records more of the inputs"
_NAME_IT: Final = "name a device like it, or a file that describes it, with --device"
_WORDS: Final = {"no_formula": "no formula", "no_shapes": "no shapes"}


def find_work(tables: Mapping[str, pa.Table], profilers: Sequence[str]) -> pd.DataFrame:
    """Return one row per finding on the work of kernels, columns as `checks.find_lacks`.

    First the ops without counts that own most of the time, those without a formula and those
    without shapes; then the time that could have been on Tensor Cores, by reason. Shares are of
    all GPU time.

    Args:
        tables: the canonical tables `kernels`, `copies` and `ops`.
        profilers: those that made the recordings.
    """
    import pandas as pd

    profiler = profilers[0] if profilers else "kineto"
    uncosted = uncosted_ops(tables["kernels"], tables["copies"], tables["ops"])
    advice = _RECORD_SHAPES[profiler]
    found = [finding for kind in _WORDS for finding in _uncosted(uncosted, kind, advice)]
    found += _missed(missed_time(tables["kernels"], tables["copies"]))
    frame = pd.DataFrame(found, columns=COLUMNS)
    return frame.astype({"count": "Int64", "share_pct": "float64", "rank": "Int64"})


def _uncosted(ops: pd.DataFrame, kind: str, record_shapes: str) -> Iterator[Finding]:
    ops = ops[ops["bin"] == kind]
    shown = ops[ops["share_pct"] >= _LEAST_PCT].head(_OPS_SHOWN)
    for row in shown.to_dict("records"):
        why = f" ({row['cost_note']})" if row["cost_note"] else ""
        advice = _PARTLY_RECORDED if row["cost_note"] else record_shapes
        if str(row["cost_note"]).startswith(FORMULA_FAILED):
            advice = _MEND
        elif kind == "no_formula":
            advice = "" if row["cost_note"] else _OWN_FORMULA
        text = f"{_WORDS[kind]}: {row['op']}{why}"
        yield "lack", text, row["count"], row["share_pct"], advice, None
    rest = ops.iloc[len(shown) :]
    if len(rest):
        text = f"{_WORDS[kind]}: all other ops"
        yield "lack", text, int(rest["count"].sum()), float(rest["share_pct"].sum()), "", None


def find_devices(devices: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return one row for each name of a device without known peaks, columns as `find_work`."""
    import pandas as pd

    counts = Counter(str(device["name"] or "") for device in devices if find_peaks(device) is None)
    found = [
        ("lack", f"no peaks known of {name or 'the device, which has no name'}: no roofs, no MFU",
         count, None, _NAME_IT, None)
        for name, count in sorted(counts.items())
    ]  # fmt: skip
    frame = pd.DataFrame(found, columns=COLUMNS)
    return frame.astype({"count": "Int64", "share_pct": "float64", "rank": "Int64"})


def _missed(rows: pd.DataFrame) -> Iterator[Finding]:
    sums = rows.groupby("reason")[["count", "time_ns", "share_pct"]].sum()
    for reason, row in sums.sort_values("time_ns", ascending=False).iterrows():
        places = rows[(rows["reason"] == reason) & (rows["share_pct"] >= _LEAST_PCT)]
        most = [f"{p.place} {p.share_pct:.1f} %" for p in places.head(_PLACES_SHOWN).itertuples()]
        where = f" (most in {', '.join(most)})" if most else ""
        text = f"Tensor Cores could have worked, but did not: {reason}{where}"
        count, share = int(row["count"]), float(row["share_pct"])
        yield "info", text, count, share, advice_on(str(reason)), None
