"""Twenty questions, answered by calls alone; what is right is counted by hand in the recordings."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import pyprof2
from pyprof2.analysis.time.cause_names import NAMES
from tests.agents.conftest import COMPILED, DEMO, GPU, Call, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

pytestmark = pytest.mark.slow

CPU: Final = "demo.json.gz"
LEAST: Final = 19
MOST_CALLS: Final = 3


def events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a recording that last, their times as the file writes them."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        document = json.load(file, parse_float=Decimal)
    return [event for event in document["traceEvents"] if event.get("ph") == "X"]


def ns(micros: Decimal | int) -> int:
    """Return microseconds as the nearest whole nanoseconds."""
    return int((Decimal(micros) * 1000).quantize(Decimal(1), rounding="ROUND_HALF_UP"))


H200: Final = events(COMPILED / "h200.json.gz")
STEPS: Final = events(DEMO)
KERNELS: Final = [event for event in H200 if event["cat"] == "kernel"]
COPIES: Final = [event for event in H200 if event["cat"] in ("gpu_memcpy", "gpu_memset")]
LONGEST: Final = max(KERNELS, key=lambda event: event["dur"])
OPS: Final = {
    event["args"]["External id"]: event["name"] for event in H200 if event["cat"] == "cpu_op"
}


def added(of: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], Any]) -> Counter[Any]:
    sums: Counter[Any] = Counter()
    for event in of:
        sums[key(event)] += ns(event["dur"])
    return sums


def busy_ns() -> int:
    """Return the time in which the device did anything, by its moments in order."""
    spans = sorted((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in (*KERNELS, *COPIES))
    total, until = 0, 0
    for start, end in spans:
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def own_times() -> Counter[str]:
    """Return the time of each op of the CPU recording without the ops directly inside it."""
    ops = sorted(
        (e for e in STEPS if e["cat"] == "cpu_op"), key=lambda e: (e["tid"], e["ts"], -e["dur"])
    )
    own = [ns(e["dur"]) for e in ops]
    stack: list[int] = []
    for at, event in enumerate(ops):
        while stack and (
            ops[stack[-1]]["tid"] != event["tid"]
            or ops[stack[-1]]["ts"] + ops[stack[-1]]["dur"] <= event["ts"]
        ):
            stack.pop()
        if stack:
            own[stack[-1]] -= ns(event["dur"])
        stack.append(at)
    sums: Counter[str] = Counter()
    for event, time in zip(ops, own, strict=True):
        sums[event["name"]] += time
    return sums


def row(said: Said, **key: Any) -> dict[str, Any]:
    """Return the row of an answer that has these values."""
    rows = said.data["rows"]
    found: dict[str, Any] = next(r for r in rows if key.items() <= r.items())
    return found


KERNEL_NAMES: Final = added(KERNELS, lambda event: event["name"])
STEP_NS: Final = [ns(e["dur"]) for e in STEPS if e["name"].startswith("ProfilerStep#")]
LAUNCHES: Final = Counter(e["name"] for e in H200 if e["cat"] in ("cuda_runtime", "cuda_driver"))
QKV: Final = 2 * 2 * 2 * 8 * 128 * 256 * 768
"""Two blocks, two steps whose launches are there, 2 FLOPs for each of the products."""
CONV: Final = 2 * 2 * 32 * 32 * 32 * 32 * 32 * 9
"""Two steps of 32 pictures, 32 x 32 x 32 values, from 32 x 3 x 3 each, 2 FLOPs."""


def first_id(said: Said) -> dict[str, Any]:
    """Return the arguments that explain the first row of an answer."""
    return {"id": said.data["rows"][0]["id"]}


QUESTIONS: Final[list[tuple[str, str, list[Call], Any]]] = [
    ("Which GPU was it?", GPU, [], lambda o: "H200" in o.data["devices"][0]),
    ("How many kernels ran?", GPU, [("overview", {})],
     lambda _, a: a.data["totals"]["kernel_count"] == len(KERNELS)),
    ("How long did kernels take?", GPU, [("overview", {})],
     lambda _, a: a.data["totals"]["kernel_time_ns"] == sum(KERNEL_NAMES.values())),
    ("How long was the GPU busy?", GPU, [("overview", {})],
     lambda _, a: a.data["totals"]["busy_ns"] == busy_ns()),
    ("How long did copies take?", GPU, [("overview", {})],
     lambda _, a: a.data["totals"]["copy_time_ns"] == sum(added(COPIES, str).values())),
    ("Why is it slow?", GPU, [("overview", {})],
     lambda _, a: a.data["findings"][0]["rule"] == "host-bound" and "97 % idle" in a.data["says"]
     and round(100 - busy_ns() / 281392.88) == 97),
    ("Which kernel name costs most?", GPU, [("top", {"axis": "name", "filter": {"copies": False}})],
     lambda _, a: a.data["rows"][0]["time_ns"] == KERNEL_NAMES.most_common(1)[0][1]
     and a.data["rows"][0]["kernel"][:60] == KERNEL_NAMES.most_common(1)[0][0][:60]),
    ("Which kernel is the longest?", GPU, [("top", {"axis": "kernel"})],
     lambda _, a: a.data["rows"][0]["dur_ns"] == ns(LONGEST["dur"])),
    ("What was its grid?", GPU, [("top", {"axis": "kernel"}), ("explain", first_id)],
     lambda *said: "grid " + ",".join(map(str, LONGEST["args"]["grid"])) in said[-1].text),
    ("Which op launched it?", GPU, [("top", {"axis": "kernel"})],
     lambda _, a: a.data["rows"][0]["op"] == OPS[LONGEST["args"]["External id"]]),
    ("How often was cudaLaunchKernel called?", GPU,
     [("sql", {"query": "SELECT name, count(*) AS n FROM launches GROUP BY name"})],
     lambda _, a: row(a, name="cudaLaunchKernel")["n"] == LAUNCHES["cudaLaunchKernel"]),
    ("How many FLOPs has the line of qkv in forward?", GPU,
     [("top", {"axis": "source", "filter": {"category": "matmul", "direction": "forward"}})],
     lambda _, a: row(a, source="/tmp/t.py:10")["flops"] == QKV),  # noqa: S108 - as recorded
    ("Do its products use Tensor Cores?", GPU,
     [("top", {"axis": "tensor_core", "filter": {"category": "matmul"}})],
     lambda _, a: a.data["rows"][0]["tensor_core"] == "yes"),
    ("Which layer costs most?", GPU, [("top", {"axis": "layer"}), ("top", {"axis": "lacks"})],
     lambda _, a, b: [r["layer"] for r in a.data["rows"]] == ["(none)"] and "no layers" in b.text
     and not any("nn.Module" in e["name"] for e in H200)),
    ("Which steps were recorded?", CPU, [], lambda o: o.data["steps"] == [2, 3]),
    ("How long is a step?", CPU, [("overview", {})],
     lambda _, a: a.data["figures"]["step time"][0] == f"{sum(STEP_NS) / 2e6:.3f} ms"),
    ("Which op costs most?", CPU, [("top", {"axis": "op"})],
     lambda _, a: a.data["rows"][0]["op"] == "aten::convolution_backward"
     and a.data["rows"][0]["time_ns"] == own_times()["aten::convolution_backward"]),
    ("How many FLOPs has blocks.0.conv1 in forward?", CPU,
     [("top", {"axis": "layer,direction", "filter": {"layer": "blocks.0.conv1"}})],
     lambda _, a: row(a, direction="forward")["flops"] == CONV),
    ("How busy was the GPU?", CPU, [("overview", {})],
     lambda _, a: a.data["totals"]["busy_ns"] == "not recorded"
     and any("no GPU activity" in lack for lack in a.answer["evidence"]["not_recorded"])),
    ("Are the two recordings comparable?", CPU,
     [("open", {"trace": GPU}), ("compare", {"a": "t1", "b": "t2"})],
     lambda *said: said[-1].data["comparable"] is False and "devices are" in said[-1].data["why"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def talk(ask: Callable[..., list[Said]]) -> dict[str, list[Said]]:
    """Ask everything, in a session for each recording."""
    found: dict[str, list[Said]] = {}
    for recording in (GPU, CPU):
        own = [(question, calls) for question, of, calls, _ in QUESTIONS if of == recording]
        opened, *said = ask(
            ("open", {"trace": recording}), *(call for _, calls in own for call in calls)
        )
        for question, calls in own:
            found[question] = [opened, *said[: len(calls)]]
            del said[: len(calls)]
    return found


def test_questions_are_answered_by_calls_alone(talk: dict[str, list[Said]]) -> None:
    wrong = [
        question
        for question, _, calls, is_right in QUESTIONS
        if len(calls) > MOST_CALLS or not is_right(*talk[question])
    ]

    assert len(QUESTIONS) == 20
    assert len(QUESTIONS) - len(wrong) >= LEAST, wrong
    assert wrong == []


def test_every_answer_fits_and_says_what_it_rests_on(talk: dict[str, list[Said]]) -> None:
    for said in (each for answers in talk.values() for each in answers):
        assert list(said.answer) == ["schema", "data", "evidence", "next"]
        assert said.answer["schema"] == 1
        assert said.answer["evidence"]
        assert ":null" not in said.text
        assert tokens(said.text) <= 2000


SKILL: Final = Path(pyprof2.__file__).parent / "data" / "SKILL.md"


def test_calls_that_the_skill_names_are_right(ask: Callable[..., list[Said]]) -> None:
    text = SKILL.read_text(encoding="utf-8")
    axes = sorted({*re.findall(r'`top\("([\w:,]+)"\)', text)})
    filters = [json.loads(each) for each in re.findall(r"`(\{[^`…]+\})`", text)]
    (query,) = re.findall(r"^    (SELECT .+?)\n\n", text, re.DOTALL | re.MULTILINE)

    opened, *said = ask(
        ("open", {"trace": GPU}),
        *(("top", {"axis": axis}) for axis in axes),
        *(("top", {"axis": "op", "filter": each}) for each in filters),
        ("sql", {"query": query}),
    )

    assert not opened.is_error
    assert len(axes) >= 15
    assert len(filters) == 3
    assert [each.text for each in said if each.is_error] == []
    assert {"data_loading"} <= set(NAMES) & set(re.findall(r"`(\w+)`", text))


def test_what_was_not_recorded_is_said_and_no_empty_list(ask: Callable[..., list[Said]]) -> None:
    _, memory, nothing = ask(
        ("open", {"trace": GPU}),
        ("top", {"axis": "memory:category"}),
        ("top", {"axis": "op", "filter": {"op": "no such op"}}),
    )

    assert memory.data["says"] == "not recorded"
    assert nothing.data["says"] == "nothing fits the filter"


def tokens(text: str) -> int:
    """Return the most tokens that a text takes: an encoding of words has four bytes to one."""
    return len(text.encode()) // 3
