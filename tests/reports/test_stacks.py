"""Sums by stack: totals are those of `prof`, names are one frame each on one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd
import pytest

import pyprof2
from pyprof2.reports.stacks import StacksQuery, show
from tests.kineto_events import complete, copy, frame, launched, load_events, op

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

TRACES = ("tl_owlv2_h100", "rn50_v100_w0", "tl_vllm_dec")
MM = {"dims": [[4, 8], [8, 16]], "types": ["float", "float"]}
"""1024 FLOPs; (32 + 128 + 64) · 4 = 896 bytes."""


def folded(run: Run, path: Path, of: str, measure: str = "time_ns") -> dict[tuple[str, ...], int]:
    """Return the sum of each stack in the file."""
    show(run, StacksQuery(of, measure, path=path))
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [line.rpartition(" ") for line in lines]
    sums = {tuple(stack.split(";")): int(total) for stack, _, total in found}
    assert len(sums) == len(lines), "a stack that is there twice"
    return sums


@pytest.fixture(params=TRACES)
def real(request: pytest.FixtureRequest, shared_trace: Callable[[str], Path]) -> Run:
    """Return a real run."""
    return pyprof2.load(shared_trace(f"kineto/{request.param}.json.gz"))


@pytest.mark.parametrize("of", ["layers", "lines", "ops"])
@pytest.mark.parametrize("measure", ["time_ns", "flops", "bytes", "count"])
def test_totals_are_those_of_the_profile(real: Run, of: str, measure: str, tmp_path: Path) -> None:
    sums = folded(real, tmp_path / "x.txt", of, measure)

    profile = real.profile(by="rank")
    assert sum(sums.values()) == profile[measure].fillna(0).sum()
    assert list(sums.values()) == sorted(sums.values(), reverse=True)


def test_layers_are_those_of_the_profile(real: Run, tmp_path: Path) -> None:
    found: dict[str, int] = {}
    for stack, total in folded(real, tmp_path / "x.txt", "layers").items():
        layer = ".".join(stack[:-1])
        found[layer] = found.get(layer, 0) + total

    profile = real.profile(by="layer")
    assert found == dict(zip(profile["layer"], profile["time_ns"], strict=True))


def test_ops_end_with_the_kernels_of_the_profile(real: Run, tmp_path: Path) -> None:
    found: dict[str, int] = {}
    for stack, total in folded(real, tmp_path / "x.txt", "ops").items():
        found[stack[-2]] = found.get(stack[-2], 0) + total

    profile = real.profile(by="op")
    assert found == dict(zip(profile["op"], profile["time_ns"], strict=True))


def test_lines_end_with_the_frames_that_the_store_has(
    shared_trace: Callable[[str], Path], tmp_path: Path
) -> None:
    run = pyprof2.load(shared_trace("kineto/tl_owlv2_h100.json.gz"))
    frames = {row["stack_id"]: row for row in run.stacks.to_dict("records")}
    wanted: dict[tuple[str, ...], int] = {}
    work = pd.concat([run.kernels, run.copies]).dropna(subset=["stack_id"])
    for row in work.to_dict("records"):
        lines, at = [row["op"]], row["stack_id"]
        while not pd.isna(at):
            lines.insert(0, frames[at]["line"])
            at = frames[at]["caller_id"]
        wanted[tuple(lines)] = wanted.get(tuple(lines), 0) + row["dur_ns"]

    sums = folded(run, tmp_path / "x.txt", "lines")
    assert len(wanted) > 20
    assert wanted.items() <= sums.items()
    assert len(sums) - len(wanted) < 10


@pytest.fixture
def by_hand(tmp_path: Path) -> Run:
    """Return a run with three kernels: 40, 5 and 1 us, and a copy of 10 us."""
    return load_events(
        tmp_path,
        frame("main.py(3): main", 0, 100), frame("net.py(7): forward", 1, 40),
        frame("nn.Module: Net_0", 2, 38), frame("nn.Module: Linear_1", 3, 30),
        op("aten::linear", 4, 20), op("aten::mm", 5, 10, **MM),
        launched(6, 1, at=200, dur=40, name="void gemm<float>(int)"),
        op("aten::relu", 26, 4), launched(27, 2, at=241, dur=5, name="relu"),
        launched(60, 3, at=250, dur=1, name="own"),
        complete("cuda_runtime", "cudaMemcpyAsync", 70, 2, args={"correlation": 4}),
        copy(260, 10, 4, name="Memcpy HtoD", bytes=5000),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("of", "measure", "wanted"),
    [
        pytest.param(
            "layers", "time_ns",
            {("Net_0", "Linear_1", "aten::mm"): 40_000, ("Net_0", "Linear_1", "aten::relu"): 5_000,
             ("(none)", "Memcpy HtoD"): 10_000, ("(none)", "own"): 1_000},
            id="layers",
        ),
        pytest.param(
            "lines", "time_ns",
            {("main.py:3", "net.py:7", "aten::mm"): 40_000,
             ("main.py:3", "net.py:7", "aten::relu"): 5_000,
             ("(none)", "Memcpy HtoD"): 10_000, ("(none)", "own"): 1_000},
            id="lines",
        ),
        pytest.param(
            "ops", "time_ns",
            {("aten::linear", "aten::mm", "gemm"): 40_000, ("aten::relu", "relu"): 5_000,
             ("(none)", "Memcpy HtoD"): 10_000, ("(none)", "own"): 1_000},
            id="ops",
        ),
        pytest.param("ops", "flops", {("aten::linear", "aten::mm", "gemm"): 1024}, id="flops"),
        pytest.param(
            "ops", "bytes",
            {("(none)", "Memcpy HtoD"): 5000, ("aten::linear", "aten::mm", "gemm"): 896},
            id="bytes",
        ),
    ],
)  # fmt: skip
def test_stacks_by_hand(
    by_hand: Run, of: str, measure: str, wanted: dict[tuple[str, ...], int], tmp_path: Path
) -> None:
    assert folded(by_hand, tmp_path / "x.txt", of, measure) == wanted


def test_without_a_gpu_stacks_of_ops_end_with_the_op_and_its_own_time(tmp_path: Path) -> None:
    run = load_events(tmp_path, op("aten::linear", 0, 20), op("aten::mm", 5, 10))

    assert folded(run, tmp_path / "x.txt", "ops") == {
        ("aten::linear",): 10_000, ("aten::linear", "aten::mm"): 10_000,
    }  # fmt: skip


def test_what_is_not_known_is_said(by_hand: Run, tmp_path: Path) -> None:
    (line,) = show(by_hand, StacksQuery("ops", "flops", path=tmp_path / "x.txt"))

    # Of 56 us the 40 of the product are known; a copy does no FLOPs.
    assert line == "flops: not known of 10.7 % of the time, which adds nothing"
    assert show(by_hand, StacksQuery("ops", "count", path=tmp_path / "x.txt")) == []


def test_a_name_is_one_frame_on_one_line(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, op("a;b\n\x1b[0m\u202e.7", 0, 20), op("a,b\n\x1b[0m\u202e.7", 30, 5)
    )

    sums = folded(run, tmp_path / "x.txt", "ops")

    assert sums == {(r"a,b\n\x1b[0m\u202e.7",): 25_000}


def test_speedscope_has_the_same_stacks(by_hand: Run, tmp_path: Path) -> None:
    show(by_hand, StacksQuery("ops", form="speedscope", path=tmp_path / "x.json"))

    file = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    names = [each["name"] for each in file["shared"]["frames"]]
    (profile,) = file["profiles"]
    stacks = [tuple(names[at] for at in sample) for sample in profile["samples"]]
    assert dict(zip(stacks, profile["weights"], strict=True)) == folded(
        by_hand, tmp_path / "x.txt", "ops"
    )
    assert (profile["type"], profile["unit"], profile["endValue"]) == (
        "sampled", "nanoseconds", 56_000,
    )  # fmt: skip
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"


def test_ops_of_another_recording_stand_above_their_kernels(
    shared: Path, shared_trace: Callable[[str], Path], tmp_path: Path
) -> None:
    store = pyprof2.parse(
        shared_trace("kineto/tl_vllm_dec.json.gz"), tmp_path / "store",
        captures=[shared / "traces" / "graphs" / "vllm_dec_capture.json.gz"],
    )  # fmt: skip
    run = pyprof2.load(store)

    sums: dict[str, int] = {}
    for stack, total in folded(run, tmp_path / "x.txt", "ops").items():
        assert stack[0] != "(none)"
        innermost = stack[-2]
        sums[innermost] = sums.get(innermost, 0) + total

    profile = run.profile(by="op")
    assert sums == dict(zip(profile["op"], profile["time_ns"], strict=True))
