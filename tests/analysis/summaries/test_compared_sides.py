"""What was different in a step: terms by hand, and that they add up to the difference."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pyprof2
from pyprof2.analysis.summaries.compared_calls import NEEDED
from pyprof2.analysis.summaries.compared_sides import (
    IDLE,
    activity_columns,
    device_side,
    idle_by_step,
    largest_terms,
    recorded_windows,
    step_difference,
    windows_of_steps,
)
from pyprof2.api import run_profile
from pyprof2.store.folder import STORED
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def row(start: int, dur: int, op_id: int, **other: Any) -> dict[str, Any]:
    """Return a kernel of an op."""
    return {
        "rank": 0, "device": 0, "start_ns": start, "dur_ns": dur, "op_id": op_id,
        "call_id": None, "op": "aten::x",
        "layer": "net", "direction": "forward", "signature": "s", "kernel": "k",
        "category": "matmul", "copy_kind": None,
    } | other  # fmt: skip


def step(start: int, dur: int, busy: int, device: int | None = 0) -> dict[str, Any]:
    """Return a row of the table `steps`."""
    return {
        "rank": 0, "device": device, "step": start // 100, "start_ns": start, "dur_ns": dur,
        "idle_ns": dur - busy,
    }  # fmt: skip


def gap(start: int, time: int, cause: str, device: int | None = 0) -> dict[str, Any]:
    """Return a row of the table `idle`."""
    return {
        "rank": 0, "device": device, "start_ns": start, "time_ns": time, "cause": cause,
        "step": start // 100,
    }  # fmt: skip


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    """Return rows with the types that tables have."""
    types = {"device": "Int64", "op_id": "Int64", "call_id": "Int64"}
    made = pd.DataFrame(rows)
    return made.astype({name: kind for name, kind in types.items() if name in made})


def test_a_slower_kernel_and_a_longer_gap_have_terms_of_their_own() -> None:
    """Step 1: 20 busy and 10 idle. Step 2: the kernel takes 26, sync 5 more, and 4 of loading."""
    rows = frame(row(100, 20, 0), row(200, 26, 1))
    idle = frame(gap(120, 10, "sync"), gap(226, 15, "sync"), gap(241, 4, "data_loading"))

    terms = step_difference(rows, idle, frame(step(100, 30, 20)), frame(step(200, 45, 26)))

    assert {term: delta for term, delta in terms.items() if delta} == {
        "kernel speed": 6, "idle: sync": 5, "idle: data_loading": 4,
    }  # fmt: skip
    assert largest_terms(terms)[0] == ("kernel speed", Fraction(6))


def test_of_several_devices_the_terms_are_means() -> None:
    """Of device 1 the kernel takes 8 more and the sync 8 less; of device 0 all is idle."""
    rows = frame(row(100, 20, 0, device=1), row(200, 28, 1, device=1))
    idle = frame(
        gap(100, 30, "start"), gap(200, 30, "start"),
        gap(120, 10, "sync", device=1), gap(228, 2, "sync", device=1),
    )  # fmt: skip
    before = frame(step(100, 30, 0), step(100, 30, 20, device=1))
    after = frame(step(200, 30, 28, device=1), step(200, 30, 0))

    terms = step_difference(rows, idle, before, after)

    assert {term: delta for term, delta in terms.items() if delta} == {
        "kernel speed": 4, "idle: sync": -4,
    }  # fmt: skip


def test_a_device_without_an_ordinal_is_one_of_its_own() -> None:
    rows = frame(row(100, 20, 0, device=None), row(200, 26, 1, device=None), row(200, 90, 2))
    idle = frame(gap(120, 10, "sync", None), gap(226, 10, "sync", None))

    terms = step_difference(
        rows, idle, frame(step(100, 30, 20, None)), frame(step(200, 36, 26, None))
    )

    assert {term: delta for term, delta in terms.items() if delta} == {"kernel speed": 6}


def test_a_step_whose_number_comes_again_has_the_idle_time_of_its_window() -> None:
    rows = frame(row(100, 20, 0), row(200, 20, 1))
    idle = frame(gap(120, 10, "sync"), gap(220, 10, "sync"), gap(950, 70, "sync") | {"step": 2})

    terms = step_difference(rows, idle, frame(step(100, 30, 20)), frame(step(200, 30, 20)))

    assert not any(terms.values())
    assert largest_terms(terms) == []


def test_largest_terms_are_by_size_whatever_the_sign() -> None:
    terms = {name: Fraction(n) for name, n in (("a", 3), ("b", -9), ("c", 0), ("d", 4), ("e", 1))}

    assert largest_terms(terms) == [(name, terms[name]) for name in "bda"]


@pytest.mark.parametrize("name", ["hta_df_index_v100_ddp", "hta_diff_control_a100"])
def test_terms_of_real_steps_add_up_to_the_difference(
    shared_trace: Callable[[str], Path], name: str
) -> None:
    run = pyprof2.load(shared_trace(f"kineto/{name}.json.gz"))
    rows, steps = run_profile.rows_of(run.tables, NEEDED), run.steps
    first = steps[steps["step"] == steps["step"].min()]

    for _, other in steps.groupby("step"):
        terms = step_difference(rows, run.idle, first, other)
        assert sum(terms.values()) == other["dur_ns"].item() - first["dur_ns"].item()


def test_windows_are_those_of_steps_of_devices_that_did_anything() -> None:
    """Of the first rank the first step is left out; of the second one there is no other."""
    names = ("rank", "device", "step", "start_ns", "dur_ns", "idle_ns")
    rows = [
        (0, 1, 4, 400, 90, 50), (0, 1, 5, 500, 80, 60), (0, None, 4, 400, 90, 90),
        (0, None, 5, 500, 80, 0), (1, 0, 9, 900, 70, 1), (2, None, 5, 500, 80, None),
    ]  # fmt: skip
    steps = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))

    found = windows_of_steps(steps, None)

    assert found.to_numpy().tolist() == [
        [0, 1, 5, 500, 580, 20], [0, -1, 5, 500, 580, 80], [1, 0, 9, 900, 970, 69],
    ]  # fmt: skip
    assert windows_of_steps(steps, (4, 4))["busy_ns"].tolist() == [40, 0]
    assert windows_of_steps(steps, (6, 8)).empty


def test_all_that_was_recorded_is_one_window_of_each_device() -> None:
    rows = [row(100, 20, 0), row(110, 30, 1), row(90, 5, 2, device=None)]
    tables = {
        "kernels": canonical("kernels", *rows), "copies": canonical("copies", row(300, 7, 3)),
        "trace": canonical("trace", {"start_ns": 95, "end_ns": 250}),
    }  # fmt: skip

    found = recorded_windows(tables)[["device", "step", "start_ns", "end_ns", "busy_ns"]]

    assert found.to_numpy().tolist() == [[-1, 0, 90, 250, 5], [0, 0, 95, 307, 47]]


def test_idle_time_of_parts_is_added_up_by_step_and_cause() -> None:
    gaps = [gap(100, 5, "sync"), gap(110, 7, "start"), gap(120, 9, "sync"), gap(200, 1, "start")]
    gaps.append(gap(210, 3, "sync") | {"step": None})
    schema = STORED["idle"].schema(IDLE)
    parts = [pa.Table.from_pylist(gaps[at : at + 2], schema=schema) for at in (0, 2, 4)]

    found = idle_by_step(parts)

    rows = sorted(found.itertuples(index=False, name=None))
    assert rows == [(-1, "sync", 3), (1, "start", 7), (1, "sync", 14), (2, "start", 1)]


def _drawn(draw: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Return activities in order of time: of few ops, whose kernels lie far apart."""
    rows = []
    for start in sorted(draw.integers(0, 320, count).tolist()):
        op, call, dur, kernel, device = draw.integers([6, 9, 40, 3, 2]).tolist()
        other = {"kernel": f"k{kernel}", "device": device, "call_id": call if call < 3 else None}
        none = {} if op else {"op_id": None, "op": None, "call_id": None}
        rows.append(row(start, dur, op) | other | none)
    return rows


def _counted(rows: list[dict[str, Any]], windows: pd.DataFrame) -> dict[Any, tuple[int, int]]:
    """Return how many calls there are by step and kernels, and their time."""
    calls: dict[Any, list[tuple[str, int]]] = {}
    for window in windows.to_dict("records"):
        for at, each in enumerate(rows):
            begin = max(each["start_ns"], window["start_ns"])
            time = min(each["start_ns"] + each["dur_ns"], window["end_ns"]) - begin
            touches = time > 0 or (time == 0 and each["dur_ns"] == 0)
            if each["device"] != window["device"] or not touches or begin == window["end_ns"]:
                continue
            own = ("op", each["op_id"]) if each["op_id"] is not None else ("alone", at)
            own = own if each["call_id"] is None else ("call", each["call_id"])
            calls.setdefault((own, window["step"]), []).append((each["kernel"], time))
    found: dict[Any, tuple[int, int]] = {}
    for (_, step), parts in calls.items():
        key = step, tuple(sorted(kernel for kernel, _ in parts))
        count, time = found.get(key, (0, 0))
        found[key] = count + 1, time + sum(each for _, each in parts)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [3, 100])
def test_calls_are_as_counted_one_by_one_however_rows_come_in_parts(seed: int, size: int) -> None:
    draw = np.random.default_rng(seed)
    rows = {name: _drawn(draw, 20) for name in ("kernels", "copies")}
    windows = pd.DataFrame(
        [(0, device, step, 100 * step, 100 * step + 80) for step in range(3) for device in (0, 1)],
        columns=["rank", "device", "step", "start_ns", "end_ns"],
    ).assign(busy_ns=0)
    parts = [
        (at, canonical(name, *own[first : first + size]))
        for at, (name, own) in enumerate(rows.items())
        for first in range(0, len(own), size)
    ]
    own = [(at, part.select(activity_columns(part.column_names, ()))) for at, part in parts]

    side = device_side(own, windows, pd.DataFrame({"step": [], "cause": [], "time_ns": []}))

    found: dict[Any, tuple[int, int]] = {}
    for call, counts, times in zip(side.calls["kernels"], side.counts, side.sums_ns, strict=True):
        kernels = tuple(call.split("\1")[1:])
        for step in np.flatnonzero(counts).tolist():
            count, time = found.get((step, kernels), (0, 0))
            found[step, kernels] = count + int(counts[step]), time + int(times[step])
    assert found == _counted([*rows["kernels"], *rows["copies"]], windows)


def test_a_call_is_of_the_kind_and_the_words_of_all_its_activities() -> None:
    """A kernel comes before copies, wherever the parts of their tables are cut."""
    kernels = [row(100, 9, 0, op=None, kernel="k"), row(150, 1, 1, kernel="q", category="comm")]
    copies = [
        row(90, 5, 0, op="aten::y", kernel="c", category="memcpy", copy_kind="h2d"),
        row(110, 5, 2, op=None, kernel="d", category="memset", copy_kind="d2d") | {"op_id": None},
        row(140, 5, 1, kernel="e", category="memcpy", copy_kind="h2d"),
    ]
    tables = [(1, canonical("copies", each)) for each in copies]
    tables += [(0, canonical("kernels", each)) for each in kernels]
    windows = pd.DataFrame(
        {"rank": [0], "device": [0], "step": [1], "start_ns": [0], "end_ns": [900], "busy_ns": [0]}
    )
    parts = [(at, part.select(activity_columns(part.column_names, ()))) for at, part in tables]

    calls = device_side(parts, windows, pd.DataFrame({"step": [], "cause": []})).calls

    found = {own["op"]: own for own in calls.astype(object).to_dict("records")}
    assert {op: (own["kind"], own["kernels"][10:].split("\1")) for op, own in found.items()} == {
        "k": ("compute", ["c", "k"]), "aten::x": ("communication", ["e", "q"]),
        "d2d": ("copies", ["d"]),
    }  # fmt: skip
    assert found["k"]["layer"] == "net"
    assert found["d2d"]["layer"] is None
