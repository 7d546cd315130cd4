"""A stream belongs to a device: streams of one number on several devices are several."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.cli import main
from tests.kineto_events import kernel, launch, load_events, op
from tests.nsight_exports import Export

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run


def kineto(folder: Path, streams: dict[int, list[int]]) -> Run:
    """Kernels of 10 us on each stream of each device, of as many more as its number says."""
    events, number = [], 0
    for device, own in streams.items():
        for stream in own:
            number += 1
            events += [op("aten::mul", 20 * number, 9), launch(20 * number + 1, number)]
            args = {"device": device, "stream": stream}
            events.append(kernel(20 * number + 5, 10 + device, number, args))
    return load_events(folder, *events)


def nsight(folder: Path, streams: dict[int, list[int]]) -> Run:
    export, number = Export(), 0
    for device, own in streams.items():
        for stream in own:
            number += 1
            export.call("cudaLaunchKernel_v7000", 20_000 * number, 1000, number)
            dur = 10_000 + 1000 * device
            export.kernel("k", 20_000 * number + 5000, dur, number, device=device, streamId=stream)
    return export.load(folder)


@pytest.mark.parametrize("record", [kineto, nsight])
@pytest.mark.parametrize(
    ("streams", "wanted"),
    [
        pytest.param(
            {0: [17], 1: [17], 2: [17]},
            {(0, 17): 10_000, (1, 17): 11_000, (2, 17): 12_000},
            id="one number",
        ),
        pytest.param(
            {0: [7, 7, 13], 3: [7, 20]},
            {(0, 7): 20_000, (0, 13): 10_000, (3, 7): 13_000, (3, 20): 13_000},
            id="several",
        ),
        pytest.param({5: [7, 13]}, {7: 15_000, 13: 15_000}, id="one device"),
    ],
)
def test_streams_are_summed_by_device_too(
    record: Any, streams: dict[int, list[int]], wanted: dict[Any, int], tmp_path: Path
) -> None:
    run = record(tmp_path, streams)

    sums = run.profile("stream")

    keys = ["device", "stream"] if len(streams) > 1 else ["stream"]
    assert sums.set_index(keys)["time_ns"].to_dict() == wanted
    of_devices = run.profile("device").set_index("device")["time_ns"].to_dict()
    assert of_devices == {d: len(own) * (10_000 + 1000 * d) for d, own in streams.items()}
    for device, own in streams.items():
        chosen = run.profile("stream", device=[device])
        assert chosen["time_ns"].sum() == len(own) * (10_000 + 1000 * device)


def test_a_number_as_device_chooses_its_work_and_a_name_its_roofs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kineto(tmp_path, {0: [7], 1: [7]})
    asked = ["prof", str(tmp_path / "trace.json"), "--by", "stream"]

    assert main([*asked, "--device", "1", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["device"], row["stream"]) for row in found] == [(1, 7)]
    assert main([*asked, "--device", "0,1", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert main([*asked, "--device", "T4"]) == 0
    assert "roofs of" in capsys.readouterr().out


def test_a_stream_that_is_chosen_by_number_says_of_which_devices_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kineto(tmp_path, {0: [7], 1: [7, 13]})
    asked = ["prof", str(tmp_path / "trace.json"), "--stream"]

    assert main([*asked, "7"]) == 0
    assert "streams of these numbers are of devices 0, 1" in capsys.readouterr().out
    assert main([*asked, "13"]) == 0
    assert "streams of these numbers" not in capsys.readouterr().out
    assert main([*asked, "7", "--device", "1"]) == 0
    assert "streams of these numbers" not in capsys.readouterr().out
