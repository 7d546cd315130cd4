"""Frames whose return was not recorded swallow nothing, and frames that returned are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.problems import FRAMES_ENDLESS, look_up
from tests.kineto_events import ENGINE, MAIN, Event, frame, load_events, op, rows

if TYPE_CHECKING:
    from pathlib import Path

END: Final = 1000
"""When the recording stops, in us."""


def called(name: str, begin: int, end: int, number: int, caller: int, tid: int = MAIN) -> Event:
    """Return a frame with its id, and that of the frame that called it; 0 for none."""
    ids = {"Python id": number} | ({"Python parent id": caller} if caller else {})
    return frame(name, begin, end - begin, tid=tid, args=ids)


def training(linear_end: int, helper_end: int, tid: int = MAIN) -> list[Event]:
    """Return a step whose linear layer and its helper end then; they ended at 80 and 70."""
    return [
        called("train.py(40): <module>", 0, END, 1, 0, tid),
        called("train.py(10): forward_step", 10, 200, 2, 1, tid),
        called("nn.Module: Net_0", 20, 190, 3, 2, tid),
        called("nn.Module: Linear_0", 30, linear_end, 4, 3, tid),
        called("model.py(7): helper", 32, helper_end, 5, 4, tid),
        op("aten::addmm", 40, 10, tid=tid), op("aten::t", 42, 2, tid=tid),
        op("aten::relu", 100, 10, tid=tid),
        called("train.py(22): update", 300, 500, 6, 1, tid),
        op("aten::add_", 320, 10, tid=tid), op("aten::sum", 600, 10, tid=tid),
    ]  # fmt: skip


def places(folder: Path, *events: Event) -> dict[str, tuple[str | None, str | None]]:
    """Return the layer and the line of each op."""
    found = rows(load_events(folder, *events).table("ops"), "op", "layer", "source")
    return {name: (layer, source) for name, layer, source in found}


def endless(folder: Path, *events: Event) -> int:
    found = load_events(folder, *events).check().set_index("finding")["count"]
    return int(found.get(look_up(FRAMES_ENDLESS).text, 0))


RIGHT: Final = {
    "aten::addmm": ("Net_0.Linear_0", "model.py:7"), "aten::t": ("Net_0.Linear_0", "model.py:7"),
    "aten::relu": ("Net_0", "train.py:10"), "aten::add_": (None, "train.py:22"),
    "aten::sum": (None, "train.py:40"),
}  # fmt: skip


@pytest.mark.parametrize("tid", [MAIN, ENGINE])
@pytest.mark.parametrize(
    ("linear_end", "helper_end", "count"),
    [
        pytest.param(80, 70, 0, id="both return"),
        pytest.param(END, END, 2, id="to the end"),
        pytest.param(190, 190, 0, id="to the end of the caller, before all others"),
        pytest.param(END, 70, 1, id="the outer one alone"),
        pytest.param(80, END, 1, id="the inner one alone"),
    ],
)
def test_what_runs_after_a_frame_without_return_is_not_in_it(
    tmp_path: Path, linear_end: int, helper_end: int, count: int, tid: int
) -> None:
    events = training(linear_end, helper_end, tid)
    found = places(tmp_path, *events)

    assert endless(tmp_path, *events) == count
    # Nothing says whether it had returned then.
    unsure: dict[str, tuple[str | None, str | None]] = {}
    if count and linear_end == END:
        unsure = {"aten::relu": (None, None)}
    if not count and linear_end == 190:
        unsure = {"aten::relu": ("Net_0.Linear_0", "model.py:7")}
    assert found == RIGHT | unsure


def test_a_frame_without_return_runs_as_long_as_those_that_it_called(tmp_path: Path) -> None:
    found = places(
        tmp_path,
        called("a.py(1): main", 0, END, 1, 0), called("a.py(2): endless", 10, END, 2, 1),
        op("aten::a", 20, 5), called("a.py(3): inner", 100, 200, 3, 2), op("aten::b", 150, 5),
        op("aten::c", 210, 5), op("aten::d", 250, 5),
        called("a.py(4): after", 300, 400, 4, 1), op("aten::e", 350, 5), op("aten::f", 500, 5),
    )  # fmt: skip

    lines = {name: source for name, (_, source) in found.items()}
    assert lines == {
        "aten::a": "a.py:2", "aten::b": "a.py:3", "aten::c": None, "aten::d": None,
        "aten::e": "a.py:4", "aten::f": "a.py:1",
    }  # fmt: skip


def test_frames_that_are_open_when_recording_stops_run_to_the_end(tmp_path: Path) -> None:
    events = [
        called("a.py(1): main", 0, END, 1, 0), called("a.py(2): train", 10, END, 2, 1),
        called("a.py(3): step", 20, 40, 3, 2), called("a.py(4): stop", 900, END, 4, 2),
        op("aten::a", 30, 5), op("aten::b", 500, 5), op("aten::c", 950, 5),
    ]  # fmt: skip

    assert endless(tmp_path, *events) == 0
    lines = [source for _, source in places(tmp_path, *events).values()]
    assert lines == ["a.py:3", "a.py:2", "a.py:4"]


def test_ids_that_skip_a_caller_end_no_frame_that_returned(tmp_path: Path) -> None:
    """Around hooks that C++ calls, some versions of torch name a frame further out."""
    events = [
        called("a.py(1): main", 0, END, 1, 0), called("a.py(2): relu", 10, 90, 2, 1),
        called("a.py(3): pack_hook", 20, 80, 3, 1), called("a.py(4): enter", 30, 40, 4, 1),
        op("aten::a", 35, 2), op("aten::b", 60, 5), op("aten::c", 85, 2),
    ]  # fmt: skip

    assert endless(tmp_path, *events) == 0
    lines = [source for _, source in places(tmp_path, *events).values()]
    assert lines == ["a.py:4", "a.py:3", "a.py:2"]


def test_times_that_are_rounded_contradict_nothing(tmp_path: Path) -> None:
    events = [
        called("a.py(1): main", 0, 100, 1, 0), called("a.py(2): inner", 10, 101, 2, 1),
        op("aten::a", 50, 2), called("a.py(9): other", 200, END, 3, 0),
    ]  # fmt: skip

    assert endless(tmp_path, *events) == 0
    assert places(tmp_path, *events)["aten::a"] == (None, "a.py:2")


def test_frames_with_the_id_of_a_caller_alone_are_left_alone(tmp_path: Path) -> None:
    alone = frame("train.py(40): <module>", 0, END, args={"Python parent id": 7})

    assert endless(tmp_path, alone, op("aten::addmm", 40, 10)) == 0
