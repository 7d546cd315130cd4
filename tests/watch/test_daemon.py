"""The daemon: whom it records, what becomes of jobs that die, lie or are busy, what it leaves."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.errors import CaptureError
from pyprof2.watch import daemon as control
from pyprof2.watch import recording as recordings
from pyprof2.watch.daemon import Daemon
from pyprof2.watch.datagrams import Endpoint
from pyprof2.watch.recording import Wanted, WatchSettings
from tests.watch.jobs_of_tests import (
    STAND_IN,
    TRAINING,
    asking,
    client,
    datagram,
    request,
    running,
    socket_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd

SHORT = WatchSettings(duration_ms=10, patience_s=0.5)


@pytest.fixture
def sockets() -> Iterator[Path]:
    """Give a folder of sockets."""
    with socket_folder() as found:
        yield found


@pytest.fixture
def daemon(sockets: Path) -> Iterator[Daemon]:
    """Give a daemon that jobs of this test ask."""
    found = Daemon(Endpoint(sockets))
    yield found
    found.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let recordings begin after two seconds: stand-ins ask often, and need no time to prepare."""
    monkeypatch.setattr(recordings, "AHEAD_S", 2.0)
    monkeypatch.setattr(recordings, "_LATE_S", 0.1)


@contextlib.contextmanager
def _stand_ins(sockets: Path, *behaviours: str) -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(running("-c", STAND_IN, str(sockets), behaviour))
            for behaviour in behaviours
        ]
        yield [child.pid for child in children]


@pytest.mark.usefixtures("soon")
def test_each_file_is_complete_or_refused_by_name(
    daemon: Daemon, sockets: Path, tmp_path: Path
) -> None:
    behaviours = ("complete", "dies", "stops", "silent")
    with _stand_ins(sockets, *behaviours) as pids:
        found = daemon.record(Wanted(), SHORT, tmp_path / "out")

    said = [found.parts[pid].error for pid in pids]
    assert said == [
        None,
        "ended while it recorded",
        "its file is not complete within 0.5 s",
        "its file did not come within 0.5 s",
    ]
    (trace,) = tmp_path.glob("out/*")
    assert trace == found.parts[pids[0]].trace
    assert trace.name == f"python-{pids[0]}.json"


@pytest.mark.usefixtures("soon")
def test_only_the_wanted_are_recorded(daemon: Daemon, sockets: Path, tmp_path: Path) -> None:
    with _stand_ins(sockets, "complete", "complete") as (one, other):
        found = daemon.record(Wanted(pids=(other,)), SHORT, tmp_path / "out")
        assert list(found.parts) == [other]
        found = daemon.record(Wanted(name=str(sockets)), SHORT, tmp_path / "again")
        assert list(found.parts) == [one]


@pytest.mark.usefixtures("soon")
def test_why_nothing_is_recorded(daemon: Daemon, sockets: Path, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no job asked within 6 s; pyprof2 watch --env"):
        daemon.record(Wanted(), SHORT, tmp_path / "out")
    sleeping = running("-c", "import time; time.sleep(60)")
    unready = pytest.raises(CaptureError, match="was started without KINETO_USE_DAEMON=1")
    with sleeping as child, unready:
        daemon.record(Wanted(pids=(child.pid,)), SHORT, tmp_path / "out")
    with pytest.raises(CaptureError, match=f"there is no process {child.pid}"):
        daemon.record(Wanted(pids=(child.pid,)), SHORT, tmp_path / "out")
    with _stand_ins(sockets, "busy") as (busy,):
        with pytest.raises(CaptureError, match=f"process {busy}: records already"):
            daemon.record(Wanted(), SHORT, tmp_path / "out")
        with pytest.raises(CaptureError, match="none of the 1 jobs that ask is meant"):
            daemon.record(Wanted(name="^nothing$"), SHORT, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_request_that_waited_too_long_gets_no_answer(daemon: Daemon, sockets: Path) -> None:
    """A job would take it for that to its next request: each answer would be one too late."""
    with client(sockets) as job:
        job.settimeout(0)
        for seconds in (0.2, 0.0):
            job.send(request(os.getpid()))
            time.sleep(seconds)
            daemon.wait(lambda: False, 0.1)
        assert job.recv(1000) == datagram(b"req", b"")
        with pytest.raises(BlockingIOError):
            job.recv(1000)
    assert list(daemon.processes) == [os.getpid()]


def test_begin_too_soon_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="begin at least 10 s ahead"):
        daemon.record(Wanted(), WatchSettings(start=time.time() + 5), tmp_path / "out")


@pytest.mark.usefixtures("soon")
def test_another_shell_lists_and_records(daemon: Daemon, sockets: Path, tmp_path: Path) -> None:
    said: list[str] = []
    is_over = threading.Event()
    name = f"\0pyprof2-{sockets}"

    def ask(message: dict[str, Any]) -> list[dict[str, Any]]:
        return list(control.ask(message, name))

    serving = threading.Thread(
        target=control.serve, args=(daemon, said.append, name, is_over.is_set)
    )
    with _stand_ins(sockets, "complete") as (pid,):
        serving.start()
        time.sleep(0.2)
        (listed,) = ask({"list": 0.5})
        *states, last = ask(
            {
                "wanted": Wanted()._asdict(),
                "options": SHORT._asdict(),
                "output": str(tmp_path / "out"),
            }
        )
        for wrong in ({}, {"wanted": 1}, {"wanted": {"pids": []}, "options": {"x": 1}}):
            with pytest.raises(CaptureError, match="not a request"):
                ask(wrong)
        is_over.set()
        serving.join()

    assert [(row["pid"], row["state"]) for row in listed["processes"]] == [(pid, "not recorded")]
    assert all(set(state) == {"progress"} for state in states)
    (part,) = last["result"]["parts"]
    assert (part["pid"], part["error"]) == (pid, None)
    assert part["trace"] == str(tmp_path / f"out/python-{pid}.json")
    assert said == [
        f"asked to record into {tmp_path}/out",
        f"recorded 1 job(s) into {tmp_path}/out",
    ]


def test_nobody_serves() -> None:
    with pytest.raises(CaptureError, match="no pyprof2 watch --serve runs here"):
        list(control.ask({}, "\0pyprof2-nobody"))


@pytest.mark.minutes
def test_real_job_is_recorded_as_by_its_own_profiler(
    daemon: Daemon, sockets: Path, tmp_path: Path
) -> None:
    """Ops per step equal those of torch.profiler in a program of the same model."""
    said, wait = tmp_path / "said", partial(daemon.wait, lambda: False, 0.2)
    with asking("-c", TRAINING, "60", sockets=sockets, said=said, wait=wait) as child:
        found = daemon.record(Wanted(), WatchSettings(steps=4), tmp_path / "out")
    assert [part.error for part in found.parts.values()] == [None]
    assert list(found.parts) == [child.pid]
    (folder,) = found.folders()
    run = pyprof2.load(folder)
    asked = run.ops
    own = _ops_of_a_step(tmp_path)
    assert _per_step(asked, run.ranges) == own


def _per_step(ops: pd.DataFrame, ranges: pd.DataFrame) -> dict[str, float]:
    """Return how often each op runs from the end of the first step to that of the last one."""
    steps = ranges[ranges["name"].astype(str).str.startswith("Optimizer.step#")]
    ends = sorted(steps["start_ns"] + steps["dur_ns"])
    inside = ops[(ops["start_ns"] >= ends[0]) & (ops["start_ns"] < ends[-1])]
    names = inside["op"].astype(str)
    counts = names[names.str.startswith("aten::")].value_counts() / (len(ends) - 1)
    return {str(name): float(count) for name, count in counts.items()}


def _ops_of_a_step(folder: Path) -> dict[str, float]:
    """Return how often each op runs in a step, by torch.profiler in a process of this test."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        net(torch.ones(8, 16)).sum().backward()
        optimizer.step()

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(4):
            step()
    recorded.export_chrome_trace(str(folder / "own.json"))
    run = pyprof2.load(folder / "own.json")
    return _per_step(run.ops, run.ranges)
