"""What a replay without parts of the host's work gains, against a simulation of the same work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from tests.analysis.summaries.advice.recordings import US, Rows, event, facts_of_ranks, tables

if TYPE_CHECKING:
    from pyprof2.analysis.summaries.advice.facts import RankFacts

STEPS: Final = 5
OPS: Final = 30


def _simulated(
    op_us: float, kernel_us: float, load_us: float, *, waits: str, seed: int = 1
) -> tuple[Rows, int]:
    """Return rows of a training and when it is done, in ns.

    Args:
        op_us: how long an op takes on the host, about.
        kernel_us: how long its kernel takes, about.
        load_us: how long a batch takes; 0: no loader.
        waits: `step`, `op`: the host reads a value back after each; else never.
        seed: of the times.
    """
    times = np.random.default_rng(seed)
    rows: Rows = {name: [] for name in ("kernels", "copies", "launches", "ops", "ranges", "stalls")}
    rows |= {"memory": [], "memory_tags": [], "signatures": [], "devices": []}
    host, free = 0.0, 0.0

    def launched(table: str, **columns: Any) -> None:
        """Launch what takes `dur` us, in a call of 4 us."""
        nonlocal host, free
        number = len(rows["launches"])
        rows["launches"].append(event(host, 4, name="cudaLaunchKernel", launch_id=number))
        start = max(host + 6, free + 1)
        free = start + columns.pop("dur")
        known = {"kernel_id": number, "launch_id": number, "launch_ns": round(host * US)}
        place = {"device": 0, "stream": 7, "start_ns": round(start * US)}
        length = round(free * US) - place["start_ns"]
        rows[table].append(known | place | {"dur_ns": length} | columns)
        host += 4

    def read_back() -> None:
        """Copy 4 bytes from the device and wait for them, in `.item()`."""
        nonlocal host
        begin = host
        host += 2
        launched("copies", dur=1.5, copy_kind="d2h pageable", bytes=4, category="memcpy")
        until = max(host + 2, free + 3)
        number = len(rows["launches"])
        rows["launches"].append(
            event(host, until - host, name="cudaStreamSynchronize", launch_id=number)
        )
        host = until + 2
        op = "aten::_local_scalar_dense"
        rows["ops"].append(event(begin, host - begin, op=op, op_id=len(rows["ops"])))

    for step in range(STEPS):
        first = host
        if load_us:
            name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            rows["ranges"].append(event(host, load_us, name=name, kind="annotation"))
            host += load_us
        for _ in range(OPS):
            begin = host + 3
            host += 3 + op_us * times.uniform(0.8, 1.2) / 2
            launched("kernels", dur=kernel_us * times.uniform(0.8, 1.2), category="matmul")
            host += op_us / 2
            rows["ops"].append(event(begin, host - begin, op="aten::mm", op_id=len(rows["ops"])))
            if waits == "op":
                read_back()
        if waits == "step":
            read_back()
        rows["ranges"].append(event(first, host - first, name=f"ProfilerStep#{step}", kind="step"))
    end = round(max(host, free) * US)
    rows["trace"] = [{"start_ns": 0, "end_ns": end, "profiler": "kineto"}]
    return rows, end


def _facts(rows: Rows) -> RankFacts:
    (facts,) = facts_of_ranks(tables({n: r for n, r in rows.items() if n != "devices"}), [])
    return facts


@pytest.mark.parametrize(
    ("op_us", "kernel_us"), [(20, 8), (20, 60), (10, 150)], ids=["host", "between", "device"]
)
@pytest.mark.parametrize("load_us", [300, 3000])
@pytest.mark.parametrize("waits", ["step", "op", "never"])
def test_a_replay_without_loading_gains_what_a_simulation_does(
    op_us: float, kernel_us: float, load_us: float, waits: str
) -> None:
    rows, end = _simulated(op_us, kernel_us, load_us, waits=waits)
    _, done = _simulated(op_us, kernel_us, 0, waits=waits)
    loads = np.array([r["start_ns"] for r in rows["ranges"] if r["kind"] == "annotation"])

    replay = _facts(rows).replay

    assert replay is not None
    gain_ns = replay.gain_ns(loads, loads + round(load_us * US), keeps=True)
    assert gain_ns == pytest.approx(end - done, abs=0.01 * (end - done) + 20 * US)


@pytest.mark.parametrize(
    ("op_us", "kernel_us"), [(20, 8), (20, 60), (10, 150)], ids=["host", "between", "device"]
)
@pytest.mark.parametrize("waits", ["op", "step"])
def test_the_interval_of_waits_holds_what_a_simulation_without_them_gains(
    op_us: float, kernel_us: float, waits: str
) -> None:
    from pyprof2.analysis.summaries.advice.host import pageable_copies, sync

    rows, end = _simulated(op_us, kernel_us, 0, waits=waits)
    _, done = _simulated(op_us, kernel_us, 0, waits="never")

    found = sync(_facts(rows))

    if found is None:
        assert end - done < 0.01 * end
        return
    assert found.lo_ns is not None
    assert found.hi_ns is not None
    assert found.lo_ns <= end - done <= found.hi_ns
    assert found.expected_ns == pytest.approx(end - done, abs=0.02 * (end - done) + 20 * US)
    assert pageable_copies(_facts(rows)) is None


def test_without_most_launches_there_is_no_replay() -> None:
    rows, _ = _simulated(20, 8, 0, waits="step")
    for row in rows["kernels"][::10]:
        row["launch_id"] = None

    assert _facts(rows).replay is None
