"""Curves of snapshots: base, peak, phases, what is reserved, and what is odd in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import pyprof2
from tests.snapshots import (
    MODEL,
    TORCH,
    TRAIN,
    alloc,
    block,
    dump,
    event,
    flat,
    forward,
    frame,
    free,
    optimizer,
    segment,
    snapshot,
    zero_grad,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.analysis.memory.profile import MemoryProfile

BASE = 1 << 20
"""Where the first segment of a test begins."""


def _of(folder: Path, content: Any) -> MemoryProfile:
    return pyprof2.memory(dump(folder, content))


def _totals(profile: MemoryProfile) -> dict[Any, Any]:
    (row,) = profile.devices.astype(object).to_dict("records")
    return row


def _rows(profile: MemoryProfile, axis: str, at: str = "peak") -> dict[str, int]:
    rows = profile.rows([axis], at)
    return dict(zip(rows[axis].astype(str), rows["bytes"].tolist(), strict=True))


def test_base_is_what_the_segments_hold_at_the_end_less_what_the_events_add(tmp_path: Path) -> None:
    content = snapshot(
        [segment(block(4096), block(1024), block(2048, "inactive"))],
        flat(alloc(BASE + 4096, 1024), alloc(BASE + 5120, 2048), *free(BASE + 5120, 2048)),
    )

    found = _totals(_of(tmp_path, content))

    assert found["base_bytes"] == 4096 + 1024 - 1024
    assert found["peak_over_base_bytes"] == 1024 + 2048
    assert found["peak_allocated_bytes"] == 4096 + 3072
    assert found["end_allocated_bytes"] == 4096 + 1024


def test_what_nobody_asked_for_is_a_row_of_its_own(tmp_path: Path) -> None:
    blocks = [
        block(1024, requested_size=1000, address=BASE, frames=forward(1)),
        block(512, requested_size=500, address=BASE + 1024, frames=forward(2)),
    ]
    content = snapshot([segment(*blocks)], flat(alloc(BASE + 1024, 500, forward(2))))

    found = _of(tmp_path, content)

    assert _rows(found, "line") == {
        "(before the recording)": 1000, f"{MODEL}:2": 500, "(rounding)": 24 + 12
    }  # fmt: skip
    assert _totals(found)["peak_allocated_bytes"] == 1536
    assert _rows(found, "line_before")[f"{MODEL}:1"] == 1000


@pytest.mark.parametrize("pending", ["active_pending_free", "active_awaiting_free"])
def test_what_is_reserved_is_the_sum_of_four_parts(pending: str, tmp_path: Path) -> None:
    used = segment(block(1024), block(512, pending), block(256, "inactive"))
    content = snapshot([used, segment(block(4096, "inactive"), address=1 << 30)])

    found = _totals(_of(tmp_path, content))

    assert found["reserved_bytes"] == 1024 + 512 + 256 + 4096
    assert found["allocated_bytes"] == 1024
    assert found["pending_bytes"] == 512
    assert found["fragmentation_bytes"] == 256
    assert found["free_segments_bytes"] == 4096


@pytest.mark.parametrize("pool", [(0, 1), [1, 0], (7, 3)])
def test_what_is_free_in_a_private_pool_is_free_for_it_alone(pool: Any, tmp_path: Path) -> None:
    shared = segment(block(1024), block(256, "inactive"), segment_pool_id=(0, 0))
    free = segment(block(512, "inactive"), address=1 << 29, segment_pool_id=None)
    whole = segment(block(4096, "inactive"), address=1 << 30, segment_pool_id=pool)
    part = segment(
        block(2048), block(128, "active_pending_free"), block(64, "inactive"),
        address=1 << 31, segment_pool_id=pool,
    )  # fmt: skip

    found = _totals(_of(tmp_path, snapshot([shared, free, whole, part])))

    assert found["private_bytes"] == 4096 + 64
    assert found["free_segments_bytes"] == 512
    assert found["fragmentation_bytes"] == 256
    assert found["allocated_bytes"] == 1024 + 2048
    assert found["pending_bytes"] == 128
    assert found["reserved_bytes"] == 1024 + 256 + 512 + 4096 + 2048 + 128 + 64


def test_what_is_reserved_at_the_peak_is_known_from_events_of_segments(tmp_path: Path) -> None:
    events = flat(
        event("segment_alloc", 1 << 30, 8192),
        alloc(1 << 30, 4096),
        event("segment_map", 1 << 31, 2048),
        *free(1 << 30, 4096),
        event("segment_unmap", 1 << 31, 2048),
        event("segment_free", 1 << 30, 8192),
    )
    content = snapshot([segment(block(512), block(512, "inactive"))], events)

    found = _totals(_of(tmp_path, content))

    # 1024 before, 8192 when the peak is reached, 2048 more later.
    assert found["reserved_at_peak_bytes"] == 1024 + 8192
    assert found["peak_reserved_bytes"] == 1024 + 8192 + 2048


def test_without_events_of_segments_what_was_reserved_at_the_peak_is_not_known(
    tmp_path: Path,
) -> None:
    found = _totals(_of(tmp_path, snapshot([segment(block(512))], flat(alloc(BASE, 512)))))

    assert pd.isna(found["reserved_at_peak_bytes"])


def test_the_active_curve_ends_with_the_use_of_a_block(tmp_path: Path) -> None:
    events = flat(
        alloc(1, 100),
        event("free_requested", 1, 100),
        alloc(2, 50),
        event("free_completed", 1, 100),
        *free(2, 50),
    )

    found = _totals(_of(tmp_path, snapshot([], events)))

    assert found["peak_over_base_bytes"] == 100
    assert found["peak_active_bytes"] is pd.NA or found["peak_active_bytes"] == 150


def test_where_requests_are_left_out_the_end_of_use_releases(tmp_path: Path) -> None:
    events = flat(alloc(1, 100), event("free_completed", 1, 100), alloc(2, 50))
    content = snapshot([segment(block(50, address=2))], events)

    found = _of(tmp_path, content)

    assert _totals(found)["peak_over_base_bytes"] == 100
    assert _totals(found)["base_bytes"] == 0
    assert "ends of use stand for them" in found.curves[0].notes[0]


def test_a_ring_that_begins_in_the_middle_counts_what_was_lost_to_the_base(tmp_path: Path) -> None:
    # The allocation of 4096 was dropped: only its release is left.
    events = flat(*free(BASE, 4096), alloc(BASE + 8192, 512))
    content = snapshot([segment(block(512, address=BASE + 8192))], events)

    found = _of(tmp_path, content)

    assert _totals(found)["base_bytes"] == 4096
    assert _totals(found)["peak_over_base_bytes"] == 0
    assert _rows(found, "line") == {"(before the recording)": 4096}
    assert list(_rows(found, "line", "end").values()) == [512]


def test_unknown_actions_are_counted_and_skipped(tmp_path: Path) -> None:
    events = flat(alloc(1, 8), event("teleport", 2, 9), event("teleport", 2, 9))

    (curve,) = _of(tmp_path, snapshot([segment(block(8, address=1))], events)).curves

    assert curve.notes == ["2 events of an unknown action were not read: teleport"]
    assert curve.events.num_rows == 1


@pytest.mark.parametrize(
    "action", ["snapshot", "user_defined", "workspace_snapshot", "segment_alloc"]
)
def test_known_actions_that_allocate_nothing_are_no_news(action: str, tmp_path: Path) -> None:
    events = flat(alloc(1, 8), event(action, 2, 9))

    (curve,) = _of(tmp_path, snapshot([segment(block(8, address=1))], events)).curves

    assert curve.notes == []
    assert curve.events.num_rows == 1


def test_devices_have_curves_of_their_own(tmp_path: Path) -> None:
    content = snapshot(
        [segment(block(512), device=0), segment(block(2048), device=1, address=1 << 30)],
        flat(alloc(7, 100), *free(7, 100)),
        flat(alloc(7, 30), *free(7, 30)),
    )

    devices = _of(tmp_path, content).devices

    assert devices["device"].tolist() == [0, 1]
    assert devices["peak_allocated_bytes"].tolist() == [612, 2078]


def test_a_negative_base_is_none(tmp_path: Path) -> None:
    # Releases were not recorded at all, so the events add more than there is.
    events = flat(alloc(1, 4096), alloc(2, 4096))

    found = _of(tmp_path, snapshot([segment(block(4096))], events))

    assert pd.isna(_totals(found)["base_bytes"])
    assert pd.isna(_totals(found)["peak_allocated_bytes"])
    assert "releases are missing" in found.curves[0].notes[0]


def test_an_address_allocated_twice_leaves_the_base_unknown(tmp_path: Path) -> None:
    content = snapshot([segment(block(4096))], flat(alloc(1, 8), alloc(1, 8)))

    assert pd.isna(_totals(_of(tmp_path, content))["base_bytes"])


def test_before_torch_2_1_blocks_have_no_address_and_events_no_time(tmp_path: Path) -> None:
    blocks = [
        block(1024, history=[{"addr": BASE, "real_size": 1024, "frames": forward(1)}]),
        block(512, history=[{"addr": BASE + 1024, "real_size": 512, "frames": forward(2)}]),
    ]
    content = {
        "segments": [segment(*blocks)],
        "device_traces": [[alloc(BASE + 1024, 512, forward(2))]],
    }

    found = _of(tmp_path, content)

    # The second block is that of the event: its address is the sum of what stands before it.
    assert _rows(found, "line_before") == {f"{MODEL}:1": 1024, "(in the recording)": 512}
    assert pd.isna(_totals(found)["peak_time_ns"])


@pytest.mark.parametrize(
    ("frames", "line"),
    [
        pytest.param(forward(42), f"{MODEL}:42", id="package first"),
        pytest.param([frame("<string>", 3, "f"), *forward(9)], f"{MODEL}:9", id="made by exec"),
        pytest.param(
            [
                frame(r"C:\conda\Lib\contextlib.py", 8, "inner"),
                frame(r"C:\conda\Lib\site-packages\timm\vit.py", 8, "forward"),
                frame(r"D:\me\net.py", 5, "forward"),
            ],
            r"D:\me\net.py:5",
            id="Windows",
        ),
        pytest.param(
            [frame("/usr/lib/python3/dist-packages/x.py", 1, "f"), frame(TRAIN, 2, "<module>")],
            f"{TRAIN}:2",
            id="Debian",
        ),
        pytest.param([frame(f"{TORCH}/x.py", 1, "f")], "(library code)", id="no line of the user"),
        pytest.param([], "(no frames: autograd thread)", id="autograd"),
        pytest.param(
            [frame("/src/c10/Allocator.cpp", 1, "malloc"), frame(TRAIN, 7, "f")],
            f"{TRAIN}:7",
            id="frames of C++",
        ),
    ],
)
def test_a_line_is_the_innermost_outside_of_libraries(
    frames: list[dict[str, Any]], line: str, tmp_path: Path
) -> None:
    events = flat(alloc(1, 8, frames), alloc(2, 1, forward(1)))

    found = _rows(_of(tmp_path, snapshot([segment(block(9))], events)), "line")

    assert found[line] == 8


def _step(addr: int, *, state: int | None = None) -> list[Any]:
    """Return the events of a training step, whose blocks have sizes that tell them apart."""
    return [
        *free(addr - 100 + 3, 400, zero_grad()),
        alloc(addr + 1, 1000, forward(1)),  # kept for backward
        alloc(addr + 2, 20, forward(2)),
        *free(addr + 2, 20, forward(2)),  # lives in forward only
        alloc(addr + 3, 400),  # a gradient, made where Python has no frames
        *free(addr + 1, 1000),
        alloc(addr + 4, 5, optimizer()),
        *free(addr + 4, 5, optimizer()),
        *([] if state is None else [alloc(addr + 5, state, optimizer())]),
    ]


@pytest.fixture
def training(tmp_path: Path) -> MemoryProfile:
    """Return a snapshot of three training steps on a model of 4000 bytes."""
    events = flat(*_step(1000, state=800), *_step(1100), *_step(1200))
    blocks = [
        block(4000, requested_size=4000, address=BASE, frames=[]),
        block(400, requested_size=400, address=1203, frames=[]),
        block(800, requested_size=800, address=1005, frames=[]),
    ]
    return _of(tmp_path, snapshot([segment(*blocks)], events))


def test_phases_of_allocation_and_release_tell_what_a_block_is_for(training: MemoryProfile) -> None:
    (entries,) = training.entries
    own = entries[entries["begin"] >= 0]
    found = own.groupby(["category", "bytes"], observed=True).size().to_dict()

    assert found == {
        ("activation", 1000): 3,
        ("temporary", 20): 3,
        ("gradient", 400): 3,
        ("temporary", 5): 3,
        ("optimizer_state", 800): 1,
    }
    assert set(own["certainty"].astype(str)) == {"inferred"}


def test_what_was_there_before_is_told_by_where_it_goes(training: MemoryProfile) -> None:
    # The gradients of the step before are cleared; the model stays.
    (entries,) = training.entries
    before = entries[entries["begin"] < 0]

    assert dict(zip(before["category"].astype(str), before["bytes"], strict=True)) == {
        "gradient": 400, "parameter_or_buffer": 4000,
    }  # fmt: skip


def test_the_peak_of_a_training_is_in_backward(training: MemoryProfile) -> None:
    # 4000 of the model, 800 of the optimizer, 1000 kept, 400 of the gradient.
    assert _totals(training)["peak_allocated_bytes"] == 6200
    assert _rows(training, "category") == {
        "parameter_or_buffer": 4000, "activation": 1000, "optimizer_state": 800, "gradient": 400,
    }  # fmt: skip


def test_at_the_start_of_backward_lives_what_forward_kept(training: MemoryProfile) -> None:
    kept = training.rows(["category", "line"], "backward")

    assert kept.loc[kept["category"] == "activation", ["line", "bytes"]].to_numpy().tolist() == [
        [f"{MODEL}:1", 1000]
    ]


def test_without_frames_it_is_backward_until_the_optimizer(tmp_path: Path) -> None:
    called = [frame(f"{TORCH}/_tensor.py", 9, "backward"), frame(TRAIN, 4, "<module>")]
    events = flat(
        alloc(1, 1), alloc(2, 1, forward(1)), alloc(3, 1), alloc(4, 1, called), alloc(5, 1),
        alloc(6, 1, optimizer()), alloc(7, 1),
    )  # fmt: skip

    (curve,) = _of(tmp_path, snapshot([segment(block(7))], events)).curves

    assert curve.events["phase"].to_pylist() == [
        None, "forward", "backward", "backward", "backward", "optimizer", None,
    ]  # fmt: skip


def test_inference_keeps_nothing_for_a_backward(tmp_path: Path) -> None:
    events = flat(alloc(1, 100, forward(1)), *free(1, 100, forward(2)), alloc(2, 7, forward(2)))
    profile = _of(tmp_path, snapshot([segment(block(7, address=2))], events))

    assert _rows(profile, "category", "end") == {"output": 7}
    assert set(profile.entries[0]["category"].astype(str)) == {"temporary", "output"}
    assert profile.rows(["line"], "backward").empty


def test_a_snapshot_without_any_frames_tells_no_phase(tmp_path: Path) -> None:
    profile = _of(tmp_path, snapshot([segment(block(8, address=1))], flat(alloc(1, 8))))

    assert _rows(profile, "category") == {"unknown": 8}
    assert _rows(profile, "line") == {"(no source)": 8}


def test_out_of_memory_says_what_was_asked_for_and_who_held_what(tmp_path: Path) -> None:
    events = flat(
        alloc(1, 600, forward(1)),
        alloc(2, 300, forward(2)),
        *free(2, 300, forward(2)),
        {"action": "oom", "device_free": 44, "size": 5000, "stream": 0, "frames": forward(3)},
        alloc(3, 700, forward(4)),
    )
    profile = _of(tmp_path, snapshot([segment(block(1300))], events))

    (failure,) = profile.curves[0].failures
    assert (failure["requested_bytes"], failure["device_free_bytes"]) == (5000, 44)
    assert _rows(profile, "line", "oom") == {f"{MODEL}:1": 600}


def test_a_folder_of_snapshots_has_a_rank_for_each(tmp_path: Path) -> None:
    for rank, size in ((1, 30), (0, 10)):
        content = snapshot([segment(block(size, address=1))], flat(alloc(1, size, forward())))
        dump(tmp_path, content, f"run_rank{rank}.pickle")

    found = pyprof2.memory(tmp_path).devices

    assert found["rank"].tolist() == [0, 1]
    assert found["peak_allocated_bytes"].tolist() == [10, 30]


NATIVE = [
    frame("??", 0, "c10d::Reducer::autograd_hook(unsigned long)"),
    frame(
        "/pytorch/aten/src/ATen/native/cudnn/ConvShared.cpp", 70, "at::native::cudnn_convolution"
    ),
    frame("", 0, "torch::unwind::unwind()"),
    frame("/usr/src/python/Objects/call.c", 387, "_PyObject_Vectorcall"),
    frame("/pytorch/torch/csrc/autograd/engine.h", 12, "evaluate_function"),
]
"""What PyTorch puts before the Python frames of a stack, by default."""


@pytest.mark.parametrize("own", [NATIVE, NATIVE[:1], NATIVE[1:2]], ids=["all", "nccl", "cudnn"])
def test_frames_of_cpp_change_nothing(tmp_path: Path, own: list[Any]) -> None:
    def content(before: list[Any]) -> Any:
        steps = [
            (forward(10), 4096), (forward(20), 1 << 20), ([], 1 << 16), (optimizer(), 2048),
        ]  # fmt: skip
        events = [
            alloc(BASE + (number << 24), size, [*before, *stack])
            for number, (stack, size) in enumerate(steps)
        ]
        gone = free(BASE + (1 << 24), 1 << 20, [*before, *zero_grad()])
        return snapshot([segment(block(8192, frames=[*before, *forward(3)]))], flat(events, gone))

    for name in ("plain", "native"):
        (tmp_path / name).mkdir()
    plain = _of(tmp_path / "plain", content([]))
    native = _of(tmp_path / "native", content(own))

    assert _rows(plain, "line")[f"{MODEL}:20"] == 1 << 20
    for axis in ("line", "category", "phase", "layer", "op"):
        assert _rows(native, axis) == _rows(plain, axis)
        assert _rows(native, axis, "end") == _rows(plain, axis, "end")


def test_a_snapshot_in_which_nothing_lives_has_an_answer(tmp_path: Path) -> None:
    gone = flat(alloc(BASE, 512), *free(BASE, 512))
    for content in (snapshot([], gone), snapshot([segment(block(1 << 20, "inactive"))])):
        profile = _of(tmp_path, content)

        assert sum(_rows(profile, "category", "end").values()) == 0
        assert profile.rows(["line", "category"], "end").empty
