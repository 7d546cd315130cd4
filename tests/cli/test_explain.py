"""`pyprof2 explain` shows what a number rests on, and says in one line what it cannot find."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import mm_trace
from tests.kineto_events import annotation, json_text, launched, op

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


TEXT = """\
kernel:0      void gemm<float>(int)
              40.000 us, rank 0, device 0, GPU X, stream 7
op            op:0 aten::mm([4,8] f32, [8,16] f32)
              forward, on the CPU 20.000 us
link          correlation: the launch by correlation id; the op is the innermost one on
              the launch's thread that encloses the launch
              launched by cudaLaunchKernel on thread 1, correlation id 9
pair          no sequence number: no forward or backward op belongs to it
counts        ok, at op:0 aten::mm
              M=4,N=16,K=8
              flops 1,024 = 2·M·N·K = 2·4·16·8
              bytes 896 = 640 read + 256 written
              computed in f32
              shapes from the inputs recorded with the op
formula       matmul.mm
                (…, m, k) @ (…, k, n): see `product`.
                product: (…, m, k) @ (…, k, n) -> (…, m, n), batch dimensions broadcast.
                flops: 2·batch·m·n·k, of complex numbers 8·batch·m·n·k. bytes: `a`, `b`,
                the result, and the tensors in `more`, once each.
Tensor Cores  unknown: no rule knows a word of the name
              whether it is eligible is not known
roof          H100 SXM (H100 data sheet and whitepaper; dense, float32 accumulate)
              memory: 896 bytes at 3350 GB/s need 0.267 ns
              it took 40.000 us, all kernels of the op together: 0.001 % of its roof,
              bound by memory
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a trace of one `aten::mm` that ran for 40 µs."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps(mm_trace()))
    return path


def test_the_text_has_a_paragraph_for_each_question(
    invoke: Callable[..., Any], trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "90")

    result = invoke("explain", trace, "kernel:0", "--device", "H100 SXM")

    assert result.code == 0
    assert result.out == TEXT


def test_no_line_is_wider_than_the_terminal(
    invoke: Callable[..., Any], trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    lines = invoke("explain", trace, "kernel:0").lines

    assert max(map(len, lines)) <= 80
    assert all(line.startswith((" " * 14, line.split("  ")[0])) for line in lines)


def test_the_range_is_shown_and_how_it_was_found(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    events = annotation("backward", 0, 50), op("aten::mm", 10, 9), op("MmBackward0", 20, 9, tid=102)
    path.write_bytes(json_text(*events))

    own, borrowed = (invoke("explain", path, f"op:{number}").out for number in (0, 1))

    assert "range         backward\n              your ranges that are open on its thread" in own
    assert "range         backward\n              its thread runs autograd and has none" in borrowed


def test_json_holds_the_same_as_data(invoke: Callable[..., Any], trace: Path) -> None:
    facts = json.loads(invoke("explain", trace, "op:0", "--format", "json").out)

    assert list(facts) == [
        "rank", "reference", "kernel", "op", "link", "node", "range", "pair", "cost",
        "communication", "sharing", "tensor_core", "roof", "parts",
    ]  # fmt: skip
    assert facts["kernel"] is None
    assert facts["cost"]["flops"] == 1024
    assert facts["roof"]["unknown_because"].startswith("no peaks are known of the device")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        pytest.param("kernel:7", "kernel:7: not in the recording", id="no such kernel"),
        pytest.param("op:1", "there are op:0 to op:0", id="no such op"),
        pytest.param("mm", "give kernel:N or op:N", id="no reference"),
        pytest.param("kernel:0 --rank 2", "rank 2: no such rank; there is 0", id="no such rank"),
        pytest.param("kernel:0 --device Nope", "Nope: no such device", id="no such device"),
    ],
)
def test_a_bad_reference_is_one_line_and_wrong_usage(
    invoke: Callable[..., Any], trace: Path, reference: str, message: str
) -> None:
    result = invoke("explain", trace, *reference.split())

    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert message in result.err


def test_with_several_ranks_one_must_be_named(invoke: Callable[..., Any], tmp_path: Path) -> None:
    for rank in (0, 1):
        rows = [op("aten::mm", 0, 9, dims=[[2, 2 + rank], [2 + rank, 2]], types=["float"] * 2)]
        path = tmp_path / f"rank{rank}.json"
        path.write_bytes(json_text(*rows, launched(1, 1, at=10, dur=5)))

    unnamed = invoke("explain", tmp_path, "kernel:0")
    named = invoke("explain", tmp_path, "kernel:0", "--rank", 1)

    assert (unnamed.code, named.code) == (2, 0)
    assert "Add --rank N, one of 0, 1" in unnamed.err
    assert "aten::mm([2,3] f32, [3,2] f32)" in named.out


def test_a_name_of_a_recording_cannot_act_on_the_terminal(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(json_text(op("aten::mm", 0, 9), launched(1, 1, at=9, dur=5, name="\x1b[31mk")))

    assert invoke("explain", path, "kernel:0").lines[0] == r"kernel:0      \x1b[31mk"


def test_nor_can_it_in_json(invoke: Callable[..., Any], tmp_path: Path) -> None:
    path, name = tmp_path / "x.json", "k\x1b[31m\x9b2J\u202e\u2066"
    path.write_bytes(json_text(op("aten::mm", 0, 9), launched(1, 1, at=9, dur=5, name=name)))

    out = invoke("explain", path, "kernel:0", "--format", "json").out

    assert "".join(out.splitlines()).isprintable()
    assert json.loads(out)["kernel"]["kernel"] == name


def test_a_helper_says_where_the_rates_of_its_op_are(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    mm = op("aten::mm", 0, 9, dims=[[4, 8], [8, 16]], types=["float"] * 2)
    gemm = launched(1, 1, at=20, dur=9, name="volta_sgemm_64x64_nn")
    path.write_bytes(
        json_text(mm, gemm, launched(2, 2, at=30, dur=1, name="splitKreduce_kernel<32>"))
    )

    lines = invoke("explain", path, "kernel:1").lines

    assert lines[-1] == (
        "roof          a helper has none, nor rates: kernel:0 does the work of the op"
    )


def test_float32_on_a_device_without_tf32_says_what_half_precision_would_allow(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    """The note of `prof`, its axis, and the kernel's own explanation."""
    path = tmp_path / "v100.json"
    mm = op("aten::mm", 0, 9, dims=[[64, 64], [64, 64]], types=["float"] * 2)
    device = {"id": 0, "name": "Tesla V100-SXM2-16GB", "computeMajor": 7, "computeMinor": 0}
    path.write_bytes(
        json_text(
            mm, launched(1, 1, at=20, dur=9, name="volta_sgemm_64x64_nn"), deviceProperties=[device]
        )
    )
    why = "f32, which these units take in half precision alone"

    said = "\n".join(invoke("explain", path, "kernel:0").lines)
    summed = invoke("prof", path, "--by", "tensor_core", "-w", "300").lines

    assert "eligible in half precision: it is f32 that keeps it off" in said
    assert why in said
    assert any(line.split()[:2] == ["no", "1"] for line in summed)
    assert any("could have used Tensor Cores" in line and why in line for line in summed)
