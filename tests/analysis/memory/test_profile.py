"""Totals, rows, growth, tags and differences on small tables, counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof2.analysis.memory.categories import CATEGORIES
from pyprof2.analysis.memory.curves import MemoryCurve, curves_of_rank
from pyprof2.analysis.memory.fits import allocator_advice, fits
from pyprof2.analysis.memory.live import AXES, entries, live_at, summarize
from pyprof2.analysis.memory.profile import MemoryProfile, difference
from pyprof2.analysis.memory.timeline import growth, highest_of_parts, step_ends, timeline
from pyprof2.errors import UsageError
from tests.builders import canonical

if TYPE_CHECKING:
    import pyarrow as pa

FORWARD: dict[str, Any] = {"phase": "forward", "op": "aten::mm"}
BACKWARD: dict[str, Any] = {"phase": "backward", "op": "MmBackward0"}


def _memory(*rows: dict[str, Any]) -> pa.Table:
    """Return a table `memory` of device `cuda:0`; times count up by 10 ns."""
    default = {"device_type": "cuda", "device": 0, "pid": 1, "tid": 1}
    return canonical(
        "memory", *({"time_ns": 10 * at} | default | row for at, row in enumerate(rows))
    )


def _curve(*rows: dict[str, Any]) -> MemoryCurve:
    (curve,) = curves_of_rank([_memory(*rows)], canonical("memory_tags"), 0)
    return curve


def _profile(*rows: dict[str, Any], tags: pa.Table | None = None) -> MemoryProfile:
    return MemoryProfile(Path("x"), [_curve(*rows)], tags=tags)


def _sums(profile: MemoryProfile, axis: str, at: str = "peak") -> dict[str, int]:
    rows = profile.rows([axis], at)
    return dict(zip(rows[axis].astype(str), rows["bytes"].tolist(), strict=True))


def block(address: int, size: int, **fields: Any) -> dict[str, Any]:
    """Return an allocation, or with a negative size a release."""
    return {"address": address, "bytes": size} | fields


def test_the_recorders_total_tells_the_base() -> None:
    curve = _curve(block(1, 100, allocated_bytes=1100), block(1, -100, allocated_bytes=1000))

    assert curve.base == 1000


def test_on_the_cpu_the_total_tells_nothing() -> None:
    curve = _curve(block(1, 100, allocated_bytes=1100, device_type="cpu", device=None))

    assert curve.base is None


def test_a_total_that_jumps_leaves_the_base_unknown() -> None:
    curve = _curve(block(1, 100, allocated_bytes=1100), block(2, 100, allocated_bytes=1300))

    assert curve.base is None
    assert "1 times the recorder's total changes without an event" in curve.notes[0]


def test_the_peak_is_the_first_moment_with_most() -> None:
    curve = _curve(block(1, 8), block(2, 8), block(2, -8), block(3, 8))

    assert curve.peak == 1


def test_where_only_releases_are_the_peak_is_before_them() -> None:
    profile = _profile(block(1, -8, allocated_bytes=92), block(2, -2, allocated_bytes=90))

    (row,) = profile.devices.astype(object).to_dict("records")
    assert (row["base_bytes"], row["peak_over_base_bytes"], row["base_at_peak_bytes"]) == (
        100, 0, 100,
    )  # fmt: skip
    assert _sums(profile, "line") == {"(before the recording)": 100}


def test_base_at_the_peak_is_the_base_less_what_was_released_of_it() -> None:
    profile = _profile(
        block(9, -30, allocated_bytes=70), block(1, 50, allocated_bytes=120, source="a.py:1")
    )

    (row,) = profile.devices.astype(object).to_dict("records")
    assert row["base_at_peak_bytes"] == 70
    assert row["peak_allocated_bytes"] == 120
    assert _sums(profile, "line") == {"(before the recording)": 70, "a.py:1": 50}
    assert [profile.curves[0].base_at(moment) for moment in (-1, 0, 1)] == [100, 70, 70]


def test_what_is_released_of_an_unknown_base_counts_as_less_than_nothing() -> None:
    profile = _profile(block(9, -30), block(1, 50, source="a.py:1"))

    assert _sums(profile, "line") == {"a.py:1": 50, "(before the recording)": -30}
    (row,) = profile.devices.astype(object).to_dict("records")
    assert row["peak_over_base_bytes"] == 20


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        pytest.param({"op": "aten::mm", "source": "a.py:1"}, "a.py:1", id="known"),
        pytest.param({}, "(no op)", id="no op"),
        pytest.param({"op": "aten::mm"}, "(no source)", id="no stack"),
        pytest.param({"op": "aten::mm", "stack_id": 0}, "(library code)", id="library"),
    ],
)
def test_what_has_no_line_says_why(fields: dict[str, Any], line: str) -> None:
    assert _sums(_profile(block(1, 8, **fields)), "line") == {line: 8}


@pytest.mark.parametrize(
    ("op", "category"),
    [
        ("aten::mm", "temporary"),
        ("aten::cudnn_convolution", "workspace"),
        ("aten::_cublas_workspace", "workspace"),
        ("c10d::allreduce_", "communication"),
        ("nccl:all_gather", "communication"),
    ],
)
def test_temporaries_of_libraries_are_told_apart_by_name(op: str, category: str) -> None:
    rows = (block(1, 8, phase="forward", op=op, step=1), block(1, -8, phase="forward", step=1))

    assert _sums(_profile(*rows), "category") == {category: 8}


def _lived(began: tuple[str | None, int], ended: tuple[str | None, int] | None) -> str:
    """Return the category of a block by phase and step, beside a backward in each step."""
    rows = [
        block(1, 8, phase=began[0], step=began[1]),
        *(block(90 + at, 1, phase="backward", step=at) for at in (1, 2)),
        *(block(90 + at, -1, phase="backward", step=at) for at in (1, 2)),
    ]
    if ended is not None:
        rows.append(block(1, -8, phase=ended[0], step=ended[1]))
    rows.sort(key=lambda row: row["step"])
    found = entries(_curve(*rows))
    return str(found.loc[found["bytes"] == 8, "category"].iloc[0])


@pytest.mark.parametrize(
    ("began", "ended", "category"),
    [
        (("forward", 1), ("backward", 1), "activation"),
        (("forward", 1), ("forward", 1), "temporary"),
        (("forward", 1), ("forward", 2), "output"),
        (("forward", 1), None, "output"),
        (("forward", 1), ("backward", 2), "unknown"),
        (("forward", 1), ("optimizer", 1), "unknown"),
        (("backward", 1), ("zero_grad", 1), "gradient"),
        (("backward", 1), ("zero_grad", 2), "gradient"),
        (("backward", 1), ("forward", 2), "gradient"),
        (("backward", 1), None, "gradient"),
        (("backward", 1), ("backward", 1), "temporary"),
        (("backward", 1), ("optimizer", 1), "unknown"),
        (("optimizer", 1), None, "optimizer_state"),
        (("optimizer", 1), ("optimizer", 2), "optimizer_state"),
        (("optimizer", 1), ("optimizer", 1), "temporary"),
        (("optimizer", 1), ("forward", 2), "unknown"),
        ((None, 1), ("forward", 1), "unknown"),
        ((None, 1), None, "unknown"),
    ],
)
def test_phase_and_step_of_both_ends_tell_what_a_block_is_for(
    began: tuple[str | None, int], ended: tuple[str | None, int] | None, category: str
) -> None:
    assert _lived(began, ended) == category


def test_a_recording_that_ends_before_backward_does_not_tell_what_forward_left() -> None:
    profile = _profile(
        block(1, 8, phase="forward", step=1), block(2, 1, phase="backward", step=1),
        block(2, -1, phase="backward", step=1), block(1, -8, phase="backward", step=1),
        block(1, 8, phase="forward", step=2),
    )  # fmt: skip

    assert _sums(profile, "category", "end") == {"unknown": 8}


def test_without_step_ranges_forward_after_backward_begins_a_step() -> None:
    rows = []
    for _ in range(3):
        rows += [block(1, 8, **FORWARD), block(2, 4, **BACKWARD), block(2, -4, **BACKWARD)]
        rows += [block(1, -8, **BACKWARD)]

    assert step_ends(_curve(*rows))["step"].tolist() == [0, 1, 2]
    assert _sums(_profile(*rows), "category") == {"activation": 8, "temporary": 4}


def test_a_tag_is_exact_and_goes_before_what_is_inferred() -> None:
    tag = {"rank": 0, "time_ns": 15, "device_type": "cuda", "device": 0, "category": "input"}
    tags = canonical(
        "memory_tags",
        tag | {"address": 7},
        tag | {"address": 8, "time_ns": 500},
        tag | {"address": 9},
    )
    # 7 lives at 15 ns; 8 was released before its tag; 9 is of another device's address.
    rows = (block(7, 100), block(8, 50), block(8, -50), block(6, 60))

    found = _profile(*rows, tags=tags).rows(["category", "certainty"], "end")

    assert found[["category", "certainty", "bytes"]].to_numpy().tolist() == [
        ["input", "exact", 100], ["unknown", "none", 60],
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "lines"), [(16, ["leak.py:3"]), (None, [])])
def test_growth_is_what_every_step_leaves_behind(size: int | None, lines: list[str]) -> None:
    rows = [block(1000, 512, step=0, source="setup.py:1")]
    for at in range(1, 5):
        rows += [block(1, 100, step=at), block(1, -100, step=at)]
        if size:
            rows.append(block(100 + at, size, step=at, source="leak.py:3"))
    rows.append(block(2000, 64, step=2, source="once.py:1"))
    rows.sort(key=lambda row: row["step"])
    curve = _curve(*rows)

    found = growth(curve, entries(curve))

    assert found["line"].tolist() == lines
    # The first step is left out, and the last one: three are looked at.
    assert found["bytes_per_step"].tolist() == [16] * len(lines)
    assert found["bytes"].tolist() == [48] * len(lines)
    assert step_ends(curve)["over_base_bytes"].tolist() == [
        512 + (64 if at >= 2 else 0) + at * (size or 0) for at in range(5)
    ]


def test_the_timeline_has_every_category_after_every_event() -> None:
    curve = _curve(
        block(1, 8, allocated_bytes=108, **FORWARD), block(2, 4, allocated_bytes=112, **BACKWARD),
        block(2, -4, allocated_bytes=108, **BACKWARD),
        block(1, -8, allocated_bytes=100, **BACKWARD),
    )  # fmt: skip

    found = timeline(curve, entries(curve))

    assert found["allocated_bytes"].tolist() == [108, 112, 108, 100]
    assert found["activation_bytes"].tolist() == [8, 8, 8, 0]
    assert found["temporary_bytes"].tolist() == [0, 4, 0, 0]
    assert found["parameter_or_buffer_bytes"].tolist() == [100] * 4
    assert highest_of_parts(curve, 2) == [1, 2]


_EVENTS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from([8, 64, -8, -64]),
        st.sampled_from(["forward", "backward", "optimizer", "zero_grad", "other", None]),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, "a.py:1", "b.py:2"]),
    ),
    min_size=1,
    max_size=15,
)


@given(_EVENTS, st.booleans())
@settings(max_examples=15)
def test_rows_add_up_at_every_moment_for_every_axis(
    events: list[Any],
    knows_base: bool,  # noqa: FBT001 - hypothesis chooses it
) -> None:
    rows, total = [], 10_000
    for address, size, phase, number, source in events:
        total += size
        tagged = {"allocated_bytes": total} if knows_base else {}
        rows.append(block(address, size, phase=phase, step=number, source=source, **tagged))
    curve = _curve(*rows)
    everything = entries(curve)
    lived = timeline(curve, everything)
    categories = [f"{name}_bytes" for name in CATEGORIES if f"{name}_bytes" in lived]
    for moment in range(-1, len(rows)):
        wanted = (curve.base or 0) + sum(size for _, size, *_ in events[: moment + 1])
        assert live_at(everything, moment)["bytes"].sum() == wanted
        if moment >= 0:
            assert lived.loc[moment, categories].sum() == wanted
    for axis in AXES:
        live = live_at(everything, curve.peak)
        sums = summarize(curve, live, [axis])
        assert sums["bytes"].sum() == (curve.base or 0) + curve.over_base(curve.peak)


def test_the_difference_of_two_adds_up_to_that_of_their_peaks() -> None:
    a = _profile(block(1, 100, source="a.py:1"), block(2, 10, source="gone.py:1"))
    b = _profile(block(1, 130, source="a.py:1"), block(2, 5, source="new.py:1"))

    found = difference(a, b, ["line"])

    assert found[["line", "a_bytes", "b_bytes", "difference_bytes"]].to_numpy().tolist() == [
        ["a.py:1", 100, 130, 30], ["gone.py:1", 10, 0, -10], ["new.py:1", 0, 5, 5],
    ]  # fmt: skip
    assert found["difference_bytes"].sum() == 135 - 110
    assert found[["a_blocks", "b_blocks"]].to_numpy().tolist() == [[1, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("peak", "over", "reserved", "verdict"),
    [
        (900, 100, 950, "fits"),
        (900, 100, 990, "may fit"),
        (1001, 100, 1100, "does not fit"),
        (None, 100, None, "not known"),
        (None, 1001, None, "does not fit"),
    ],
)
def test_what_fits_is_what_the_allocator_took_with_a_margin(
    peak: int | None, over: int, reserved: int | None, verdict: str
) -> None:
    totals = {
        "peak_allocated_bytes": peak, "peak_over_base_bytes": over, "reserved_bytes": None,
        "peak_reserved_bytes": reserved, "non_torch_bytes": None,
    }  # fmt: skip

    assert fits(totals, 1000)["verdict"] == verdict


@pytest.mark.parametrize(
    ("totals", "chosen", "ran_out", "words"),
    [
        pytest.param({"fragmentation_bytes": 60}, {}, False, ["expandable_segments"], id="holes"),
        pytest.param({"fragmentation_bytes": 40}, {}, False, [], id="few holes"),
        pytest.param(
            {"fragmentation_bytes": 60}, {"expandable_segments": True}, False, [], id="set"
        ),
        pytest.param(
            {"free_segments_bytes": 60}, {}, True, ["garbage_collection_threshold"], id="ran out"
        ),
        pytest.param({"free_segments_bytes": 60}, {}, False, [], id="did not run out"),
        pytest.param(
            {"rounding_bytes": 60}, {"roundup_power2_divisions": [4]}, False, ["power2"], id="round"
        ),
        pytest.param({"rounding_bytes": 60}, {}, False, [], id="rounded by default"),
    ],
)  # fmt: skip
def test_settings_are_proposed_where_they_are_not_set_and_much_is_at_stake(
    totals: dict[str, int],
    chosen: dict[str, Any],
    ran_out: bool,  # noqa: FBT001 - a parameter
    words: list[str],
) -> None:
    none = {"fragmentation_bytes": 0, "free_segments_bytes": 0, "rounding_bytes": None}

    found = list(
        allocator_advice(none | {"reserved_bytes": 1000} | totals, chosen, ran_out=ran_out)
    )

    assert all(word in each["setting"] for word, each in zip(words, found, strict=True))
    assert [each["bytes"] for each in found] == [60] * len(words)


def test_an_unknown_axis_moment_or_device_is_named() -> None:
    profile = _profile(block(1, 8))

    with pytest.raises(UsageError, match="no axis 'kernel' of memory"):
        profile.rows(["kernel"])
    with pytest.raises(UsageError, match="named twice"):
        profile.rows(["line", "line"])
    with pytest.raises(UsageError, match="no moment 'noon'"):
        profile.rows(["line"], "noon")
    with pytest.raises(UsageError, match="devices cuda:0, ranks 0"):
        profile.only("cuda:7")


def test_a_recording_without_memory_has_no_device_and_no_row() -> None:
    profile = MemoryProfile(Path("x"), [])

    assert profile.devices.empty
    assert profile.rows(["line"]).empty
    assert isinstance(profile.devices, pd.DataFrame)
