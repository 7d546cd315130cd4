"""Copies that return when they are done are waits: for the path, what-ifs, and idle time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.job.what_if import evaluate, scale
from tests.analysis.job.job_members import replay_error_ns
from tests.kineto_events import complete, copy, kernel, launch, load_events, op

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.job import JobOfRanks

TOKENS, PRODUCTS, PRODUCT = 8, 20, 50
_PAGEABLE = "Memcpy DtoH (Device -> Pageable)"


def _decoded(
    folder: Path, call: str = "cudaMemcpyAsync", sync: float = 0, other: float = 0
) -> JobOfRanks:
    """Return a loop that reads a token back after 20 products of 50 µs, which takes the GPU 95 %.

    Args:
        folder: to write to.
        call: that copies the token.
        sync: how long a call to synchronize behind it takes, if any.
        other: how long a kernel of another stream takes that ends as the copy begins.
    """
    events: list[Any] = []
    begin, number = 0.0, 0
    for _ in range(TOKENS):
        free = begin + 10
        events.append(op("aten::mm", begin, 5 * PRODUCTS))
        for at in range(PRODUCTS):
            number += 1
            events += [launch(begin + 5 * at, number), kernel(free, PRODUCT, number, name="gemm")]
            free += PRODUCT + 1
        called, number = begin + 5 * PRODUCTS + 2, number + 1
        events.append(launch(called, number, name=call, dur=free + 7 - called))
        events.append(copy(free, 3, number, name=_PAGEABLE))
        if other:
            number += 1
            events.append(launch(called - 1.5, number))
            events.append(kernel(free + 4 - other, other, number, {"stream": 9}, name="other"))
        begin = free + 9
        if sync:
            events.append(complete("cuda_runtime", "cudaStreamSynchronize", begin, sync, args={}))
            begin += sync + 1
        begin += 8
    return load_events(folder, *events).ranks


@pytest.mark.parametrize("call", ["cudaMemcpyAsync", "cudaMemcpy", "hipMemcpyWithStream"])
@pytest.mark.parametrize("sync", [0, 3])
def test_what_a_blocking_copy_waits_for_is_on_the_path(
    tmp_path: Path, call: str, sync: float
) -> None:
    ranks = _decoded(tmp_path, call, sync)
    path, work = ranks.critical_path, TOKENS * PRODUCTS * PRODUCT * 1000

    assert path.loc[path["kind"] == "kernel", "ns"].sum() == work
    assert replay_error_ns(ranks.graph) == 0
    gain = evaluate(ranks.graph, scale(ranks.graph, "op", "aten::mm", 0.5))
    assert gain.gain_ns == work // 2
    # Idle time says of the same calls that they waited.
    idle = ranks.run.ranks[0].read("idle", ("cause", "drained")).to_pylist()
    assert {"cause": "copy_call", "drained": True} in idle


def test_a_blocking_copy_waits_for_itself_and_not_for_another_stream(tmp_path: Path) -> None:
    """A kernel of another stream ends as the copy does: to halve it gains nothing."""
    ranks = _decoded(tmp_path, other=30)

    gain = evaluate(ranks.graph, scale(ranks.graph, "kernel", "other", 0.5))

    assert gain.gain_ns in range(1001)  # at the very end it outlasts the copy by 1 µs


def test_a_copy_that_outlasts_its_call_is_no_wait(tmp_path: Path) -> None:
    """The call is slow, 30 µs in each 40; the device is free when it returns, and runs behind."""
    events: list[Any] = []
    for at in range(10):
        begin, number = 40 * at, 2 * at + 1
        events += [launch(begin, number), kernel(begin + 12, 6, number, name="gemm")]
        events.append(launch(begin + 5, number + 1, name="cudaMemcpyAsync", dur=30))
        pinned = "Memcpy DtoH (Device -> Pinned)"
        events.append(copy(begin + 34, 12, number + 1, name=pinned))
    ranks = load_events(tmp_path, *events).ranks

    path = ranks.critical_path
    assert path.loc[path["kind"] == "launch", "ns"].sum() >= 300_000
    assert evaluate(ranks.graph, scale(ranks.graph, "kernel", "gemm", 0.5)).gain_ns == 0
