"""How long is a decode of my server? A recording, the first screen, then its phases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.kineto_events import annotation, launched, trace
from tests.serving_events import gpt_oss_layers, step_events

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journeys.conftest import Walk

PREFILL = "execute_20_context_2(sq20sk20sqsq200sqsk200)_generation_0(sq0sk0sqsq0sqsk0)"
DECODE = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk22sqsq2sqsk22)"


@pytest.mark.slow
def test_phases_of_a_server_say_what_a_token_takes(walk: Walk, tmp_path: Path) -> None:
    """A prefill of 4 ms, then two decodes of 1 ms each whose first work is 2 ms apart."""
    trace(
        tmp_path / "server.json",
        annotation(PREFILL, 1000, 100),
        launched(1010, 1, at=1100, dur=4000),
        *(
            [annotation(DECODE, at, 100), *launched(at + 10, at, at=begin, dur=1000)]
            for at, begin in ((1200, 5100), (7000, 7100))
        ),
    )

    first = walk.text("prof", "server.json")
    said = walk.text("prof", "server.json", "--by", "phase")
    (prefill, decode) = json.loads(
        walk.text("prof", "server.json", "--by", "phase", "--format", "json")
    )

    assert "serving: prefill 1 step of 2.00 requests" in first
    assert "decode" in said
    assert (prefill["phase"], prefill["device_ns"], prefill["new_tokens"]) == ("prefill", 4e6, 20)
    assert (decode["steps"], decode["device_ns"], decode["out_least"]) == (2, 2e6, 4)
    # 2 ms from one to the next, and 1 ms of the last: 4 tokens in 3 ms.
    assert decode["pace_ns"] == 3e6
    assert round(decode["out_per_s"]) == 1333


@pytest.mark.slow
def test_what_a_kind_of_layer_takes_and_which_model_it_is(walk: Walk, tmp_path: Path) -> None:
    """A prefill and a decode of three layers on one of eight ranks; then one that is faster."""
    for name, share in (("before", 1.0), ("after", 0.5)):
        slow, fast = (
            [call._replace(us=call.us * share) for call in gpt_oss_layers(tokens, 3, 8, 128)]
            for tokens in (888, 32)
        )
        trace(
            tmp_path / f"{name}.json",
            step_events("step[EXTEND bs=1 toks=888]", slow),
            step_events("step[DECODE bs=32]", fast, at=3000, first=1000),
            distributedInfo={"backend": "nccl", "rank": 0, "world_size": 8},
        )

    kinds = walk.rows("prof", "before.json", "--by", "phase,kind")
    said = walk.text("prof", "before.json", "--by", "phase")
    idle = walk.rows("idle", "before.json", "--by", "phase")
    change = walk.rows("compare", "before.json", "after.json", "--by", "phase,kind")

    experts = [row for row in kinds if row["kind"] == "experts"]
    assert {row["phase"]: int(row["device_ns"]) for row in experts} == {
        "prefill": 450_000, "decode": 450_000,
    }  # fmt: skip
    assert "the model: layers 3, hidden size 2880, heads 8" in said
    assert "no model that is known has them" in said
    assert {row["phase"] for row in idle} >= {"decode"}
    assert {float(row["change_pct"]) for row in change} == {-50}
