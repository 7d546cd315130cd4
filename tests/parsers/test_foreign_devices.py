"""Work of devices that is not read is counted and said, and no advice is false beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyprof2.cli import main
from tests.kineto_events import Event, complete, launched, op, trace

if TYPE_CHECKING:
    from pathlib import Path

FALSE = ("no GPU", "device CPU", "on a machine with a GPU")
NOT_READ = "work of a device that pyprof2 does not read"


def ascend(at: int) -> Event:
    """Return a task as CANN writes it, without a category."""
    args = {"Task Type": "AI_VECTOR_CORE", "Stream Id": 16}
    event = complete(
        "", "MatMulV2", f'"{1714000000000000 + at}.5"', '"12.5"', pid=312, tid=16, args=args
    )
    del event["cat"]
    return event


def host(at: int) -> list[Event]:
    return [op("aten::mm", at, 20)]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        pytest.param(
            [complete("hpu_op", "gemm", at, 8, pid=0, args={"device": 0}) for at in (10, 30, 50)],
            "hpu, 24.000 us (3)", id="Gaudi",
        ),
        pytest.param([ascend(at) for at in (10, 30)], "AI_VECTOR_CORE, 25.000 us (2)", id="Ascend"),
        pytest.param(
            [complete("mlu_kernel", "k", 10, 8, args={"device": 0, "stream": 1})],
            "device, 8.000 us (1)", id="another one",
        ),
    ],
)  # fmt: skip
def test_work_of_a_device_that_is_not_read_is_said_everywhere(
    tmp_path: Path, events: list[Event], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = trace(tmp_path, *host(0), *host(40), *events)

    for command in ("prof", "check", "advise"):
        assert main([command, str(file)]) == 0
        printed = capsys.readouterr()
        words = " ".join((printed.err + printed.out).split())
        assert f"{NOT_READ}: {said}" in words
        assert not [text for text in FALSE if text in words]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(host(0), id="a CPU"),
        pytest.param([*host(0), *launched(5, 1, at=30, dur=9)], id="a GPU"),
        pytest.param(
            [*host(0), complete("", "mine", 1, 5), complete("device_of_mine", "x", 2, 5)],
            id="events of the host of an unknown kind",
        ),
    ],
)
def test_other_recordings_say_nothing_of_it(
    tmp_path: Path, events: list[Event], capsys: pytest.CaptureFixture[str]
) -> None:
    file = trace(tmp_path, *events)

    texts = []
    for command in ("prof", "check"):
        assert main([command, str(file)]) == 0
        texts.append("".join(capsys.readouterr()))
        assert NOT_READ not in texts[-1]
    unknown = len([event for event in events if event["cat"] in ("", "device_of_mine")])
    assert ("events of an unknown kind" in texts[-1]) == (unknown > 0)
