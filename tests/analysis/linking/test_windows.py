"""A long recording is linked window by window, and the tables are those of the whole."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyprof2.analysis.linking.cuts import find_cuts
from pyprof2.analysis.linking.windows import windows_of
from pyprof2.parsers import read_recordings
from pyprof2.pipeline import assemble
from pyprof2.recording import Recording, Spool
from pyprof2.tables import TABLES
from tests.kineto_events import (
    MAIN,
    PID,
    annotation,
    complete,
    flow,
    frame,
    kernel,
    launch,
    launched,
    memory,
    node,
    op,
    read,
    trace,
)
from tests.training_trace import training_trace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kineto_events import Event

Tables = dict[str, list[dict[str, Any]]]


def tables_of(recording: Recording, folder: Path, rows: int | None) -> tuple[int, Tables, Any]:
    """Return how many windows there are, the tables' rows, and the counts for the manifest.

    Stacks and estimates are numbered as they come first: their ids are replaced by what they are.
    """
    count = 0

    def windows(whole: Recording, scratch: Path) -> Any:
        nonlocal count
        found = windows_of(whole, scratch, 1 << 60 if rows is None else rows)
        count = len(found.each)
        return found

    folder.mkdir()
    facts: dict[str, int] = {}
    parts: dict[str, list[pa.Table]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "windows_of", windows)
        for name, of_table in assemble.assemble(recording, 0, None, facts, folder):
            rows_of = parts.setdefault(name, [TABLES[name].empty()])
            rows_of += [TABLES[name].conform(part) for part in of_table]
    found = {name: pa.concat_tables(each).to_pylist() for name, each in parts.items()}
    return count, with_meanings(found), facts


def with_meanings(tables: Tables) -> Tables:
    stacks: dict[int | None, str | None] = {None: None}
    for row in tables.pop("stacks"):
        stacks[row["stack_id"]] = f"{stacks[row['caller_id']] or ''}\n{row['line']}"
    estimates: dict[int | None, Any] = {None: None}
    for row in tables.pop("estimates"):
        number = row.pop("estimate_id")
        estimates[number] = tuple(row.values())
    for row in (row for rows in tables.values() for row in rows):
        row |= {key: stacks[row[key]] for key in ("stack_id",) if key in row}
        row |= {key: estimates[row[key]] for key in ("estimate_id",) if key in row}
    tables["stacks"] = [{"texts": sorted(filter(None, stacks.values()))}]
    return tables


def assert_same(recording: Recording, folder: Path, rows: int, windows: int) -> Tables:
    """The tables of at least so many windows are those of the whole; return them."""
    count, found, facts = tables_of(recording, folder / "windows", rows)
    _, wanted, of_whole = tables_of(recording, folder / "whole", None)

    assert count >= windows
    assert found.keys() == wanted.keys()
    for name, each in wanted.items():
        assert found[name] == each, name
    assert facts == of_whole
    return found


@pytest.fixture(scope="module")
def training() -> bytes:
    return training_trace(steps=12)


@pytest.mark.kept("1-12")
@pytest.mark.parametrize(("rows", "windows"), [(1, 12), (300, 6), (600, 3)])
def test_a_training_in_windows(training: bytes, tmp_path: Path, rows: int, windows: int) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(training)

    found = assert_same(read(path), tmp_path, rows, windows)

    ids = sorted(row["kernel_id"] for name in ("kernels", "copies") for row in found[name])
    assert ids == list(range(len(ids)))


@pytest.mark.minutes
def test_real_traces_in_windows(real_trace: Path, tmp_path: Path) -> None:
    for number, recording in enumerate(read_recordings(real_trace, _made(tmp_path / "spool"))):
        rows = sum(recording.spool.counts.values()) // 20
        assert_same(recording, _made(tmp_path / str(number)), rows, 1)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def step(at: int, number: int, thread: int = MAIN) -> list[Event]:
    """A forward op, its node, and the optimizer's step, with a kernel each; 100 µs."""
    return [
        op("aten::mul", at, 10, seq=number, tid=thread),
        *launched(at + 2, 3 * number, at=at + 5, dur=3, tid=thread),
        node("MulBackward0", at + 20, 10, seq=number),
        *launched(at + 22, 3 * number + 1, at=at + 25, dur=3, tid=102),
        annotation("Optimizer.step#SGD.step", at + 40, 30, tid=thread),
        op("aten::add_", at + 45, 5, tid=thread),
        op("aten::add_", at + 55, 5, tid=thread),
        *launched(at + 57, 3 * number + 2, at=at + 60, dur=3, tid=thread),
    ]


def steps(count: int = 4) -> list[Event]:
    return [event for number in range(count) for event in step(100 * number, number)]


def cuts_of(folder: Path, *events: Event | list[Event]) -> list[float]:
    """Return the cuts in µs."""
    found: list[float] = (find_cuts(read(trace(folder / "t.json", *events)), 1) / 1000).tolist()
    return found


def test_a_pass_of_forward_begins_at_a_cut(tmp_path: Path) -> None:
    assert cuts_of(tmp_path, steps()) == [100, 200, 300]


def test_what_is_before_a_pass_of_forward_is_in_its_window(tmp_path: Path) -> None:
    loading = [
        [
            annotation("enumerate(DataLoader)#_Iter.__next__", at - 20, 25),
            op("aten::empty", at - 15, 2),
        ]
        for at in (100, 200, 300)
    ]

    assert cuts_of(tmp_path, steps(), *loading) == [85, 185, 285]


@pytest.mark.parametrize(
    "stepping", [annotation("Optimizer.step#SGD.step", 212, 5), op("aten::_fused_sgd_", 212, 5)]
)
def test_no_cut_between_a_node_and_a_step_of_an_optimizer(tmp_path: Path, stepping: Event) -> None:
    """What no range is around is other work there, and without the node it would be forward."""
    loose = [
        node("SumBackward0", 180, 3, seq=70),
        op("aten::zeros", 198, 2),
        stepping,
        op("aten::add_", 213, 2),
    ]

    assert cuts_of(tmp_path, steps(), loose) == [100, 300]

    path = tmp_path / "t.json"
    found = assert_same(read(trace(path, steps(), loose)), tmp_path, 1, 3)

    assert [row["direction"] for row in found["ops"] if row["op"] == "aten::zeros"] == ["other"]


def test_without_nodes_a_cut_is_before_any_op(tmp_path: Path) -> None:
    ops = [op("aten::mul", 10 * number, 5) for number in range(4)]

    assert cuts_of(tmp_path, ops) == [10, 20, 30]


@pytest.mark.parametrize(
    "across",
    [
        op("aten::sum", 150, 100, tid=103),
        frame("nn.Module: Linear_0", 150, 100),
        annotation("Optimizer.step#SGD.step", 150, 100),
        annotation("FSDP::pre_forward (layers.0)", 150, 100),
        annotation("enumerate(DataLoader)#_Iter.__next__", 150, 100),
        op("aten::mul", 199, 1),  # ends at the very time at which the next begins
        op("aten::conv2d", 190, 5),
        [op("aten::conv2d", 190, 8), op("aten::empty", 192, 2)],
        flow(1, 150, 250),
        [op("aten::exp", 190, 5, seq=77), node("ExpBackward0", 280, 5, seq=77)],
        [
            op("aten::exp", 190, 5, seq=77),
            op("aten::exp", 205, 2, seq=77, tid=103),
            node("ExpBackward0", 280, 5, seq=77),
        ],
    ],
    ids=[
        "op of another thread", "module", "optimizer", "FSDP", "data loader", "touching",
        "convolution", "op in a convolution", "flow", "pair", "one number on two threads",
    ],
)  # fmt: skip
def test_no_cut_where_something_goes_on(tmp_path: Path, across: Event | list[Event]) -> None:
    cuts = cuts_of(tmp_path, steps(), across)

    assert 200 not in cuts
    assert {100, 300} <= {*cuts}


def test_frames_and_own_ranges_may_go_on(tmp_path: Path) -> None:
    around = [frame("train.py(7): main", 0, 400), annotation("epoch", 0, 400)]

    assert cuts_of(tmp_path, steps(), around) == [100, 200, 300]


def test_several_processes_are_not_cut(tmp_path: Path) -> None:
    other = [op("aten::mul", 500 + 10 * number, 5, pid=PID + 1) for number in range(4)]

    assert cuts_of(tmp_path, steps(), other) == []


def test_a_number_that_is_used_again_begins_a_new_pair(tmp_path: Path) -> None:
    again = [event for number in range(3) for event in step(100 * number, 5)]

    assert cuts_of(tmp_path, again) == [100, 200]


def test_a_node_whose_forward_op_was_not_recorded_waits_for_none(tmp_path: Path) -> None:
    loose = [node("SumBackward0", 100 * number + 32, 3, seq=70) for number in range(4)]

    assert cuts_of(tmp_path, steps(), loose) == [100, 200, 300]


def test_nodes_without_numbers_are_not_cut(tmp_path: Path) -> None:
    """Before the optimizer may be what belongs to backward: see `directions`."""
    passes = [
        event
        for at in range(0, 400, 100)
        for event in (op("aten::mul", at, 10), op("MulBackward0", at + 20, 10, tid=102))
    ]

    assert cuts_of(tmp_path, passes) == []


def in_windows(folder: Path, *events: Event | list[Event], windows: int) -> Tables:
    return assert_same(read(trace(folder / "t.json", *events)), folder, 1, windows)


def test_frames_around_windows_give_stacks(tmp_path: Path) -> None:
    around = [frame("train.py(7): main", 0, 400), annotation("epoch", 0, 400)]

    found = in_windows(tmp_path, around, steps(), windows=4)

    assert {row["stack_id"] for row in found["ops"] if row["direction"] == "forward"} == {
        "\ntrain.py:7"
    }
    assert [row["name"] for row in found["ranges"]].count("epoch") == 1


def test_counters_are_in_the_windows_in_which_they_were_sampled(tmp_path: Path) -> None:
    late, early = (
        [{"ph": "C", "name": "W", "ts": 5 + at, "args": {"x": at}} for at in range(*bounds)]
        for bounds in ((200, 400, 20), (0, 200, 20))
    )

    found = in_windows(tmp_path, late, steps(), early, windows=4)

    values = [(row["time_ns"], row["value"]) for row in found["counters"]]
    assert values == [(5_000 + 1_000 * at, at) for at in range(0, 400, 20)]


def test_kernels_stand_in_order_wherever_they_are_launched(tmp_path: Path) -> None:
    late = [launch(3, 90), kernel(250, 1, 90), launch(4, 91), kernel(990, 1, 91)]
    early = [launch(310, 92), kernel(120, 1, 92), kernel(130, 1, 93)]

    found = in_windows(tmp_path, steps(), late, early, windows=4)

    starts = [row["start_ns"] for row in found["kernels"]]
    assert starts == sorted(starts)
    assert [row["kernel_id"] for row in found["kernels"]] == list(range(len(starts)))
    of = {row["correlation_id"]: row for row in found["kernels"]}
    assert of[90]["op"] == of[91]["op"] == "aten::mul"
    assert of[92]["launch_ns"] == 310_000
    assert of[93]["launch_id"] is None


def test_an_id_that_is_used_again_is_of_the_launch_before(tmp_path: Path) -> None:
    again = [event for number in range(3) for event in step(100 * number, 5)]

    found = in_windows(tmp_path, again, windows=3)

    assert [row["launch_ns"] // 100_000 for row in found["kernels"]] == [0] * 3 + [1] * 3 + [2] * 3


def test_a_thread_with_ranges_of_its_own_borrows_none_in_other_windows(tmp_path: Path) -> None:
    own = annotation("once", 21, 2, tid=102)
    lends = annotation("epoch", 0, 400)

    found = in_windows(tmp_path, steps(), own, lends, windows=4)

    of_nodes = [row["range"] for row in found["ops"] if row["tid"] == 102]
    assert of_nodes == [None] * len(of_nodes)


def test_a_thread_without_ranges_borrows_in_every_window(tmp_path: Path) -> None:
    found = in_windows(tmp_path, steps(), annotation("epoch", 0, 400), windows=4)

    of_nodes = [row["range"] for row in found["ops"] if row["tid"] == 102]
    assert of_nodes == ["epoch"] * len(of_nodes)


def test_events_in_any_order(tmp_path: Path) -> None:
    sizes = [memory(at, Bytes=512, Addr=at) for at in range(3, 400, 50)]
    events = [*steps(), *sizes, annotation("epoch", 0, 400), frame("train.py(7): main", 0, 400)]
    in_windows(tmp_path, events[::2], events[1::2][::-1], windows=4)


def test_a_capture_is_whole_in_its_window(tmp_path: Path) -> None:
    """Its ops have pauses between them, in which a recording would else be cut."""
    events = [op("aten::eager", at, 2) for at in range(100, 900, 100)]
    events.append(launch(510, 510, name="hipStreamBeginCapture"))
    for number in range(1, 5):
        args = {"correlation": number, "kernel": f"k{number}"}
        events.append(op(f"aten::op{number}", 510 + 4 * number, 2))
        events.append(complete("cuda_runtime", "hipLaunchKernel", 511 + 4 * number, 1, args=args))
    events.append(launch(530, 530, name="hipStreamEndCapture"))
    for at in (650, 850):
        events.append(launch(at, at, name="hipGraphLaunch"))
        events += [kernel(at + 5 + n, 1, at, name=f"k{n}.kd") for n in range(1, 5)]

    found = in_windows(tmp_path, events, windows=8)

    replayed = [row for row in found["kernels"] if row["kernel"].startswith("k")]
    assert [row["op"] for row in replayed] == [f"aten::op{n}" for n in range(1, 5)] * 2
    assert {row["link"] for row in replayed} == {"graph_names"}


def test_captures_that_a_thread_has_open_at_once_are_in_one_window(tmp_path: Path) -> None:
    """Which of them ends is not known: a cut between two begins would make one known."""
    begin, end = "cudaStreamBeginCapture", "cudaStreamEndCapture"
    events = [op("aten::eager", at, 2) for at in range(20, 900, 20)]
    calls = [(105, begin), (205, begin), (305, end), (405, end), (605, begin), (705, end)]
    for number, (at, name) in enumerate(calls):
        events.append(launch(at, 500 + number, name=name))
    for number, at in enumerate(at for each in (110, 210, 310, 610) for at in (each, each + 20)):
        args = {"correlation": number, "kernel": f"k{number}"}
        events.append(op(f"aten::op{number}", at + 12, 4))
        events.append(complete("cuda_runtime", "hipLaunchKernel", at + 13, 1, args=args))
    for first, at in ((0, 810), (2, 850), (6, 890)):
        events.append(launch(at, at, name="hipGraphLaunch"))
        events += [kernel(at + 5 + n, 1, at, name=f"k{first + n}.kd") for n in range(2)]

    found = in_windows(tmp_path, events, windows=25)

    known = {row["kernel"]: row["op"] for row in found["kernels"]}
    assert known == {
        "k0.kd": None, "k1.kd": None, "k2.kd": None, "k3.kd": None,
        "k6.kd": "aten::op6", "k7.kd": "aten::op7",
    }  # fmt: skip


def test_rows_lie_in_few_batches(tmp_path: Path) -> None:
    """Of a window only its own rows are read: the others are in other batches of the files."""
    recording = read(trace(tmp_path / "t.json", steps(8)))

    windows = windows_of(recording, tmp_path, 1)

    counts = [window.recording.spool.counts["ops"] for window in windows.each]
    assert counts == [4] * 8
    assert [w.recording.spool.raw("ops", ["start_ns"]).num_rows for w in windows.each] == counts


def test_texts_that_became_equal_are_what_they_are_in_each_window(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    spool, count = Spool(whole), 40
    codes = spool.texts["ops"]["op"]
    texts = [codes[text] for text in ("a", "b", "c")]
    columns = {"start_ns": [*range(0, 100 * count, 100)], "dur_ns": [10] * count}
    columns |= {"pid": [1] * count, "tid": [1] * count}
    columns["op"] = [texts[at % 3] for at in range(count)]
    spool.append("ops", columns, count)
    spool.rename("ops", "op", {"b": "a"})
    spool.finish()
    recording = Recording(spool, pids=frozenset({1}))

    each = windows_of(recording, parts, rows=6).each

    assert len(each) > 1
    found = (window.recording.read("ops", ["op"])["op"].to_pylist() for window in each)
    assert [*chain.from_iterable(found)] == ["aac"[at % 3] for at in range(count)]
