"""Replays of small graphs, whose captures stand in the test: what their kernels are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.api.run import Run, load
from pyprof2.cli import main
from pyprof2.pipeline.parsing import parse
from pyprof2.reports.skyline.entries import Entries
from tests.kineto_events import (
    ENGINE,
    annotation,
    complete,
    copy,
    frame,
    kernel,
    launch,
    launched,
    load_events,
    op,
    rows,
    trace,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.kineto_events import Event

BEGIN, END, REPLAY = "hipStreamBeginCapture", "hipStreamEndCapture", "hipGraphLaunch"
F32 = ["float", "float"]
LINEAR, RELU, SUM = ("aten::mm", "gemm"), ("aten::relu", "relu_kernel"), ("aten::sum", "sum_kernel")


def captured(ts: float, kernel_name: str | None, **rest: Any) -> Event:
    """Return a launch that is captured; of CUDA without the kernel's name."""
    args: dict[str, Any] = {"correlation": int(ts * 100)}
    if kernel_name is not None:
        args |= {"kernel": kernel_name, "grid": [4, 1, 1], "block": [64, 1, 1]}
    name = "hipLaunchKernel" if kernel_name is not None else "cudaLaunchKernel"
    return complete("cuda_runtime", name, ts, 0.1, args=args, **rest)


def capture(
    at: float, work: Sequence[tuple[str, str]], *, named: bool = True, layer: str = "", **dims: Any
) -> list[Event]:
    """Return a capture that begins at a time: each op with the kernel that it launches."""
    events: list[Event] = [launch(at, int(at * 100), name=BEGIN, dur=0.1)]
    for place, (name, of_kernel) in enumerate(work):
        ts = at + 1 + 2 * place
        events += [
            op(name, ts, 1.5, **dims), captured(ts + 0.5, of_kernel if named else None)
        ]  # fmt: skip
    end = at + 1 + 2 * len(work)
    events.append(launch(end, int(end * 100) + 1, name=END, dur=0.1))
    if layer:
        events.append(frame(f"nn.Module: {layer}", at, end - at))
    return events


def replay(
    at: float, correlation: int, names: Sequence[str], *, streams: Sequence[int] = (7,), **args: Any
) -> list[Event]:
    """Return a replay, each kernel 2 us after the one before; streams take turns."""
    call = launch(at, correlation, name=REPLAY)
    return [
        call,
        *(
            kernel(
                at + 10 + 2 * place, 1, correlation,
                {"stream": streams[place % len(streams)], **args}, name=name,
            )
            for place, name in enumerate(names)
        ),
    ]  # fmt: skip


def names(work: Sequence[tuple[str, str]]) -> list[str]:
    return [of_kernel for _, of_kernel in work]


def found(run: Run, *columns: str) -> list[Any]:
    return rows(run.table("kernels"), *columns)


NET = [LINEAR, RELU, SUM]


def test_kernels_have_the_captured_ops_each_replay_calls_them_anew(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, capture(0, NET, layer="Net_0", dims=[[2, 3], [3, 4]], types=F32),
        replay(100, 1, names(NET)), replay(200, 2, names(NET)),
    )  # fmt: skip

    table = run.table("kernels")
    assert rows(table, "op") == ["aten::mm", "aten::relu", "aten::sum"] * 2
    assert rows(table, "op_id") == [0, 1, 2] * 2
    assert set(rows(table, "link")) == {"graph_names"}
    assert set(rows(table, "layer")) == {"Net_0"}
    assert rows(table, "link_note")[0] == (
        "names and order of capture 1 of 1 in trace.json, 3 of 3 nodes"
    )
    # A multiply-add is 2 FLOPs, in each replay.
    assert [rows(table, "flops")[at] for at in (0, 3)] == [2 * 2 * 3 * 4] * 2
    assert rows(table, "call_id") == rows(table, "kernel_id")
    assert rows(table, "graph_node")[:3] == rows(table, "graph_node")[3:]
    profile = run.profile(by="op").set_index("op")
    of_mm = profile.loc["aten::mm"]
    assert [of_mm[name] for name in ("count", "op_calls", "flops")] == [2, 2, 96]
    assert run.summary["graph_names_count"] == 6


def test_one_op_of_two_kernels_shares_its_counts_within_its_replay(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, launch(0, 9, name=BEGIN, dur=0.1),
        op("aten::mm", 1, 5, dims=[[2, 3], [3, 4]], types=F32), captured(2, "gemm"),
        captured(3, "another_gemm"), launch(8, 10, name=END, dur=0.1),
        replay(100, 1, ["gemm", "another_gemm"]), replay(200, 2, ["gemm", "another_gemm"]),
    )  # fmt: skip

    table = run.table("kernels")
    assert rows(table, "flops") == [24] * 4
    assert rows(table, "call_id") == [0, 0, 2, 2]
    assert rows(table, "op_time_ns") == [2000] * 4
    assert run.profile(by="op")["op_calls"].tolist() == [2]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([e for e in capture(0, NET) if e["name"] != END], id="no end"),
        pytest.param(capture(0, [LINEAR, SUM, RELU]), id="another order"),
        pytest.param(capture(0, NET[:2]), id="fewer nodes"),
        pytest.param(
            [*capture(0, NET), *(kernel(50 + at, 1, int(at * 100)) for at in (1.5, 3.5, 5.5))],
            id="what was launched ran",
        ),
    ],
)
def test_what_does_not_fit_explains_nothing(tmp_path: Path, events: list[Event]) -> None:
    run = load_events(tmp_path, events, replay(100, 1, names(NET)))

    of_replay = [row for row in found(run, "link", "op", "graph_node") if row[0] == "graph"]
    assert of_replay == [("graph", None, None)] * 3


def test_why_nothing_fits_is_said(tmp_path: Path) -> None:
    run = load_events(tmp_path, capture(0, [LINEAR, SUM, RELU]), replay(100, 1, names(NET)))

    assert set(found(run, "link_note")) == {"names differ first at node 1"}
    assert "graph of 3 nodes: names differ first at node 1" in run.check()["finding"].tolist()


def test_backward_on_another_thread_is_captured_too(tmp_path: Path) -> None:
    events = capture(0, NET)
    for event in events[3:5]:
        event["tid"] = ENGINE

    run = load_events(tmp_path, events, replay(100, 1, names(NET)))

    assert found(run, "op") == ["aten::mm", "aten::relu", "aten::sum"]


def test_of_captures_open_at_once_each_has_its_own_thread(tmp_path: Path) -> None:
    other = [
        event | {"tid": 77} for event in capture(0.05, [("aten::exp", "exp_kernel"), RELU, SUM])
    ]

    run = load_events(
        tmp_path, capture(0, NET), other, replay(100, 1, names(NET)),
        replay(200, 2, ["exp_kernel", "relu_kernel", "sum_kernel"]),
    )  # fmt: skip

    assert found(run, "op")[::3] == ["aten::mm", "aten::exp"]


def test_where_a_third_thread_launches_meanwhile_neither_is_told(tmp_path: Path) -> None:
    other = [event | {"tid": 77} for event in capture(0.05, NET)]

    run = load_events(
        tmp_path, capture(0, NET), other, captured(2.2, "gemm", tid=88),
        replay(100, 1, names(NET)),
    )  # fmt: skip

    assert found(run, "link") == ["graph"] * 3


def test_launches_of_another_process_are_not_captured(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, capture(0, NET), captured(2.2, "gemm", pid=4711), replay(100, 1, names(NET))
    )

    assert found(run, "op") == ["aten::mm", "aten::relu", "aten::sum"]


def test_of_two_captures_that_one_thread_begins_neither_is_known(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, launch(-1, 70, name=BEGIN, dur=0.1), capture(0, NET),
        launch(20, 71, name=END, dur=0.1), replay(100, 1, names(NET)),
    )  # fmt: skip

    assert found(run, "link") == ["graph"] * 3


def test_captures_that_fit_alike_give_what_they_agree_on(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, capture(0, NET, layer="First_0"), capture(20, NET, layer="Second_0"),
        replay(100, 1, names(NET)),
    )  # fmt: skip

    assert found(run, "op") == ["aten::mm", "aten::relu", "aten::sum"]
    assert found(run, "layer") == [None] * 3
    assert "2 of 2 captures, as far as they agree" in found(run, "link_note")[0]


def test_a_call_whose_kernels_captures_dispute_has_no_counts(tmp_path: Path) -> None:
    mm: dict[str, Any] = {"dims": [[2, 3], [3, 4]], "types": F32}
    whole = [
        launch(0, 9, name=BEGIN, dur=0.1), op("aten::mm", 1, 5, **mm), captured(2, "gemm"),
        captured(3, "another_gemm"), launch(8, 10, name=END, dur=0.1),
    ]  # fmt: skip
    apart = capture(20, [LINEAR, ("aten::mm", "another_gemm")], **mm)

    run = load_events(tmp_path, whole, apart, replay(100, 1, ["gemm", "another_gemm"]))

    assert found(run, "op", "flops", "call_id") == [("aten::mm", None, None)] * 2


def test_of_captures_that_fit_alike_those_of_the_replays_sizes_were_replayed(
    tmp_path: Path,
) -> None:
    other = capture(20, NET, layer="Other_0")
    for event in other:
        if "grid" in event.get("args", {}):
            event["args"]["grid"] = [8, 1, 1]

    run = load_events(
        tmp_path, capture(0, NET, layer="Net_0"), other,
        replay(100, 1, names(NET), grid=[4, 1, 1], block=[64, 1, 1]),
    )  # fmt: skip

    assert found(run, "layer") == ["Net_0"] * 3


def test_a_capture_that_is_named_comes_before_one_in_the_recording_itself(tmp_path: Path) -> None:
    path = trace(tmp_path / "capture.json", capture(0, NET, layer="Named_0"))
    recording = trace(tmp_path, capture(0, NET, layer="Own_0"), replay(100, 1, names(NET)))

    run = load(parse(recording, captures=[path]))

    assert found(run, "layer") == ["Named_0"] * 3


def test_captures_of_one_range_are_replayed_in_turn(tmp_path: Path) -> None:
    captures = [capture(20 * at, NET, layer=f"Piece{at}_0") for at in range(4)]
    first = capture(80, [*NET, LINEAR], layer="Last_0")
    replays = [
        replay(200 + 50 * at, at + 1, names([*NET, LINEAR]) if piece == 4 else names(NET))
        for at, piece in enumerate([2, 3, 4, 0, 1, 2])
    ]

    run = load_events(
        tmp_path, *captures, first, annotation("capture_8_PIECEWISE", -1, 120), *replays
    )

    layers = found(run, "layer", "kernel")
    gemms = [layer for layer, name in layers if name == "gemm"]
    assert gemms == [
        "Piece2_0", "Piece3_0", "Last_0", "Last_0", "Piece0_0", "Piece1_0", "Piece2_0",
    ]  # fmt: skip


def test_a_turn_with_a_launch_lost_is_not_used(tmp_path: Path) -> None:
    captures = [capture(20 * at, NET, layer=f"Piece{at}_0") for at in range(2)]
    last = capture(60, [*NET, LINEAR], layer="Last_0")
    order = [names(NET), names([*NET, LINEAR]), names([*NET, LINEAR])]

    run = load_events(
        tmp_path, *captures, last, annotation("capture_8_PIECEWISE", -1, 120),
        *(replay(200 + 50 * at, at + 1, each) for at, each in enumerate(order)),
    )  # fmt: skip

    layers = found(run, "layer")
    assert layers == [None] * 3 + ["Last_0"] * 8


def test_the_smallest_captured_batch_that_holds_the_replays_was_replayed(tmp_path: Path) -> None:
    captures = [
        [
            *capture(30 * at, NET, dims=[[size, 3], [3, 4]], types=F32),
            annotation(f"capture_{size}_DECODE", 30 * at - 1, 20),
        ]
        for at, size in enumerate((2, 8, 4))
    ]
    replays = [
        [
            *replay(200 + 50 * at, at + 1, names(NET)),
            annotation(f"step[DECODE bs={size}]", 199 + 50 * at, 9),
        ]
        for at, size in enumerate((3, 8, 9))
    ]

    run = load_events(tmp_path, *captures, *replays)

    signatures = [row for row in found(run, "signature", "kernel") if row[1] == "gemm"]
    assert [text for text, _ in signatures] == [
        "aten::mm([4,3] f32, [3,4] f32)", "aten::mm([8,3] f32, [3,4] f32)", None,
    ]  # fmt: skip
    assert found(run, "op")[6:] == ["aten::mm", "aten::relu", "aten::sum"]
    assert found(run, "cost_status")[6] == "no_shapes"


def test_a_recording_that_lacks_a_node_has_the_others(tmp_path: Path) -> None:
    net = [*NET, RELU, LINEAR]

    run = load_events(
        tmp_path, capture(0, net), replay(100, 1, ["gemm", "relu_kernel", "relu_kernel", "gemm"])
    )

    assert found(run, "op") == ["aten::mm", "aten::relu", "aten::relu", "aten::mm"]
    assert "lacks 1 node" in found(run, "link_note")[0]
    # Of two equal ones, which is lacking cannot be told.
    run = load_events(tmp_path, capture(0, [LINEAR, RELU, RELU, SUM]), replay(100, 1, names(NET)))
    assert found(run, "op") == ["aten::mm", None, "aten::sum"]
    assert found(run, "link") == ["graph_names", "graph", "graph_names"]


def test_a_recording_that_lacks_more_than_a_hundredth_has_none(tmp_path: Path) -> None:
    net = [*NET, RELU, LINEAR]

    run = load_events(tmp_path, capture(0, net), replay(100, 1, names(net)[:3]))

    assert set(found(run, "link", "op")) == {("graph", None)}


def test_streams_of_a_replay_are_told_by_their_words(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, capture(0, [LINEAR, RELU, LINEAR, SUM]),
        replay(100, 1, ["gemm", "relu_kernel", "gemm", "sum_kernel"], streams=(7, 8)),
    )  # fmt: skip

    assert found(run, "op_id") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("ids", "op_ids"),
    [
        pytest.param([0, 1, 2, 3], [0, 1, 2, 3], id="as they were captured"),
        pytest.param([1, 0, 3, 2], [1, 0, 3, 2], id="the streams changed places"),
        pytest.param([3, 1, 0, 2], [None] * 4, id="against the order of a stream"),
        pytest.param([0, 1, 1, 3], [None] * 4, id="one twice"),
        pytest.param([0, 2, 1, 3], [None] * 4, id="names differ in this order"),
    ],
)
def test_ids_of_nodes_tell_streams_apart_that_do_the_same(
    ids: list[int], op_ids: list[int | None], tmp_path: Path
) -> None:
    net = [LINEAR, LINEAR, RELU, RELU]
    events = replay(100, 1, names(net), streams=(7, 8))
    for number, event in zip(ids, events[1:], strict=True):
        event["args"]["graph node id"] = (5 << 32) + number

    run = load_events(tmp_path, capture(0, net), events)

    assert found(run, "op_id") == op_ids


def test_copies_have_one_word(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, launch(0, 9, name=BEGIN, dur=0.1), op("aten::copy_", 1, 2),
        complete("cuda_runtime", "hipMemcpyAsync", 1.5, 0.1, args={"correlation": 77}),
        op("aten::mm", 4, 2), captured(5, "gemm"), launch(8, 10, name=END, dur=0.1),
        launch(100, 1, name=REPLAY), copy(110, 1, 1, name="Memcpy DtoD", bytes=64),
        kernel(112, 1, 1, name="gemm.kd"),
    )  # fmt: skip

    assert found(run, "op") == ["aten::mm"]
    assert rows(run.table("copies"), "op", "bytes", "cost_status") == [("aten::copy_", 64, "ok")]


def _eager(at: float, correlation: int, count: int, grid: Sequence[int] = (4, 1, 1)) -> list[Event]:
    """Return `count` eager calls of three ops in turn, each with its kernel."""
    events: list[Event] = []
    for place in range(count):
        name, of_kernel = NET[place % 3]
        ts = at + 2 * place
        events += [
            op(name, ts, 1.5, dims=[[2, 3], [3, 4]], types=F32),
            *launched(ts + 0.5, correlation + place, at=ts + 500, dur=1, name=of_kernel),
        ]
        events[-1]["args"] |= {"grid": [*grid], "block": [64, 1, 1]}
    return events


@pytest.mark.parametrize(
    ("count", "grid", "link", "signature"),
    [
        pytest.param(18, [4, 1, 1], "graph_names", True, id="a twin"),
        pytest.param(18, [5, 1, 1], "graph_names", False, id="other sizes"),
        pytest.param(15, [4, 1, 1], "graph", False, id="too short"),
    ],
)
def test_an_eager_stretch_of_the_same_words_explains_a_replay(
    tmp_path: Path,
    count: int,
    grid: list[int],
    link: str,
    signature: bool,  # noqa: FBT001
) -> None:
    kernels = [NET[at % 3][1] for at in range(count)]

    run = load_events(
        tmp_path, _eager(0, 100, count), op("aten::exp", 80, 1),
        *launched(80.5, 90, at=700, dur=1, name="exp_kernel"),
        replay(1000, 1, kernels, grid=grid, block=[64, 1, 1]),
    )  # fmt: skip

    replayed = found(run, "link", "op", "signature")[-count:]
    assert {row[0] for row in replayed} == {link}
    if link != "graph":
        assert [row[1] for row in replayed] == [NET[at % 3][0] for at in range(count)]
        assert all((row[2] is not None) == signature for row in replayed)


def test_an_eager_stretch_of_two_kernels_explains_nothing(tmp_path: Path) -> None:
    events = [each for each in _eager(0, 100, 36) if "sum" not in each["name"]]
    kernels = [each["name"] for each in events if each.get("cat") == "kernel"]

    run = load_events(tmp_path, events, replay(1000, 1, kernels, grid=[4, 1, 1], block=[64, 1, 1]))

    assert len(kernels) > 16
    assert found(run, "link")[-len(kernels) :] == ["graph"] * len(kernels)


def test_a_warm_up_lends_its_names_to_a_capture_without_names(tmp_path: Path) -> None:
    events = _eager(0, 100, 3)
    for event in events:
        if event["name"] == "cudaLaunchKernel":
            event["args"].pop("External id", None)

    run = load_events(tmp_path, events, capture(50, NET, named=False), replay(1000, 1, names(NET)))

    assert found(run, "link", "op")[-3:] == [
        ("graph_names", "aten::mm"), ("graph_names", "aten::relu"), ("graph_names", "aten::sum"),
    ]  # fmt: skip


def test_warm_ups_that_differ_lend_no_names(tmp_path: Path) -> None:
    others = _eager(20, 200, 3)
    for event in others:
        event["name"] = event["name"].replace("relu_kernel", "another_kernel")

    run = load_events(
        tmp_path, _eager(0, 100, 3), others, capture(50, NET, named=False),
        replay(1000, 1, names(NET)),
    )  # fmt: skip

    assert found(run, "link")[-3:] == ["graph"] * 3


def test_of_equal_neighbours_in_which_a_size_differs_none_is_known(tmp_path: Path) -> None:
    net = [LINEAR, LINEAR, RELU, SUM] * 5
    events: list[Event] = []
    for place, (name, of_kernel) in enumerate(net):
        at = 2.0 * place
        events += [
            op(name, at, 1.5),
            *launched(at, 100 + place, at=at + 500, dur=1, name=of_kernel),
        ]
        events[-1]["args"] |= {"grid": [4, 1, 1], "block": [64, 1, 1]}
    replayed = replay(1000, 1, names(net), grid=[4, 1, 1], block=[64, 1, 1])
    replayed[1]["args"]["grid"] = [5, 1, 1]

    run = load_events(tmp_path, events, replayed)

    assert found(run, "op")[-20:] == [None, None, *(name for name, _ in net[2:])]


def test_a_warm_up_in_another_order_lends_no_names(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, _eager(0, 100, 3), capture(50, [RELU, LINEAR, SUM], named=False),
        replay(1000, 1, names(NET)),
    )  # fmt: skip

    assert found(run, "link")[-3:] == ["graph"] * 3


GUARDED = [
    ("aten::mm", "ampere_sgemm_128x64_nn"), ("aten::softmax", "softmax_warp_forward"),
    ("aten::native_layer_norm", "vectorized_layer_norm_kernel"), ("aten::sum", "reduce_kernel"),
    ("aten::add", "vectorized_elementwise_kernel"),
] * 4  # fmt: skip


def test_without_names_the_kinds_of_work_tell_whether_the_order_is_the_captures(
    tmp_path: Path,
) -> None:
    kernels = names(GUARDED)
    run = load_events(tmp_path, capture(0, GUARDED, named=False), replay(1000, 1, kernels))
    assert found(run, "link", "op") == [("graph_order", name) for name, _ in GUARDED]
    assert set(found(run, "signature")) == {None}

    shifted = [*kernels[1:], kernels[0]]
    run = load_events(tmp_path, capture(0, GUARDED, named=False), replay(1000, 1, shifted))
    assert set(found(run, "link", "op")) == {("graph", None)}
    assert "kinds of work" in found(run, "link_note")[0]


def test_a_capture_of_another_recording_gives_no_ids_of_its_ops(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    path = trace(tmp_path / "bs_8_rank0.json", capture(0, NET, layer="Net_0"))
    recording = trace(tmp_path, op("aten::exp", 0, 1), replay(100, 1, names(NET)))

    store = parse(recording, captures=[path])

    run = load(store)
    assert found(run, "op", "op_id", "layer") == [
        ("aten::mm", None, "Net_0"), ("aten::relu", None, "Net_0"), ("aten::sum", None, "Net_0"),
    ]  # fmt: skip
    assert run.table("ops").num_rows == 1
    assert rows(run.table("graph_nodes"), "file", "capture", "node")[1] == ("bs_8_rank0.json", 1, 1)


def test_the_folder_beside_a_recording_is_read_and_a_change_of_it_parses_again(
    tmp_path: Path,
) -> None:
    captures = tmp_path / "traces" / "capture_traces"
    captures.mkdir(parents=True)
    trace(captures / "bs_8_rank0.json", capture(0, NET))
    (captures / "execution_details.json").write_text(
        '[{"file": "bs_8_rank0.json", "batch_size": 8, "mode": "FULL"}]'
    )
    trace(
        tmp_path / "traces" / "decode.json", replay(100, 1, names(NET)),
        annotation("step[DECODE bs=7]", 99, 9),
    )  # fmt: skip
    store = tmp_path / "store"

    parse(tmp_path / "traces", store)
    assert found(load(store), "op")[0] == "aten::mm"
    written = (store / "manifest.json").stat().st_mtime_ns
    parse(tmp_path / "traces", store)
    assert (store / "manifest.json").stat().st_mtime_ns == written
    trace(captures / "bs_8_rank0.json", capture(0, [("aten::bmm", "gemm"), RELU, SUM]))
    parse(tmp_path / "traces", store)
    assert found(load(store), "op")[0] == "aten::bmm"

    parse(tmp_path / "traces", tmp_path / "without", look_for_captures=False)
    assert found(load(tmp_path / "without"), "link") == ["graph"] * 3


def test_time_between_nodes_of_a_replay_is_the_graphs(tmp_path: Path) -> None:
    run = load_events(tmp_path, capture(0, NET), replay(100, 1, names(NET)))

    idle = run.table("idle").to_pylist()
    gaps = [row for row in idle if row["cause"] == "graph_gap"]
    assert [(row["op"], row["time_ns"]) for row in gaps] == [
        ("aten::relu", 1000),
        ("aten::sum", 1000),
    ]


def test_idle_time_in_which_a_node_ran_that_is_lacking_says_so(tmp_path: Path) -> None:
    net = [*NET, RELU, LINEAR]
    run = load_events(
        tmp_path, capture(0, net), replay(100, 1, names(net)[:4]), replay(200, 2, names(net)),
        replay(300, 3, [*names(net)[:2], *names(net)[3:]]),
    )  # fmt: skip

    assert rows(run.table("graph_nodes"), "lost_after") == [0, 0, 0, 1, *[0] * 5, 0, 1, 0, 0]
    noted = [
        (row["start_ns"], row["time_ns"])
        for row in run.table("idle").to_pylist()
        if "lacks a node of the graph" in (row["note"] or "")
    ]
    # After the last kernel of the first replay, and between the two around the third's sum.
    start = {row["start_ns"] for row in run.table("kernels").to_pylist()}
    first, third = sorted(start)[3] + 1000, sorted(start)[10] + 1000
    assert [at for at, _ in noted] == [first, third]


def test_lines_have_the_time_of_kernels_whose_ops_are_in_another_recording(tmp_path: Path) -> None:
    path = trace(
        tmp_path / "capture.json", capture(0, NET), frame("net/model.py(12): forward", -1, 40)
    )
    recording = trace(tmp_path, op("aten::exp", 0, 1), replay(100, 1, names(NET)))

    run = load(parse(recording, captures=[path]))

    lines = run.lines()
    columns = ["time_ns", "forward_ns", "count", "idle_caused_ns"]
    at = {row["name"]: [row[name] for name in columns] for row in lines.to_dict("records")}
    assert lines["name"].tolist()[:5] == [
        "net/model.py", "net/model.py:12", "aten::mm", "aten::relu", "aten::sum",
    ]  # fmt: skip
    assert at["net/model.py:12"] == [3000, 3000, 3, 11_000]
    # The launch of the graph takes 9 us, and 1 us passes before each of the other nodes.
    assert at["aten::relu"] == [1000, 1000, 1, 1000]
    assert at["(no op)"][0] == 0
    assert "no source lines" not in set(run.check()["finding"])


def test_calls_of_a_graph_are_calls_of_skylines_report(tmp_path: Path) -> None:
    path = trace(
        tmp_path / "capture.json", capture(0, NET), frame("net/model.py(12): forward", -1, 40)
    )
    recording = trace(
        tmp_path, op("aten::exp", 0, 1), replay(100, 1, names(NET)), replay(200, 2, names(NET))
    )

    report = Entries(load(parse(recording, captures=[path]))).time()

    assert [(each.op, each.forward_ns) for each in report.entries if each.forward_ns] == [
        ("aten::mm", 2000), ("aten::relu", 2000), ("aten::sum", 2000),
    ]  # fmt: skip


def test_without_names_few_nodes_tell_nothing(tmp_path: Path) -> None:
    few = GUARDED[:5]

    run = load_events(tmp_path, capture(0, few, named=False), replay(1000, 1, names(few)))

    assert set(found(run, "link", "op")) == {("graph", None)}


def test_without_names_calls_that_are_alike_run_the_same_kernel(tmp_path: Path) -> None:
    net = GUARDED * 2
    kernels = names(net)
    kernels[5] = "another_gemm"

    run = load_events(
        tmp_path, capture(0, net, named=False, dims=[[2, 3], [3, 4]], types=F32),
        replay(1000, 1, kernels),
    )  # fmt: skip

    assert set(found(run, "link", "op")) == {("graph", None)}


@pytest.mark.parametrize("kind", ["streams", "a copy"])
def test_without_names_kinds_and_streams_must_be_the_captures(kind: str, tmp_path: Path) -> None:
    events = replay(1000, 1, names(GUARDED), streams=(7, 8) if kind == "streams" else (7,))
    if kind == "a copy":
        events[5] = copy(1018, 1, 1, name="Memcpy DtoD", bytes=64)

    run = load_events(tmp_path, capture(0, GUARDED, named=False), events)

    assert set(found(run, "link", "op")) == {("graph", None)}


def test_a_kernel_by_which_the_runtime_copies_is_a_copy(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, launch(0, 9, name=BEGIN, dur=0.1), op("aten::copy_", 1, 2),
        complete("cuda_runtime", "hipMemcpyAsync", 1.5, 0.1, args={"correlation": 77}),
        op("aten::mm", 4, 2), captured(5, "gemm"), launch(8, 10, name=END, dur=0.1),
        replay(100, 1, ["__amd_rocclr_copyBuffer.kd", "gemm"]),
    )  # fmt: skip

    assert found(run, "op") == ["aten::copy_", "aten::mm"]


PIECES = [GUARDED[:5], [*GUARDED[2:5], *GUARDED[:2]]]


def test_pieces_without_names_are_judged_together(tmp_path: Path) -> None:
    captures = [capture(20 * at, piece, named=False) for at, piece in enumerate(PIECES)]
    order = [1, 0, 1, 0]
    replays = [
        replay(200 + 50 * at, at + 1, names(PIECES[piece])) for at, piece in enumerate(order)
    ]

    run = load_events(tmp_path, *captures, annotation("capture_8_PIECEWISE", -1, 60), *replays)
    assert found(run, "op") == [name for piece in order for name, _ in PIECES[piece]]
    # Without the range, five nodes are too few to tell.
    run = load_events(tmp_path, *captures, *replays)
    assert set(found(run, "link", "op")) == {("graph", None)}


OWN = ("mine::step", "mine_kernel")


@pytest.mark.parametrize(
    ("name", "replays"),
    [
        pytest.param("mine_kernel", 1, id="of a kind that nobody knows"),
        pytest.param("yours_kernel", 1, id="another one"),
        pytest.param("yours_kernel", 3, id="in each replay"),
    ],
)
def test_without_names_a_kernel_that_no_other_call_runs_is_not_known(
    name: str, replays: int, tmp_path: Path
) -> None:
    net = [*GUARDED[:2], OWN, *GUARDED[2:]]
    kernels = [name if each == "mine_kernel" else each for each in names(net)]

    run = load_events(
        tmp_path, capture(0, net, named=False, dims=[[2, 3], [3, 4]], types=F32),
        *(replay(1000 + 100 * at, at + 1, kernels) for at in range(replays)),
    )  # fmt: skip

    expected = [(None, "graph") if each == OWN else (each[0], "graph_order") for each in net]
    assert found(run, "op", "link") == expected * replays


def test_without_names_a_kernel_that_like_calls_run_is_known(tmp_path: Path) -> None:
    net = [*GUARDED[:2], OWN, *GUARDED[2:8], OWN, *GUARDED[8:]]

    run = load_events(
        tmp_path, capture(0, net, named=False, dims=[[2, 3], [3, 4]], types=F32),
        replay(1000, 1, names(net)),
    )  # fmt: skip

    assert found(run, "op") == [name for name, _ in net]


def shown(run: Run, axis: str) -> dict[str, int]:
    """Return the count of each key along an axis."""
    sums = run.profile(by=axis)
    return dict(zip(sums[axis].tolist(), sums["count"].tolist(), strict=True))


def test_replays_that_nothing_explains_have_the_owner_of_their_launch_as_a_coarser_one(
    tmp_path: Path,
) -> None:
    run = load_events(
        tmp_path, frame("nn.Module: Net_0", 0, 1000), frame("nn.Module: Block_0", 1, 90),
        op("aten::relu", 10, 5), launched(11, 1, at=12, dur=2, name="relu_kernel"),
        op("CompiledFunction", 20, 30), replay(30, 2, ["a", "b"]),
        # Outside of any op, in the layer alone, and on another thread with nothing around it.
        replay(60, 3, ["c"]), launch(80, 4, name=REPLAY, tid=7), kernel(90, 1, 4, name="d"),
    )  # fmt: skip
    assert found(run, "op", "link") == [
        ("aten::relu", "correlation"), *[(None, "graph")] * 4
    ]  # fmt: skip
    assert shown(run, "op") == {
        "(graph launched in CompiledFunction)": 2, "(none)": 2, "aten::relu": 1
    }  # fmt: skip
    layer = "(graph launched in Net_0.Block_0)"
    assert shown(run, "layer") == {"Net_0.Block_0": 1, layer: 3, "(none)": 1}
    assert shown(run, "direction") == {
        "forward": 1, "(graph launched in forward)": 2, "(none)": 2
    }  # fmt: skip
    cut = run.profile(by="layer", depth=1)
    assert sorted(cut["layer"]) == ["(graph launched in Net_0)", "(none)", "Net_0"]
    # What is known exactly does not grow.
    assert run.summary["linked_count"] == 1
    chosen = {
        name: len(run.profile(direction=[name])) for name in ("forward", "backward", "(none)")
    }
    assert chosen == {"forward": 1, "backward": 0, "(none)": 4}
    # A pattern is of keys themselves; one that begins with the bracket is of launches.
    for pattern, count in {"Compiled": 0, "launched": 0, "relu": 1, r"\(graph .*Comp": 2}.items():
        assert len(run.profile(op=pattern)) == count
        assert run.profile("category", op=pattern)["count"].sum() == count


def test_a_replay_in_backward_is_of_the_node_that_launched_it(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        frame("nn.Module: Net_0", 0, 50), op("CompiledFunction", 5, 10, seq=3, fwd=0),
        op("CompiledFunctionBackward", 100, 30, seq=3, fwd=1, tid=ENGINE),
        launch(110, 2, name="cudaGraphLaunch", tid=ENGINE), kernel(120, 5, 2, name="a"),
    )  # fmt: skip
    assert shown(run, "op") == {"(graph launched in CompiledFunctionBackward)": 1}
    assert shown(run, "direction") == {"(graph launched in backward)": 1}
    assert shown(run, "layer") == {"(graph launched in Net_0)": 1}


def test_a_captured_replay_has_no_coarser_owner(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, capture(0, NET, layer="Net_0"), op("CompiledFunction", 95, 30),
        replay(100, 1, names(NET)),
    )  # fmt: skip
    assert shown(run, "op") == {"aten::mm": 1, "aten::relu": 1, "aten::sum": 1}
    assert shown(run, "direction") == {"forward": 3}


def test_a_table_of_kernels_shows_the_coarser_owner_and_a_file_of_them_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(
        tmp_path / "a.json", op("CompiledFunction", 20, 30), replay(30, 2, ["a"])
    )  # fmt: skip
    for form, is_shown in (("table", True), ("csv", False), ("json", False)):
        main(["prof", str(path), "--by", "kernel", "--format", form, "-c", "kernel_id,op,link"])
        assert ("(graph launched in CompiledFunction)" in capsys.readouterr().out) == is_shown


SET, MOVE = ("Memset (Device)", "cudaMemsetAsync"), ("Memcpy DtoD", "cudaMemcpyAsync")


@pytest.mark.parametrize(
    ("ran", "ops"),
    [
        ([SET, MOVE, SET, MOVE], ["aten::zero_", "aten::copy_", "aten::zero_", "aten::copy_"]),
        ([MOVE, SET, SET, MOVE], ["aten::copy_", "aten::zero_", "aten::zero_", "aten::copy_"]),
        ([SET, MOVE, MOVE, SET], ["aten::zero_", "aten::copy_", "aten::copy_", "aten::zero_"]),
        ([MOVE, SET, MOVE, SET], [None] * 4),  # two of each moved: which is which is not known
        ([SET, SET, SET, MOVE], ["aten::zero_", None, "aten::zero_", "aten::copy_"]),
    ],
)
def test_copies_and_fills_do_not_stand_for_each_other(
    ran: list[tuple[str, str]], ops: list[str | None], tmp_path: Path
) -> None:
    events: list[Any] = [launch(0, 9, name=BEGIN, dur=0.1)]
    for at, (name, (_, call)) in enumerate(
        zip(["aten::zero_", "aten::copy_"] * 2, [SET, MOVE] * 2, strict=True)
    ):
        events += [op(name, 1 + 4 * at, 2), complete(
            "cuda_runtime", call, 1.5 + 4 * at, 0.1, args={"correlation": 70 + at})]  # fmt: skip
    events += [op("aten::mm", 20, 2), captured(21, "gemm"), launch(24, 10, name=END, dur=0.1)]
    # One in the order of the capture, which is known, and the one that is asked for.
    for begin, number, own in ((100, 1, [SET, MOVE] * 2), (200, 2, ran)):
        events += [launch(begin, number, name=REPLAY), kernel(begin + 20, 1, number, name="gemm")]
        events += [
            copy(begin + 10 + 2 * at, 1, number, name=name, bytes=64)
            for at, (name, _) in enumerate(own)
        ]
    run = load_events(tmp_path, *events)

    assert found(run, "op") == ["aten::mm"] * 2
    assert rows(run.table("copies"), "op") == ["aten::zero_", "aten::copy_"] * 2 + ops
