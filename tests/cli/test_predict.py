"""`pyprof2 predict`: what it prints, and what it refuses."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

from pyprof2.api.prediction import COLUMNS_SHOWN
from pyprof2.api.run import parse
from pyprof2.cli import main
from tests.training_trace import training_trace, write_ranks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("training")
    path = folder / "net.json"
    path.write_bytes(training_trace())
    return str(parse(path, folder / "net.pyprof2"))


def _out(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["predict", *words]) == 0
    return capsys.readouterr().out


def test_a_table_has_values_intervals_and_reasons(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _out(capsys, store, "--on", "H100 SXM,L4,V100 PCIe,MI300X", "-w", "160").splitlines()
    cells = {line.split("  ")[0]: line.split() for line in lines if line}

    assert lines[0].startswith("step ")
    assert "on H100 SXM" in lines[0]
    assert "11.84" in cells["H100 SXM"]
    assert "-" in cells["MI300X"]
    assert any(line.startswith("V100 PCIe: it has no units for bf16") for line in lines)
    assert any(line.startswith("MI300X: of another vendor") for line in lines)
    assert any("left out in turn, those of 80 % held 90 of 100" in line for line in lines)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_machine_formats_have_all_columns(
    store: str, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    text = _out(capsys, store, "--on", "L4,V100 PCIe", "--format", form)
    rows = json.loads(text) if form == "json" else list(csv.DictReader(text.splitlines()))

    assert [list(row) for row in rows] == [list(COLUMNS_SHOWN)] * 2
    assert float(rows[0]["lo_ms"]) < float(rows[0]["step_ms"]) < float(rows[0]["hi_ms"])
    assert rows[1]["step_ms"] in (None, "")


def test_all_devices_have_a_row(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(_out(capsys, store, "--on", "all", "--format", "json"))

    assert len(rows) > 70
    assert all(row["why"] for row in rows if row["step_ms"] is None)


def test_ranks_have_communication_and_all_losses_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = write_ranks(tmp_path, 2)
    words = (str(job), "--on", "H100 SXM", "--ranks", "1,2,4", "--link", "nvlink4")
    rows = json.loads(_out(capsys, *words, "--format", "json"))

    assert [row["ranks"] for row in rows] == [1, 2, 4]
    assert rows[1]["recorded_ms"] is not None
    assert all(row["lo_ms"] <= row["step_ms"] <= row["hi_ms"] for row in rows)
    assert all(row["all_hi_ms"] > row["hi_ms"] for row in rows[1:])
    text = " ".join(_out(capsys, *words).split())
    assert "all lo, all hi with all losses" in text


def test_the_recorded_device_may_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(training_trace())
    content["deviceProperties"] = [{"id": 0, "name": "A GPU"}]
    path = tmp_path / "net.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    words = (str(path), "--on", "H100 SXM,L4", "--format", "json")

    unknown = json.loads(_out(capsys, *words))
    named = json.loads(_out(capsys, *words, "--recorded-on", "H100 SXM"))

    assert [row["step_ms"] for row in unknown] == [None, None]
    assert all("A GPU, which the table of devices lacks" in row["why"] for row in unknown)
    assert named[0]["recorded_ms"] == named[0]["step_ms"] == 11.839
    assert named[1]["step_ms"] > 50


def test_money_and_a_deadline(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--price", "2", "--price", "L4=0.5", "--batch-size", "8", "--deadline", "100000:1")
    text = _out(capsys, store, "--on", "H100 SXM,L4", *words)
    rows = json.loads(_out(capsys, store, "--on", "H100 SXM,L4", *words, "--format", "json"))

    # A hundred thousand steps of 11.8 ms are 20 minutes; of 82 ms over two hours.
    assert "100,000 steps in 1 h: the cheapest is H100 SXM, for 0.65" in text
    assert rows[0]["money_per_step"] == pytest.approx(2 * rows[0]["step_ms"] / 3.6e6)
    assert rows[1]["money_per_million"] == pytest.approx(1e6 / 8 * rows[1]["money_per_step"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--on", "A100"], "which of A100 SXM 40GB, A100 SXM 80GB"),
        (["--on", "no such"], "no such device"),
        ([], "name a recording, and devices"),
        (["--on", "L4", "--ranks", "8"], "say what links the devices"),
        (["--on", "L4", "--ranks", "8", "--link", "wire"], "no link"),
        (["--on", "L4", "--deadline", "10:1"], "--price"),
        (["--on", "L4", "--price", "A100=2"], "which of A100"),
        (["--on", "L4", "--step", "99"], "no step 99"),
        (["--device", "no.json"], "No such file"),
    ],
)
def test_what_cannot_be_is_one_line(
    store: str, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert main(["predict", store, *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("text", ["--price==2", "--price=L4=-1", "--level=100", "--ranks=0"])
def test_wrong_values_are_wrong_usage(store: str, text: str) -> None:
    assert main(["predict", store, "--on", "L4", text]) == 2


def test_a_prediction_is_explained(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", store, "predict:L4"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("predict:L4")
    assert "(measured)" in text
    assert "(class)" in text
    assert "bound by compute; least" in " ".join(text.split())
    assert main(["explain", store, "predict:L4", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    moved = [abs(each["there_ns"] - each["here_ns"]) for each in facts["kernels"]]
    assert moved == sorted(moved, reverse=True)
    assert main(["explain", store, "predict:A100"]) == 2


def test_a_calibrated_file_makes_the_prediction_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = json.loads(training_trace())
    there = json.loads(training_trace())
    there["deviceProperties"] = [{"id": 0, "name": "NVIDIA A100 80GB PCIe"}]
    # A device on which all takes twice as long.
    for event in there["traceEvents"]:
        for key in ("ts", "dur"):
            if key in event:
                event[key] = 2 * float(event[key])
    names = ("a.json", "b.json")
    for name, content in zip(names, (here, there), strict=True):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    paths = [str(tmp_path / name) for name in names]
    out = tmp_path / "mine.json"

    assert main(["predict", "--calibrate", *paths, "-o", str(out)]) == 0
    file = json.loads(out.read_text(encoding="utf-8"))
    (row,) = json.loads(_out(capsys, paths[0], "--device", str(out), "--format", "json"))
    (usual,) = json.loads(_out(capsys, paths[0], "--on", "A100 PCIe 80GB", "--format", "json"))
    (own,) = json.loads(_out(capsys, paths[1], "--on", "A100 PCIe 80GB", "--format", "json"))

    assert set(file["eta"]) == {"16", "mem"}
    assert row["eta_source"] == "file"

    # Copies from the host and collectives stay as they were, and took half as long here.
    def of_kept(found: dict[str, float]) -> float:
        return 100 / found["kept_pct"] - 1

    assert of_kept(row) == pytest.approx(2 * of_kept(own), rel=0.001)
    assert of_kept(usual) != pytest.approx(2 * of_kept(own), rel=0.02)
    assert main(["predict", "--calibrate", paths[0], paths[0]]) == 2
