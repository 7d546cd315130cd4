"""Rules on inference servers, in recordings made up so that what is at stake is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyprof2.api.run import load
from tests.kineto_events import Event, annotation, kernel, launch, launched, op, trace

if TYPE_CHECKING:
    from pathlib import Path

DECODE = "execute_{total}_context_0(sq0sk0sqsq0sqsk0)_generation_{n}(sq{n}sk{k}sqsq{n}sqsk{k})"
PREFILL = "execute_{n}_context_1(sq{n}sk{k}sqsq{qq}sqsk{qk})_generation_0(sq0sk0sqsq0sqsk0)"
MI300X = {"deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X"}]}
# 1307.4 TFLOP/s in 16 bits and 5.3 TB/s.
RIDGE = 1307.4e12 / 5.3e12


def _decode(requests: int = 8, total: int | None = None) -> str:
    return DECODE.format(n=requests, k=100 * requests, total=total or requests)


def _prefill(tokens: int) -> str:
    squares = tokens * tokens
    return PREFILL.format(n=tokens, k=tokens, qq=squares, qk=squares)


def _product(at: int, number: int, begin: int, dur: int) -> list[Event]:
    """Return a product with weights: its op, launch and kernel."""
    own = {"dims": [[8, 64], [64, 64]], "types": ["c10::BFloat16"] * 2}
    return [op("aten::mm", at, 5, **own), *launched(at + 1, number, at=begin, dur=dur)]


def _found(folder: Path, rule: str, *events: Event | list[Event]) -> dict[str, Any]:
    run = load(trace(folder / "server.json", *events, **MI300X))
    advice = run.advise()
    (row,) = advice[advice["rule"] == rule].to_dict("records")
    return {str(name): value for name, value in row.items()}


def test_decode_steps_that_wait_have_the_time_without_work_at_stake(tmp_path: Path) -> None:
    """Two steps, each with 10 us of gap, and 30 us from the end of one to the next."""
    found = _found(
        tmp_path, "server-idle",
        annotation(_decode(), 100, 60), launched(110, 1, at=120, dur=40),
        launched(130, 2, at=170, dur=40),
        annotation(_decode(), 200, 60), launched(210, 3, at=240, dur=40),
        launched(230, 4, at=290, dur=40), launch(240, 9, name="cudaStreamSynchronize", dur=15),
    )  # fmt: skip

    assert found["status"] == "fires"
    assert (found["at_stake_lo_ns"], found["at_stake_hi_ns"]) == (0, 50_000)
    assert (
        "20.000 us in steps, 30.000 us between them; the host waited for 15.000 us"
        in (found["finding"])
    )


def test_decode_steps_without_gaps_are_not_blamed(tmp_path: Path) -> None:
    found = _found(
        tmp_path, "server-idle",
        annotation(_decode(), 100, 60), launched(110, 1, at=120, dur=90),
        annotation(_decode(), 200, 60), launched(210, 3, at=211, dur=90),
    )  # fmt: skip

    assert found["status"] == "silent"


def test_few_tokens_for_all_weights_have_what_the_ridge_leaves_at_stake(tmp_path: Path) -> None:
    found = _found(
        tmp_path, "small-batch",
        annotation(_decode(), 100, 60), _product(110, 1, 200, 80),
        launched(130, 2, at=280, dur=20),
    )  # fmt: skip

    assert found["status"] == "fires"
    assert found["at_stake_hi_ns"] == round(80_000 * (1 - 8 / RIDGE))
    assert found["expected_ns"] == 40_000
    assert f"from {RIDGE:.0f} tokens on" in found["finding"]


def test_enough_tokens_are_not_blamed(tmp_path: Path) -> None:
    found = _found(
        tmp_path, "small-batch",
        annotation(_decode(300), 100, 60), _product(110, 1, 200, 80),
    )  # fmt: skip

    assert found["status"] == "silent"


def test_one_small_prefill_is_no_habit_and_two_are(tmp_path: Path) -> None:
    one = [annotation(_prefill(50), 100, 60), *_product(110, 1, 200, 80)]
    two = [annotation(_prefill(50), 300, 60), *_product(310, 2, 400, 80)]

    assert _found(tmp_path, "small-chunks", one)["status"] == "silent"
    found = _found(tmp_path, "small-chunks", one, two)
    assert found["status"] == "fires"
    assert found["at_stake_hi_ns"] == round(160_000 * (1 - 50 / RIDGE))


def test_padding_has_its_share_of_the_work_at_stake(tmp_path: Path) -> None:
    found = _found(
        tmp_path, "padding", annotation(_decode(8, total=16), 100, 60),
        launched(110, 1, at=120, dur=100),
    )  # fmt: skip

    assert found["at_stake_hi_ns"] == 50_000
    assert "50.0 % of the work" in found["finding"]


def test_sampling_after_a_graph_has_the_rest_of_the_step_at_stake(tmp_path: Path) -> None:
    found = _found(
        tmp_path, "sampling-outside",
        annotation(_decode(), 100, 60),
        launch(110, 1, name="cudaGraphLaunch"), kernel(120, 60, 1), kernel(180, 20, 1),
        op("aten::argmax", 130, 10), launched(132, 2, at=210, dur=10, name="reduce_kernel"),
    )  # fmt: skip

    assert found["status"] == "fires"
    assert (found["at_stake_hi_ns"], found["expected_ns"]) == (20_000, 10_000)


def test_without_a_server_its_rules_are_silent(tmp_path: Path) -> None:
    run = load(trace(tmp_path / "plain.json", launched(1, 1, at=2, dur=30), **MI300X))

    own = run.advise().set_index("rule")["status"]

    slugs = ["server-idle", "small-batch", "small-chunks", "padding", "sampling-outside"]
    assert set(own[slugs]) == {"silent"}
