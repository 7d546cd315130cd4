"""Somebody recorded a training for 1,200 steps, and asks of it what a colleague asks of six."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.reports.page.reader import document_of, values
from tests.training_trace import LOADING, LOADING_SLOWLY, SLOW, STEPS, training_trace

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

TIMES: Final = 200
"""How many times as many steps the long recording has: of 66,000 kernels and 400,000 events."""
MOST_BYTES: Final = 400e6
MATRIX_PRODUCTS_NS: Final = 19_800_000
"""Of `aten::mm` in six steps: 12 of 275 µs in each."""
MEASURED: Final = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "pyprof2", "-q", *sys.argv[1:]], check=True)
unit = 1 if sys.platform == "darwin" else 1024
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit, file=sys.stderr)
"""


def _held(walk: Walk, *words: object) -> tuple[str, int]:
    """Return what a command writes, and how much memory it holds at most."""
    done = walk.run("python", "-c", MEASURED, *words)
    return done.stdout, int(done.stderr)


def _by_op(text: str) -> dict[str, Any]:
    return {row["op"]: row for row in json.loads(text)}


@pytest.mark.slow
def test_a_long_recording_says_of_each_step_what_a_short_one_says_in_bounded_memory(
    walk: Walk,
) -> None:
    pytest.importorskip("resource", reason="asks the system for the memory of processes")
    for name, steps in (("short", STEPS), ("long", TIMES * STEPS)):
        (walk.folder / f"{name}.json").write_bytes(training_trace(steps=steps))
    found: dict[str, dict[str, str]] = {"short": {}, "long": {}}
    held = {}

    for name, answers in found.items():
        store = f"{name}.pyprof2"
        for command, words in {
            "parse": ("parse", f"{name}.json", "-o", store),
            "prof": ("prof", store, "--by", "op", "--format", "json"),
            "lines": ("lines", store, "--format", "csv"),
            "whatif": ("whatif", store, "--scale", "op=aten::mm=0.5", "--format", "json"),
            "predict": ("predict", store, "--on", "H100-SXM", "--format", "json"),
            "check": ("check", store, "--format", "json"),
            "advise": ("advise", store, "--format", "json"),
            "report": ("report", store, "-o", f"{name}.html"),
        }.items():
            answers[command], held[name, command] = _held(walk, *words)
    delta = walk.rows("compare", "short.pyprof2", "long.pyprof2")

    assert {key: most for key, most in held.items() if most > MOST_BYTES} == {}
    short, long = (_by_op(found[name]["prof"]) for name in found)
    assert short.keys() == long.keys()
    for op, row in short.items():
        for column in ("count", "op_calls", "time_ns", "flops", "bytes"):
            assert (long[op][column] or 0) == TIMES * (row[column] or 0), (op, column)
        assert long[op]["roofline_pct"] == pytest.approx(row["roofline_pct"])
    # What a matrix product takes less, the step does: nothing runs beside it.
    gains = [json.loads(found[name]["whatif"])[0]["gain_ns"] for name in found]
    assert gains == [MATRIX_PRODUCTS_NS // 2, TIMES * MATRIX_PRODUCTS_NS // 2]
    assert found["long"]["predict"] == found["short"]["predict"]
    for name, steps in (("short", STEPS), ("long", TIMES * STEPS)):
        advice = {row["rule"]: row for row in json.loads(found[name]["advise"])}
        waited_us = LOADING * steps + (LOADING_SLOWLY - LOADING)
        assert advice["data-loading"]["expected_ns"] == 1000 * waited_us
        scanned = [row for row in json.loads(found[name]["check"]) if "scanner" in row["finding"]]
        assert len(scanned) == 1, "some was left to Python's scanner"
    assert {row["verdict"] for row in delta} == {"noise"}
    counts = []
    for name in found:
        page = document_of(walk.folder / f"{name}.html")
        steps, late = page["steps"]["columns"], LOADING_SLOWLY - LOADING
        slow = [at for at, is_slow in zip(steps["step"], steps["outlier"], strict=True) if is_slow]
        assert slow == [SLOW]
        assert f"takes {late}.000 us more than the median" in values(steps["note"])[SLOW]
        counts.append(sum(page["cube"]["columns"]["count"]))
    assert counts == [STEPS * 56, TIMES * STEPS * 56]
