"""Skyline's reports hold what the recording does, in Skyline's schemas, by Skyline's queries."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

import pyprof2
from pyprof2.api.run import load
from pyprof2.cli import main
from tests.kineto_events import (
    annotation,
    frame,
    kernel,
    launch,
    launched,
    memory,
    node,
    op,
    step,
    trace,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

PARAMETERS: Final = 7000

# What Skyline's documentation says of its tables, in SQL: an entry's line is the frame that comes
# first in `ordering`, its type is 1 for weights and 2 for activations.
TIMES: Final = """
SELECT e.operation_name, e.forward_ms, e.backward_ms, f.file_path, f.line_number
FROM run_time_entries e LEFT JOIN stack_frames f ON f.entry_id = e.id
 AND f.ordering = (SELECT MIN(g.ordering) FROM stack_frames g WHERE g.entry_id = e.id)
ORDER BY e.id"""
MEMORY: Final = """
SELECT {columns}, f.file_path, f.line_number FROM {table} e
JOIN stack_correlation c ON c.entry_id = e.id AND c.entry_type = {kind}
JOIN entry_types t ON t.entry_type = c.entry_type AND t.name = '{name}'
LEFT JOIN stack_frames f ON f.correlation_id = c.correlation_id
 AND f.ordering = (SELECT MIN(g.ordering) FROM stack_frames g
                   WHERE g.correlation_id = c.correlation_id)
WHERE e.size_bytes > 0 ORDER BY e.id"""
WEIGHTS: Final = MEMORY.format(
    columns="e.name, e.size_bytes, e.grad_size_bytes", table="weight_entries", kind=1, name="Weight"
)
ACTIVATIONS: Final = MEMORY.format(
    columns="e.operation_name, e.size_bytes", table="activation_entries", kind=2, name="Activation"
)
STACK: Final = """
SELECT file_path, line_number FROM stack_frames WHERE {owner} = ? ORDER BY ordering"""
PEAK: Final = "SELECT key, size_bytes FROM misc_sizes"

SCHEMAS: Final = {
    "run_time_entries": [
        "id INTEGER 1", "operation_name TEXT 0 !", "forward_ms REAL 0 !", "backward_ms REAL 0",
    ],
    "weight_entries": [
        "id INTEGER 1", "name TEXT 0 !", "size_bytes INTEGER 0 !", "grad_size_bytes INTEGER 0 !",
    ],
    "activation_entries": ["id INTEGER 1", "operation_name TEXT 0 !", "size_bytes INTEGER 0 !"],
    "entry_types": ["entry_type INTEGER 1", "name TEXT 0 !"],
    "stack_correlation": [
        "correlation_id INTEGER 1", "entry_id INTEGER 0 !", "entry_type INTEGER 0 !",
    ],
    "misc_sizes": ["key TEXT 1", "size_bytes INTEGER 0 !"],
    "stack_frames of time": [
        "ordering INTEGER 2 !", "file_path TEXT 0 !", "line_number INTEGER 0 !",
        "entry_id INTEGER 1 !",
    ],
    "stack_frames of memory": [
        "correlation_id INTEGER 1 !", "ordering INTEGER 2 !", "file_path TEXT 0 !",
        "line_number INTEGER 0 !",
    ],
}  # fmt: skip
"""Of each table the columns: type, place in the primary key, whether null is refused."""


def block(ts: int, address: int, size: int, total: int) -> dict[str, Any]:
    """Return an allocation on the GPU, or a release."""
    sizes = {"Bytes": size, "Total Allocated": PARAMETERS + total, "Total Reserved": 1 << 20}
    return memory(ts, **{"Addr": address, "Device Type": 1, "Device Id": 0, **sizes})


def events(number: int, at: int, slow: int = 0) -> list[Any]:
    """Return a step: two mm in a loop, a relu, a detach; backward of all but the latter.

    Each mm keeps 1024 bytes, the relu 512; backward of the first one adds 300 of gradients.
    """
    first = 100 * number
    calls = [
        ("aten::mm", 12, 60, 1), ("aten::mm", 60, 30 + slow, 2), ("aten::relu", 110, 20, 3),
    ]  # fmt: skip
    found: list[Any] = [
        step(number, at, 850 + 50 * number),
        frame("/w/train.py(20): main", at, 400), frame("nn.Module: Net_0", at + 5, 300),
        frame("/w/net.py(9): forward", at + 10, 90), frame("/w/net.py(11): act", at + 105, 60),
        op("aten::detach", at + 150, 5),
    ]  # fmt: skip
    total = 0
    for place, (name, ts, dur, seq) in enumerate(calls):
        size = 512 if name == "aten::relu" else 1024
        total += size
        found += [
            op(name, at + ts, 30, seq=first + seq, fwd=0),
            block(at + ts + 2, 10 * number + place, size, total),
            *launched(at + ts + 3, first + place, at=at + 200 + 100 * place, dur=dur),
        ]
    for place, (name, _, dur, seq) in reversed(list(enumerate(calls))):
        word = "Relu" if name == "aten::relu" else "Mm"
        begin = at + 500 + 100 * (2 - place)
        size = 512 if name == "aten::relu" else 1024
        total -= size
        found += [
            node(f"{word}Backward0", begin, 40, seq=first + seq),
            launch(begin + 3, first + 50 + place, tid=102),
            kernel(begin + 5, 2 * dur, first + 50 + place),
            block(begin + 20, 10 * number + place, -size, total) | {"tid": 102},
        ]
        if place == 0:
            found.append(block(begin + 30, 10 * number + 5, 300, total + 300) | {"tid": 102})
    found.append(annotation("Optimizer.zero_grad#SGD.zero_grad", at + 885, 10))
    found.append(block(at + 890, 10 * number + 5, -300, 0))
    return found


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps; the second one is of median time."""
    steps = [events(1 + place, 1100 * place, slow=place) for place in range(3)]
    return trace(tmp_path_factory.mktemp("skyline"), *steps)


def write(recording: Path, path: Path, *words: str) -> sqlite3.Connection:
    """Return the report that the command writes."""
    arguments = ["export", str(recording), "--skyline", str(path), "--source-root", "/w", *words]
    assert main(arguments) == 0
    return sqlite3.connect(path)


NET: Final = ("net.py", 9)
ENTRIES: Final = [
    ("aten::mm", 0.060, 0.120, *NET),
    ("aten::mm", 0.031, 0.062, *NET),
    ("aten::relu", 0.020, 0.040, "net.py", 11),
    ("aten::detach", 0.0, None, "net.py", 11),
]


@pytest.mark.parametrize("report", ["time", "both"])
def test_each_call_of_the_median_step_is_a_row(
    recording: Path, tmp_path: Path, report: str
) -> None:
    found = write(recording, tmp_path / "a.sqlite", "--report", report)

    assert found.execute("PRAGMA user_version").fetchall() == [(1,)]
    assert found.execute(TIMES).fetchall() == ENTRIES
    frames = found.execute(STACK.format(owner="entry_id"), (1,)).fetchall()
    assert frames == [NET, ("train.py", 20)]


@pytest.mark.parametrize("report", ["memory", "both"])
def test_what_is_kept_for_backward_is_a_row_of_each_call(
    recording: Path, tmp_path: Path, report: str
) -> None:
    found = write(recording, tmp_path / "a.sqlite", "--report", report)

    assert found.execute("PRAGMA user_version").fetchall() == [(1,)]
    assert found.execute(ACTIVATIONS).fetchall() == [
        ("aten::mm", 1024, *NET), ("aten::mm", 1024, *NET),
        ("aten::relu", 512, "net.py", 11),
    ]  # fmt: skip
    assert found.execute(WEIGHTS).fetchall() == [
        ("(parameters and buffers)", PARAMETERS, 300, None, None)
    ]
    assert found.execute(PEAK).fetchall() == [("peak_usage_bytes", PARAMETERS + 2560)]
    frames = found.execute(STACK.format(owner="correlation_id"), (2,)).fetchall()
    assert frames == [NET, ("train.py", 20)]


def test_a_step_may_be_named(recording: Path, tmp_path: Path) -> None:
    found = write(recording, tmp_path / "a.sqlite", "--step", "3")

    times = [(op, forward) for op, forward, *_ in found.execute(TIMES)]
    assert times[1] == ("aten::mm", 0.032)


def columns(found: sqlite3.Connection, table: str) -> list[str]:
    rows = found.execute(f"PRAGMA table_info({table})").fetchall()
    return [
        f"{name} {kind} {key}{' !' if refused and (not key or table == 'stack_frames') else ''}"
        for _, name, kind, refused, _, key in rows
    ]


@pytest.mark.parametrize("report", ["time", "memory"])
def test_a_report_alone_has_the_tables_of_skyline(
    recording: Path, tmp_path: Path, report: str
) -> None:
    found = write(recording, tmp_path / "a.sqlite", "--report", report)

    names = {name for (name,) in found.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    of_time = {"run_time_entries"}
    expected = of_time if report == "time" else SCHEMAS.keys() - of_time
    assert names == {name for name in expected if " " not in name} | {"stack_frames"}
    for name in names:
        key = f"{name} of {report}" if name == "stack_frames" else name
        assert columns(found, name) == SCHEMAS[key], name
    if report == "memory":
        (index,) = found.execute("SELECT sql FROM sqlite_master WHERE name='entry_type_and_id'")
        assert "UNIQUE" in index[0]


def own_sums(run: Run, number: int) -> dict[Any, dict[str, int]]:
    """Return the time of each line in a step, by its kernels and copies, one after another."""
    sums: dict[Any, dict[str, int]] = defaultdict(lambda: {"forward": 0, "backward": 0})
    for row in pd.concat([run.kernels, run.copies]).to_dict("records"):
        if row["step"] != number or row["direction"] not in ("forward", "backward"):
            continue
        again = bool(row["recompute"]) if not pd.isna(row["recompute"]) else False
        phase = "backward" if again else row["direction"]
        line = None if pd.isna(row["source"]) else row["source"]
        sums[line][phase] += row["dur_ns"]
    return sums


@pytest.mark.parametrize("name", ["rn50_v100_w0", "tl_resnet_ckpt_mi300"])
def test_lines_of_a_real_recording_have_the_time_of_their_kernels(
    shared_trace: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    path = shared_trace(f"kineto/{name}.json.gz")
    run = load(path)
    number = int(run.steps["step"].iloc[0])

    assert main(["export", str(path), "--skyline", str(tmp_path / "a.sqlite"), "--report", "time",
                 "--step", str(number)]) == 0  # fmt: skip

    found: dict[Any, dict[str, int]] = defaultdict(lambda: {"forward": 0, "backward": 0})
    for _, forward, backward, file, line in sqlite3.connect(tmp_path / "a.sqlite").execute(TIMES):
        key = None if file is None else f"{file}:{line}"
        found[key]["forward"] += round(forward * 10**6)
        found[key]["backward"] += round((backward or 0) * 10**6)
    expected = own_sums(run, number)
    assert {k: v for k, v in found.items() if any(v.values())} == {
        k: v for k, v in expected.items() if any(v.values())
    }
    lines = run.lines(step=number)
    top = lines[lines["parent_id"].isna()]
    assert sum(v["forward"] for v in found.values()) == top["forward_ns"].sum()
    backward = top["backward_ns"].sum() + top["recompute_ns"].sum()
    assert sum(v["backward"] for v in found.values()) == backward


def replayed(run: Run) -> tuple[int, int]:
    """Return the activations when most lives at a backward's start, and the peak over the base.

    One event after another: a block is the last one at its address.
    """
    rows = run.memory[run.memory["device_type"] == "cuda"].to_dict("records")
    live: dict[int, dict[Any, Any]] = {}
    blocks, starts, seen, total, peak = [], [], set(), 0, 0
    for at, row in enumerate(rows):
        if row["phase"] == "backward" and row["step"] not in seen and not pd.isna(row["step"]):
            seen.add(row["step"])
            starts.append((total, at))
        total += row["bytes"]
        peak = max(peak, total)
        if row["bytes"] > 0:
            live[row["address"]] = row | {"begin": at, "end": len(rows), "freed": None}
            blocks.append(live[row["address"]])
        elif row["address"] in live:
            live.pop(row["address"]).update(end=at, freed=row)
    _, moment = max(starts, key=lambda each: (each[0], -each[1]))
    kept = sum(
        b["bytes"]
        for b in blocks
        if b["begin"] < moment <= b["end"] and b["phase"] == "forward" and b["freed"]
        and b["freed"]["phase"] == "backward" and b["freed"]["step"] == b["step"]
    )  # fmt: skip
    return kept, peak


def test_activations_and_peak_of_a_real_recording_are_those_of_a_replay(
    shared_trace: Callable[[str], Path], tmp_path: Path
) -> None:
    path = shared_trace("kineto/hta_df_index_v100_ddp.json.gz")
    kept, over_base = replayed(load(path))

    assert main(["export", str(path), "--skyline", str(tmp_path / "a.sqlite"), "--report",
                 "memory"]) == 0  # fmt: skip

    found = sqlite3.connect(tmp_path / "a.sqlite")
    sums = found.execute("SELECT SUM(size_bytes) FROM activation_entries").fetchone()
    assert sums == (kept,)
    assert found.execute(PEAK).fetchone() == ("peak_usage_bytes", 4_096_614_400 + over_base)
    assert 4_096_614_400 + over_base == 6_629_508_096


def test_what_is_not_recorded_is_said_and_is_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = trace(
        tmp_path, step(1, 0, 100), op("aten::mm", 10, 20), *launched(12, 1, at=30, dur=5)
    )

    found = write(source, tmp_path / "a.sqlite")

    assert found.execute(TIMES).fetchall() == [("aten::mm", 0.005, None, None, None)]
    names = {name for (name,) in found.execute("SELECT name FROM sqlite_master")}
    assert names == {"run_time_entries", "stack_frames", "sqlite_autoindex_stack_frames_1"}
    assert "pyprof2: no allocation is recorded" in capsys.readouterr().err
    assert main(["export", str(source), "--skyline", str(tmp_path / "b.sqlite"), "--report",
                 "memory"]) == 1  # fmt: skip
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "b.sqlite").exists()


def test_a_file_that_is_there_stays_unless_force_is_given(
    recording: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "a.sqlite"
    path.write_text("mine")

    assert main(["export", str(recording), "--skyline", str(path)]) == 1
    assert path.read_text() == "mine"
    # A report that cannot be finished leaves the file as it was, and nothing beside it.
    monkeypatch.setattr("pyprof2.reports.skyline.export.VERSION", "no number")
    capsys.readouterr()
    assert main(["export", str(recording), "--skyline", str(path), "--force"]) == 1
    assert "user_version" in capsys.readouterr().err
    assert (path.read_text(), [p.name for p in tmp_path.iterdir()]) == ("mine", ["a.sqlite"])
    monkeypatch.undo()
    assert main(["export", str(recording), "--skyline", str(path), "--force"]) == 0
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (1,)


@pytest.mark.parametrize(
    "words",
    [["skyline-report"], ["skyline-report", "-o", "a.json", "--report", "time"],
     ["skyline-report", "-o", "a.sqlite", "--report", "deepview"],
     ["export", "--skyline", "a.json"], ["export", "--deepview", "a.sqlite"],
     ["export", "--skyline", "a.sqlite", "--batch-size", "4"], ["export", "--skyline", "/dev/null"],
     ["export", "--skyline", "a.sqlite", "-o", "b.sqlite"], ["export", "--perfetto", "--step", "1"],
     ["export", "--deepview", "a.json", "--report", "time"]],
)  # fmt: skip
def test_a_call_that_makes_no_sense_is_one_line(
    recording: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = words

    assert main([command, str(recording), *options]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_step_or_rank_that_is_not_there_is_one_line(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--step", "9"], ["--rank", "9"], ["--device", "cuda:9"]):
        arguments = ["export", str(recording), "--skyline", str(tmp_path / "a.sqlite"), *words]
        assert main(arguments) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_api_of_the_run_gives_what_the_report_adds_up(recording: Path, tmp_path: Path) -> None:
    run = pyprof2.load(recording, source_root="/w")
    found = write(recording, tmp_path / "a.sqlite")

    rows = run.memory_profile("line", at="backward")
    own = rows[rows["category"] == "activation"].set_index("line")["bytes"].to_dict()
    sums: dict[str, int] = defaultdict(int)
    for _, size, file, line in found.execute(ACTIVATIONS):
        sums[f"/w/{file}:{line}"] += size
    assert dict(sums) == own


@pytest.mark.parametrize(("suffix", "option"), [("sqlite", "--skyline"), ("json", "--deepview")])
def test_the_old_command_writes_what_export_writes(
    recording: Path, tmp_path: Path, suffix: str, option: str
) -> None:
    old, new = tmp_path / f"old.{suffix}", tmp_path / f"new.{suffix}"

    assert main(["skyline-report", str(recording), "-o", str(old), "--source-root", "/w"]) == 0
    assert main(["export", str(recording), option, str(new), "--source-root", "/w"]) == 0

    assert new.read_bytes() == old.read_bytes()
