"""Each rule fires on what it is for, with a stake that the eye can check, and else is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

from pyprof2.analysis.summaries.advice import RULES
from pyprof2.analysis.summaries.advice.findings import CPU
from tests.analysis.summaries.advice.recordings import (
    DEVICE,
    US,
    Rows,
    advise,
    at_steps,
    event,
    tables,
    training,
    with_calls,
    with_ranges,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MS: Final = 1000 * US
SLUGS: Final = [rule.slug for rule in RULES if rule.on != CPU]
OF_SERVERS: Final = ("server-idle", "small-batch", "small-chunks", "padding", "sampling-outside")
"""Those that `test_server.py` has recordings for."""
OF_NOTES: Final = ("graph-breaks",)
"""Those on what the compiler noted: see `tests/pipeline/test_compiled.py`."""
OF_RANKS: Final = ("straggler", "host-pause", "slow-link", "load-imbalance")
"""Those that need several: see `test_ranks.py`."""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("devices") / "round.json"
    path.write_text(DEVICE)
    return path


@pytest.fixture(scope="module")
def findings(device: Path) -> Callable[[Rows], pd.DataFrame]:
    """Return a function from rows to the findings by rule."""
    return lambda rows: _advised(rows, device)[0]


def _advised(rows: Rows, device: Path) -> tuple[pd.DataFrame, dict[Any, Any]]:
    devices = [{"rank": 0} | row for row in rows["devices"]]
    made = tables({name: each for name, each in rows.items() if name != "devices"})
    found, bounds = advise(made, devices, device)
    return found.set_index("rule"), bounds.to_dict("records")[0]


@pytest.fixture(scope="module")
def healthy(findings: Callable[[Rows], pd.DataFrame]) -> pd.DataFrame:
    return findings(training())


@pytest.mark.parametrize("slug", SLUGS)
def test_a_rule_is_silent_on_a_healthy_recording(slug: str, healthy: pd.DataFrame) -> None:
    assert healthy.loc[slug, "status"] == "silent"


def _loading() -> Rows:
    return with_ranges(training(pause_us=2000), "enumerate(DataLoader)#1", 2000)


def _late_launches() -> Rows:
    return training(5, late=True)


def _waits(before_us: float = 0) -> Rows:
    return with_calls(training(pause_us=1000), "cudaStreamSynchronize", 1000, before_us)


def _allocates() -> Rows:
    return with_calls(training(pause_us=1000), "cudaFree", 1000)


def _pageable() -> Rows:
    rows = with_calls(training(pause_us=1000), "cudaMemcpyAsync", 1000)
    calls = [row for row in rows["launches"] if row["name"] == "cudaMemcpyAsync"]
    rows["copies"] = [
        {"kernel_id": 900 + i, "device": 0, "stream": 7, "copy_kind": "h2d pageable",
         "bytes": 10**6, "start_ns": call["start_ns"] + 990 * US, "dur_ns": 10 * US,
         "launch_id": call["launch_id"], "launch_ns": call["start_ns"], "category": "memcpy"}
        for i, call in enumerate(calls)
    ]  # fmt: skip
    return rows


def _copies(kind: str | None = "h2d pinned") -> Rows:
    """Return steps that begin in a copy, of which 200 us are beside the last kernel before."""
    rows = training(pause_us=2000)
    rows["copies"] = [
        {"kernel_id": 900 + i, "device": 0, "stream": 9, "copy_kind": kind, "category": "memcpy",
         "start_ns": round((at - 200) * US), "dur_ns": 2200 * US, "source": "train.py:9"}
        for i, at in enumerate(at_steps(rows)) if at
    ]  # fmt: skip
    return rows


def _collects() -> Rows:
    return with_ranges(training(pause_us=1000), "<built-in function collect>", 1000, "python")


def _chains() -> Rows:
    shape = '[{"shape": [1000, 1000], "dtype": "f32"}]'
    name = "aten::relu([1000,1000] f32)"
    columns: dict[str, Any] = {"category": "elementwise", "bound": "memory", "compute_dtype": "f32"}
    columns["op"] = lambda i: "aten::relu" if i % 2 else "aten::mul"
    rows = training(tensor_core="no", tensor_core_eligible=False, signature=name, **columns)
    rows["signatures"] = [{"op": "aten::relu", "signature": name, "inputs": shape}]
    return rows


def _optimizes() -> Rows:
    return training(5, kernels=100, direction="optimizer", category="optimizer", flops=0, bytes=0)


# For each rule the recording, and what is at stake in ns: least, expected, most.
FIRES: Final[dict[str, tuple[Callable[[], Rows], tuple[float, float, float]]]] = {
    # Four times 2 ms in the loader; workers only move it. A replay may be wrong by 2 %.
    "data-loading": (_loading, (0, 8 * MS, 8.16 * MS)),
    # 49 gaps of 195 us in each step after one of 20, of which a graph leaves 2 us each.
    "host-bound": (_late_launches, (37_900 * US, 38_300 * US, 38_300 * US)),
    # The first step's may be usual.
    "allocator": (_allocates, (2_941_176, 3 * MS, 6_581_040)),
    # Less and more by 2 %; at most with what the host does before it: 613 us, but once nothing.
    "sync": (_waits, (3_921_569, 4 * MS, 6_581_040)),
    # The device is idle for 990 of the 1000 us of each call, and copies for 10.
    "pageable-copies": (_pageable, (0, 3960 * US, 4 * MS + 40 * US)),
    "recompilation": (
        lambda: with_ranges(training(pause_us=1000), "compile_fx_inner", 1000),
        (4 * MS, 4 * MS, 4 * MS),
    ),
    "autotuning": (
        lambda: with_ranges(training(pause_us=1000), "benchmark_all_configs", 1000),
        (4 * MS, 4 * MS, 4 * MS),
    ),
    "garbage-collection": (_collects, (4 * MS, 4 * MS, 4 * MS)),
    # 10 GFLOP need 10 us on the matrix units: 189 of 199 us, 200 times. What follows the last
    # one of a step is not launched yet.
    "tensor-cores-unused": (
        lambda: training(tensor_core="no", params="M=63,N=63,K=63"),
        (0, 196 * 189 * US, 200 * 189 * US),
    ),
    # Half of 40 MB need 20 us.
    "half-precision": (
        lambda: training(tensor_core="no", tensor_core_eligible=False, compute_dtype="f32",
                         bytes=4 * 10**7),
        (0, 196 * 179 * US, 200 * 179 * US),
    ),
    # Without the first of a step the device would wait for the launch of the second.
    "layout-and-casts": (
        lambda: training(category=lambda i: "copy" if i < 10 else "matmul"),
        (0, 36 * 199 * US, 40 * 199 * US),
    ),
    # 400 kernels of 5 us, and 99 gaps of 195 us in each step after one of 20.
    "unfused-optimizer": (
        _optimizes, (0, 77_300 * US + 392 * 5 * US, 77_300 * US + 400 * 5 * US),
    ),
    # 4 MB written and read take 8 us; 199 kernels go on with what one before them wrote.
    "elementwise-chains": (_chains, (0, 195 * 8 * US, 199 * 8 * US)),
    # A quarter of the multiprocessors have a block.
    "small-grids": (
        lambda: training(blocks_per_sm=0.25),
        (0, 196 * 149.25 * US, 200 * 149.25 * US),
    ),
    "exposed-communication": (
        lambda: training(category=lambda i: "comm" if i < 10 else "matmul"),
        (0, 40 * 199 * US, 40 * 199 * US),
    ),
    # 10 GFLOP need 10 us: 189 of 199, of 10 kernels in each step.
    "uncompiled": (
        lambda: training(link=lambda i: "external_id" if i < 10 else "compiled"),
        (0, 40 * 189 * US, 40 * 189 * US),
    ),
    # 20 MB need 20 us, a tenth of the time.
    "slow-fused": (
        lambda: training(link="compiled", flops=0, bytes=2 * 10**7,
                         category=lambda i: "elementwise" if i < 10 else "matmul"),
        (0, 40 * 179 * US, 40 * 179 * US),
    ),
    # Each begins 200 us before a step, of which the last kernel takes 199, and ends with a pause
    # of 2000 us.
    "copies": (_copies, (0, 3 * 2001 * US, 3 * 2001 * US)),
}  # fmt: skip


@pytest.mark.parametrize("slug", FIRES)
def test_a_rule_fires_with_what_is_at_stake(
    slug: str, findings: Callable[[Rows], pd.DataFrame]
) -> None:
    make, stake = FIRES[slug]

    found = findings(make()).loc[slug]

    assert found["status"] == "fires"
    names = ("at_stake_lo_ns", "expected_ns", "at_stake_hi_ns")
    assert [found[name] for name in names] == list(stake)
    assert found["remedy"]


def _memory() -> Rows:
    rows = training()
    rows["memory"].append(
        {"rank": 0, "device": 0, "device_type": "cuda", "allocated_bytes": 75 * 10**9}
    )
    return rows


def _events(*blocks: dict[str, Any]) -> Rows:
    """Return a training with these allocations and releases; totals follow from them."""
    rows, total = training(), 10**9
    rows["memory"] = []
    for at, block in enumerate(blocks):
        total += block["bytes"]
        shared = {"rank": 0, "time_ns": at, "device": 0, "device_type": "cuda", "pid": 1, "tid": 1}
        rows["memory"].append(
            shared | {"allocated_bytes": total, "reserved_bytes": 75 * 10**9} | block
        )
    return rows


def _block(address: int, size: int, step: int = 0, **fields: Any) -> dict[str, Any]:
    return {"address": address, "bytes": size, "step": step, "phase": "forward"} | fields


def _leaks(size: int = 2 << 20, steps: int = 5) -> Rows:
    leak: dict[str, Any] = {"op": "aten::cat", "source": "leak.py:3"}
    return _events(*(_block(100 + at, size, at, **leak) for at in range(steps)))


def _fragments(reserved: int) -> Rows:
    return _events(_block(1, 9 * 10**9, reserved_bytes=reserved))


def _keeps(size: int = 60 * 10**9) -> Rows:
    layer: dict[str, Any] = {"layer": "blocks.0.up", "source": "net.py:4", "op": "aten::gelu"}
    blocks = [_block(1, size, **layer), _block(2, 5 * 10**9, **(layer | {"op": "aten::add"}))]
    back: dict[str, Any] = {"phase": "backward", "op": "GeluBackward0"}
    return _events(*blocks, _block(2, -5 * 10**9, **back), _block(1, -size, **back))


def _data_parallel() -> Rows:
    rows = with_ranges(training(), "DataParallel.forward", 10)
    rows["kernels"].append(rows["kernels"][-1] | {"device": 1, "kernel_id": 999})
    return rows


def _gloo() -> Rows:
    rows = with_ranges(training(), "DistributedDataParallel.forward", 10)
    return with_ranges(rows, "gloo:all_reduce", 10)


def _slow_launch() -> Rows:
    rows = training()
    rows["launches"][60] |= {"dur_ns": 1500 * US}
    return rows


def _loads_code() -> Rows:
    rows = training()
    rows["stalls"] = [event(3000, 1500, kind="module_load", name="Lazy Function Loading")]
    return rows


def _late_start() -> Rows:
    rows = training(pause_us=lambda step: 2000 if step == 0 else 0)
    rows["launches"][0] |= {"start_ns": 0, "dur_ns": 10 * US}
    rows["kernels"][0]["launch_ns"] = 0
    return rows


def _on_two_clocks() -> Rows:
    rows = training(late=True)
    for row in rows["kernels"]:
        row["launch_ns"] += 110 * US
    return rows


def _drifts() -> Rows:
    rows = training()
    for row in rows["kernels"][::5]:
        row["dur_ns"] = 140 * US
    return rows


INFORMS: Final[dict[str, tuple[Callable[[], Rows], str]]] = {
    "memory-limit": (_memory, "94 % of the memory of device 0"),
    "memory-growth": (_leaks, "holds 2.1 MB more after each of 3 steps, allocated in aten::cat"),
    "fragmentation": (
        lambda: _fragments(12 * 10**9),
        "12.00 GB were reserved, and at most 10.00 GB allocated",
    ),
    "kept-for-backward": (
        _keeps,
        "checkpoints of blocks.* are predicted to free 60.00 GB",
    ),
    "data-parallel": (_data_parallel, "DataParallel on 2 devices"),
    "backend": (_gloo, "DistributedDataParallel over gloo"),
    "low-utilization": (_late_launches, "kernels ran in 2.5 % of the time"),
    "slow-launches": (_slow_launch, "1 launch of over 1 ms, 1500.000 us"),
    "module-loading": (_loads_code, "code was loaded 1 time, for 1500.000 us"),
    "slow-first-step": (
        lambda: training(pause_us=lambda step: 0 if step else 6000),
        "step 0 took 1.6 times the median step",
    ),
    "unrecorded-start": (_late_start, "2010.000 us before the tenth piece of work"),
    "clocks-differ": (_on_two_clocks, "GPU work begins up to 90.000 us before its launch"),
    "kernel-drift": (_drifts, "up to 1.42 times the fastest one's time"),
    "python-stacks": (_collects, "longer than without Python stacks"),
}


@pytest.mark.parametrize("slug", INFORMS)
def test_a_rule_without_a_stake_says_what_it_found(
    slug: str, findings: Callable[[Rows], pd.DataFrame]
) -> None:
    make, words = INFORMS[slug]

    found = findings(make()).loc[slug]

    assert (found["status"], found["severity"]) == ("fires", "info")
    assert words in found["finding"]
    assert pd.isna(found["at_stake_hi_ns"])


@pytest.mark.parametrize(
    ("slug", "make"),
    [
        ("memory-growth", lambda: _leaks(size=1 << 19)),
        ("fragmentation", lambda: _fragments(11 * 10**9)),
        ("kept-for-backward", lambda: _keeps(50 * 10**9)),
    ],
)
def test_a_rule_on_memory_is_silent_below_its_threshold(
    slug: str, make: Callable[[], Rows], findings: Callable[[Rows], pd.DataFrame]
) -> None:
    assert findings(make()).loc[slug, "status"] == "silent"


def test_a_rule_on_memory_names_the_line(findings: Callable[[Rows], pd.DataFrame]) -> None:
    assert findings(_leaks()).loc["memory-growth", "source"] == "leak.py:3"
    assert findings(_keeps()).loc["kept-for-backward", "source"] == "net.py:4"


def test_a_first_step_is_not_slow_beside_steps_without_any_length(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    rows = training(5)
    for number, row in enumerate(row for row in rows["ranges"] if row["kind"] == "step"):
        row["dur_ns"] = 0 if number else row["dur_ns"]
    for name in ("kernels", "launches"):  # all of the work is the first step's
        rows[name] = [row for row in rows[name] if row["start_ns"] < rows["ranges"][1]["start_ns"]]

    assert findings(rows).loc["slow-first-step", "status"] == "silent"


def test_every_rule_has_a_recording_on_which_it_fires() -> None:
    assert sorted([*FIRES, *INFORMS, *OF_NOTES, *OF_RANKS, *OF_SERVERS]) == sorted(SLUGS)


def test_what_a_wait_costs_is_what_a_replay_without_it_gains(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    # The call begins 500 us before the device runs dry, so the idle time comes after it.
    found = findings(_waits(before_us=500)).loc["sync"]

    # The device has nothing to do for 1 ms, and for 20 us until the first kernel runs: 10 us in its
    # launch, and 10 us after it. Without the wait 1 us of these is left, but in the first step,
    # before which nothing runs.
    gain_ns = 1 * MS + 3 * 1019 * US
    assert found["expected_ns"] == gain_ns
    assert found["at_stake_lo_ns"] == round(gain_ns / 1.02)
    assert found["at_stake_hi_ns"] >= 1.02 * gain_ns


def test_a_host_that_is_ahead_hides_gaps_outside_of_the_stretches_too(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    rows = training(5, late=True, pause_us=2000)
    rows = with_ranges(rows, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 2000)

    found = findings(rows).loc["host-bound"]

    # In each step 49 gaps of 195 us and the 48 kernels of 5 us between them.
    assert found["expected_ns"] == 4 * 49 * 195 * US
    assert found["at_stake_hi_ns"] == 4 * (49 * 195 + 48 * 5) * US


def test_what_the_optimizer_takes_of_the_host_may_be_missed_by_later_kernels(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    """The other 100 kernels of a step come late too: the host could be ahead of them."""
    rows = training(
        5, kernels=200, late=True, category="optimizer", flops=0, bytes=0,
        direction=lambda i: "optimizer" if i < 100 else "forward",
    )  # fmt: skip

    found = findings(rows).loc["unfused-optimizer"]

    # From the first call of a step to the end of the last: 99 distances of 200 us, and 10.
    assert found["at_stake_hi_ns"] == 4 * (99 * 200 + 10 + 100 * 5) * US


def test_where_ranks_wait_for_each_other_nothing_is_sure(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    rows = _waits()
    rows["trace"][0]["world_size"] = 2

    assert findings(rows).loc["sync", "at_stake_lo_ns"] == 0


def test_time_blocked_is_no_stake_while_the_device_works(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    rows = with_calls(training(), "cudaStreamSynchronize", 5000)

    assert findings(rows).loc["sync", "status"] == "silent"


def test_a_graph_does_not_hold_a_stretch_with_a_wait(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    rows = _late_launches()
    middle = [event(at + 5002, 1, name="cudaMalloc", launch_id=2000 + i)
              for i, at in enumerate(at_steps(rows))]  # fmt: skip
    rows["launches"] += middle

    assert findings(rows).loc["host-bound", "at_stake_lo_ns"] == 0


def test_kernels_that_were_launched_in_time_do_not_end_a_stretch(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    rows = training(5, late=True)
    for number, call in enumerate(rows["launches"]):
        if number % 10 == 9:
            # Launched 150 us before its start, 1 us after the kernel before it.
            rows["kernels"][number - 1]["dur_ns"] = 199 * US
            call["start_ns"] -= 150 * US
            rows["kernels"][number]["launch_ns"] = call["start_ns"]

    # Of 50 gaps in a step 5 are the device's own, and 45 of 195 us: that of the first is 20 us.
    assert findings(rows).loc["host-bound", "at_stake_hi_ns"] == 4 * (44 * 195 + 20) * US


def test_long_pauses_of_python_need_no_stretch_of_late_launches(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    """Kernels come in time but after a pause in each step; half a millisecond is a pause."""
    rows = with_ranges(training(pause_us=2000), "train.py(3): shuffle", 2000, "python")

    found = findings(rows).loc["host-bound"]

    # At most also the 20 us until the first kernel of a step runs.
    assert found["expected_ns"] == len(at_steps(rows)) * 2000 * US
    assert (found["at_stake_lo_ns"], found["at_stake_hi_ns"]) == (0, 4 * 2020 * US)
    assert "4 pauses of Python or of ops, the longest of 2000.000 us" in found["finding"]
    assert "CUDA graphs" not in found["remedy"]
    for pause_us, status in ((499, "silent"), (500, "fires")):
        short = training(pause_us=pause_us, kernels=15)
        short = with_ranges(short, "train.py(3): shuffle", pause_us, "python")
        assert findings(short).loc["host-bound", "status"] == status


def test_a_full_queue_is_no_slow_launch(findings: Callable[[Rows], pd.DataFrame]) -> None:
    rows = _slow_launch()
    call = rows["launches"][60]
    rows["stalls"] = [dict(call, kind="queue_full", launch_id=None, name="Command Buffer Full")]
    rows["stalls"][0].pop("launch_id")

    assert findings(rows).loc["slow-launches", "status"] == "silent"


def _silent_host() -> Rows:
    return training(pause_us=2000)


@pytest.mark.parametrize(
    ("slug", "make", "needs"),
    [
        ("allocator", lambda: _without_steps(_allocates()), "steps"),
        ("unfused-optimizer", lambda: _without_steps(_optimizes()), "steps"),
        ("half-precision", lambda: training(compute_dtype=None), "shapes"),
        ("tensor-cores-unused", lambda: training(compute_dtype=None), "shapes"),
        ("small-grids", lambda: training(blocks_per_sm=None, grid=None), "geometry"),
        ("small-grids", lambda: training(blocks_per_sm=None, grid="0,0,0"), "geometry"),
        ("elementwise-chains", lambda: training(category="elementwise"), "shapes"),
        ("copies", lambda: _copies(None), "direction of copies"),
        ("memory-limit", lambda: training() | {"memory": []}, "profile_memory"),
        ("memory-growth", lambda: training() | {"memory": []}, "profile_memory"),
        ("memory-growth", lambda: _leaks(steps=3), "more steps"),
        ("fragmentation", lambda: training() | {"memory": []}, "profile_memory"),
        ("kept-for-backward", lambda: training() | {"memory": []}, "profile_memory"),
        ("data-loading", _silent_host, "DataLoader"),
        ("garbage-collection", _silent_host, "with_stack"),
    ],
)
def test_what_is_not_recorded_is_unknown_and_says_what_to_record(
    slug: str, make: Callable[[], Rows], needs: str, findings: Callable[[Rows], pd.DataFrame]
) -> None:
    found = findings(make()).loc[slug]

    assert found["status"] == "unknown"
    assert needs in found["needs"]


def _without_steps(rows: Rows) -> Rows:
    rows["ranges"] = [row for row in rows["ranges"] if row["kind"] != "step"]
    for row in rows["kernels"]:
        row["step"] = None
    return rows


def test_copies_cannot_hide_beside_less_work_than_there_is(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    rows = _copies()
    rows["copies"][0] |= {"start_ns": 0, "dur_ns": 47 * MS}
    rows["kernels"], rows["copies"] = rows["kernels"][:1], rows["copies"][:1]

    # Of 48.076 ms only the copy runs for 47 ms less 199 us, and something else may for the rest.
    found = findings(rows).loc["copies"]
    assert found["at_stake_hi_ns"] == 47 * MS - 199 * US
    assert found["expected_ns"] == 48_076 * US - found["at_stake_hi_ns"]


def test_copies_beside_kernels_or_inside_of_the_device_are_silent(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    beside = _copies()
    for row in beside["copies"]:
        row["start_ns"] -= 2200 * US

    assert findings(beside).loc["copies", "status"] == "silent"
    assert findings(_copies("d2d")).loc["copies", "status"] == "silent"


def test_what_only_a_polluted_step_shows_is_unknown(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    def pause(step: int) -> float:
        return 4000.0 if step == 0 else 0.0

    clean = training(pause_us=pause)
    clean["ranges"].append(event(0, 4000, name="data", kind="annotation"))
    spoilt = {name: [dict(row) for row in rows] for name, rows in clean.items()}
    spoilt["launches"][3] |= {"dur_ns": 1500 * US}

    assert findings(clean).loc["data-loading", "status"] == "fires"
    found = findings(spoilt).loc["data-loading"]
    assert found["status"] == "unknown"
    assert "without step 0" in found["needs"]


def test_the_same_op_again_is_no_chain(findings: Callable[[Rows], pd.DataFrame]) -> None:
    rows = _chains()
    for row in rows["kernels"]:
        row["op"] = "aten::add"

    assert findings(rows).loc["elementwise-chains", "status"] == "silent"


def test_what_autograd_keeps_is_still_written(findings: Callable[[Rows], pd.DataFrame]) -> None:
    rows = _chains()
    rows["kernels"][-1]["direction"] = "backward"

    # Of 4 MB each only the reading is spared, after 198 kernels of the forward pass.
    assert findings(rows).loc["elementwise-chains", "at_stake_hi_ns"] == 198 * 4 * US


def test_the_grid_gives_the_blocks_where_they_are_not_recorded(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    found = findings(training(blocks_per_sm=None, grid="11,3,1"))

    assert found.loc["small-grids", "at_stake_hi_ns"] == 200 * 199 * US * 3 / 4


def test_less_than_a_percent_is_not_worth_a_word(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    assert findings(with_calls(training(pause_us=90), "cudaFree", 90)).loc[
        "allocator", "status"
    ] == "silent"  # fmt: skip


@pytest.mark.parametrize(("every", "status"), [(1, "fires"), (2, "fires"), (3, "silent")])
def test_memory_may_be_released_in_some_steps_only(
    findings: Callable[[Rows], pd.DataFrame], every: int, status: str
) -> None:
    """Every third one is one of the four."""
    found = findings(with_calls(training(pause_us=1000), "cudaFree", 1000, every=every))

    assert found.loc["allocator", "status"] == status


def test_the_largest_stake_comes_first(findings: Callable[[Rows], pd.DataFrame]) -> None:
    rows = training(
        tensor_core="no", tensor_core_eligible=False, compute_dtype="f32", pause_us=2000
    )
    found = findings(with_ranges(rows, "enumerate(DataLoader)#1", 2000))
    fires = found[found["status"] == "fires"]

    assert list(fires.index[:2]) == ["half-precision", "data-loading"]
    assert fires["at_stake_hi_ns"].dropna().is_monotonic_decreasing
    assert list(dict.fromkeys(found["status"])) == ["fires", "unknown", "silent"] or list(
        dict.fromkeys(found["status"])
    ) == ["fires", "silent"]


def test_the_joint_bound_is_the_window_less_the_longest_need(device: Path) -> None:
    found, bound = _advised(_loading(), device)

    # 200 kernels of 10 GFLOP need 2 ms; the host's ops are 17 us for each of them, but the first
    # begins at 0 and not before. The loader goes to workers.
    assert found.loc["data-loading", "status"] == "fires"
    assert bound["window_ns"] == 4 * 12_019 * US
    assert bound["device_ns"] == 200 * 10 * US
    assert bound["host_ns"] > bound["device_ns"]
    assert bound["bound_ns"] == bound["window_ns"] - bound["host_ns"]


def test_ids_that_prove_it_are_the_rows_that_it_is_about(
    findings: Callable[[Rows], pd.DataFrame],
) -> None:
    found: Any = findings(training(blocks_per_sm=lambda i: 0.25 if i == 7 else 4.0, kernels=10))

    assert found.loc["small-grids", "evidence"] == "kernels:7,17,27,37"


def _known_of(count: int, total: int = 50, **columns: Any) -> Rows:
    """Return kernels of which only so many of each step have FLOPs and bytes."""
    columns |= {
        "flops": lambda n: 10**10 if n < count else None,
        "bytes": lambda n: 10**6 if n < count else None,
    }
    return training(kernels=total, **columns)


@pytest.mark.parametrize(
    ("known", "is_bound"),
    [
        pytest.param(3, False, id="6 %"), pytest.param(0, False, id="none"),
        pytest.param(20, False, id="40 %"), pytest.param(30, True, id="60 %"),
        pytest.param(50, True, id="all"),
    ],
)  # fmt: skip
def test_a_bound_needs_the_work_of_most_of_the_time(
    device: Path, known: int, *, is_bound: bool
) -> None:
    rows = _known_of(known, compute_dtype="f32", tensor_core="no")
    found, bound = _advised(rows, device)
    half = found.loc["half-precision"]

    assert bound["known_pct"] == pytest.approx(2 * known)
    assert pd.notna(bound["bound_ns"]) == is_bound
    assert pd.notna(bound["device_ns"]) == is_bound
    assert half["status"] == ("fires" if is_bound else "unknown")
    assert pd.notna(half["at_stake_hi_ns"]) == is_bound
    if not is_bound:
        assert half["finding"].endswith(f"is known for {2 * known} % of that time")


def test_a_host_that_takes_as_long_is_a_bound_whatever_the_device_needs(device: Path) -> None:
    rows = _known_of(0, 2)
    rows["ops"].append(event(0, 4 * 420, op="aten::sort", op_id=10**6))

    bound = _advised(rows, device)[1]

    assert pd.notna(bound["bound_ns"])
    assert bound["host_ns"] > 0
