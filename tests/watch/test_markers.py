"""Jobs with `pyprof2.init()` that are recorded on demand: markers are in it, and end with it."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

import pyprof2
from pyprof2.watch.daemon import Daemon
from pyprof2.watch.datagrams import Endpoint
from pyprof2.watch.recording import Wanted, WatchSettings
from tests.watch.jobs_of_tests import asking, socket_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

JOB: Final = """
import sys, threading, time, pyprof2
pyprof2.init(energy=False, cpu_peaks=False)
import torch
from pyprof2.nvtx.annotation import current_session
torch.set_num_threads(1)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)
    def forward(self, x):
        return self.out(self.hidden(x) * 2)

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
was = None
while True:
    optimizer.zero_grad()
    net(torch.ones(8, 16)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
    if (now := current_session().writes) != was:
        was = now
        print(now, flush=True)
"""


def _record(daemon: Daemon, output: Path, settings: WatchSettings) -> Run:
    found = daemon.record(Wanted(), settings, output)
    assert [part.error for part in found.parts.values()] == [None]
    return pyprof2.load(output)


@pytest.mark.minutes
def test_markers_are_in_each_recording_and_between_them_nothing_is_marked(tmp_path: Path) -> None:
    with socket_folder() as sockets:
        daemon = Daemon(Endpoint(sockets))
        job, said = tmp_path / "job.py", tmp_path / "said"
        wait = partial(daemon.wait, lambda: False, 0.2)
        job.write_text(JOB.lstrip())
        with asking(str(job), sockets=sockets, said=said, wait=wait):
            short = WatchSettings(duration_ms=400)
            timed = _record(daemon, tmp_path / "timed", short)
            counted = _record(daemon, tmp_path / "counted", WatchSettings(steps=4))
            stacks = _record(daemon, tmp_path / "stacks", short._replace(stack=True))
        daemon.close()

    for run in (timed, counted):
        # A recording may begin inside of a call of the model, which has no marker.
        whole = run.ops[run.ops["step"] > run.ops["step"].min()]
        forward = whole[(whole["op"] == "aten::mul") & (whole["direction"] == "forward")]
        assert len(forward) >= 3
        assert set(forward["layer"]) == {"Net"}
        assert set(forward["source"]) == {f"{tmp_path}/job.py:12"}
        assert set(forward["source_evidence"]) == {"record_function_id"}
        assert set(whole[whole["op"] == "aten::addmm"]["layer"]) == {"hidden", "out"}
    for run in (timed, counted, stacks):
        steps = run.ops["step"].dropna().unique()
        assert sorted(steps) == list(range(int(min(steps)), int(max(steps)) + 1))
    # It went on and off with each recording.
    assert re.findall("True|False", said.read_text()) == ["False", *["True", "False"] * 3]


ENDS_INSIDE: Final = """
import contextlib, pyprof2
from pyprof2.nvtx import hooks
pyprof2.init(energy=False, cpu_peaks=False)
import torch
torch.set_num_threads(1)
hooks._Handover.began = lambda self: (pyprof2.shutdown(), print("ended", flush=True))
net = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number in range(10**9):
    net(torch.ones(8, 16)).sum().backward()
    with contextlib.suppress(RuntimeError):  # its hooks change while it calls them
        optimizer.step()
    if number % 100 == 0:
        print("step", flush=True)
"""


@pytest.mark.minutes
def test_annotation_that_is_ended_inside_of_a_call_of_the_recorder_lets_the_job_go_on(
    tmp_path: Path,
) -> None:
    """As a handler of a signal might, on the thread that counts steps."""
    with socket_folder() as sockets:
        daemon = Daemon(Endpoint(sockets))
        job, said = tmp_path / "job.py", tmp_path / "said"
        wait = partial(daemon.wait, lambda: False, 0.2)
        job.write_text(ENDS_INSIDE)
        with asking(str(job), sockets=sockets, said=said, wait=wait):
            _record(daemon, tmp_path / "counted", WatchSettings(steps=4))
            goes_on = re.compile("^ended\nstep\nstep", re.MULTILINE)
            daemon.wait(lambda: goes_on.search(said.read_text()) is not None, 30)
        daemon.close()

    assert goes_on.search(said.read_text())
