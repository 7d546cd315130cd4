"""Numbers that name devices, streams, threads and calls stay whole, however large they are."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from pyprof2.analysis.time.recordings import windows_of_ranks
from pyprof2.cli import main
from pyprof2.problems import DEVICE_NUMBER, PROBLEMS
from tests.synthetic_trace import synthetic_trace

if TYPE_CHECKING:
    from pathlib import Path

BASE: Final = 1 << 53
"""From here on floats have even numbers only."""
IDS: Final = (
    "External id", "correlation", "stream", "Python id", "Sequence number", "context", "Ev Idx",
)  # fmt: skip
PLACES: Final = "pid", "tid", "id"
LARGE: Final = re.compile(rf"\b{str(BASE)[:9]}\d{{7}}\b")

COMMANDS: Final = {
    "prof": ["--format", "csv"],
    "prof of streams": ["--format", "csv", "--by", "device,stream"],
    "prof along all": ["--format", "csv", "--by", "op,signature,step,rank,category,direction"],
    "idle": ["--format", "csv"],
    "idle of devices": ["--format", "csv", "--by", "device,cause,thread,call"],
    "lines": ["--format", "csv"],
    "advise": ["--format", "json"],
    "memory": ["--format", "json"],
    "memory of events": ["--events", "--format", "csv"],
    "check": ["--format", "json"],
    "explain": ["kernel:1", "--format", "json"],
    "explain of an op": ["op:3", "--format", "json"],
    "ranks": ["--format", "json"],
    "whatif": ["--transfers", "0.5", "--format", "json"],
    "predict": ["--on", "A100 SXM 80GB", "--format", "csv"],
    "compare": ["{}", "--format", "json"],
    "sql of kernels": ["select * exclude (launch_id) from kernels", "--format", "csv"],
    "sql of ops": ["select * from ops", "--format", "csv"],
    "sql of launches": ["select * from launches", "--format", "csv"],
    "export --folded": ["--folded"],
    "export --chrome": ["--chrome", "-o", "-"],
    "export --perfetto": ["--perfetto", "--no-findings", "-o", "{}.pftrace", "--force"],
    "report": ["-o", "{}.html", "--force"],
}
"""Each with a name that begins with that of a command."""


def trace_of(add: int, *, is_streamless: bool) -> dict[str, Any]:
    """Return a trace whose ids have a number added; beside one there are rows without it."""
    trace = copy.deepcopy(synthetic_trace())
    for number, event in enumerate(trace["traceEvents"]):
        own, of_device = event.get("args", {}), "stream" in event.get("args", {})
        for field in PLACES:
            if field in event and not (of_device and field == "pid"):
                event[field] += add
        for field in IDS:
            if field in own:
                own[field] += add
        if is_streamless and of_device and number % 3 == 0:
            del own["stream"], own["correlation"]
            event["tid"] = None
    return trace


def small_again(text: str) -> str:
    """Return a text with the large numbers as they would be without what was added."""
    return LARGE.sub(lambda found: str(int(found[0]) - BASE), text)


@pytest.fixture(scope="module", params=[False, True], ids=["all known", "some unknown"])
def traces(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two traces that differ in the size of their ids alone."""
    found = []
    for name, add in ("small", 0), ("large", BASE):
        path = tmp_path_factory.mktemp(name) / "trace.json"
        path.write_text(json.dumps(trace_of(add, is_streamless=request.param)))
        found.append(path)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_number_that_no_float_holds_is_shown_as_it_is(
    name: str, traces: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    said = []
    for trace in traces:
        monkeypatch.chdir(trace.parent)
        words = [word.format(trace.name) for word in COMMANDS[name]]
        code = main([name.split(maxsplit=1)[0], "-q", trace.name, *words])
        out, err = capsys.readouterr()
        said.append((code, small_again(out), err))

    assert said[0] == said[1]
    assert "a fault in pyprof2" not in said[0][1] + said[0][2]
    assert said[0][0] == 0, said[0][2]


def devices(numbers: list[Any]) -> dict[str, Any]:
    """Return a trace whose kernels are of these devices, one after another."""
    trace = synthetic_trace()
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    for at, event in enumerate(kernels):
        event["args"]["device"] = numbers[at % len(numbers)]
        event["pid"] = None
    return trace


@pytest.mark.parametrize("number", [1 << 31, (1 << 53) + 1, (1 << 63) - 1, -1, -(1 << 63)])
def test_a_device_with_a_number_that_no_machine_has_is_unknown(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, wrong in ("wrong", number), ("none", None):
        (tmp_path / name).mkdir()
        text = json.dumps(devices([0, wrong, None]))
        (tmp_path / name / "trace.json").write_text(text)
    shown = []
    for name in "wrong", "none":
        path = str(tmp_path / name / "trace.json")
        assert main(["prof", "-q", path, "--by", "device", "--format", "csv"]) == 0
        shown.append(capsys.readouterr().out)
        main(["check", "-q", path, "--format", "json"])
        shown.append(capsys.readouterr().out)

    assert shown[0] == shown[2]
    assert PROBLEMS[DEVICE_NUMBER].text in shown[1]
    assert PROBLEMS[DEVICE_NUMBER].text not in shown[3]


def test_a_device_of_a_store_is_not_rounded_beside_an_unknown_one() -> None:
    number = BASE + 1
    work = {"rank": [0, 0], "start_ns": [0, 20], "dur_ns": [10, 5], "device": [number, None]}
    kernels = pa.table({name: pa.array(values, pa.int64()) for name, values in work.items()})
    trace = pa.table({"rank": [0], "start_ns": [0], "end_ns": [40]})

    found = windows_of_ranks({"kernels": kernels, "copies": kernels.slice(2), "trace": trace})

    assert dict(zip(found["device"].fillna(-1), found["busy_ns"], strict=True)) == {
        number: 10,
        -1: 5,
    }


@pytest.mark.slow
def test_the_page_has_every_section_where_devices_are_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(devices([(1 << 53) + 1, None, 0])))

    assert main(["report", "-q", str(path), "-o", str(tmp_path / "r.html")]) == 0
    assert capsys.readouterr().err == ""
