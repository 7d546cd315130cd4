"""GPU work that cannot be right is found, and what only looks odd is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyprof2.cli import main
from pyprof2.errors import TraceError
from pyprof2.parsers._odd_work import examine_work
from tests.kineto_events import (
    Event,
    Time,
    copy,
    kernel,
    launch,
    launched,
    load_events,
    op,
    read,
    trace,
)
from tests.nsight_exports import Export

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

NOW_US = 4_400_000_000_000
"""51 days after the base time of the trace."""
DAY_US = 86_400_000_000
LONG = "GPU work that lasts over an hour"
AT_ZERO = "GPU work at time 0, hours from all other work"
TOO_MUCH = "kernels with more FLOPs or bytes than their device can do in their time"
EARLY = "GPU work that begins before its launch, by up to 100.000 us"
OVER = "GPU work that ends after later work of its stream: cut where that begins"
TWICE = "GPU work that is in the file more than once: counted once"


def odd(folder: Path, *events: Event) -> dict[str, int]:
    return findings(load_events(folder, *events))


def findings(run: Run) -> dict[str, int]:
    found = run.check()
    found = found[found["finding"].isin([LONG, AT_ZERO, EARLY, OVER, TWICE, TOO_MUCH])]
    assert set(found["severity"]) <= {"problem"}
    return dict(zip(found["finding"], found["count"], strict=True))


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        pytest.param([kernel(NOW_US, 3 * DAY_US, 1), kernel(NOW_US, 5, 2)], {LONG: 1}, id="days"),
        pytest.param([kernel(0, 5, 1), kernel(NOW_US, 5, 2)], {AT_ZERO: 1}, id="at 0"),
        pytest.param([kernel(0, 5, 1), kernel(900, 5, 2)], {}, id="a clock that begins at 0"),
        pytest.param([kernel(0, 5, 1)], {}, id="nothing else to tell by"),
        pytest.param(
            [*launched(1, 5, at=20, dur=8), *launched(40, 6, at=0, dur=8)],
            {EARLY: 1},
            id="before its launch, at 0",
        ),
        pytest.param(
            [*launched(1, 5, at=1, dur=8), *launched(40, 6, at=60, dur=8)], {}, id="with its launch"
        ),
        pytest.param(
            [*launched("1.4", 5, at=1, dur=8), *launched("40.9", 6, at=40, dur=8)],
            {},
            id="within the noise of clocks",
        ),
        pytest.param(
            [*launched(NOW_US, 5, at=0, dur=8), kernel(NOW_US, 5, 2)], {AT_ZERO: 1}, id="once"
        ),
        pytest.param([kernel(7, 5, 1)] * 3 + [kernel(9, 5, 2)] * 2, {TWICE: 3}, id="repeated"),
        pytest.param(
            [copy(7, 5, 1, name="Memcpy HtoD", bytes=64)] * 2, {TWICE: 1}, id="a repeated copy"
        ),
        pytest.param(
            [kernel(7, 5, 1, {"graph node id": n}, name="g") for n in (1, 2)], {}, id="graph nodes"
        ),
        pytest.param([kernel(7, 5, 1, {"device": n}) for n in (0, 1)], {}, id="on two devices"),
    ],
)
def test_work_that_cannot_be_right_is_found(
    tmp_path: Path, events: list[Event], wanted: dict[str, int]
) -> None:
    assert odd(tmp_path, *events) == wanted


def test_what_is_in_the_file_again_counts_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = [op("aten::a", 0, 9), *launched(1, 5, at=20, dur=8), kernel(20, 8, 5)]
    others = [kernel(20, 8, 5, {"stream": 8}), kernel(20, 8, 6), kernel(20, 8, 5, name="other")]
    run = load_events(tmp_path, *again, *others, kernel(20, 8, 5))

    assert run.summary["kernel_count"] == 4
    assert run.summary["kernel_time_ns"] == 4 * 8_000
    assert main(["prof", str(tmp_path / "trace.json")]) == 0
    assert f"{TWICE} (2)" in capsys.readouterr().err


def test_work_before_its_launch_is_said_beside_the_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_events(tmp_path, op("aten::a", 0, 90), *launched(40, 5, at=0, dur=8))

    assert main(["prof", str(tmp_path / "trace.json")]) == 0
    assert f"{EARLY} (1)" in capsys.readouterr().err


def test_work_of_days_and_at_zero_is_said_beside_the_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_events(tmp_path, kernel(0, 5, 1), kernel(NOW_US, 3 * DAY_US, 2), kernel(NOW_US, 5, 3))

    assert main(["prof", str(tmp_path / "trace.json")]) == 0

    err = capsys.readouterr().err
    assert f"{LONG} (1)" in err
    assert f"{AT_ZERO} (1)" in err


def test_a_file_of_more_devices_than_any_machine_has_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    most = [kernel(10 * n, 5, n, {"device": n}) for n in range(1024)]
    file = trace(tmp_path, *most)
    examine_work(read(file), file)

    trace(tmp_path, *most, kernel(0, 5, 9999, {"device": 1024}))

    with pytest.raises(TraceError, match="names 1,025 devices"):
        examine_work(read(file), file)
    assert main(["prof", str(tmp_path / "trace.json")]) == 1
    assert "no machine has more than 1,024" in capsys.readouterr().err


def stream(
    *durations: Time, of: Event | None = None, pause: int = 20, name: str = "k"
) -> list[Event]:
    """Kernels of a stream, each begun `pause` us after the one before it, with their launches."""
    events: list[Event] = []
    for number, dur in enumerate(durations, 1):
        at = 1000 + pause * number
        events += [op("aten::mul", at - 10, 8), launch(at - 8, number)]
        events.append(kernel(at, dur, number, of, name=name))
    return events


def with_long(*longs: tuple[int, Time], count: int = 60) -> list[Time]:
    """Durations of 15 us, but for those at some places."""
    return [dict(longs).get(at, 15) for at in range(count)]


@pytest.mark.parametrize(
    ("events", "cut", "busy_us"),
    [
        pytest.param(stream(*with_long((20, 10**6), (40, 5 * 10**5))), 2, 910, id="two"),
        pytest.param(stream(*with_long((20, 10**6), (21, 10**6))), 2, 910, id="one after another"),
        pytest.param(stream(*with_long((0, 80))), 1, 905, id="past four"),
        pytest.param(stream(15, 10**4, 9 * 10**3), 1, 9035, id="far into the last"),
        pytest.param(stream(*with_long((58, 10**7))), 1, 905, id="the last but one"),
        pytest.param(stream(*with_long((59, 10**6))), 0, 1_000_885, id="nothing after it"),
        pytest.param(
            [*stream(*with_long()), kernel(1005, 900, 99, {"stream": 8})],
            0,
            None,
            id="another stream",
        ),
        pytest.param(
            [*stream(*with_long()), kernel(1005, 900, 99, {"device": 1})], 0, None, id="another GPU"
        ),
        pytest.param(
            [*stream(*with_long(), of={"context": 1}), kernel(1005, 900, 99, {"context": 2})],
            0,
            None,
            id="another context",
        ),
        pytest.param(stream(*["20.027"] * 60), 0, None, id="noise of clocks"),
        pytest.param(stream(*[22] * 60), 0, None, id="a dependent kernel begins early"),
        pytest.param(stream(*[300] * 9, pause=285), 0, None, id="and long ones do"),
        pytest.param(
            [launch(5, 1, name="cudaGraphLaunch"), kernel(20, 900, 1), kernel(30, 5, 1)],
            0,
            None,
            id="branches of a graph",
        ),
        pytest.param(
            [kernel(20, 900, 1, {"graph node id": 7}), kernel(30, 5, 2, {"graph node id": 8})],
            0,
            None,
            id="nodes of a graph",
        ),
    ],
)
def test_work_that_ends_after_later_work_of_its_stream_is_cut(
    tmp_path: Path, events: list[Event], cut: int, busy_us: int | None
) -> None:
    run = load_events(tmp_path, *events)

    assert findings(run) == ({OVER: cut} if cut else {})
    if busy_us is not None:
        assert run.summary["busy_ns"] == run.summary["kernel_time_ns"] == 1000 * busy_us
        (whole,) = run.table("trace").to_pylist()
        assert 0 < whole["end_ns"] - whole["start_ns"] - run.summary["gpu_span_ns"] <= 10_000


def test_copies_that_run_past_later_work_are_cut_too(tmp_path: Path) -> None:
    again = [copy(1045, 4000, 99, name="Memcpy HtoD", bytes=64)]
    run = load_events(tmp_path, *stream(*with_long()), *again)

    assert findings(run) == {OVER: 1}
    assert run.summary["copy_time_ns"] == 15_000


def test_rows_of_nsight_that_run_past_later_work_are_cut_too(tmp_path: Path) -> None:
    export = Export()
    for number in range(50):
        export.call("cudaLaunchKernel", 50_000 * number, 5_000, number + 1)
        dur = 10**9 if number in {7, 30} else 20_000
        export.kernel("k", 50_000 * number + 9_000, dur, number + 1)
    run = export.load(tmp_path)

    assert findings(run) == {OVER: 2}
    assert run.summary["kernel_time_ns"] == 48 * 20_000 + 2 * 50_000


def test_every_screen_of_cut_work_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = trace(tmp_path, *stream(*with_long((9, 10**6))))

    for command in ("prof", "advise"):
        assert main([command, str(file)]) == 0
        assert f"; {OVER} (1)" in " ".join(capsys.readouterr().out.split())


H100 = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0}]


def work(name: str, size: int, us: float, kernel_name: str = "k") -> list[Event]:
    """Return an op of square matrices of f32, and its kernel."""
    square = [size, size]
    asked = op(name, 0, 9, id=1, dims=[square, square], types=["float", "float"])
    return [asked, *launched(2, 1, at=20, dur=us, name=kernel_name, id=1)]


# An H100 does at most 1,979 TFLOP/s, sparse twice that, and moves 3.35 TB/s from its memory.
@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        # 2 * 8192^3 = 1.1 TFLOP
        pytest.param(work("aten::mm", 8192, 1000), {}, id="1,100 TFLOP/s"),
        pytest.param(work("aten::mm", 8192, 300), {}, id="3,665 TFLOP/s, perhaps sparse"),
        pytest.param(work("aten::mm", 8192, 200), {TOO_MUCH: 1}, id="5,498 TFLOP/s"),
        # 3 * 4 * 16384^2 = 3.2 GB
        pytest.param(work("aten::add", 16384, 100), {}, id="32 TB/s, perhaps from caches"),
        pytest.param(work("aten::add", 16384, 10), {TOO_MUCH: 1}, id="322 TB/s"),
    ],
)
def test_counts_beyond_the_device_are_found(
    tmp_path: Path, events: list[Event], wanted: dict[str, int]
) -> None:
    assert findings(load_events(tmp_path, *events, deviceProperties=H100)) == wanted


def test_of_an_unknown_device_nothing_is_impossible(tmp_path: Path) -> None:
    assert odd(tmp_path, *work("aten::mm", 8192, 1)) == {}
