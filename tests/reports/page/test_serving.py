"""The section of inference servers: what the page carries of it, and what a browser shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2 import cli
from pyprof2.api.run import load
from pyprof2.reports.page.serving import MOST_STEPS, serving_of
from pyprof2.reports.page.values import zeros
from tests.kineto_events import annotation, launched, trace
from tests.reports.page.opened import LOOKS, serious
from tests.serving_events import gpt_oss, gpt_oss_layers, step_events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reports.page.opened import Opened

    Open = Callable[..., Opened]

PREFILL = "execute_888_context_1(sq888sk888sqsq788544sqsk788544)_generation_0(sq0sk0sqsq0sqsk0)"
DECODE = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk3200sqsq32sqsk3200)"
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A prefill and two decodes of a model of three layers on one of eight ranks."""
    calls = {tokens: gpt_oss_layers(tokens, 3, 8, 128) for tokens in (888, 32)}
    return trace(
        tmp_path / "server.json",
        step_events(PREFILL, calls[888]),
        step_events(DECODE, calls[32], at=3000, first=1000),
        step_events(DECODE, calls[32], at=5000, first=2000),
        launched(9000, 9999, at=9010, dur=20, name=HOSTILE),
        distributedInfo={"backend": "nccl", "rank": 0, "world_size": 8},
        deviceProperties=[{"id": 0, "name": "NVIDIA B200"}],
    )


@pytest.fixture
def config(shared: Path, tmp_path: Path) -> Path:
    given = json.loads((shared / "reference/serving/openai--gpt-oss-20b_config.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(gpt_oss(given, layers=3, experts=128)))
    return path


def _times(opened: Opened) -> list[dict[str, int]]:
    found: list[dict[str, int]] = opened.ask(
        "[...document.querySelectorAll('.parts')].map((bar) => Object.fromEntries("
        "[...bar.querySelectorAll('[data-kind]')]"
        ".map(({dataset}) => [dataset.kind, Number(dataset.ns)])))"
    )
    return found


def test_the_page_has_the_phases_and_kinds_that_prof_has(server: Path, config: Path) -> None:
    run = load(server)

    found = serving_of(run, zeros(run), config, None)

    assert found is not None
    assert [row["phase"] for row in found["phases"]] == ["decode", "prefill", "outside"]
    busy = int(run.serving_steps()["device_ns"].sum())
    for name in ("phases", "kinds"):
        assert sum(row["device_ns"] for row in found[name]) == busy
    starts = [step["start_ns"] for step in found["steps"]]
    assert starts == sorted(starts)
    assert starts[0] < 1_000_000
    assert found["costs"][0].startswith("decode: ")
    json.dumps(found)


def test_a_recording_without_a_server_has_no_such_section(tmp_path: Path) -> None:
    run = load(trace(tmp_path / "plain.json", launched(1, 1, at=2, dur=3)))

    assert serving_of(run, zeros(run), None, None) is None


def test_of_many_steps_the_page_carries_the_first(tmp_path: Path) -> None:
    count = MOST_STEPS + 5
    events: list[Any] = [
        [annotation("step[DECODE bs=1]", at, 5), *launched(at + 1, at, at=at + 2, dur=1)]
        for at in range(10, 10 + 10 * count, 10)
    ]
    run = load(trace(tmp_path / "many.json", *events))

    found = serving_of(run, zeros(run), None, None)

    assert found is not None
    assert (len(found["steps"]), found["steps_left_out"]) == (MOST_STEPS, 5)


def test_a_browser_shows_phases_kinds_and_the_roof(
    open_page: Open, server: Path, config: Path, tmp_path: Path, web_modules: Path
) -> None:
    page = tmp_path / "page.html"
    assert cli.main(["report", str(server), "--model", str(config), "-o", str(page)]) == 0

    for look in LOOKS:
        opened = open_page(page, "page=serving", **look)
        text = " ".join(opened.page.inner_text("#panel").split())
        bars = _times(opened)
        assert opened.current == "serving"
        # Three layers: 14 us for each of two products, 150 for experts, 2 of 30 for communication.
        assert bars[0] == {
            "experts": 900_000, "communication": 360_000, "qkv": 84_000, "o": 84_000,
            "norm": 56_000, "router": 36_000, "attention": 30_000, "lm_head": 80_000,
        }  # fmt: skip
        assert sum(bars[2].values()) == 20_000
        assert "decode, MBU (bytes of weights, keys and values)" in text
        assert opened.page.locator("img").count() == 0
        assert opened.faults == []
        wide = opened.ask("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
        assert serious(opened.page, web_modules) == []


def test_without_the_model_the_page_says_what_shows_the_roof(
    open_page: Open, server: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert cli.main(["report", str(server), "-o", str(page)]) == 0

    opened = open_page(page, "page=serving")

    text = opened.page.inner_text("#panel")
    assert "pyprof2 report --model config.json" in text
    rows = opened.rows()
    assert [row["phase"] for row in rows] == ["decode", "prefill", "outside"]
