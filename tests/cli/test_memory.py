"""`pyprof2 memory`: what it shows and writes, of a snapshot and of a trace."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import pyprof2
from tests.kineto_events import MAIN, load_events, memory, op, trace
from tests.snapshots import MODEL, alloc, block, dump, flat, forward, free, segment, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a snapshot with 4096 bytes before it, and two lines in it."""
    events = flat(
        alloc(9000, 3000, forward(1)), alloc(9001, 1000, forward(2)), *free(9001, 1000, forward(2))
    )
    blocks = [
        block(4096, requested_size=4000, address=1), block(3072, requested_size=3000, address=9000)
    ]  # fmt: skip
    return dump(tmp_path, snapshot([segment(*blocks)], events))


def _events() -> list[Any]:
    gpu = {"Device Type": 1, "Device Id": 0}
    return [
        op("aten::mm", 0, 100),
        memory(5, Bytes=512, Addr=1, **gpu, **{"Total Allocated": 1512}),
        memory(50, Bytes=256, Addr=2, **gpu, **{"Total Allocated": 1768}),
        memory(60, Bytes=8, Addr=3, **{"Device Type": 0, "Device Id": -1}),
    ]


def test_the_outline_names_the_peak_and_its_parts(
    path: Path, invoke: Callable[..., Result]
) -> None:
    found = invoke("memory", path)

    assert found.code == 0
    # Base: 7168 at the end less 3000 that the events add.
    assert found.lines[0] == (
        "rank 0, cuda:0: peak 8.17 kB = 4.17 kB before the recording + 4.00 kB"
    )
    assert found.lines[1] == "reserved at the end 7.17 kB = allocated 7.17 kB"
    assert any(line.startswith(f"{MODEL}:1") and " 3.00 " in line for line in found.lines)
    assert any(line.startswith("(rounding)") and "0.168" in line for line in found.lines)


def test_json_has_an_object_for_each_device_whose_rows_add_up(
    path: Path, invoke: Callable[..., Result]
) -> None:
    (found,) = json.loads(invoke("memory", path, "--by", "line", "--format", "json").out)

    assert found["peak_allocated_bytes"] == found["base_bytes"] + found["peak_over_base_bytes"]
    assert (found["base_bytes"], found["peak_over_base_bytes"]) == (4168, 4000)
    assert found["base_at_peak_bytes"] == 4168
    rows = {row["line"]: row["bytes"] for row in found["rows"]}
    assert rows == {
        "(before the recording)": 4000, "(rounding)": 168, f"{MODEL}:1": 3000, f"{MODEL}:2": 1000,
    }  # fmt: skip
    assert {"category", "certainty"} <= set(found["rows"][0])


def test_events_are_on_the_clock_that_windows_of_statistics_are_on(
    tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    """Both count from the begin of the recording, not from the first allocation."""
    gpu = {"Device Type": 1, "Device Id": 0}
    events = [
        op("aten::mm", 0, 900_000),
        memory(500_000, Bytes=3_000_000, Addr=1, **gpu),
        memory(700_000, Bytes=-3_000_000, Addr=1, **gpu),
        memory(700_000, Bytes=200, Addr=2, **gpu),
    ]
    recording = trace(tmp_path, *events)

    lines = invoke("memory", recording, "--events", "-w", "200").lines

    assert lines[0].split()[5:] == ["MB", "allocated", "ms", "released", "ms", "dur", "ms"]
    assert [line.split()[5:8] for line in lines[2:]] == [
        ["3.00", "500.000", "700.000"], ["<0.001", "700.000", "-"],
    ]  # fmt: skip
    assert "500.0 ms" in invoke("memory", recording, "--timeline").out
    between = invoke(
        "memory", recording, "--statistics", "--between", "499:501", "--format", "json"
    )
    (row,) = json.loads(between.out)
    assert (row["allocations"], row["allocation_bytes"]) == (1, 3_000_000)


def test_what_is_not_known_is_null_in_json(tmp_path: Path, invoke: Callable[..., Result]) -> None:
    found = json.loads(invoke("memory", trace(tmp_path, *_events()), "--format", "json").out)

    gpu, cpu = found
    assert (gpu["device_type"], gpu["base_bytes"], gpu["peak_allocated_bytes"]) == (
        "cuda", 1000, 1768,
    )  # fmt: skip
    assert (cpu["base_bytes"], cpu["peak_allocated_bytes"], cpu["base_at_peak_bytes"]) == (
        None, None, None,
    )  # fmt: skip
    assert cpu["peak_over_base_bytes"] == 8


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_has_a_row_for_each_sum(
    form: str, path: Path, tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    out = tmp_path / f"rows.{form}"

    assert invoke("memory", path, "--by", "line", "-o", out).code == 0

    rows = pd.read_csv(out) if form == "csv" else pd.read_parquet(out)
    assert rows["bytes"].sum() == 8168
    assert list(rows.columns[:3]) == ["rank", "device_type", "device"]


def test_the_api_gives_what_the_command_prints(tmp_path: Path) -> None:
    run = load_events(tmp_path, *_events())

    rows = run.memory_profile("op", device="cuda:0")

    assert dict(zip(rows["op"], rows["bytes"], strict=True)) == {
        "(before the recording)": 1000, "aten::mm": 768,
    }  # fmt: skip
    assert pyprof2.memory(run.path).devices["peak_over_base_bytes"].tolist() == [768, 8]
    assert set(run.memory["tid"]) == {MAIN}


def test_two_recordings_give_their_difference(
    path: Path, tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    events = flat(alloc(9000, 3500, forward(1)))
    other = dump(
        tmp_path,
        snapshot([segment(block(3500, requested_size=3500, address=9000))], events),
        "b.pkl",
    )

    (*_,) = rows = json.loads(invoke("memory", path, other, "--format", "json").out)

    found = {row["line"]: row["difference_bytes"] for row in rows}
    assert found[f"{MODEL}:1"] == 500
    assert found[f"{MODEL}:2"] == -1000
    assert sum(found.values()) == 3500 - 8168
    (before,) = (row for row in rows if row["line"] == "(before the recording)")
    assert (before["a_blocks"], before["b_blocks"]) == (None, 0)
    drawn = invoke("memory", path, other)
    assert "cuda:0: -4.67 kB" in drawn.out
    assert drawn.lines[1:3] == [f"A {path}", f"B {other}"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--fits", "A100-80"), "into 84.9 GB: fits; needs 8.17 kB"),
        (("--memory", "8kB"), "into 8.00 kB: does not fit"),
        (("--memory", "8.2kB"), "into 8.20 kB: may fit"),
    ],
)
def test_a_device_is_said_to_be_large_enough_or_not(
    options: tuple[str, ...], words: str, path: Path, invoke: Callable[..., Result]
) -> None:
    assert words in invoke("memory", path, *options).out


def test_the_timeline_is_a_bar_for_each_stretch_or_a_row_for_each_event(
    path: Path, invoke: Callable[..., Result]
) -> None:
    drawn = invoke("memory", path, "--timeline")
    rows = json.loads(invoke("memory", path, "--timeline", "--format", "json").out)

    assert any("oooo" in line for line in drawn.lines)
    assert [row["over_base_bytes"] for row in rows] == [3000, 4000, 3000]


def test_a_moment_that_was_not_recorded_is_said_to_be_none(
    path: Path, invoke: Callable[..., Result]
) -> None:
    assert "memory did not run out" in invoke("memory", path, "--at", "oom").out
    assert (
        json.loads(invoke("memory", path, "--at", "oom", "--format", "json").out)[0]["rows"] == []
    )


def test_a_trace_without_memory_says_how_to_record_it(
    tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    found = invoke("memory", trace(tmp_path, op("aten::mm", 0, 9)))

    assert found.code == 0
    assert "profile_memory=True" in found.out


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--by", "kernel"), 2, "no axis 'kernel' of memory"),
        (("--device", "cuda:4"), 2, "devices cuda:0"),
        (("--fits", "toaster"), 2, "no device of known memory"),
        (("--memory", "much"), 2, "'much' is not a size"),
        (("--fits", "T4", "--memory", "8GB"), 2, "leave one out"),
        (("--timeline", "--by", "line"), 2, "leave --by out"),
    ],
)
def test_a_wrong_option_is_one_line(
    options: tuple[str, ...], code: int, words: str, path: Path, invoke: Callable[..., Result]
) -> None:
    found = invoke("memory", path, *options)

    assert found.code == code
    assert words in found.err


def test_a_hostile_pickle_is_one_line(tmp_path: Path, invoke: Callable[..., Result]) -> None:
    path = tmp_path / "evil.pickle"
    path.write_bytes(b"\x80\x02}cos\nsystem\n(S'id'\ntR.")

    found = invoke("memory", path)

    assert found.code == 1
    assert found.err.count("\n") == 1
    assert "not read as a memory snapshot: byte 3" in found.err


def test_releases_of_what_was_there_before_are_named_where_its_size_is_not_known(
    tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    cpu = {"Device Type": 0, "Device Id": -1}
    path = trace(
        tmp_path, [memory(1, Bytes=-1000, Addr=1, **cpu), memory(2, Bytes=5000, Addr=2, **cpu)]
    )

    out = invoke("memory", path).out

    assert "peak 4.00 kB above what was there before" in out
    assert "note: 1.00 kB of what was there before was released" in out


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "table"])
def test_a_snapshot_in_which_nothing_lives_has_an_answer_in_each_form(
    form: str, tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    path = dump(tmp_path, snapshot([segment(block(1 << 20, "inactive"))]))

    asked = ["memory", path, "--format", form, "-o", tmp_path / "out", "--force"]
    for options in ([], ["--by", "line"], ["--at", "end"], ["--timeline"], ["--events"]):
        result = invoke(*asked, *options)

        assert result.code == 0, result.err


def test_nothing_temporary_is_left_where_there_is_no_such_span(
    tmp_path: Path, invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, own = trace(tmp_path, *_events()), tmp_path / "tmp"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))

    said = invoke("memory", "--span", "7", recording)

    assert (said.code, "no such span" in said.err) == (2, True)
    assert list(own.iterdir()) == []
