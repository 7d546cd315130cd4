"""Ranges that a script makes for itself, recorded by both profilers: every op has those around it.

Each op of the script occurs once, so its name says where it ran.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import pyprof2
from tests.nsys_runs import nsys_profile

if TYPE_CHECKING:
    from pyprof2.api.run import Run

ROOT: Final = Path(__file__).resolve().parents[2]

COMMON: Final = """
import sys, threading
import torch
from torch.profiler import profile, record_function
import pyprof2

x = torch.ones(4, requires_grad=True)

def work():
    x.tan()
    with pyprof2.annotate("outer"):
        x.sin()
        with record_function("inner"):
            x.cos()
        x.exp().sum().backward()
    optimizer = torch.optim.SGD([x])
    with record_function("update"):
        optimizer.step()
    x.log()
"""
WITH_KINETO: Final = f"""{COMMON}
pyprof2.init()
with profile() as profiler:
    work()
profiler.export_chrome_trace(sys.argv[1])
"""
WITH_NSYS: Final = f"""{COMMON}
import nvtx
pyprof2.init()
work()
with nvtx.annotate("plain"), nvtx.annotate("read", domain="my loader"):
    with nvtx.annotate("ncclAllReduce", domain="NCCL"):
        x.sqrt()
    request = nvtx.start_range("request 1")
x.abs()
nvtx.end_range(request)
with nvtx.annotate("main"):
    worker = threading.Thread(target=x.neg)
    worker.start()
    worker.join()
"""

OF_BOTH: Final = {
    "aten::tan": None, "aten::sin": "outer", "aten::cos": "outer / inner", "aten::exp": "outer",
    "aten::log": None,
}  # fmt: skip


def ranges_of(run: Run) -> dict[str, str | None]:
    """Return the range of each op by its name."""
    ops = run.ops.astype({"range": object})
    return dict(
        zip(ops["op"].astype(str), ops["range"].where(ops["range"].notna(), None), strict=True)
    )


def run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_kineto_gives_every_op_the_users_ranges_around_it(tmp_path: Path) -> None:
    run([sys.executable, "-c", WITH_KINETO, str(tmp_path / "trace.json")])
    recorded = pyprof2.load(tmp_path / "trace.json")

    found = ranges_of(recorded)

    assert {name: found[name] for name in OF_BOTH} == OF_BOTH
    assert found["ExpBackward0"] == "outer"
    profile = recorded.profile(by="range")
    assert set(profile["range"]) == {"(none)", "outer", "outer / inner", "update"}
    assert profile["share_pct"].sum() == pytest.approx(100)


@pytest.mark.nsys
def test_nsys_gives_every_op_the_users_ranges_around_it(tmp_path: Path) -> None:
    program = [sys.executable, "-c", WITH_NSYS]
    recorded = pyprof2.load(nsys_profile(program, tmp_path / "trace"))

    found = ranges_of(recorded)

    assert {name: found[name] for name in OF_BOTH} == OF_BOTH
    assert found["aten::sqrt"] == "plain / read"
    assert found["aten::abs"] == "request 1"
    assert found["aten::neg"] is None  # a thread that runs no nodes of autograd borrows nothing
    assert recorded.ops["link_note"].isna().all()
    profile = recorded.profile(by="range")
    assert {"(none)", "outer", "outer / inner", "update"} <= set(profile["range"])
    assert profile["share_pct"].sum() == pytest.approx(100)
