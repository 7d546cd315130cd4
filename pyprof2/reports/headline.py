"""One sentence on a recording: how long a step takes, where the time goes, how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.analysis.summaries.spent import LARGE
from pyprof2.frames import shown_line
from pyprof2.reports.cells import clean
from pyprof2.units import format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pandas as pd

    from pyprof2.analysis.summaries.spent import Spent
    from pyprof2.problems import Advice
    from pyprof2.run import Run

_NOTHING: Final = "nothing was recorded that could be profiled"
_SPOKEN_OF: Final = 0.01
"""The least share of idle time to speak of."""
_FEW: Final = 0.5
"""Less of the kernels' time than this in ops is too little to say what the device did."""
_STACKS: Final = "python-stacks"
_DRIFT: Final = "kernel-drift"
_WORDS: Final = {
    "host_unrecorded": "while the host did what was not recorded",
    "unknown": "for reasons that were not recorded",
    "start": "before the first work",
    "end": "after the last work",
    "profiler": "because of the profiler",
}
"""Causes of idle time whose names say too little in a sentence."""
_NOT_TOLD: Final = ("host_unrecorded", "unknown")
_NO_LINE: Final = ("unknown", "start", "end")
"""Causes that no line is to blame for."""


_WAYS: Final = {
    "h2d": "from host to device", "d2h": "from device to host", "d2d": "inside of the device",
    "p2p": "between devices",
}  # fmt: skip
_USES: Final = (
    ("GPU utilization", "time in which a kernel ran", "no kernel was recorded"),
    (
        "SM efficiency", "mean share of the multiprocessors that had a block",
        "the recording does not say how many blocks each has",
    ),
    ("occupancy", "mean of what the recorder says of the kernels",
        "the recording does not say it"),
)  # fmt: skip
"""How devices were used: name, what it is, and why it is not known."""
_VAGUE: Final = ["other", "comm"]
"""Categories that say nothing of what computes."""


def sentence(run: Run, disturbed: Collection[str] = ()) -> str:
    """Return one sentence on the recording.

    Shares are of what it begins with: a step, or all that was recorded.

    Args:
        run: the run.
        disturbed: what in the recording is not the program's doing, see `disturbances`.
    """
    if run.summary["no_gpu"]:
        words = _without_gpu(run)
    else:
        words = f"{_whole(run)}: {', '.join(_shares(run))}"
        unsure = "; ".join([*_not_told(run), *_disturbed(run, disturbed)])
        words += f"; {unsure}" if unsure else ""
    return clean(words)


class Figure(NamedTuple):
    """One of the numbers that a recording is judged by.

    Attributes:
        name: what it is.
        value: as text; None where it is not known.
        note: of what it is, or why it is not known.
    """

    name: str
    value: str | None
    note: str


def figures(run: Run) -> list[Figure]:
    """Return how long a step is and how a device was used in it; without a device the former."""
    spent = run.spent
    steps = [row for row in run.utilization_rows if row["step"] is not None]
    count = max(len(steps), _steps_that_ran(run))
    words = "a step" if count == 1 else f"mean of {count} steps"
    wall = sum(row["wall_ns"] or 0 for row in steps)
    found = [Figure("step time", _time(wall / count), words)] if steps else []
    if run.summary["no_gpu"]:
        return found
    place = "of the steps" if spent.windows else "from the first activity to the last"
    for (name, known, missing), share in zip(_USES, run.device_shares.values(), strict=True):
        note = missing if share is None else f"{known}, {place}"
        found.append(Figure(name, _share(share), note))
    note = "of the kernels' time" if run.tensor_core_pct is not None else "no kernel has a verdict"
    return [*found, Figure("Tensor Cores", _share(run.tensor_core_pct), note)]


def _steps_that_ran(run: Run) -> int:
    """Return how many steps there are: the spans of a rank may each have one of a number."""
    columns = ("rank", "step", "host_start_ns")
    found = zip(*(run.table("steps")[name].to_pylist() for name in columns), strict=True)
    return len({each for each in found if each[1] is not None})


def _share(share: float | None) -> str | None:
    return None if share is None else f"{format_rate(share)} %"


def disturbances(advice: pd.DataFrame) -> list[str]:
    """Return the slugs of the rules that say what in a recording is not the program's doing.

    Args:
        advice: what `run.advise` returns.
    """
    from pyprof2.analysis.summaries.advice import RULES

    fires = set(advice.loc[advice["status"] == "fires", "rule"])
    return [rule.slug for rule in RULES if rule.pollutes and rule.slug in fires]


def loses_time(run: Run) -> bool:
    """Return whether devices did much else than computing, or it cannot be told what they did."""
    if run.summary["no_gpu"]:
        return False
    spent = run.spent
    lost = (spent.copies_ns, spent.comm_ns, *_not_told(run))
    return spent.share(spent.idle_ns) >= _SPOKEN_OF or any(lost)


def several_devices(run: Run) -> str:
    """Return what to write behind a sum over devices; nothing where there is one."""
    count = run.summary["gpu_count"]
    return f", sum of {count} devices" if count > 1 else ""


def _whole(run: Run) -> str:
    """Return how long a step, or what was recorded of a device, is; on average over several."""
    spent, count = run.spent, run.summary["gpu_count"]
    place = f" (mean of {count} devices)" if count > 1 else ""
    if spent.windows:
        return f"{_time(spent.window_ns / spent.windows)} per step{place}"
    return f"{_time(spent.window_ns / max(1, count))} recorded{place}"


def _shares(run: Run) -> Iterator[str]:
    """Give what else than computing took time, the most first."""
    spent = run.spent
    idle = spent.share(spent.idle_ns)
    found = [
        (idle, _idle_words(run)),
        (spent.share(spent.copies_ns), _copies_words(run)),
        (spent.share(spent.comm_ns), "only communicating"),
    ]
    largest = sorted(found, key=lambda each: -each[0])
    yield from (f"{_pct(share)} {words}" for share, words in largest if share >= _SPOKEN_OF)
    if idle < _SPOKEN_OF:
        yield "less than 1 % idle"
    if sum(share for share, _ in found) < _FEW:
        yield from _most_work(run)


def _idle_words(run: Run) -> str:
    spent = run.spent
    if spent.cause is None:
        return "idle"
    source = None if spent.cause in _NO_LINE else spent.source
    line = f", {shown_line(source, run.source_roots)}" if source else ""
    cause = _WORDS.get(spent.cause, spent.cause.replace("_", " "))
    return f"idle ({_pct(spent.share(spent.cause_ns))} {cause}{line})"


def _copies_words(run: Run) -> str:
    if run.spent.copies_ns is None:
        return ""
    times = run.time_by("copy_kind")
    if not times:
        return "only copying"
    way, _, memory = max(times, key=times.__getitem__).partition(" ")
    # Of a copy inside of a device both ends are the device's.
    place = f" ({memory} memory)" if memory else ""
    return f"only copying, most of it {_WAYS.get(way, way)}{place}"


def _most_work(run: Run) -> Iterator[str]:
    """Say what most kernels do, where the device is busy most of the time."""
    times = {name: time for name, time in run.time_by("category").items() if name not in _VAGUE}
    whole = run.summary["kernel_time_ns"] + run.summary["copy_time_ns"]
    most = max(times, key=times.__getitem__, default=None)
    if most is not None and times[most] >= LARGE * whole:
        yield f"busy most with {most} ({_pct(times[most] / whole)} of the GPU work)"


def _not_told(run: Run) -> Iterator[str]:
    """Say what the recording cannot tell though it matters, and how to record it."""
    advice, spent, found = run.how_to_record, run.spent, []
    if spent.cause in _NOT_TOLD and spent.share(spent.idle_ns) >= LARGE:
        found.append(("why it was idle", _for_cause(run.summary, spent, advice)))
    if (run.summary["linked_pct"] or 0) < 100 * _FEW and run.summary["kernel_count"]:
        found.append(("which ops ran", _for_links(run.summary, advice)))
    if found:
        what, how = (list(dict.fromkeys(words)) for words in zip(*found, strict=True))
        yield f"cannot tell {' or '.join(what)}; record again: {'; '.join(how)}"


def _for_cause(summary: dict[str, Any], spent: Spent, advice: Advice) -> str:
    """Return how to record why a device was idle."""
    if spent.cause == "unknown":
        return advice.launches
    return advice.sources if summary["op_count"] else advice.ops


def _for_links(summary: dict[str, Any], advice: Advice) -> str:
    """Return how to record the ops of kernels, by why most have none."""
    kernels = summary["kernel_count"]
    if not summary["op_count"]:
        return advice.ops
    reasons = {
        advice.launches: kernels - summary["launched_count"],
        "a few steps without CUDA graphs": summary["loose_graph_count"],
        advice.other_threads: summary["other_threads_count"],
    }
    rest = kernels - summary["linked_count"] - sum(reasons.values())
    reasons[advice.outside] = rest
    return max(reasons, key=reasons.__getitem__)


def _disturbed(run: Run, slugs: Collection[str]) -> Iterator[str]:
    """Name what disturbed the recording, as far as it matters for where the time goes."""
    if not slugs:
        return
    from pyprof2.analysis.summaries.advice import RULES

    spent = run.spent
    others = spent.idle_ns + (spent.copies_ns or 0) + (spent.comm_ns or 0)
    # Stacks make the host slower; that kernels vary matters where they are most of the time.
    told = {_STACKS: spent.share(spent.idle_ns) >= LARGE, _DRIFT: spent.share(others) < _FEW}
    titles = [rule.title for rule in RULES if rule.slug in slugs and told.get(rule.slug, True)]
    if titles:
        yield f"low confidence: {', '.join(map(_lowered, titles))}"


def _lowered(title: str) -> str:
    """Return a title as it stands inside of a sentence; names keep their letters."""
    return title if title.startswith("Python") else title[0].lower() + title[1:]


def _without_gpu(run: Run) -> str:
    """Return what was recorded of ops, where no work of a GPU was."""
    calls, time = (int(run.ledger[name].sum()) for name in ("count", "time_ns"))
    if not calls:
        return _NOTHING
    steps = run.utilization[run.utilization["step"].notna()]
    lead = f"{_time(steps['wall_ns'].astype('float64').mean())} per step; " if len(steps) else ""
    times = run.time_by("op") if time else {}
    first = max(times, key=times.__getitem__, default=None)
    most = f", most in {first} ({_pct(times[first] / max(1, time))})" if first is not None else ""
    return f"{lead}no GPU: {calls:,} op calls take {format_time(time)} in all{most}"


def _pct(share: float) -> str:
    return f"{100 * share:.0f} %"


def _time(time_ns: float) -> str:
    return format_time(round(time_ns))
