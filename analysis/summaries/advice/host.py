"""Rules on the host: the device had nothing to do, because of what the host did.

A remedy gains at most the smaller of two times: how long the host was at what it removes, and all
idle time that the host is to blame for; for waits and loading it is the gain of a replay without
them, where enough was recorded for one. It gains at least the idle time inside of what
it deletes; where it only moves work elsewhere, or other ranks are waited for, nothing is sure.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pandas as pd

from pyprof2.analysis.intervals import merged, time_within, union_length
from pyprof2.analysis.summaries.advice.compiled import noted, reasons
from pyprof2.analysis.summaries.advice.facts import (
    CALLS,
    HOST_CAUSES,
    RankFacts,
    ends,
    flags,
    int_values,
    is_pinned,
    matches,
)
from pyprof2.analysis.summaries.advice.findings import RuleFinding, most_of, unknown
from pyprof2.analysis.summaries.advice.without import blocks_around
from pyprof2.columns import as_text, row_of
from pyprof2.units import counted, format_bytes, format_time

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int

LOADING_PCT: Final = 5
HOST_BOUND_PCT: Final = 10
STRETCH_GAPS: Final = 20
PAUSE_NS: Final = 500_000
"""A gap this long is no launch that comes late: launching takes up to some tens of us."""
REPEATS: Final = 3
REPLAY_GAP_NS: Final = 2_000
"""The rest of a gap when a CUDA graph launches the kernel after it."""
LEAST_PCT: Final = 1

_BOUND_CAUSES: Final = (
    "host_op", "host_python", "host_unrecorded", "launch_call", "launch_latency",
)  # fmt: skip
_PAUSES: Final = ("host_op", "host_python")
_QUEUED: Final = ("kernel_gap", "graph_gap")
_REPLAYS: Final = re.compile("GraphLaunch")
_BREAKING: Final = ("sync", "allocator", "data_loading")
_SILENT_HOST: Final = ("host_unrecorded", "host_python")
_BY_HOST_WORK: Final = "the shorter of the host's time in it and all idle time due to the host"
_BY_THREAD: Final = "the time in it of the thread that holds the steps"
_PAUSE_LESS: Final = (
    "less work on that line and in those ops, or on a thread or in a process beside"
)
_BY_STRETCHES: Final = "the shorter of these times and all idle time due to the host"
_RANGES: Final = ("range_id", "start_ns", "dur_ns")
_OF_IDLE: Final = ("start_ns", "time_ns", "drained", "source")
_OPS: Final = ("op_id", "start_ns", "dur_ns")
_LOADER: Final = re.compile(r"enumerate\(DataLoader\)#")
_RECORD_LOADING: Final = 'the ranges of a DataLoader, or pyprof2.annotate("data")'

_REPLAYED: Final = "a replay of the recording without them"
_MARGIN: Final = 1.02
"""By how much a replay may be wrong."""
_READS: Final = ("aten::_local_scalar_dense", "aten::nonzero")
"""Ops of which nothing is left where what they read stays on the device."""
_LOAD_FASTER: Final = "more workers (num_workers), prefetch_factor, less work per sample"

_COMPILES: Final = re.compile(
    r"_compile\.compile_inner|compile_fx(?:_inner)?\b(?!.*Call CompiledFxGraph)|Inductor:|"
    r"OutputGraph\.call_user_compiler|create_aot_dispatcher_function|"
    r"torch/_dynamo/convert_frame\.py|torch/_inductor/(?:compile_fx|codecache|async_compile)\.py|"
    r"GraphLowering\.|TorchDynamo Cache Lookup Miss"
)
_TUNES: Final = re.compile(
    r"benchmark_all_configs|CachingAutotuner\.(?:benchmark|coordinate)|do_bench|[Aa]utotun(?:e|ing)\b|"
    r"AlgorithmSelectorCache"
)
_COLLECTS: Final = re.compile(
    r"<built-in (?:function|method) collect\b|(?:^|[/ ])gc\.collect|\bGC$"
)


_STEPS_AGAIN: Final = 2
"""In so many later steps memory is allocated or released where it is not kept."""


def data_loading(facts: RankFacts) -> RuleFinding | None:
    """The device waits while the host gets the next batch: workers and prefetching hide that.

    The time moves to other processes, so it need not all be won: copies and ops of the host are
    slower beside busy workers.
    """
    idle = facts.idle_of("data_loading", columns=_OF_IDLE)
    # A loader is silent while it reads a file: the ops after it in one wait say for which line.
    begin, end = ends(idle.rename(columns={"time_ns": "dur_ns"}))
    wait = np.cumsum(begin != np.r_[begin[:1] - 1, end[:-1]])
    line = idle["source"].cat.codes.to_numpy()
    with_line = np.where(line >= 0, np.arange(len(line)), len(line))
    following = np.minimum.accumulate(with_line[::-1])[::-1]
    line = np.where(np.r_[wait, -1][following] == wait, np.r_[line, -1][following], -1)
    idle = idle.assign(source=pd.Categorical.from_codes(line, idle["source"].cat.categories))
    loads = facts.rows("ranges", "loads")["loads"].to_numpy(bool)
    ranges = facts.rows("ranges", *_RANGES, where=loads)
    ops = facts.rows("ops", *_OPS, where=facts.named("ops", "op", _LOADER))
    if not len(ranges) and not len(ops) and not facts.has_stacks:
        silent_ns = facts.idle_ns(*_SILENT_HOST)
        if facts.share(silent_ns) < LOADING_PCT:
            return None
        text = f"{facts.share(silent_ns):.1f} % of the time the host did what was not recorded"
        return unknown(text, _RECORD_LOADING, hi_ns=silent_ns, lo_ns=0)
    share = facts.share(idle["time_ns"].sum())
    removed = _union(ranges, ops)
    most_ns = facts.devices_count * union_length(*removed)
    gain_ns = None
    if not facts.is_cpu and facts.share(most_ns) >= LOADING_PCT and facts.replay is not None:
        gain_ns = facts.devices_count * facts.replay.gain_ns(*removed, keeps=True)
    if max(share, facts.share(gain_ns or 0)) < LOADING_PCT:
        return None
    evidence = {"ranges": longest(ranges, "range_id"), "ops": longest(ops, "op_id")}
    waited = "a step" if facts.is_cpu else "the device"
    text = f"{share:.1f} % of the time {waited} waited for the next batch"
    if facts.is_cpu:
        return replace(moved(idle, text, evidence), remedy=_LOAD_FASTER)
    found = _host_found(facts, idle, removed, text, evidence)
    if gain_ns is not None:
        if share < LOADING_PCT:
            text = (
                f"{facts.share(gain_ns):.1f} % of the time for the next batch, most of it after "
                "the host had waited for the device"
            )
        found = replace(
            found,
            text=text,
            hi_ns=min(facts.window_ns, round(_MARGIN * gain_ns)),
            expected_ns=gain_ns,
            limit=_REPLAYED,
        )
    return (
        replace(found, remedy=_LOAD_FASTER)
        if is_pinned(facts.rows("copies", "copy_kind", "dur_ns"))
        else found
    )


def sync(facts: RankFacts) -> RuleFinding | None:
    """A call that waits for the device lets it run dry: the next work is launched too late.

    How long the host was blocked says nothing: where it would only have waited elsewhere, the
    device was busy. Idle time counts, and what a replay without the calls gains.
    """
    idle = facts.idle_of("sync", columns=(*_OF_IDLE, "op", "launch_id"))
    calls = facts.calls_of("sync")
    removed = merged(*ends(calls))
    around = removed if facts.replay is None else blocks_around(facts, calls, wide=True)
    gains = _gains_of_waits(facts, calls, removed, around)
    idle_ns = int(idle["time_ns"].sum())
    if facts.share(max(idle_ns, gains[2] if gains else 0)) < LEAST_PCT:
        return None
    share = facts.share(max(idle_ns, gains[1] if gains else 0))
    ops = ", ".join(tops(idle, "op"))
    text = f"{share:.1f} % of the time after the host waited for the device" + (
        f", in {ops}" if ops else ""
    )
    # The calls that idle time is inside of, those with the most of it first.
    times = (
        idle.groupby("launch_id", observed=True)["time_ns"]
        .sum()
        .sort_values(ascending=False, kind="stable")
    )
    ids = facts.rows("launches", "launch_id")["launch_id"].to_numpy(np.int64)
    known = row_of(ids, times.index.to_numpy(np.int64)) >= 0
    evidence = {"launches": times.index[known].to_series()}
    found = _host_found(facts, idle, removed, text, evidence, deletes=True)
    return _as_replayed(facts, found, gains, around)


def _as_replayed(
    facts: RankFacts,
    found: RuleFinding,
    gains: tuple[int, int, int] | None,
    around: tuple[Int, Int],
) -> RuleFinding:
    """Return a finding with what a replay gains: at least, as expected, and at most."""
    if gains is None:
        return found
    least, expected_ns, most = gains
    return replace(
        found, lo_ns=0 if facts.is_coupled else round(min(least, expected_ns) / _MARGIN),
        hi_ns=min(facts.window_ns, round(_MARGIN * max(most, expected_ns))),
        expected_ns=expected_ns,
        limit=f"{_REPLAYED}, with what the host does around them", removed=around,
    )  # fmt: skip


def _gains_of_waits(
    facts: RankFacts, calls: pd.DataFrame, waits: tuple[Int, Int], around: tuple[Int, Int]
) -> tuple[int, int, int] | None:
    """Return what is gained without waits: at least, as expected, and at most; None: not known.

    Reading back goes away as a whole; of other ops only the wait is sure to go.
    """
    if facts.replay is None or calls.empty:
        return None
    reads = facts.rows("ops", *_OPS, where=facts.are("ops", "op", _READS))
    start = calls["start_ns"].to_numpy("int64")
    is_read = time_within(*merged(*ends(reads)), start, start + 1) > 0
    parts = (blocks_around(facts, calls[is_read], wide=False), ends(calls[~is_read]))
    first, last = (np.concatenate(column) for column in zip(*parts, strict=True))
    expected = merged(first, last)
    both = (waits, expected, around)
    least, gone, most = (facts.devices_count * facts.replay.gain_ns(*each) for each in both)
    return least, gone, most


def allocator(facts: RankFacts) -> RuleFinding | None:
    """PyTorch keeps memory for the next step; calls in several steps say that it cannot.

    `cudaMalloc` and `cudaFree` wait for the device. In the first step they are usual, and once in a
    later one: the first batch of another shape.
    """
    idle = facts.idle_of("allocator", columns=_OF_IDLE)
    every = facts.calls_of("allocator")
    # The remedy may spare those of the first step, too.
    most_ns = int(idle["time_ns"].sum())
    if facts.replay is not None:
        gain_ns = facts.replay.gain_ns(*merged(*ends(every)))
        most_ns = max(most_ns, facts.devices_count * gain_ns)
    if facts.share(most_ns) < LEAST_PCT:
        return None
    calls, words = every, counted(len(every), "call")
    if facts.has_steps:
        # Without the first step of the program; a number says that the only step is a later one.
        steps = facts.steps
        after = slice(1 if len(steps.step) > 1 or steps.step[0] == 0 else 0, None)
        later = steps.start[after], steps.end[after]
        start = calls["start_ns"].to_numpy("int64")
        calls = calls[time_within(*later, start, start + 1) > 0]
        begin = idle["start_ns"].to_numpy("int64")
        idle = idle[time_within(*later, begin, begin + 1) > 0]
        count = len(later[0])
        own = np.searchsorted(later[0], calls["start_ns"].to_numpy("int64"), "right")
        if not count or len(np.unique(own)) < min(_STEPS_AGAIN, count):
            return None
        words = f"{len(calls) / count:.1f} calls in a step"
    removed = merged(*ends(calls))
    around = removed if facts.replay is None else blocks_around(facts, every, wide=True)
    gains = _gains_of_waits(facts, calls, removed, around)
    share = facts.share(max(int(idle["time_ns"].sum()), gains[1] if gains else 0))
    text = f"{share:.1f} % of the time in calls that allocate or release memory: {words}"
    evidence = {"launches": longest(calls, "launch_id")}
    found = _host_found(facts, idle, removed, text, evidence, deletes=True)
    found = _as_replayed(facts, found, gains, around)
    if facts.has_steps:
        return found
    return unknown(
        text,
        f"steps: {facts.advice.steps}",
        hi_ns=found.hi_ns,
        lo_ns=0,
        evidence=evidence,
        source=found.source,
    )


def pageable_copies(facts: RankFacts) -> RuleFinding | None:
    """A copy from pageable memory holds the host until it is done, or nearly so.

    From pinned memory, with `non_blocking=True`, the host only queues it, and it is faster: the
    time of the copies themselves can be gained, too.
    """
    idle = facts.idle_of("copy_call", columns=(*_OF_IDLE, "launch_id"))
    copies = facts.rows("copies", "kernel_id", "dur_ns", "launch_id", "bytes", "copy_kind")
    kind = as_text(copies["copy_kind"].astype(object).fillna(""))
    crosses = kind.str.contains("h2d|d2h")
    pageable = copies[kind.str.contains("pageable")]
    if crosses.any() and not kind.str.contains("pageable|pinned").any():
        time_ns = int(idle["time_ns"].sum())
        if facts.share(time_ns) < LEAST_PCT:
            return None
        text = "the recording does not say which copies are of pageable memory"
        kinds = "a profiler that records the kinds of memory of copies"
        return unknown(text, kinds, hi_ns=time_ns, lo_ns=0)
    # Reading back, as by .item(), waits for the device wherever it is written to.
    pageable = pageable[kind[pageable.index].str.startswith("h2d").to_numpy(bool)]
    idle = idle[idle["launch_id"].isin(pageable["launch_id"].dropna()).to_numpy(bool)]
    share, copying_ns = facts.share(idle["time_ns"].sum()), int(pageable["dur_ns"].sum())
    # Where the device is the limit they are part of its time.
    if max(share, facts.share(copying_ns)) < LEAST_PCT:
        return None
    calls = facts.rows("launches", "launch_id", "start_ns", "dur_ns")
    at = row_of(calls["launch_id"].to_numpy(np.int64), int_values(pageable["launch_id"]))
    calls = calls.iloc[np.unique(at[at >= 0])]
    copied = counted(len(pageable), "pageable copy", "pageable copies")
    together = f"{' together' if len(pageable) > 1 else ''}"
    text = (
        f"{share:.1f} % of the time idle in {copied} of "
        f"{format_bytes(float(pageable['bytes'].sum()))}{together}, which take "
        f"{facts.share(copying_ns):.1f} %"
    )
    evidence = {"copies": longest(pageable, "kernel_id")}
    found = _host_found(facts, idle, merged(*ends(calls)), text, evidence)
    most = cast("int", found.hi_ns) + copying_ns
    return replace(found, hi_ns=most, limit=f"{found.limit}, and the time of the copies")


def host_bound(facts: RankFacts) -> RuleFinding | None:
    """The device is done before the host has launched the next kernel.

    Many times in a row, kernels are too short for what Python and PyTorch need to launch them.
    Kernels in between that were launched in time do not end a row; a wait, an allocation, a batch
    or a new step does. A CUDA graph launches them together: about 2 us are left of each gap. That
    is sure only where the same kernels come again in three steps or more, with no call in between
    that a graph cannot hold.

    Otherwise the host is fast enough but for some pauses, in Python or in an op: their line and
    ops are named, and graphs do not help.
    """
    share = facts.share(facts.idle_ns(*_BOUND_CAUSES))
    if share < HOST_BOUND_PCT:
        return None
    gaps = _host_gaps(facts)
    gaps = gaps[gaps["in_stretch"] | gaps["is_pause"]]
    stretches, pauses = gaps[gaps["in_stretch"]], gaps[gaps["is_pause"]]
    paused_ns, alone_ns = (
        int(each["pause_ns"].sum()) for each in (pauses, pauses[~pauses["in_stretch"]])
    )
    expected_ns = int(stretches["host_ns"].sum()) + alone_ns
    if stretches.empty and facts.share(paused_ns) < HOST_BOUND_PCT:
        return None
    by = stretches.groupby("stretch", observed=True)
    spans = by["start_ns"].min().to_numpy("int64"), by["end_ns"].max().to_numpy("int64")
    idle = facts.idle_of(*_BOUND_CAUSES, columns=(*_OF_IDLE, "gap_id", "cause", "op"))
    own = idle[idle["gap_id"].isin(gaps["gap_id"])]
    del idle
    paused = ends(own[own["cause"].isin(_PAUSES)].rename(columns={"time_ns": "dur_ns"}))
    removed = merged(*map(np.concatenate, zip(spans, paused, strict=True)))
    # Where the host is ahead at last, it stays ahead: gaps outside of the stretches go, too.
    most_ns = min(union_length(*removed) + _hidden_ns(facts, pauses), facts.host_idle_ns)
    hi_ns = max(expected_ns, most_ns)
    words, evidence = _gaps_in_words(facts, pauses, stretches)
    text = ", ".join((f"{share:.1f} % of the time the device waited for launches", *words))
    # Less work in pauses is sure to gain nothing: the host may do it elsewhere.
    is_paused = 2 * paused_ns > expected_ns
    lo_ns = 0 if is_paused else _replayable_ns(facts, stretches)
    return RuleFinding(
        f"{text}; most in {', '.join(tops(own, 'op')) or 'no op'}", hi_ns, lo_ns, expected_ns,
        most_of(_BY_STRETCHES, hi_ns, expected_ns),
        {"kernels": evidence.dropna()}, top_line(own), removed=removed,
        remedy=_PAUSE_LESS if is_paused else None,
    )  # fmt: skip


def _gaps_in_words(
    facts: RankFacts, pauses: pd.DataFrame, stretches: pd.DataFrame
) -> tuple[list[str], pd.Series]:
    """Return what the gaps of the host are, and the kernels after the ones to look at first."""
    words = []
    kernels = pauses.sort_values("pause_ns", ascending=False, kind="stable")["kernel_id"]
    if len(pauses):
        words.append(
            f"{facts.share(pauses['pause_ns'].sum()):.1f} % in {counted(len(pauses), 'pause')} of "
            f"Python or of ops, the longest of {format_time(int(pauses['pause_ns'].max()))}"
        )
    if len(stretches):
        by = stretches.groupby("stretch", observed=True)
        kernels = stretches.loc[stretches["stretch"] == by["host_ns"].sum().idxmax(), "kernel_id"]
        words.append(
            f"{facts.share(stretches['host_ns'].sum()):.1f} % in "
            f"{counted(by.ngroups, 'stretch', 'stretches')} of {STRETCH_GAPS} gaps or more, the "
            f"longest before kernels {kernels.iloc[0]} to {kernels.iloc[-1]}"
        )
    return words, kernels


def recompilation(facts: RankFacts) -> RuleFinding | None:
    """Graphs were compiled while it was recorded, so shapes or guards changed, or it is the start.

    `TORCH_LOGS=recompiles` says why, and so do notes of the compiler, where there are any.
    """
    found = _deleted_work(facts, _COMPILES, "the host compiled graphs")
    events = noted(facts, "recompilation")
    if not events:
        return found
    count = sum(each["count"] for each in events)
    text = f"{counted(count, 'function was', 'functions were')} compiled again, {reasons(events)}"
    if found is None:
        return RuleFinding(text, source=events[0]["place"])
    return replace(found, text=f"{found.text}; {text}")


def autotuning(facts: RankFacts) -> RuleFinding | None:
    """Kernels were tried out while it was recorded: the choice holds for one shape each.

    `torch.backends.cudnn.benchmark` and Triton try again for every new shape.
    """
    found = _deleted_work(facts, _TUNES, "kernels were tried out")
    if found is not None:
        return found
    # Calls of products and convolutions that ran many more kernels than others like them.
    wanted = facts.are("kernels", "category", ("matmul", "conv"))
    wanted = wanted & ~facts.lacks("kernels", "signature")
    work = facts.rows("kernels", "signature", "op_id", "dur_ns", where=wanted)
    calls = work.groupby(["signature", "op_id"], observed=True)["dur_ns"].agg(["size", "sum"])
    by = calls.groupby(level="signature", observed=True)
    usual = by.transform("median")
    is_trial = (calls["size"] >= 3 * usual["size"]) & (calls["size"] >= usual["size"] + 4)
    is_trial &= by["size"].transform("size") >= 4
    trials, usual = calls[is_trial], usual[is_trial]
    extra_ns = int((trials["sum"] - usual["sum"]).clip(lower=0).sum())
    if trials.empty or facts.share(extra_ns) < LEAST_PCT:
        return None
    ids = trials.index.get_level_values("op_id")
    text = (
        f"{counted(len(trials), 'op')} ran 3 times as many kernels as others with the same inputs"
    )
    limit = "what these ran longer than the others"
    return RuleFinding(text, extra_ns, 0, extra_ns, limit, {"ops": list(ids)})


def garbage_collection(facts: RankFacts) -> RuleFinding | None:
    """Python's garbage collector ran: with many objects that takes up to a second.

    Call it yourself every so many steps, at the same time on all ranks. Only explicit calls have a
    frame: what Python starts by itself is no event of any profiler, and its time is that of the
    Python, or of the op, in the middle of which it began.
    """
    found = _deleted_work(facts, _COLLECTS, "the host collected garbage")
    if found is not None or facts.has_stacks:
        return found
    silent_ns = facts.idle_ns(*_SILENT_HOST)
    if facts.share(silent_ns) < LOADING_PCT:
        return None
    text = f"{facts.share(silent_ns):.1f} % of the time the host did what was not recorded"
    return unknown(text, f"Python stacks: {facts.advice.stacks}", hi_ns=silent_ns, lo_ns=0)


def _host_found(
    facts: RankFacts,
    idle: pd.DataFrame,
    removed: tuple[Int, Int],
    text: str,
    evidence: dict[str, pd.Series],
    *,
    deletes: bool = False,
) -> RuleFinding:
    """Return a finding on intervals of the host that a remedy removes.

    Args:
        facts: of the rank.
        idle: the idle time that they are to blame for.
        removed: starts and ends of what is removed, disjoint.
        text: in words.
        evidence: ids of rows.
        deletes: whether the remedy deletes the work; else it moves it.
    """
    hi_ns = min(union_length(*removed), facts.host_idle_ns)
    expected_ns = min(hi_ns, int(idle["time_ns"].sum()))
    inside = int(idle.loc[~flags(idle["drained"]), "time_ns"].sum())
    is_sure = deletes and not facts.is_coupled
    lo_ns = min(inside, expected_ns) if is_sure else 0
    limit = most_of(_BY_HOST_WORK, hi_ns, int(idle["time_ns"].sum()))
    return RuleFinding(
        text, hi_ns, lo_ns, expected_ns, limit, evidence, top_line(idle), removed=removed
    )


def moved(idle: pd.DataFrame, text: str, evidence: dict[str, pd.Series]) -> RuleFinding:
    """Return a finding on time of the host where no device worked: all of it may move elsewhere.

    Args:
        idle: rows of that time.
        text: in words.
        evidence: ids of rows.
    """
    removed = merged(*ends(idle.rename(columns={"time_ns": "dur_ns"})))
    hi_ns = union_length(*removed)
    return RuleFinding(text, hi_ns, 0, hi_ns, _BY_THREAD, evidence, top_line(idle), removed=removed)


def _deleted_work(facts: RankFacts, names: re.Pattern[str], text: str) -> RuleFinding | None:
    """Return a finding on what ops and ranges of some names did, which need not be done."""
    ranges = facts.rows("ranges", *_RANGES, where=facts.named("ranges", "name", names))
    ops = facts.rows("ops", *_OPS, where=facts.named("ops", "op", names))
    if ranges.empty and ops.empty:
        return None
    start, end = _union(ranges, ops)
    idle = facts.idle_of(*HOST_CAUSES, columns=_OF_IDLE)
    begin = idle["start_ns"].to_numpy("int64")
    inside = time_within(start, end, begin, begin + idle["time_ns"].to_numpy("int64"))
    hi_ns = min(union_length(start, end), facts.host_idle_ns)
    if facts.share(hi_ns) < LEAST_PCT:
        return None
    evidence = {"ranges": longest(ranges, "range_id"), "ops": longest(ops, "op_id")}
    is_drained = flags(idle["drained"])
    lo_ns = 0 if facts.is_coupled else int(inside[~is_drained].sum())
    share = facts.share(union_length(start, end))
    words = f"{text} {counted(len(start), 'time')}, for {share:.1f} % of the time"
    line = top_line(idle[inside > 0])
    expected = min(hi_ns, int(inside.sum()))
    limit = most_of(_BY_HOST_WORK, hi_ns, int(inside.sum()))
    return RuleFinding(
        words, hi_ns, min(lo_ns, expected), expected, limit, evidence, line, removed=(start, end)
    )


def _host_gaps(facts: RankFacts) -> pd.DataFrame:
    """Return the gaps that the host is to blame for, in order, each with its `stretch`.

    `in_stretch` are those of stretches that are long enough, `is_pause` those in which Python or an
    op took long. Gaps that only the device needs, from one kernel in its queue to the next, are not
    looked at, nor are those while a graph is launched already.
    """
    queued = facts.are("idle", "cause", _QUEUED)
    columns = ("device", "gap_id", "start_ns", "time_ns", "step", "cause", "call", "kernel_id")
    idle = facts.rows("idle", *columns, where=~queued)
    own = idle.sort_values("start_ns").assign(
        host_ns=idle["time_ns"].where(idle["cause"].isin(_BOUND_CAUSES), 0),
        pause_ns=idle["time_ns"].where(idle["cause"].isin(_PAUSES), 0),
        end_ns=idle["start_ns"] + idle["time_ns"],
        breaks=idle["cause"].isin(_BREAKING),
        device=idle["device"].fillna(-1),
    )
    own = own[~matches(own["call"], _REPLAYS)]
    gaps = own.groupby(["device", "gap_id"], as_index=False, observed=True).agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), step=("step", "last"),
        host_ns=("host_ns", "sum"), pause_ns=("pause_ns", "sum"),
        breaks=("breaks", "any"), kernel_id=("kernel_id", "first"),
    )  # fmt: skip
    gaps = gaps.sort_values(["device", "start_ns"], ignore_index=True)
    counts = (gaps["host_ns"] > 0) & ~gaps["breaks"]
    place = gaps[["device", "step"]].fillna(-1).astype("int64")
    new = ~counts | (place != place.shift()).any(axis=1)
    gaps = gaps.assign(stretch=new.cumsum())[counts.to_numpy()]
    size = gaps.groupby("stretch", observed=True)["gap_id"].transform("size")
    return gaps.assign(in_stretch=size >= STRETCH_GAPS, is_pause=gaps["pause_ns"] >= PAUSE_NS)


def _hidden_ns(facts: RankFacts, pauses: pd.DataFrame) -> int:
    """Return how long the host was in pauses while the device still worked, at most.

    A pause ends in the launch of the kernel after it, and begins in the thread's launch before.
    """
    calls = facts.rows("launches", *CALLS).sort_values(["pid", "tid", "start_ns"], kind="stable")
    calls = calls[calls["launch_id"].isin(_work_of(facts)["launch_id"].dropna()).to_numpy(bool)]
    last = (calls["start_ns"] + calls["dur_ns"]).groupby(
        [calls["pid"], calls["tid"]], dropna=False, observed=True
    )
    since = pd.Series((calls["start_ns"] - last.shift()).to_numpy(), calls["launch_id"].to_numpy())
    work = _work_of(facts).set_index("kernel_id")["launch_id"]
    took = since.reindex(work.reindex(pauses["kernel_id"].dropna())).to_numpy("float64")
    inside = pauses.loc[pauses["kernel_id"].notna(), "pause_ns"].to_numpy("float64")
    return int(np.nansum(np.maximum(took - inside, 0)))


def _work_of(facts: RankFacts) -> pd.DataFrame:
    return facts.work("kernel_id", "kernel_short", "launch_ns", "launch_id")


def _replayable_ns(facts: RankFacts, gaps: pd.DataFrame) -> int:
    """Return what graphs gain at least: in stretches that come again, and that a graph can hold."""
    if facts.is_coupled or not facts.has_steps:
        return 0
    rows = (
        gaps.dropna(subset="kernel_id")
        .merge(_work_of(facts), on="kernel_id")
        .sort_values("start_ns")
    )
    by = rows.groupby("stretch", observed=True)
    each = by.agg(first=("launch_ns", "min"), last=("launch_ns", "max"), step=("step", "first"))
    each["names"] = by["kernel_short"].agg(lambda names: hash(tuple(map(str, names))))
    each["gain_ns"] = by["host_ns"].sum() - REPLAY_GAP_NS * by.size()
    steps = each.groupby("names", observed=True)["step"].transform("nunique")
    each = each[(steps >= REPEATS).to_numpy() & each["first"].notna().to_numpy(bool)]
    # Without those in which there is a call that a graph cannot hold.
    crosses = facts.named("copies", "copy_kind", re.compile("h2d|d2h"))
    crossing = facts.rows("copies", "launch_ns", where=crosses)
    times = pd.concat([facts.calls_of("sync", "allocator")["start_ns"], crossing["launch_ns"]])
    when = np.sort(times.dropna().to_numpy("int64"))
    first, last = (each[name].to_numpy("int64") for name in ("first", "last"))
    free = np.searchsorted(when, last, "right") <= np.searchsorted(when, first, "left")
    return int(each.loc[free, "gain_ns"].clip(lower=0).sum())


def _union(*tables: pd.DataFrame) -> tuple[Int, Int]:
    start, end = (np.concatenate(column) for column in zip(*map(ends, tables), strict=True))
    return merged(start, end)


def longest(rows: pd.DataFrame, key: str) -> pd.Series:
    """Return the ids of rows, the longest first."""
    ids: pd.Series = rows.sort_values("dur_ns", ascending=False, kind="stable")[key]
    return ids


def tops(rows: pd.DataFrame, column: str, most: int = 3, time: str = "time_ns") -> list[str]:
    """Return the values of a column that own most of the time."""
    times = (
        rows.groupby(column, observed=True)[time].sum().sort_values(ascending=False, kind="stable")
    )
    return [str(value) for value in times.index[:most]]


def top_line(rows: pd.DataFrame, time: str = "time_ns") -> str | None:
    """Return the line that owns most of the time; None: no row has one."""
    return next(iter(tops(rows, "source", 1, time)), None)
