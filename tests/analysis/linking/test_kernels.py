"""Every kernel finds the call that launched it, and the op that made the call."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.analysis.linking.kernels import link_activities, link_launches
from pyprof2.analysis.linking.ops import link_ops
from pyprof2.analysis.linking.threads import Threads
from pyprof2.cli import main
from pyprof2.problems import DEVICE_SHARED, DEVICES_APART, UNKNOWN_PROCESS, look_up
from pyprof2.recording import Recording, Spool
from tests.kineto_events import (
    ENGINE,
    Event,
    complete,
    copy,
    kernel,
    launch,
    launched,
    load_events,
    memory,
    node,
    op,
    rows,
    step,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run


def kernels(folder: Path, *events: Event | list[Event]) -> Any:
    return load_events(folder, *events).table("kernels")


@pytest.mark.parametrize(
    ("ts", "tid", "name", "link"),
    [
        pytest.param(2, 101, "a", "correlation", id="inside"),
        pytest.param(0, 101, "a", "correlation", id="at the start"),
        pytest.param("9.999", 101, "a", "correlation", id="a ns before the end"),
        pytest.param("10.000", 101, None, "none", id="at the end"),
        pytest.param(2, 102, None, "none", id="on another thread"),
        pytest.param(5, 101, "b", "correlation", id="in the innermost"),
        pytest.param(8, 101, "a", "correlation", id="behind the inner one"),
    ],
)
def test_the_op_of_a_kernel_encloses_the_start_of_its_launch(
    tmp_path: Path, ts: Any, tid: int, name: str | None, link: str
) -> None:
    ops = [op("a", 0, 10), op("b", 4, 3)]

    found = kernels(tmp_path, ops, launch(ts, 1, tid=tid, dur=90), kernel(50, 4, 1))

    assert rows(found, "op", "link") == [(name, link)]


def test_a_kernel_without_a_launch_has_no_op_and_says_so(tmp_path: Path) -> None:
    calls = [launch(1, 7), launch(3, None)]
    found = kernels(tmp_path, op("a", 0, 99), calls, kernel(50, 4, 8), kernel(60, 4, None))

    columns = ("op", "launch_id", "launch_ns", "pid", "tid", "step", "link", "link_note")
    nothing = (None, None, None, None, None, None, "none", "no launch in the recording")
    assert rows(found, *columns) == [nothing, nothing]


def test_a_launch_outside_of_ops_is_known_and_said(tmp_path: Path) -> None:
    found = kernels(tmp_path, step(3, 0, 10), launched(1, 7, at=20, dur=5))

    columns = ("op_id", "launch_ns", "pid", "tid", "step", "link", "link_note")
    assert rows(found, *columns) == [
        (None, 1000, 100, 101, 3, "none", "launched outside of any op")
    ]


@pytest.mark.parametrize("name", ["cuLaunchKernelEx", "hipExtModuleLaunchKernel", "INVALID", ""])
def test_a_launch_may_have_any_name(tmp_path: Path, name: str) -> None:
    found = kernels(tmp_path, op("a", 0, 9), launch(1, 7, name=name), kernel(20, 5, 7))

    assert rows(found, "op") == ["a"]


def test_the_driver_call_inside_the_runtime_call_is_as_good(tmp_path: Path) -> None:
    driver = launch("1.500", 7, name="cuLaunchKernel") | {"cat": "cuda_driver"}

    found = kernels(tmp_path, op("a", 0, 9), launched(1, 7, at=20, dur=5), driver)

    assert rows(found, "op", "launch_ns") == [("a", 1500)]


def test_where_correlation_ids_start_again_the_last_launch_before_counts(tmp_path: Path) -> None:
    found = kernels(
        tmp_path,
        op("a", 0, 9), launched(1, 7, at=5, dur=5),
        op("b", 100, 9), launched(101, 7, at=105, dur=5),
    )  # fmt: skip

    assert rows(found, "op") == ["a", "b"]


def test_a_kernel_that_seems_to_start_before_its_launch_keeps_it(tmp_path: Path) -> None:
    """The clocks of host and device drift."""
    found = kernels(tmp_path, op("a", 10, 9), launched(12, 7, at=11, dur=5))

    assert rows(found, "op", "launch_ns") == [("a", 12000)]


def test_the_step_is_that_of_the_launch(tmp_path: Path) -> None:
    found = kernels(
        tmp_path,
        step(4, 0, 10), step(5, 10, 10),
        op("a", 8, 1), launched(8, 1, at=15, dur=3),
        launched(12, 2, at=18, dur=9, tid=ENGINE),
    )  # fmt: skip

    assert rows(found, "start_ns", "step") == [(15000, 4), (18000, 5)]


@pytest.mark.parametrize(
    ("of_op", "of_kernel", "link"),
    [
        pytest.param(31, 31, "external_id", id="the same"),
        pytest.param(31, 32, "correlation", id="another"),
        pytest.param(31, None, "correlation", id="none on the kernel"),
        pytest.param(None, None, "correlation", id="none"),
    ],
)
def test_a_link_that_the_recorder_confirms_says_so(
    tmp_path: Path, of_op: int | None, of_kernel: int | None, link: str
) -> None:
    gpu = kernel(20, 5, 7, {"External id": of_kernel})

    found = kernels(tmp_path, op("a", 0, 9, id=of_op), launch(1, 7), gpu)

    assert rows(found, "op", "link") == [("a", link)]


def test_an_external_id_that_is_the_correlation_id_leads_nowhere(tmp_path: Path) -> None:
    found = kernels(
        tmp_path,
        op("wrong", 0, 9, id=7), op("right", 10, 9, id=3),
        launch(11, 7, id=7), kernel(30, 5, 7, {"External id": 7}),
    )  # fmt: skip

    assert rows(found, "op", "link") == [("right", "correlation")]


def test_one_graph_launch_owns_all_kernels_of_the_graph(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        op("replay", 0, 9),
        launch(1, 7, name="cudaGraphLaunch"),
        [kernel(20 + at, 1, 7, {"graph node id": at + 1}) for at in range(3)],
    )

    table = run.table("kernels")
    assert rows(table, "op", "link", "launch_id") == [(None, "graph", 0)] * 3
    assert set(rows(table, "link_note")) == {
        "one launch replays a whole graph: its ops ran when it was captured"
    }
    assert rows(run.table("launches"), "kernel_count", "op_id") == [(3, 0)]


def test_a_graph_launch_outside_of_ops_is_still_a_graph(tmp_path: Path) -> None:
    found = kernels(tmp_path, [launch(1, 7, name="hipGraphLaunch"), kernel(20, 5, 7)])

    assert rows(found, "op", "link") == [(None, "graph")]


def test_kernels_and_copies_are_numbered_together_by_start_longest_first(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        kernel(20, 1, 5, name="late"), kernel(10, 2, 4, name="short"),
        copy(10, 9, 3, name="Memcpy HtoD", bytes=64), copy(0, 1, 2, name="Memset (Device)"),
    )  # fmt: skip

    assert rows(run.table("kernels"), "kernel_id", "kernel") == [(2, "short"), (3, "late")]
    assert rows(run.table("copies"), "kernel_id", "category", "bytes") == [
        (0, "memset", None), (1, "memcpy", 64),
    ]  # fmt: skip


def test_launches_are_numbered_by_start_and_count_their_kernels(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        launch(9, 2, name="cudaDeviceSynchronize"), launched(5, 1, at=20, dur=5),
        copy(30, 1, 2, name="Memset (Device)"), op("a", 4, 3),
    )  # fmt: skip

    columns = ("launch_id", "start_ns", "op_id", "kernel_count")
    assert rows(run.table("launches"), *columns) == [(0, 5000, 0, 1), (1, 9000, None, 1)]


def test_a_backward_kernel_has_number_and_forward_op_of_its_node(tmp_path: Path) -> None:
    found = kernels(
        tmp_path,
        op("aten::relu", 0, 9, seq=7), launched(1, 1, at=10, dur=3),
        node("ReluBackward0", 20, 9, seq=7), op("aten::threshold_backward", 21, 5, tid=ENGINE),
        launched(22, 2, at=30, dur=3, tid=ENGINE),
    )  # fmt: skip

    columns = ("op", "direction", "sequence_nr", "forward_op_id", "recompute")
    assert rows(found, *columns) == [
        ("aten::relu", "forward", 7, None, False),
        ("aten::threshold_backward", "backward", 7, 0, False),
    ]


def test_the_note_says_where_the_layer_of_an_accumulated_gradient_is_from(tmp_path: Path) -> None:
    name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    found = kernels(
        tmp_path,
        op("aten::relu", 0, 9, seq=7, **{"Module Hierarchy": "net.act"}),
        node("ReluBackward0", 20, 5, seq=7),
        op(name, 30, 9, tid=ENGINE, fwd=1), launched(31, 2, at=40, dur=3, tid=ENGINE),
    )  # fmt: skip

    columns = ("layer", "forward_op_id", "sequence_nr", "link_note")
    assert rows(found, *columns) == [
        ("net.act", None, None, "layer and source of the node that ran before AccumulateGrad")
    ]


def test_the_note_says_that_the_op_of_a_cpp_node_is_uncertain(tmp_path: Path) -> None:
    found = kernels(
        tmp_path,
        op("aten::zero_", 0, 9, seq=7),
        node("torch::autograd::CppNode<Lookup>", 20, 9, seq=7),
        launched(21, 2, at=40, dur=3, tid=ENGINE),
    )

    ((note, forward),) = rows(found, "link_note", "forward_op_id")
    assert "by number alone" in note
    assert forward == 0


def of_processes(folder: Path, launches: list[tuple[int, int]], pids: list[int]) -> list[int]:
    """The launches of kernels of correlation 7, one per pid; a launch is a pid and a start."""
    spool = Spool(folder)
    count = len(launches)
    spool.append(
        "launches",
        {
            "pid": [pid for pid, _ in launches], "tid": [1] * count, "dur_ns": [1] * count,
            "start_ns": [start for _, start in launches], "correlation_id": [7] * count,
            "name": [spool.texts["launches"]["name"]["launch"]] * count,
        },
        count,
    )  # fmt: skip
    kind = spool.texts["activities"]["kind"]["kernel"]
    columns = {"pid": pids, "start_ns": [1000 + at for at in range(len(pids))]}
    same = {"dur_ns": 1, "correlation_id": 7, "kind": kind}
    columns |= {name: [value] * len(pids) for name, value in same.items()}
    spool.append("activities", columns, len(pids))
    spool.finish()
    recording = Recording(spool)
    threads = Threads.of([recording.read(name, ["pid", "tid"]) for name in ("ops", "launches")])
    ops = link_ops(recording, threads)
    found = link_activities(recording, link_launches(recording, ops, threads), ops, threads)
    launch_of: list[int] = found.launch.tolist()
    return launch_of


@pytest.mark.parametrize(
    ("launches", "pids", "wanted"),
    [
        pytest.param([(1, 10), (2, 20)], [1, 2], [0, 1], id="each its own"),
        pytest.param([(1, 10), (2, 20)], [2, 2], [1, 1], id="both of one"),
        pytest.param([(1, 10)], [2], [-1], id="none of the process"),
        pytest.param([(5, 10)], [3], [-1], id="a process that launched nothing"),
        pytest.param([], [3], [-1], id="no launches"),
    ],
)
def test_correlation_ids_of_processes_are_apart_where_the_process_is_known(
    tmp_path: Path, launches: list[tuple[int, int]], pids: list[int], wanted: list[int]
) -> None:
    assert of_processes(tmp_path, launches, pids) == wanted


OTHER = 200
"""The second process of a file that two were merged into."""


def of_two_processes(*kernels: Event) -> list[Event]:
    """Events in which both processes launch 5 at 12, on their main thread, in an op of their own.

    The first one also launches 6, and the second one 8.
    """
    return [
        op("aten::mm", 10, 20, id=1), launch(12, 5, id=1), launch(14, 6, id=1),
        op("aten::relu", 10, 20, id=2, pid=OTHER), launch(12, 5, id=2, pid=OTHER),
        launch(14, 8, id=2, pid=OTHER), *kernels,
    ]  # fmt: skip


def on(device: int, ts: int, correlation: int, **ids: int) -> Event:
    args = {"device": device} | ({"External id": ids["id"]} if "id" in ids else {})
    return kernel(ts, 10, correlation, args)


@pytest.mark.parametrize(
    ("activities", "wanted"),
    [
        pytest.param([on(0, 90, 5, id=1), on(1, 60, 5, id=2)], ["aten::relu", "aten::mm"], id="id"),
        pytest.param(
            [on(0, 50, 5), on(1, 60, 5), on(0, 70, 6), on(1, 80, 8)],
            ["aten::mm", "aten::relu", "aten::mm", "aten::relu"],
            id="the only one that has the id, and the device",
        ),
        pytest.param(
            [on(0, 50, 5), on(0, 60, 6), on(0, 70, 8)],
            [None, "aten::mm", "aten::relu"],
            id="a device of both",
        ),
        pytest.param([on(0, 50, 5), on(1, 60, 5)], [None, None], id="nothing says which"),
    ],
)
def test_two_processes_in_a_file_are_apart_although_their_correlation_ids_are_not(
    tmp_path: Path, activities: list[Event], wanted: list[str | None]
) -> None:
    found = kernels(tmp_path, of_two_processes(*activities))

    assert rows(found, "op") == wanted
    notes = [note for op, note in rows(found, "op", "link_note") if op is None]
    assert set(notes) <= {"several processes have a launch of its correlation id"}


def test_a_launch_after_the_kernel_is_that_of_another_process(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 10, 20), launch(12, 5),
        op("aten::relu", 100, 20, pid=OTHER), launch(112, 5, pid=OTHER),
        kernel(60, 10, 5),
    ]  # fmt: skip

    assert rows(kernels(tmp_path, events), "op", "pid") == [("aten::mm", 100)]


def ranks(
    *, labels: list[str | None], devices: list[int], missing: int = 0, has_ids: bool = True
) -> list[Event]:
    """Events of ranks that were merged: all count correlation ids from 1, and run an op each.

    Of the first rank's ten launches some at the beginning are `missing`, with the ops.
    """
    events: list[Event] = []
    for rank, (label, device) in enumerate(zip(labels, devices, strict=True)):
        pid, gpu = (n if label is None else f"{label} {n}" for n in (80 + rank, device))
        for number in range(1, 11):
            ts: int = 20 * number
            ids: dict[str, Any] = {"id": 1000 * rank + number} if has_ids else {}
            found = rank > 0 or number > missing
            if found:
                events.append(op(f"aten::r{rank}", ts, 15, pid=pid, tid=7, **ids))
                events.append(launch(ts + 2, number, pid=pid, tid=7, **ids))
            named = {"External id": ids["id"]} if ids and found else {}
            args = {"device": device} | named
            events.append(kernel(ts + 8, 9, number, args, name=f"k{rank}") | {"pid": gpu})
    return events


def ops_of(run: Run) -> dict[tuple[str, str | None], int]:
    """How many kernels of a name there are in each op."""
    return dict(Counter(rows(run.table("kernels"), "kernel", "op")))


ALL_LINKED: Final = {("k0", "aten::r0"): 10, ("k1", "aten::r1"): 10}
FIRST_MISSING: Final = ALL_LINKED | {("k0", "aten::r0"): 7, ("k0", None): 3}


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        pytest.param(
            ranks(labels=["[TP00]", "[TP01]"], devices=[0, 1], missing=3),
            FIRST_MISSING,
            id="labels and ids",
        ),
        pytest.param(
            ranks(labels=["[TP00]", "[TP01]"], devices=[0, 1], missing=3, has_ids=False),
            FIRST_MISSING,
            id="labels alone",
        ),
        pytest.param(
            ranks(labels=[None, None], devices=[0, 1], missing=3), FIRST_MISSING, id="ids alone"
        ),
        pytest.param(
            ranks(labels=["[TP00-DP00]", "[TP00-DP01]"], devices=[0, 1]),
            ALL_LINKED,
            id="two numbers",
        ),
        pytest.param(
            ranks(labels=["node1/rank", "node2/rank"], devices=[0, 0], missing=3, has_ids=False),
            FIRST_MISSING,
            id="one device number",
        ),
        pytest.param(
            ranks(labels=["a1", "a1 b2"], devices=[0, 1]), ALL_LINKED, id="alike at first"
        ),
        pytest.param(
            ranks(labels=[None, None], devices=[0, 1], has_ids=False),
            {("k0", None): 10, ("k1", None): 10},
            id="nothing says which",
        ),
        pytest.param(
            ranks(labels=[None, None], devices=[0, 1], missing=3, has_ids=False),
            {("k0", None): 10, ("k1", None): 10},
            id="an id that one process alone has proves nothing",
        ),
        pytest.param(
            ranks(labels=[None, None], devices=[0, 1], missing=10)[:10],
            {("k0", None): 10},
            id="no launches at all",
        ),
        pytest.param(
            [op("aten::r0", 0, 9, pid="python 5"), launch(1, 1, pid="python 5"),
             kernel(20, 5, 1, name="k0") | {"pid": "GPU 0"}],
            {("k0", "aten::r0"): 1},
            id="words that are no labels",
        ),
    ],
)  # fmt: skip
def test_a_kernel_has_a_launch_of_its_own_process_or_none(
    tmp_path: Path, events: list[Event], wanted: dict[tuple[str, str | None], int]
) -> None:
    assert ops_of(load_events(tmp_path, *events)) == wanted


def test_an_id_of_another_op_speaks_against_a_launch(tmp_path: Path) -> None:
    other = [op("aten::r1", 10, 20, id=9, pid=OTHER), launch(12, 5, id=9, pid=OTHER)]
    mine = [op("aten::r0", 10, 20, id=3), launch(12, 6, id=3)]
    run = load_events(tmp_path, *other, *mine, on(0, 60, 5, id=7), on(1, 60, 6, id=3))

    assert rows(run.table("kernels"), "op") == [None, "aten::r0"]


def test_check_says_that_the_process_is_not_known_and_not_that_launches_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load_events(tmp_path, *ranks(labels=[None, None], devices=[0, 1], has_ids=False))

    found = run.check().set_index("finding")
    assert found.loc[look_up(UNKNOWN_PROCESS).text, "count"] == 20
    assert "kernels without a launch in the recording" not in found.index
    assert main(["prof", str(tmp_path / "trace.json")]) == 0
    assert "warm-up" not in capsys.readouterr().out


def test_devices_of_one_number_on_two_machines_are_two(tmp_path: Path) -> None:
    gpu = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}
    events = ranks(labels=["[DP00]", "[DP01]", "[DP02]"], devices=[0, 0, 1])
    waits = [
        complete("cuda_sync", "Stream Sync", 30, 5, pid=f"[DP0{n}] 0", tid=7,
                 args={"device": 0, "stream": 7})
        for n in (0, 1)
    ]  # fmt: skip
    memory_of = [
        memory(40, **{"Device Id": 0, "Device Type": 1, "Bytes": 64}) | {"pid": "[DP01] 81"}
    ]
    run = load_events(tmp_path, *events, *waits, *memory_of, deviceProperties=[gpu, gpu])

    found = Counter(rows(run.table("kernels"), "kernel", "device"))
    assert found == {("k0", 0): 10, ("k1", 2): 10, ("k2", 1): 10}
    assert rows(run.table("stalls"), "device") == [0, 2]
    assert rows(run.table("memory"), "device") == [2]
    assert sorted(rows(run.table("devices"), "device")) == [0, 2]
    assert run.summary["busy_ns"] == 270_000
    assert set(run.check()["finding"]) >= {look_up(DEVICES_APART).text}


def test_a_device_that_two_processes_use_is_said(tmp_path: Path) -> None:
    run = load_events(tmp_path, *ranks(labels=[None, None], devices=[0, 0]))

    assert set(run.check()["finding"]) >= {look_up(DEVICE_SHARED).text}
