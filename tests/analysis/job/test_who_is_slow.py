"""Who is slow: several at once, too little to say so, and what is no work of a rank's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.job.slow_ranks import LEAST_NS
from pyprof2.api.run import load, parse
from pyprof2.reports.ranks import answers, sentences
from tests.analysis.job.job_generator import Job, simulate, write
from tests.analysis.job.test_collectives import ALL_REDUCE, comms
from tests.kineto_events import kernel, launch, op, step

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.job import JobOfRanks

NOBODY = "no rank is slow: none takes longer than the others"


def _job(job: Job, folder: Path) -> JobOfRanks:
    return load(parse(write(simulate(job), folder), folder / "job.pyprof2")).ranks


@pytest.mark.parametrize(
    ("slow", "together"),
    [
        pytest.param({0: 1.3, 6: 1.3}, "0, 6", id="equally"),
        pytest.param({0: 1.3, 3: 1.1, 6: 1.2}, "0, 3, 6", id="three, unequally"),
        pytest.param({5: 1.3}, None, id="one"),
    ],
)
def test_all_ranks_that_are_late_are_named_with_what_they_cost_together(
    tmp_path: Path, slow: dict[int, float], together: str | None
) -> None:
    lost = simulate(Job(8, slow=slow)).end_us[-1] - simulate(Job(8)).end_us[-1]
    found = _job(Job(8, slow=slow), tmp_path)
    rows = found.stragglers

    assert rows["rank"].tolist() == [*slow]
    assert rows["verdict"].tolist() == ["straggler"] * len(slow)
    assert [text or None for text in rows["together"]] == [together] * len(slow)
    assert rows["gain_ns"].tolist() == pytest.approx([1000 * lost] * len(slow), rel=0.02)
    (said,) = answers(found)
    assert all(f"rank {rank} computes" in said for rank in slow) or "rank 5 is slow" in said


@pytest.mark.parametrize(
    ("late", "who"),
    [({2: 3000.0}, "rank 2"), ({0: 3000.0, 1: 3000.0}, "ranks 0 and 1"), ({}, None)],
)
def test_a_rank_that_comes_late_into_the_recording_is_said_to(
    tmp_path: Path, late: dict[int, float], who: str | None
) -> None:
    """Its host takes no longer than others', and yet they wait for it in the first collective."""
    (said,) = answers(_job(Job(5, steps=1, late=late), tmp_path))

    if who is None:
        assert said.startswith(NOBODY)
    else:
        assert said.startswith(f"no rank is slow, but {who} came ")
        assert float(said.split("came ")[1].split()[0]) == pytest.approx(3000, rel=0.01)
        assert "% of it, and the others waited in their first collective" in said


def test_a_slow_rank_did_not_come_late(tmp_path: Path) -> None:
    assert "late into" not in answers(_job(Job(4, slow={1: 1.3}), tmp_path))[0]


def _two_ranks(
    folder: Path, took: tuple[float, float], between: float = 0, at: str = "aten::item"
) -> JobOfRanks:
    """Return two ranks of four steps: a product, an all_reduce, and `between` in an op on rank 0.

    Args:
        folder: to write to.
        took: how long the product takes on each, in us.
        between: how long rank 0 is in an op that launches nothing, before it goes on.
        at: the op.
    """
    for rank in range(2):
        events: list[Any] = []
        for number in range(4):
            begin = 20_000 + number * (400 + between)
            held = between if rank == 0 else 0
            late = begin + held
            meet = begin + between + 60
            events += [
                step(number, begin, 300 + between),
                *([op(at, begin, held)] if held else []),
                op("aten::mm", late, 9),
                launch(late + 2, 2 * number),
                kernel(late + 10, took[rank], 2 * number, name="gemm"),
                op("c10d::allreduce_", late + 20, 20),
                op(
                    "record_param_comms", late + 21, 18, **comms("allreduce", 64, 64, 2, Seq=number)
                ),
                launch(late + 25, 2 * number + 1),
                kernel(late + 40, meet + 30 - late - 40, 2 * number + 1, name=ALL_REDUCE),
            ]
        about = {"rank": rank, "world_size": 2, "backend": "nccl"}
        text = json.dumps({"distributedInfo": about, "traceEvents": events})
        (folder / f"rank{rank}.json").write_text(text)
    return load(parse([folder / f"rank{n}.json" for n in range(2)], folder / "s.pyprof2")).ranks


def test_less_than_some_microseconds_of_a_step_make_no_rank_slow(tmp_path: Path) -> None:
    """0.45 us are 3.5 % of 13 us, and less than anyone can say of a step of 400."""
    found = _two_ranks(tmp_path, (13.0, 13.45))

    assert found.is_matched
    assert answers(found)[0].startswith(NOBODY)
    assert "rank 1 computes as long as rank 0" in [*sentences(found)]
    assert LEAST_NS > 450


@pytest.mark.parametrize(
    ("name", "is_named"),
    [("c10d::barrier", False), ("aten::sort", True), ("c10d::monitored_barrier_", False)],
)
def test_time_in_ops_that_communicate_is_no_work_of_a_host(
    tmp_path: Path,
    name: str,
    is_named: bool,  # noqa: FBT001
) -> None:
    """Rank 0 is in an op for 2 ms, with its device idle: in a barrier it waits for others."""
    host = _two_ranks(tmp_path, (13.0, 13.0), between=2000, at=name).times
    late = host[host["rank"] == 0]["host_ns"].mean()

    assert (late > 1_500_000) == is_named
