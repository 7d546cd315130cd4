"""What steps wait for where no device worked, by hand."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.time.host_time import STEPPING, host_time, host_windows
from pyprof2.analysis.time.idle import INPUT
from tests.analysis.time.test_idle import ENGINE, note, op
from tests.builders import canonical

if TYPE_CHECKING:
    import pandas as pd

_LOCK = "<built-in method acquire of _thread.lock object at 0x7f00>"
_LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def _times(*events: dict[str, Any]) -> pd.DataFrame:
    """Return what steps of 0 to 1000 ns wait for."""
    rows = {
        "ops": [row for row in events if "op" in row],
        "ranges": [row for row in events if "op" not in row],
        "trace": [{"start_ns": 0, "end_ns": 1000}],
    }
    tables = {name: canonical(name, *rows.get(name, [])).select(INPUT[name]) for name in INPUT}
    found: pd.DataFrame = host_time(tables).to_pandas()
    return found


def _by_cause(times: pd.DataFrame) -> dict[str, int]:
    return dict(Counter(dict(times.groupby("cause", observed=True)["time_ns"].sum())))


def test_every_instant_has_one_cause() -> None:
    times = _times(
        note(0, 1000, "ProfilerStep#3", "step"),
        note(10, 310, _LOADER),
        op(100, 200, "aten::stack"),  # of the loader
        op(310, 500, "aten::linear"),
        op(400, 450, "aten::addmm"),
        note(500, 900, "train.py(7): main", "python"),
        note(600, 800, _LOCK, "python"),
        op(850, 900, "gloo:all_reduce"),
    )

    assert _by_cause(times) == {
        "host_unrecorded": 10 + 100, "data_loading": 300, "host_op": 190, "sync": 200,
        "host_python": 100 + 50, "host_comm": 50,
    }  # fmt: skip
    ops = times[times["cause"] == "host_op"].groupby("op", observed=True)["time_ns"].sum()
    assert ops.to_dict() == {"aten::linear": 140, "aten::addmm": 50}
    assert dict(zip(times["cause"], times["group"], strict=True)) == {
        "host_unrecorded": "outside of ops", "data_loading": "waits", "host_op": "ops",
        "sync": "waits", "host_python": "outside of ops", "host_comm": "waits",
    }  # fmt: skip
    assert set(times["step"]) == {3}
    assert times["device"].isna().all()
    (window,) = host_windows(times).to_dict("records")
    assert (window["window_ns"], window["busy_ns"], window["idle_ns"]) == (1000, 190, 810)


@pytest.mark.parametrize(
    ("events", "loading"),
    [
        pytest.param([note(0, 1000, "ProfilerStep#1", "step", ENGINE)], 0, id="holds the steps"),
        pytest.param([], 600, id="else has the most time in ops"),
    ],
)
def test_the_thread_that_a_step_waits_for(events: list[dict[str, Any]], loading: int) -> None:
    times = _times(
        *events, op(0, 400), note(400, 1000, _LOADER), op(0, 10, tid=ENGINE),
        op(900, 1000, tid=ENGINE),
    )  # fmt: skip

    assert _by_cause(times).get("data_loading", 0) - loading in (0, 500)
    stepping = times[times["thread"] == STEPPING]
    assert _by_cause(stepping) == (
        {"host_op": 110} if events else {"host_op": 400, "data_loading": 600}
    )


def test_what_the_thread_itself_leaves_open_another_one_may_tell() -> None:
    times = _times(
        note(0, 1000, "ProfilerStep#1", "step"), op(0, 300), op(200, 1000, "aten::mm", ENGINE)
    )

    assert _by_cause(times) == {"host_op": 1000}
    assert _by_cause(times[times["thread"] == "other"]) == {"host_op": 700}


def test_without_an_op_there_is_nothing_to_say() -> None:
    assert _times(note(0, 1000, "ProfilerStep#1", "step")).empty
