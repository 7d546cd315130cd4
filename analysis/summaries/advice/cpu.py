"""Rules where no device worked: what a step waits for is the thread that holds it.

Its waits can move to other threads, and its work can be done faster; none of this is sure, since
the processors are shared with what moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import merged
from pyprof2.analysis.summaries.advice.facts import ends
from pyprof2.analysis.summaries.advice.findings import RuleFinding, unknown
from pyprof2.analysis.summaries.advice.host import LEAST_PCT, longest, moved, top_line, tops
from pyprof2.columns import combine_keys
from pyprof2.units import counted

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.analysis.summaries.advice.facts import RankFacts

PYTHON_PCT: Final = 5
SHORT_OPS_PCT: Final = 10
LONG_OPS_PCT: Final = 50
SHORT_NS: Final = 20_000
LONG_NS: Final = 100_000
_FASTEST_PCT: Final = 10
"""Percentile of short ops that stands for what an op costs however little it does."""
_NODE: Final = "autograd::engine::evaluate_function: "
"""The prefix of the names of nodes that backward runs."""


def waiting(facts: RankFacts) -> RuleFinding | None:
    """The thread that holds the steps waits for another thread, a process or another rank."""
    idle = facts.idle_of("sync", "host_comm")
    share = facts.share(idle["time_ns"].sum())
    if share < LEAST_PCT:
        return None
    words = ", ".join(tops(idle, "op"))
    text = f"{share:.1f} % of the time for other threads, processes or ranks"
    text = f"{text}, in {words}" if words else text
    return moved(idle, text, {"ops": idle["op_id"].dropna().drop_duplicates()})


def python(facts: RankFacts) -> RuleFinding | None:
    """Python outside of ops runs on one core, and no op runs beside it."""
    idle = facts.idle_of("host_python", "host_unrecorded")
    time_ns = int(idle["time_ns"].sum())
    share = facts.share(time_ns)
    if share < PYTHON_PCT:
        return None
    text = f"{share:.1f} % of the time outside of ops and of the loading of data"
    hidden_ns = facts.idle_ns("host_unrecorded")
    if 2 * hidden_ns > time_ns and not facts.has_stacks:
        return unknown(text, f"Python stacks: {facts.advice.stacks}", hi_ns=time_ns, lo_ns=0)
    return moved(idle, text, {"ops": idle["op_id"].dropna().drop_duplicates()})


def short_ops(facts: RankFacts) -> RuleFinding | None:
    """Ops do so little that most of their time is what it costs to call them."""
    ops = _outermost(facts)
    short = ops[ops["dur_ns"] < SHORT_NS]
    hi_ns = int(short["dur_ns"].sum())
    if facts.share(hi_ns) < SHORT_OPS_PCT:
        return None
    least_ns = float(np.percentile(short["dur_ns"], _FASTEST_PCT))
    text = (
        f"{facts.share(hi_ns):.1f} % of the time in {counted(len(short), 'op')} of under "
        f"{SHORT_NS // 1000} us, most in {', '.join(tops(short, 'op', time='dur_ns'))}; "
        f"to call one takes {least_ns / 1000:.1f} us"
    )
    expected_ns = min(hi_ns, round(least_ns * len(short)))
    return RuleFinding(
        text, hi_ns, 0, expected_ns, "the time of these ops",
        {"ops": longest(short, "op_id")}, top_line(short, time="dur_ns"), removed=ends(short),
    )  # fmt: skip


def long_ops(facts: RankFacts) -> RuleFinding | None:
    """Most of the time is in ops that are large: their threads and their inputs decide.

    How many threads they ran on is not recorded, so no time can be named.
    """
    ops = _outermost(facts)
    long = ops[ops["dur_ns"] >= LONG_NS]
    share = facts.share(int(long["dur_ns"].sum()))
    if share < LONG_OPS_PCT:
        return None
    words = ", ".join(tops(long, "op", time="dur_ns"))
    text = f"{share:.1f} % of the time in ops of {LONG_NS // 1000} us or more, most in {words}"
    evidence = {"ops": longest(long, "op_id")}
    return RuleFinding(text, evidence=evidence, source=top_line(long, time="dur_ns"))


def _outermost(facts: RankFacts) -> pd.DataFrame:
    """Return the ops inside of no other one of the thread with the most of them, and no loading."""
    loads = facts.idle_of("data_loading")
    begin, end = merged(*ends(loads.rename(columns={"time_ns": "dur_ns"})))
    ops = facts.rows("ops", "op_id", "start_ns", "dur_ns", "pid", "tid", "op", "source")
    thread = combine_keys(*(ops[n].to_numpy("int64", na_value=-1) for n in ("pid", "tid")))
    ops = ops.assign(thread=thread, end_ns=ops["start_ns"] + ops["dur_ns"]).sort_values(
        ["thread", "start_ns", "dur_ns"], ascending=[True, True, False], kind="stable"
    )
    before = (
        ops.groupby("thread", observed=True)["end_ns"]
        .cummax()
        .groupby(ops["thread"], observed=True)
        .shift(fill_value=0)
    )
    ops = ops[(ops["start_ns"] >= before).to_numpy(bool)]
    start = ops["start_ns"].to_numpy("int64")
    place = np.searchsorted(begin, start, "right") - 1
    is_loading = (place >= 0) & (start < np.r_[end, 0][place])
    ops = ops[~is_loading]
    ops = ops.assign(op=ops["op"].astype("object").str.removeprefix(_NODE))
    times = ops.groupby("thread", observed=True)["dur_ns"].sum()
    most: pd.DataFrame = ops[ops["thread"] == times.idxmax()] if len(times) else ops
    return most
