"""Above a table: the facts of the recording, one sentence on it, and how much is known."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.analysis.axes import in_words
from pyprof2.analysis.summaries.checks import doubts, has_foreign_work, open_steps
from pyprof2.analysis.summaries.spent import LARGE
from pyprof2.analysis.summaries.totals import total_utilization
from pyprof2.api import run_findings, run_profile, run_serving, run_time
from pyprof2.frames import shown_line
from pyprof2.reports.cells import clean
from pyprof2.units import counted, format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pandas as pd

    from pyprof2.api.run import Run
    from pyprof2.problems import Advice


_BINS: Final = {
    "no_shapes": "no shapes",
    "no_formula": "no formula",
    "no_op": "no op",
    "comm": "communication",
}
_COUNTED_PCT: Final = 99.5
_ALL_PCT: Final = 100
ABOVE_PEAK: Final = "another device (--device), a higher clock, or FLOPs that were not done"
"""Why more than all of the peak may have been used."""


def heading(run: Run, width: int) -> list[str]:
    """Return devices, ranks, steps, times and coverage, in lines of `width` at most."""
    summary = run.summary
    ranks = summary["ranks"]
    items = [("ranks", step_numbers(ranks) if len(ranks) > 1 else "")]
    steps = summary["steps"]
    spans = sorted({number for own in run.tables.spans.values() for number in own})
    if len(spans) > 1:
        items.append(("spans", step_numbers(spans)))
    elif run.tables.first_ids:
        items.append(("span", f"{step_numbers(spans)}, of several: --span N or all"))
    items.append(("step" if len(steps) == 1 else "steps", step_numbers(steps) or "none"))
    items.append(("open", ", ".join(open_steps(run.tables.manifest))))
    if summary["no_gpu"]:
        host = "not read; its host" if has_foreign_work(run.tables.manifest) else "CPU"
        if summary["gpu_call_count"]:
            host = "work not delivered; its host"
        items.insert(0, ("device", ", ".join([host, *summary["devices"]])))
        calls, time = run_profile.ledger(run.tables)[["count", "time_ns"]].sum().tolist()
        items.append(("op calls", f"{calls:,} in {format_time(time)}{_with_engine(summary, time)}"))
    else:
        kernels, copies = summary["kernel_time_ns"], summary["copy_time_ns"]
        items.insert(0, ("device", ", ".join(summary["devices"]) or "not named"))
        items.append(("kernels", f"{summary['kernel_count']:,} in {format_time(kernels)}"))
        items.append(("copies", format_time(copies) if copies else ""))
        items.append(("busy", _busy(run)))
        items.append(("linked", _linked(summary)))
    if run.tables.device is not None:
        items.append(("roofs of", str(run.tables.device)))
    lines: list[str] = []
    # Side by side, on as many lines as they need.
    for item in [f"{name} {clean(value)}" for name, value in items if value]:
        if lines and len(lines[-1]) + 3 + len(item) <= width:
            lines[-1] += f" | {item}"
        else:
            lines.append(item[:width])
    if not steps and not summary["no_gpu"] and run_serving.is_of_server(run.tables):
        lines += textwrap.wrap(_serving_line(run), width)
    known = [f"{each.name} {each.value}" for each in figures(run) if each.value is not None]
    lines += textwrap.wrap(" | ".join(known), width)
    lines += textwrap.wrap(" | ".join([*_ledger(summary), *_utilization(run)]), width)
    words = f"{sentence(run)}; next: pyprof2 advise" if loses_time(run) else ""
    return lines + textwrap.wrap(words, width, break_on_hyphens=False)


_THROUGH_GRAPHS: Final = {
    "graph_id": "ids of nodes", "graph_names": "names and order", "graph_order": "order alone",
}  # fmt: skip
"""How kernels of replayed graphs were found to be of an op."""


def _linked(summary: Mapping[str, Any]) -> str:
    """Return the share of the kernels' time that has an op, and that of it through graphs."""
    whole = summary["kernel_time_ns"]
    times = {words: summary[f"{link}_ns"] for link, words in _THROUGH_GRAPHS.items()}
    through = sum(times.values())
    how = "; ".join(words for words, time in times.items() if time)
    graphs = f" ({share_text(through, whole)} through graphs: {how})" if through else ""
    return f"{_percent(summary['linked_pct'])}{graphs}"


def _busy(run: Run) -> str:
    """Return the busy time, the recorded time, and that from the first activity to the last."""
    times = (run.summary["busy_ns"], run.spent.recorded_ns, run.summary["gpu_span_ns"])
    busy, whole, span = map(format_time, times)
    active = "" if span == whole else f" ({span} from first to last activity)"
    return f"{busy} of {whole} recorded{several_devices(run)}{active}"


def _ledger(summary: Mapping[str, Any]) -> list[str]:
    """Return the shares of the time by how much is known of the work."""
    ledger = Counter(summary["ledger"])
    costed, total = costed_time(summary)
    times = {words: ledger[name] for name, words in _BINS.items()}
    shares = [f"{words} {share_text(time, total)}" for words, time in times.items() if time]
    if costed:
        among = {"assumed": ledger["assumed"], "copies": ledger["copy"]}
        parts = [f"{share_text(time, total)} {name}" for name, time in among.items() if time]
        of_it = f" ({', '.join(parts)})" if parts else ""
        shares.insert(0, f"costed {share_text(costed, total)}{of_it}")
    # Work that overlaps counts twice here, so these are no shares of the busy time.
    what = "op time" if summary["no_gpu"] else "GPU work"
    return [f"of {format_time(total)} of {what}: {', '.join(shares)}"] if shares else []


def costed_time(summary: Mapping[str, Any]) -> tuple[int, int]:
    """Return the time of work whose counts are known, as in column `costed_pct`, and of all."""
    ledger = Counter(summary["ledger"])
    return ledger["ok"] + ledger["assumed"] + ledger["copy"], ledger.total()


def _with_engine(summary: Mapping[str, Any], time: int) -> str:
    """Return the time in ops with that of autograd's own ranges, which are no rows of a profile."""
    whole = summary["op_time_ns"]
    return f" ({format_time(whole)} with autograd's own ranges)" if whole > time else ""


def share_text(part: int, whole: int) -> str:
    """Return `part` of `whole` as text in percent."""
    share = 100 * part / whole
    return f"{share:.1f} %" if share >= 0.05 else "<0.1 %"


def _utilization(run: Run) -> list[str]:
    """Return MFU, and HFU where it is another number."""
    shares = total_utilization(run_time.utilization_rows(run.tables))
    mfu, hfu = shares["mfu_pct"], shares["hfu_pct"]
    if mfu is None or hfu is None:
        return []
    same = f"{mfu:.1f}" == f"{hfu:.1f}"
    texts = [f"MFU {share_of_peak(run, mfu)}"]
    texts += [] if same else [f"HFU {share_of_peak(run, hfu)}"]
    return texts + ([f"above the peak: {ABOVE_PEAK}"] if max(mfu, hfu) > _ALL_PCT else [])


def share_of_peak(run: Run, share: float) -> str:
    """Return MFU or HFU as text: a lower bound where FLOPs of matrix work are not known."""
    parts = [row["counted_pct"] for row in run_time.utilization_rows(run.tables)]
    known = [each for each in parts if each is not None]
    least = "" if known and min(known) >= _COUNTED_PCT else "at least "
    return f"{least}{format_rate(share)} %"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"


def _serving_line(run: Run) -> str:
    """Return the phases of a server's steps in a line; empty: there are none."""
    steps = run_serving.serving_table(run.tables)
    phase = steps["phase"].cast("string").fill_null("unknown")
    own = steps.set_column(steps.column_names.index("phase"), "phase", phase)
    own = own.filter(own["serving_step"].is_valid())
    sums = own.group_by("phase").aggregate(
        [("requests", "sum"), ("requests", "count"), ("device_ns", "sum"), ("phase", "count")]
    )
    words = []
    for row in sorted(sums.to_pylist(), key=lambda row: -row["device_ns_sum"]):
        count = row["phase_count"]
        known = row["requests_count"] == count and row["requests_sum"]
        size = f" of {format_rate(row['requests_sum'] / count)} requests" if known else ""
        mean = f", each {format_time(row['device_ns_sum'] // count)} of work"
        words.append(f"{row['phase']} {counted(count, 'step')}{size}{mean}")
    return f"serving: {'; '.join(words)}; see --by phase" if words else ""


def step_numbers(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text: `0-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


_NOTHING: Final = "nothing was recorded that could be profiled"
_SPOKEN_OF: Final = 0.01
"""The least share of idle time to speak of."""
_FEW: Final = 0.5
"""Less of the kernels' time than this in ops is too little to name the work of the device."""
_STACKS: Final = "python-stacks"
_DRIFT: Final = "kernel-drift"
_CLOCKS: Final = "clocks-differ"
_WORDS: Final = {
    "host_unrecorded": "while the host did what was not recorded",
    "unknown": "for unknown reasons",
    "start": "before the first work",
    "end": "after the last work",
    "profiler": "because of the profiler",
}
"""Causes of idle time whose names say too little in a sentence."""
_CAUSES_NOT_RECORDED: Final = ("host_unrecorded", "unknown")
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
"""Categories that name no computation."""


def sentence(run: Run, disturbed: Collection[str] = ()) -> str:
    """Return one sentence on the recording.

    Shares are of what it begins with: a step, or all that was recorded.

    Args:
        run: the run.
        disturbed: the rules on what others than the program caused, see `disturbances`.
    """
    if run.summary["no_gpu"]:
        words = _without_gpu(run)
    else:
        words = f"{_whole(run)}: {', '.join(_shares(run))}"
        missing = [*_not_recorded(run, disturbed), *_disturbed(run, disturbed)]
        unsure = "; ".join([*doubts(run.tables.manifest), *missing])
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
    tables = run.tables
    count, mean = len(tables.windows) - len(tables.slow_starts), tables.mean_step_ns
    words = ("a step" if count == 1 else f"mean of {count} steps") + left_out(run)
    found = [] if mean is None else [Figure("step time", _time(mean), words)]
    if run.summary["no_gpu"]:
        return found
    place = "of the steps" if spent.windows else "from the first activity to the last"
    for (name, known, missing), share in zip(_USES, run.device_shares.values(), strict=True):
        note = missing if share is None else f"{known}, {place}"
        found.append(Figure(name, _share(share), note))
    share = run_profile.tensor_core_pct(tables)
    note = "of the kernels' time" if share is not None else "no kernel has a verdict"
    return [*found, Figure("Tensor Cores", _share(share), note)]


def _share(share: float | None) -> str | None:
    return None if share is None else f"{format_rate(share)} %"


def disturbances(advice: pd.DataFrame) -> list[str]:
    """Return the slugs of rules that fire on what others than the program caused.

    Args:
        advice: the frame of `run.advise`.
    """
    from pyprof2.analysis.summaries.advice import RULES

    fires = set(advice.loc[advice["status"] == "fires", "rule"])
    return [rule.slug for rule in RULES if rule.pollutes and rule.slug in fires]


def loses_time(run: Run) -> bool:
    """Return whether devices did much else than computing, or it is not known."""
    if run.summary["no_gpu"]:
        return False
    spent = run.spent
    lost = (spent.copies_ns, spent.comm_ns, *_not_recorded(run))
    return spent.share(spent.idle_ns) >= _SPOKEN_OF or any(lost)


def several_devices(run: Run) -> str:
    """Return the words behind a sum over devices; nothing where there is one."""
    count = run.summary["gpu_count"]
    return f", sum of {count} devices" if count > 1 else ""


def _whole(run: Run) -> str:
    """Return the length of a step, or of the recording of a device; on average over several."""
    spent, count = run.spent, run.summary["gpu_count"]
    place = f" (mean of {count} devices)" if count > 1 else ""
    if spent.windows and run.tables.mean_step_ns is not None:
        return f"{_time(run.tables.mean_step_ns)} per step{place}{left_out(run)}"
    return f"{_time(spent.window_ns / max(1, count))} recorded{place}"


def left_out(run: Run) -> str:
    """Say of which steps a mean is not; nothing where it is of all."""
    slow = sorted(run.tables.slow_starts)
    if not slow:
        return ""
    if len(slow) > 1:
        return f" (without {len(slow)} slow first steps)"
    return f" (without step {slow[0].step}, the first: {_time(slow[0].dur_ns)})"


def _shares(run: Run) -> Iterator[str]:
    """Give the shares of time that was not spent on computing, the largest first."""
    spent = run.spent
    idle, idle_words = spent.share(spent.idle_ns), "idle"
    if spent.cause is not None:
        source = None if spent.cause in _NO_LINE else spent.source
        line = f", {shown_line(source, run.tables.source_roots)}" if source else ""
        cause = _WORDS.get(spent.cause, spent.cause.replace("_", " "))
        idle_words = f"idle ({_pct(spent.share(spent.cause_ns))} {cause}{line})"
    found = [
        (idle, idle_words),
        (spent.share(spent.copies_ns), _copies_words(run)),
        (spent.share(spent.comm_ns), "only communicating"),
    ]
    largest = sorted(found, key=lambda each: -each[0])
    yield from (f"{_pct(share)} {words}" for share, words in largest if share >= _SPOKEN_OF)
    if idle < _SPOKEN_OF:
        yield "less than 1 % idle"
    if sum(share for share, _ in found) < _FEW:
        # Where a device is busy most of the time: the category of most of its work.
        every = run_profile.time_by(run.tables, "category").items()
        times = {name: time for name, time in every if name not in _VAGUE}
        whole = run.summary["kernel_time_ns"] + run.summary["copy_time_ns"]
        most = max(times, key=times.__getitem__, default=None)
        if most is not None and times[most] >= LARGE * whole:
            yield f"busy most with {most} ({_pct(times[most] / whole)} of the GPU work)"


def _copies_words(run: Run) -> str:
    if run.spent.copies_ns is None:
        return ""
    times = run_profile.time_by(run.tables, "copy_kind")
    if not times:
        return "only copying"
    way, _, memory = max(times, key=times.__getitem__).partition(" ")
    # Both ends of a copy inside of a device are the device's.
    place = f" ({memory} memory)" if memory else ""
    return f"only copying, most of it {_WAYS.get(way, way)}{place}"


def _not_recorded(run: Run, disturbed: Collection[str] = ()) -> Iterator[str]:
    """Name facts that matter and were not recorded, and how to record them."""
    advice, spent, found = run_findings.how_to_record(run.tables), run.spent, []
    is_recorded = spent.cause not in _CAUSES_NOT_RECORDED or _CLOCKS in disturbed
    if not is_recorded and spent.share(spent.idle_ns) >= LARGE:
        how = advice.sources if run.summary["op_count"] else advice.ops
        if spent.cause == "unknown":
            how = _ONE_PROCESS if run.summary["unsure_count"] else advice.launches
        found.append(("why it was idle", how))
    if (run.summary["linked_pct"] or 0) < 100 * _FEW and run.summary["kernel_count"]:
        found.append(("which ops ran", _for_links(run.summary, advice)))
    if found:
        unknown, remedies = (list(dict.fromkeys(words)) for words in zip(*found, strict=True))
        yield f"cannot tell {' or '.join(unknown)}; record again: {'; '.join(remedies)}"


_ONE_PROCESS: Final = "the ranks into files of their own, or name these"


def _for_links(summary: dict[str, Any], advice: Advice) -> str:
    """Return how to record the ops of kernels, by why most have none."""
    kernels = summary["kernel_count"]
    if not summary["op_count"]:
        return advice.ops
    reasons = {
        advice.launches: kernels - summary["launched_count"] - summary["unsure_count"],
        _ONE_PROCESS: summary["unsure_count"],
        "a few steps without CUDA graphs": summary["graph_count"],
        advice.other_threads: summary["other_threads_count"],
    }
    rest = kernels - summary["linked_count"] - sum(reasons.values())
    reasons[advice.outside] = rest
    return max(reasons, key=reasons.__getitem__)


def _disturbed(run: Run, slugs: Collection[str]) -> Iterator[str]:
    """Name disturbances of the recording that matter for where the time goes."""
    if not slugs:
        return
    from pyprof2.analysis.summaries.advice import RULES

    spent = run.spent
    others = spent.idle_ns + (spent.copies_ns or 0) + (spent.comm_ns or 0)
    # Stacks make the host slower; that kernels vary matters where they are most of the time.
    matters = {_STACKS: spent.share(spent.idle_ns) >= LARGE, _DRIFT: spent.share(others) < _FEW}
    titles = [rule.title for rule in RULES if rule.slug in slugs and matters.get(rule.slug, True)]
    # Inside of a sentence only names keep their capital.
    words = [each if each.startswith("Python") else each[0].lower() + each[1:] for each in titles]
    if words:
        yield f"low confidence: {', '.join(words)}"


def _without_gpu(run: Run) -> str:
    """Return the sentence on a recording of ops alone."""
    calls, time = run_profile.ledger(run.tables)[["count", "time_ns"]].sum().tolist()
    if not calls:
        return _NOTHING
    mean = run.tables.mean_step_ns
    lead = f"{_time(mean)} per step{left_out(run)}; " if mean is not None else ""
    times = run_profile.time_by(run.tables, "op") if time else {}
    first = max(times, key=times.__getitem__, default=None)
    most = (
        f", most in {in_words(first)} ({_pct(times[first] / max(1, time))})"
        if first is not None
        else ""
    )
    gpu = "" if has_foreign_work(run.tables.manifest) else "no GPU: "
    if run.summary["gpu_call_count"]:
        gpu = "the GPU's work was not delivered: "
    engine = _with_engine(run.summary, time)
    words = f"{lead}{gpu}{calls:,} op calls take {format_time(time)} in all{engine}{most}"
    return "; ".join([words, *doubts(run.tables.manifest)])


def _pct(share: float) -> str:
    return f"{100 * share:.0f} %"


def _time(time_ns: float) -> str:
    return format_time(round(time_ns))
