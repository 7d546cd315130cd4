"""The roofline on the page: the peaks of devices, and a dot for each signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.axes import NONE
from pyprof2.analysis.hardware.verdict import find_peaks, named_device
from pyprof2.analysis.summaries.profile import frame as frame_of
from pyprof2.api import run_findings, run_profile
from pyprof2.columns import combinations, first_rows, with_text
from pyprof2.reports.explanation import explanation_lines
from pyprof2.reports.page.values import cut, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.api.run import Run

MOST_DOTS: Final = 5000
MOST_EXPLAINED: Final = 1000
MOST_EXPLAINED_TEXT: Final = 2_000_000
"""Characters of all explanations; they repeat each other, and compress to a tenth."""
_WIDTH: Final = 100
_LONGEST: Final = 20_000


def roofline_of(run: Run) -> dict[str, Any]:
    """Return peaks of the devices, and sums of the signatures with the most time."""
    return {"devices": list(_devices(run)), "signatures": _signatures(run)}


def _devices(run: Run) -> Iterator[dict[str, Any]]:
    forced = None if run.tables.device is None else named_device(run.tables.device)
    for row in run.table("devices").to_pylist():
        device = forced or find_peaks(row)
        yield {
            "rank": row["rank"],
            "device": row["device"],
            "name": row["name"],
            "peaks_of": None if device is None else device.name,
            "source": None if device is None else device.source,
            "bandwidth": None if device is None else device.memory_bytes_per_s,
            "peaks": [] if device is None else list(_peaks(device)),
        }


def _peaks(device: Device) -> Iterator[dict[str, Any]]:
    kinds = ((device.matrix_flop_per_s, True), (device.vector_flop_per_s, False))
    for peaks, matrix in kinds:
        for dtype, rate in peaks.items():
            yield {"dtype": dtype, "flops_per_s": rate, "matrix": matrix}


def _signatures(run: Run) -> dict[str, Any]:
    """Return the sums of the signatures, the first with `explain` of their longest kernel."""
    rows = run_profile.rows_of(run.tables, {"rank", "signature", "kernel_id", "dur_ns", "bound"})
    keys = ("rank", "signature")
    sums = frame_of(run_profile.sums_of(run.tables, keys).summarize(keys))
    sums = sums[sums["signature"] != NONE].head(MOST_DOTS).reset_index(drop=True)
    names = [
        "rank", "signature", "count", "time_ns", "flops", "bytes", "tflops", "gbps", "intensity",
        "roofline_pct",
    ]  # fmt: skip
    frame = sums[names].assign(flag=sums["roofline_flag"].astype(object))
    longest = _longest(rows).reindex(pd.MultiIndex.from_frame(frame[["rank", "signature"]]))
    frame["bound"] = longest["bound"].astype(object).to_numpy()
    frame["kernel_id"] = longest["kernel_id"].astype("Int64").to_numpy()
    asked = frame[["rank", "kernel_id"]].head(MOST_EXPLAINED)
    # Explanations take the whole tables: tables not needed any more go first.
    del rows, longest
    pa.default_memory_pool().release_unused()
    texts = _explained(run, asked)
    explain: dict[str, list[Any]] = {"texts": list(texts.values()), "ids": [-1] * len(frame)}
    for number, at in enumerate(texts):
        explain["ids"][at] = number
    made = table(frame)
    return made | {"columns": made["columns"] | {"explain": explain}}


def notes_of(roofline: Mapping[str, Any]) -> Iterator[str]:
    """Say for how many signatures the file lacks the text of `explain`."""
    signatures = roofline["signatures"]
    explained = len(signatures["columns"]["explain"]["texts"])
    if explained < signatures["rows"]:
        yield (
            f"what the numbers of a signature rest on is here for the first {explained} of "
            f"{signatures['rows']}; of others the page Roofline names the command that prints it"
        )


def _longest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the longest row of each rank and signature; of helpers one only if all help."""
    code: Any = rows["signature"].cat.codes.to_numpy()
    works = rows["bound"].notna().to_numpy()
    seen, group = combinations([rows["rank"].to_numpy(), code])
    is_worked, most = np.zeros(len(seen), bool), np.zeros(len(seen), np.int64)
    is_worked[group[works]] = True
    length = np.where(works | ~is_worked[group], rows["dur_ns"].to_numpy(), -1)
    np.maximum.at(most, group, length)
    first = first_rows(np.where(length == most[group], group, -1), len(seen))
    # Those without a signature were one of these, too.
    found: pd.DataFrame = with_text(rows.iloc[first[code[seen] >= 0]], ["signature"])
    return found.set_index(["rank", "signature"])


def _explained(run: Run, asked: pd.DataFrame) -> dict[int, str]:
    """Return the text of `explain` for these kernels, by their place."""
    order = asked.sort_values("rank", kind="stable")
    wanted = [
        (rank, f"kernel:{kernel}")
        for rank, kernel in zip(order["rank"].tolist(), order["kernel_id"].tolist(), strict=True)
    ]
    facts = run_findings.explain_all(run.tables, wanted)
    texts = {
        int(at): cut("\n".join(explanation_lines(each, _WIDTH)), _LONGEST)
        for at, each in zip(order.index, facts, strict=True)
    }
    # Signatures stand in the order of their time: the first ones are those to keep.
    sizes = np.cumsum([len(texts[int(at)]) for at in asked.index])
    kept = asked.index[: int(np.searchsorted(sizes, MOST_EXPLAINED_TEXT, "right"))]
    return {int(at): texts[int(at)] for at in kept}
