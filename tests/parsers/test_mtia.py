"""What an MTIA device did is work, copies, or waits, by the names of its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyprof2.api.run import load
from tests.kineto_events import Event, complete, load_events, rows

if TYPE_CHECKING:
    from pathlib import Path

DEVICE = 17


def did(name: str, ts: int, dur: int, stream: int = 104, **args: Any) -> Event:
    """Return an event of the device, which has its number as process."""
    args = {"stream": stream} | args
    return complete("mtia_ccp_events", name, ts, dur, pid=DEVICE, tid=3000 + stream, args=args)


def test_waits_are_no_work_and_transfers_are_copies(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        did("merge", 0, 10),
        did("event_wait", 5, 25, 108, wait_on_stream=104),
        did("event_record", 8, 1),
        did("dma_request", 30, 4, direction="DEVICE_TO_HOST", size=1024),
        did("dma_request", 34, 6, direction="HOST_TO_DEVICE", size=512),
        did("dma_request", 40, 5, direction="SIDEWAYS", size=8),
        did("pe_exe", 45, 5),
    )

    assert rows(run.table("kernels"), "kernel", "dur_ns") == [("merge", 10_000), ("pe_exe", 5_000)]
    assert rows(run.table("copies"), "copy_kind", "bytes") == [
        ("d2h", 1024), ("h2d", 512), (None, 8)
    ]  # fmt: skip
    assert sorted(rows(run.table("launches"), "name")) == ["event_record", "event_wait"]
    assert rows(run.table("stalls"), "kind", "name", "device", "waits_for_stream") == [
        ("device_wait", "event_wait", DEVICE, 104), ("device_wait", "event_record", DEVICE, None)
    ]  # fmt: skip
    idle = run.idle.groupby("cause", observed=True)["time_ns"].sum()
    # From 10 to 30 us nothing runs, and a queue waits all the time.
    assert idle[idle > 0].to_dict() == {"sync": 20_000}


def test_a_wait_of_a_device_holds_no_other_up(tmp_path: Path) -> None:
    other = {"pid": 18, "tid": 3104}
    run = load_events(
        tmp_path,
        did("merge", 0, 10), did("event_wait", 10, 20), did("merge", 30, 10),
        did("merge", 0, 10) | other, did("merge", 30, 10) | other,
    )  # fmt: skip

    causes = run.idle[run.idle["time_ns"] > 0].groupby("device")["cause"].unique()
    assert causes[DEVICE].tolist() == ["sync"]
    assert "sync" not in causes[18].tolist()


def test_the_waits_of_a_real_recording_are_no_kernels(shared: Path) -> None:
    run = load(shared / "traces/more/kineto/mtia_inference.json.gz")

    # Counted by name in the file: 812.1 ms of events of the device, 352.7 of which wait.
    assert run.summary["kernel_time_ns"] == 414_085_123
    assert run.summary["copy_time_ns"] == 45_371_190
    assert len(run.copies) == 877
    assert run.launches["name"].isin(["event_wait", "event_record"]).sum() == 339
