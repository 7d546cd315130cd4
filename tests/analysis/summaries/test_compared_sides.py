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
    activities,
    activity_columns,
    device_side,
    largest_terms,
    step_difference,
)
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
    rows, steps = run.rows(NEEDED), run.steps
    first = steps[steps["step"] == steps["step"].min()]

    for _, other in steps.groupby("step"):
        terms = step_difference(rows, run.idle, first, other)
        assert sum(terms.values()) == other["dur_ns"].item() - first["dur_ns"].item()


@pytest.mark.parametrize("seed", range(5))
def test_a_device_is_busy_in_a_window_as_counted_ns_by_ns(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = [
        row(int(draw.integers(300)), int(draw.integers(40)), n, device=int(draw.integers(2)))
        for n in range(30)
    ]
    steps = [(device, number, 100 * number, 80) for number in range(3) for device in (0, 1)]
    columns = zip(*((0, *each) for each in steps), strict=True)
    names = ("rank", "device", "step", "start_ns", "dur_ns")
    tables = {
        "steps": pa.table(dict(zip(names, columns, strict=True))),
        "trace": canonical("trace", {"start_ns": 0, "end_ns": 400}),
    }
    parts = [canonical("kernels", *rows[:20]), canonical("copies", *rows[20:])]
    own = [part.select(activity_columns(part.column_names, ())) for part in parts]
    idle = pd.DataFrame({"step": [], "cause": [], "time_ns": []})

    side = device_side(activities(own), tables, idle, (1, 2))

    assert len(side.windows) == 4
    for window in side.windows.to_dict("records"):
        on = [each for each in rows if each["device"] == window["device"]]
        spans = (range(each["start_ns"], each["start_ns"] + each["dur_ns"]) for each in on)
        at = {ns for span in spans for ns in span}
        wanted = sum(window["start_ns"] <= ns < window["end_ns"] for ns in at)
        assert window["busy_ns"] == wanted
