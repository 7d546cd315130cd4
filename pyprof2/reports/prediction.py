"""A step on other devices, as text for people, or as a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pandas as pd

from pyprof2.analysis.prediction.model import GROUPS
from pyprof2.analysis.prediction.parameters import LOW, NORMAL, shipped
from pyprof2.api.prediction import cheapest
from pyprof2.api.run_time import spent_of
from pyprof2.reports import cells
from pyprof2.reports.table import drawn
from pyprof2.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.api.prediction import PredictedStep
    from pyprof2.reports.files import Target

_SHOWN: Final = (
    "device", "ranks", "step_ms", "lo_ms", "hi_ms", "speedup", "throughput", "bound_by", "idle_pct",
    *(f"{name}_pct" for name in GROUPS), "exposed_comm_ms", "all_lo_ms", "all_hi_ms", "recorded_ms",
    "money_per_step", "money_per_step_lo", "money_per_step_hi", "money_per_million",
    "money_per_million_lo", "money_per_million_hi", "fits", "eta_source",
)  # fmt: skip
_DROPPABLE: Final = (
    "memory pct", "compute pct", "kept pct", "extrapolated pct", "money per step lo",
    "money per step hi", "eta source", "fits", "bound by", "idle pct", "recorded ms",
)  # fmt: skip
_LIMITS: Final = (
    "the CPU is taken as recorded: the interval allows it half and twice the time; files, "
    "compilers and libraries of the other machine are not known"
)
_ERRORS: Final = (
    "measured with devices left out in turn: half of 54 whole models in float32 are off by less "
    "than 13 %, nine of ten by less than 19 % (docs/prediction.rst)"
)


_CLASSES: Final = {
    NORMAL: "both devices draw over 80 W", LOW: "one of them draws 80 W at most",
}  # fmt: skip


@dataclass(frozen=True)
class Deadline:
    """So many steps are to be done in so many hours."""

    steps: int
    hours: float


def show(
    frame: pd.DataFrame, prediction: PredictedStep, target: Target, level: float,
    deadline: Deadline | None,
) -> None:  # fmt: skip
    """Write predictions.

    Args:
        frame: as `Run.predict` returns it.
        prediction: the step that they are of.
        target: where to write.
        level: the probability of the intervals.
        deadline: for which to name the cheapest device; None: none is asked for.
    """
    if not target.is_text:
        target.write_frame(frame)
        return
    step, took = prediction.window
    whole = f"the {format_time(spent_of(prediction.run).recorded_ns)} recorded, what is replayed"
    name = whole if step is None else f"step {step}"
    source = prediction.source.name if prediction.source else "a device that is not known"
    heading = cells.bold(
        f"{name} of rank {prediction.tables.rank}, {format_time(took)} on {source}"
    )
    shown = _texts(frame[list(_SHOWN)].dropna(axis="columns", how="all"))
    table = drawn(shown, target, droppable=_DROPPABLE)
    notes = [*reasons(frame), *_notes(frame, level)]
    if deadline is not None:
        notes.insert(0, _cheapest(frame, deadline, prediction.world_size))
    if table.left_out:
        notes.append(f"columns that did not fit (-w, --format csv): {', '.join(table.left_out)}")
    lines = cells.wrapped([cells.clean(note) for note in notes], target.line_width)
    target.write_lines([heading, "", *table.lines, "", *lines])


def _texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns with as many digits as they deserve."""
    found = frame.copy()
    for name in frame:
        if str(name).startswith("money"):
            digits = "{:.3g}"
        elif str(name).endswith("_ms") or name in ("throughput", "speedup"):
            digits = "{:.4g}"
        else:
            continue
        said = [None if pd.isna(value) else digits.format(float(value)) for value in frame[name]]
        found[name] = pd.Series(said, dtype=object)
    if "fits" in found:
        words = {True: "yes", False: "no"}
        found["fits"] = pd.Series([words.get(value) for value in frame["fits"]], dtype=object)
    return found.rename(columns=lambda name: str(name).replace("_ms", " ms").replace("_", " "))


def reasons(frame: pd.DataFrame) -> Iterator[str]:
    """Give each reason once, with the devices that it is of."""
    found: dict[str, list[str]] = {}
    for device, why in zip(frame["device"], frame["why"], strict=True):
        for reason in [] if pd.isna(why) else why.split("; "):
            found.setdefault(reason, []).append(device)
    for reason, devices in found.items():
        own = list(dict.fromkeys(devices))
        more = f" and {len(own) - 4} more" if len(own) > 5 else ""
        yield f"{', '.join(own[:4] if more else own)}{more}: {reason}"


def _notes(frame: pd.DataFrame, level: float) -> Iterator[str]:
    if frame["lo_ms"].notna().any():
        measured = " and ".join(
            f"{each.percent} of 100 where {_CLASSES[name]} ({each.steps} steps; {each.least} of "
            "100 for the worst device)"
            for name, each in shipped().held.items()
        )
        yield (
            f"lo, hi: meant to hold the true time in {100 * level:g} of 100 cases; with devices "
            f"left out in turn, those of 80 % held {measured}; {_LIMITS}"
        )
    if frame["all_hi_ms"].notna().any():
        yield (
            "step, lo and hi are with communication alone; all lo, all hi with all losses: ranks "
            "that are slower, input, clocks"
        )
    if frame["step_ms"].notna().any():
        yield _ERRORS


def _cheapest(frame: pd.DataFrame, deadline: Deadline, ranks: int) -> str:
    at = cheapest(frame, deadline.steps, deadline.hours, ranks)
    asked = f"{deadline.steps:,} steps in {deadline.hours:g} h"
    if at is None:
        return f"{asked}: no device with a price is sure to do them"
    row = frame.iloc[at]
    needed = deadline.steps * ranks / float(row["ranks"])
    usual = row["money_per_step"] if pd.notna(row["money_per_step"]) else row["money_per_step_hi"]
    count = "" if row["ranks"] == 1 else f"{row['ranks']} × "
    return (
        f"{asked}: the cheapest is {count}{row['device']}, for {float(usual) * needed:.4g} "
        f"({float(row['money_per_step_lo']) * needed:.4g} to "
        f"{float(row['money_per_step_hi']) * needed:.4g})"
    )
