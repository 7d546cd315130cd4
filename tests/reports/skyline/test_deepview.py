"""DeepView's JSON has the shape that our schema says, and the numbers of Skyline's reports."""

from __future__ import annotations

import copy
import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fastjsonschema
import pytest

from pyprof2.cli import main
from tests.kineto_events import frame, launched, memory, node, op, step, trace

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA: Final = Path(__file__).parents[3] / "docs" / "deepview.schema.json"


@pytest.fixture(scope="module")
def check() -> Callable[[Any], Any]:
    """Return what raises for an object that the schema refuses."""
    found: Callable[[Any], Any] = fastjsonschema.compile(json.loads(SCHEMA.read_text()))
    return found


def written(path: Path, folder: Path, *words: str) -> dict[str, Any]:
    output = folder / "a.json"
    assert main(["export", str(path), "--deepview", str(output), "--force", *words]) == 0
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def children(tree: list[dict[str, Any]]) -> list[list[int]]:
    """Return the places of each node's children in a list in preorder; all nodes are used."""
    found: list[list[int]] = [[] for _ in tree]
    open_nodes: list[int] = []
    for at in range(len(tree)):
        while open_nodes and len(found[open_nodes[-1]]) == tree[open_nodes[-1]]["numChildren"]:
            open_nodes.pop()
        if at:
            found[open_nodes[-1]].append(at)
        open_nodes.append(at)
    assert [len(own) for own in found] == [each["numChildren"] for each in tree]
    return found


def test_the_tree_has_lines_as_they_call_and_ops_as_leaves(
    tmp_path: Path, check: Callable[[Any], Any]
) -> None:
    source = trace(
        tmp_path,
        step(3, 0, 500),
        frame("train.py(20): main", 0, 60), frame("net.py(9): forward", 10, 40),
        op("aten::mm", 12, 10, seq=1, fwd=0), launched(15, 1, at=20, dur=60),
        op("aten::mm", 24, 10, seq=2, fwd=0), launched(25, 2, at=90, dur=6),
        op("aten::neg", 40, 5), launched(41, 3, at=100, dur=3),
        node("MmBackward0", 200, 40, seq=2), launched(205, 4, at=210, dur=8, tid=102),
    )  # fmt: skip

    found = written(source, tmp_path, "--batch-size", "16")

    check(found)
    state = found["analysisState"]
    assert state["throughput"] == {"samplesPerSecond": 16 / 500e-6}
    assert state["breakdown"]["iterationRunTimeMs"] == 0.5
    tree = state["breakdown"]["operationTree"]
    assert [
        (n["name"], n["numChildren"], n["operation"]["forwardMs"], n["operation"]["backwardMs"],
         [i["invocations"] for i in n["operation"]["contextInfoMap"]])
        for n in tree
    ] == [
        ("Model", 1, 0.069, 0.008, []),
        ("train.py:20", 1, 0.069, 0.008, [3]),
        ("net.py:9", 2, 0.069, 0.008, [3]),
        ("aten::mm", 0, 0.066, 0.008, [2]),
        ("aten::neg", 0, 0.003, "NaN", [1]),
    ]  # fmt: skip
    assert tree[2]["contexts"] == [{"filePath": {"components": ["net.py"]}, "lineNumber": 9}]


@pytest.mark.parametrize("name", ["rn50_v100_w0", "hta_df_index_v100_ddp", "tl_bertsmall_h100"])
def test_a_real_recording_fits_the_schema_and_adds_up(
    shared_trace: Callable[[str], Path], tmp_path: Path, check: Callable[[Any], Any], name: str
) -> None:
    path = shared_trace(f"kineto/{name}.json.gz")

    found = written(path, tmp_path)

    check(found)
    assert main(["export", str(path), "--skyline", str(tmp_path / "a.sqlite")]) == 0
    database = sqlite3.connect(tmp_path / "a.sqlite")
    breakdown = found["analysisState"]["breakdown"]
    tree = breakdown["operationTree"]
    (forward,) = database.execute("SELECT SUM(forward_ms) FROM run_time_entries").fetchone()
    assert tree[0]["operation"]["forwardMs"] == pytest.approx(forward)
    (kept,) = database.execute("SELECT COALESCE(SUM(size_bytes), 0) FROM activation_entries")
    assert int(tree[0]["operation"].get("sizeBytes", 0)) == kept[0]
    assert ("sizeBytes" in tree[0]["operation"]) == bool(kept[0])
    for at, own in enumerate(children(tree)):
        if own:
            below = sum(tree[child]["operation"]["forwardMs"] for child in own)
            assert tree[at]["operation"]["forwardMs"] == pytest.approx(below)
    peak = database.execute("SELECT size_bytes FROM misc_sizes").fetchall()
    assert (
        [(int(breakdown["peakUsageBytes"]),)] * len(peak) == peak
        if peak
        else ("peakUsageBytes" not in breakdown)
    )
    assert found["analysisState"]["throughput"] == {}


MACHINE = (
    "{'pyprof2':2,'kind':'process','host':'box','system':'Linux 6','name':'A CPU','bytes':60000}"
)
ENTRY = "{'pyprof2':2,'kind':'entry','name':'/w/entry_point.py','batch':%d,'device':'cpu'}"
WEIGHTS = (
    "{'pyprof2':2,'kind':'memory','moment':'begins','device':'cpu','category':'parameter',"
    "'weights':[['fc.weight','float32',64,400,%s,null,'/w/net.py:3'],"
    "['fc.bias','float32',128,40,null,null,null]]}"
)
BLOCKS = (
    "{'pyprof2':2,'kind':'memory','moment':'begins','device':'cpu','category':'parameter',"
    "'blocks':[[64,400],[128,40]]}"
)
BEGINS = "{'pyprof2':2,'kind':'memory','moment':'begins','device':'cpu','bytes':500}"


def of_entry(folder: Path, batch: int, gradient: str = "400") -> Path:
    """Write a step of 100 + 10 B us, with 500 + 100 B bytes at most, of which 440 are weights."""
    rows = [
        step(number, 1000 * number, 100 + 10 * batch)
        for number in range(3)
    ]  # fmt: skip
    for number in range(3):
        at = 1000 * number + 10
        own = {"Device Type": 0, "Device Id": -1, "Addr": 4096}
        rows += [
            *launches_nothing(at, number, batch),
            memory(at + 5, Bytes=100 * batch, **own, **{"Total Allocated": 500 + 100 * batch}),
            memory(at + 40, Bytes=-100 * batch, **own, **{"Total Allocated": 500}),
        ]
    markers = [MACHINE, ENTRY % batch, BEGINS, BLOCKS, WEIGHTS % gradient]
    return trace(folder / f"e{batch}.json", *rows, *(op(m, 1, 0) for m in markers))


def launches_nothing(at: int, number: int, batch: int) -> list[Any]:
    """Return a forward op of 30 us, and its backward of 20 after 10."""
    shape = {"dims": [[batch, 4], [4, 4]], "types": ["float", "float"]}
    return [
        op("aten::mm", at, 30, seq=number, fwd=0, **shape),
        node("MmBackward0", at + 40, 20, seq=number),
        op("aten::mm", at + 40, 20, tid=102),
    ]


def test_of_an_entry_point_machine_weights_peak_and_prediction_are_known(
    tmp_path: Path, check: Callable[[Any], Any]
) -> None:
    others = [f"{batch}={of_entry(tmp_path, batch)}" for batch in (2, 8)]

    found = written(of_entry(tmp_path, 4), tmp_path, "--batches", *others)

    check(found)
    state = found["analysisState"]
    assert state["hardware_info"] == {
        "hostname": "box", "os": "Linux 6", "gpus": [], "cpu": "A CPU", "memoryBytes": "60000"
    }  # fmt: skip
    assert state["project_entry_point"].endswith("entry_point.py")
    breakdown = state["breakdown"]
    assert breakdown["batchSize"] == 4
    assert breakdown["peakUsageBytes"] == "900"
    assert breakdown["memoryCapacityBytes"] == "60000"
    assert [
        (w["name"], w["weight"], [c["lineNumber"] for c in w["contexts"]])
        for w in breakdown["weightTree"]
    ] == [
        ("Model", {"sizeBytes": "440", "gradSizeBytes": "400"}, []),
        ("fc.weight", {"sizeBytes": "400", "gradSizeBytes": "400"}, [3]),
        ("fc.bias", {"sizeBytes": "40"}, []),
    ]
    # A step takes 100 + 10 B us: no batch has 100,000 samples/s.
    throughput = state["throughput"]
    assert throughput["samplesPerSecond"] == pytest.approx(4 / 140e-6)
    assert throughput["predictedMaxSamplesPerSecond"] == pytest.approx(1e5)
    assert throughput["runTimeMs"] == pytest.approx({"slope": 0.01, "bias": 0.1})
    assert throughput["peakUsageBytes"] == pytest.approx({"slope": 100, "bias": 500})
    (forward,) = (p for p in state["utilization"]["phases"] if p["name"] == "forward")
    assert forward == pytest.approx(
        {"name": "forward", "spanMs": 0.03, "cpuMs": 0.03, "utilizationPct": 100.0}
    )


def test_what_is_not_known_has_no_key(tmp_path: Path, check: Callable[[Any], Any]) -> None:
    found = written(trace(tmp_path, step(1, 0, 9), op("aten::mm", 1, 2)), tmp_path)

    check(found)
    breakdown = found["analysisState"]["breakdown"]
    assert not {"weightTree", "peakUsageBytes", "memoryCapacityBytes"} & set(breakdown)
    assert "sizeBytes" not in json.dumps(found)
    assert found["analysisState"]["throughput"] == {}


def test_other_batch_sizes_need_that_of_the_recording_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = trace(tmp_path, step(1, 0, 9), op("aten::mm", 1, 2))
    words = ["export", str(source), "--deepview", str(tmp_path / "a.json"), "--batches"]

    assert main([*words, f"4={source}", f"8={source}"]) == 2
    assert "name the batch size of the recording itself too" in capsys.readouterr().err
    assert main([*words, f"4={source}", f"8={source}", "--batch-size", "4"]) == 2
    assert "is given twice" in capsys.readouterr().err


def test_the_schema_refuses_what_is_not_of_it(tmp_path: Path, check: Callable[[Any], Any]) -> None:
    found = written(trace(tmp_path, step(1, 0, 9), op("aten::mm", 1, 2)), tmp_path)
    check(found)
    changes: list[Callable[[Any], object]] = [
        lambda f: f.pop("epochs"),
        lambda f: f["analysisState"].update(extra=1),
        lambda f: f["analysisState"]["breakdown"].update(peakUsageBytes=7),
        lambda f: f["analysisState"]["breakdown"]["operationTree"][0].update(numChildren=-1),
    ]
    for change in changes:
        wrong = copy.deepcopy(found)
        change(wrong)
        with pytest.raises(fastjsonschema.JsonSchemaException):
            check(wrong)
