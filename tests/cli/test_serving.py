"""Commands on recordings of inference servers, made up so that each number is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.cli import main
from tests.kineto_events import annotation, copy, launch, launched, trace
from tests.serving_events import Call, gpt_oss, gpt_oss_layers, step_events

if TYPE_CHECKING:
    from pathlib import Path

PREFILL = "execute_20_context_2(sq20sk20sqsq200sqsk200)_generation_0(sq0sk0sqsq0sqsk0)"
DECODE = "execute_{n}_context_0(sq0sk0sqsq0sqsk0)_generation_{n}(sq{n}sk{k}sqsq{n}sqsk{k})"


def _server(folder: Path, *, name: str = "a.json", requests: int = 2, keys: int = 22) -> Path:
    """A prefill of 4 ms, two decodes of 1 ms whose first work is 2 ms apart, and 0.5 ms of none."""
    decode = DECODE.format(n=requests, k=keys)
    return trace(
        folder / name,
        annotation(PREFILL, 1000, 100),
        launched(1010, 1, at=1100, dur=4000),
        *(
            [annotation(decode, at, 100), *launched(at + 10, at, at=begin, dur=1000)]
            for at, begin in ((1200, 5100), (7000, 7100))
        ),
        launched(9000, 9, at=9010, dur=500),
        distributedInfo={"rank": 0, "world_size": 1},
    )


def _json(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    assert main([*map(str, words), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_steps_of_a_server_are_the_steps_where_there_are_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _server(tmp_path)

    rows = _json(capsys, "prof", path, "--by", "step")
    assert main(["prof", str(path), "--by", "step"]) == 0

    assert [row["phase"] for row in rows] == ["prefill", "decode", "decode", "outside"]
    assert [row["serving_step"] for row in rows] == [0, 1, 2, None]
    assert [row["device_ns"] for row in rows] == [4e6, 1e6, 1e6, 5e5]
    assert "3 steps by the names of vllm detailed" in capsys.readouterr().out


def test_steps_of_a_server_of_ones_own_are_named_by_a_pattern(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(
        tmp_path / "own.json", annotation("turn decode of 3", 1000, 100),
        launched(1010, 1, at=1100, dur=10),
    )  # fmt: skip
    pattern = r"turn (?P<phase>\w+) of (?P<g_req>\d+)"

    for axis in ("step", "phase", "kind"):
        (row,) = _json(capsys, "prof", path, "--by", axis, "--step-pattern", pattern)
        assert row["device_ns"] == 10_000
        assert row.get("phase", "decode") == "decode"


def test_steps_of_the_profiler_count_before_those_of_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(
        tmp_path / "both.json", annotation("ProfilerStep#4", 900, 500),
        annotation(PREFILL, 1000, 100), launched(1010, 1, at=1100, dur=10),
    )  # fmt: skip

    (row,) = _json(capsys, "prof", path, "--by", "step")

    assert row["step"] == 4


def test_a_million_tokens_cost_what_their_time_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _server(tmp_path)

    rows = _json(capsys, "prof", path, "--by", "phase", "--price", "3.6")

    prefill, decode, outside = rows
    # 20 tokens in 4 ms, then 4 in 3 ms, at 0.001 a second.
    assert prefill["in_price"] == pytest.approx(0.001 * 4e-3 / 20 * 1e6)
    assert decode["out_price"] == pytest.approx(0.001 * 3e-3 / 4 * 1e6)
    assert prefill["out_price"] is decode["in_price"] is outside["out_price"] is None
    assert main(["prof", str(path), "--price", "1"]) == 2


def test_a_price_of_several_devices_takes_how_many_share_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(
        tmp_path / "one.json", annotation(PREFILL, 1000, 100), launched(1010, 1, at=1100, dur=4000)
    )

    (unknown,) = _json(capsys, "prof", path, "--by", "phase", "--price", "3.6")
    (row,) = _json(capsys, "prof", path, "--by", "phase", "--price", "3.6", "--tp", "4")

    assert unknown["in_price"] is None
    assert row["in_price"] == pytest.approx(4 * 0.001 * 4e-3 / 20 * 1e6)


def test_a_model_is_not_shared_by_more_processes_than_were_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _server(tmp_path)  # of a job of one process

    assert main(["prof", str(path), "--by", "phase", "--price", "1", "--tp", "1"]) == 0
    capsys.readouterr()
    assert main(["prof", str(path), "--by", "phase", "--price", "1", "--tp", "2"]) == 2
    assert capsys.readouterr().err == (
        "pyprof2: --tp 2: the recorded job has 1 process, so no more share the model: --tp 1\n"
    )


def test_idle_time_is_of_the_phase_whose_work_ends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _json(capsys, "idle", _server(tmp_path), "--by", "phase")

    times = {row["phase"]: row["time_ns"] for row in rows}
    # From 6100 us to the second decode, and from its end to the work outside.
    assert times["decode"] == 1_000_000
    assert times["outside"] >= 910_000
    assert "prefill" not in times or times["prefill"] <= 100_000


def test_idle_time_before_a_kernel_is_not_of_the_copy_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(
        tmp_path / "copy.json", annotation(PREFILL, 1000, 100), launch(1010, 1),
        copy(1100, 100, 1, name="Memcpy HtoD (Pageable -> Device)"),
        annotation(DECODE.format(n=2, k=22), 1200, 100), launched(1210, 2, at=1500, dur=100),
    )  # fmt: skip

    rows = _json(capsys, "idle", path, "--by", "phase")

    assert {row["phase"]: row["time_ns"] for row in rows}["decode"] == 300_000


def test_two_runs_are_compared_by_token_of_a_phase(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """b has twice the requests in the same time: each token of a decode takes half as long."""
    paths = _server(tmp_path), _server(tmp_path, name="b.json", requests=4, keys=88)

    rows = _json(capsys, "compare", *paths, "--by", "phase")
    assert main(["compare", *map(str, paths), "--by", "phase,kind"]) == 0

    found = {row["phase"]: row for row in rows}
    assert found["decode"]["a_ns_per_token"] == 500_000
    assert found["decode"]["b_ns_per_token"] == 250_000
    assert found["decode"]["change_pct"] == -50
    assert found["prefill"]["change_ns_per_token"] == 0
    assert found["outside"]["a_ns_per_token"] is None
    said = capsys.readouterr().out
    assert "decode 2 steps of 4.00 requests, each 1.00 new tokens and 22.0 keys" in said
    assert "decode: requests have 11.0 and 22.0 keys" in said


def test_a_run_without_steps_of_a_server_is_not_compared_by_phase(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = trace(tmp_path / "plain.json", launched(1010, 1, at=1100, dur=4))

    assert main(["compare", str(_server(tmp_path)), str(plain), "--by", "phase"]) == 2
    assert "plain.json: no step of an inference server, or no work" in capsys.readouterr().err


def test_kinds_of_all_phases_add_up_to_the_busy_time(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = gpt_oss_layers(888, 3, 8, 128)
    late = [*layers, Call("aten::argmax", [[1, 25136]], "reduce_kernel", 7)]
    path = trace(
        tmp_path / "server.json",
        step_events("execute_context_1(888)_generation_0(0)", layers),
        step_events("step[DECODE bs=888]", late, at=4000, first=1000),
        launched(9000, 5000, at=9010, dur=500),
    )

    both = _json(capsys, "prof", path, "--by", "phase,kind")
    kinds = _json(capsys, "prof", path, "--by", "kind")
    phases = _json(capsys, "prof", path, "--by", "phase")

    total = sum(row["device_ns"] for row in phases)
    assert sum(row["device_ns"] for row in both) == total
    assert sum(row["device_ns"] for row in kinds) == total
    of_decode = [row for row in both if row["phase"] == "decode"]
    (decode,) = (row for row in phases if row["phase"] == "decode")
    assert sum(row["device_ns"] for row in of_decode) == decode["device_ns"]
    found = {row["kind"]: row for row in kinds}
    assert found["qkv"]["count"] == found["o"]["count"] == found["experts"]["count"] == 6
    assert found["sampling"]["device_ns"] == 7000
    config = tmp_path / "config.json"
    given = json.loads((shared / "reference/serving/openai--gpt-oss-20b_config.json").read_text())
    config.write_text(json.dumps(gpt_oss(given, layers=3, experts=128)))
    costed = _json(capsys, "prof", path, "--by", "kind", "--model", config)
    own = {row["kind"]: row for row in costed}
    # Of either step the products of 888 tokens, and logits of 1 and of 888.
    assert own["qkv"]["flops_least"] == 2 * 2 * 888 * 3 * 2880 * 640
    assert own["lm_head"]["flops_least"] == 2 * 889 * 2880 * 25136
    assert own["attention"]["flops_least"] is None


def test_what_does_not_go_together_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _server(tmp_path)

    for words in (["--by", "kind", "--top", "3"], ["--by", "kind,op"], ["--model", "x.json"]):
        assert main(["prof", str(path), *words]) == 2
        assert "phase" in capsys.readouterr().err
