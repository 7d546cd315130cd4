"""`pyprof2 compare`: the table, the gates, and what is not comparable."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.api.comparison import Gate, parse_gate
from pyprof2.cli import main
from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Event = dict[str, Any]

STEP_US = 1000
H100 = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]


def step(number: int, dur: float, op: str = "aten::mm") -> list[Event]:
    """Return a step of 900 us in which one op launches a kernel of `dur` us."""
    at = number * STEP_US
    host = {"ph": "X", "pid": 1, "tid": 1}
    return [
        host | {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": 900},
        host | {"cat": "cpu_op", "name": op, "ts": at + 10, "dur": 20},
        host
        | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 12, "dur": 5,
           "args": {"correlation": number + 1}},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": at + 20, "dur": dur,
         "args": {"correlation": number + 1, "device": 0, "stream": 7}},
    ]  # fmt: skip


def write(path: Path, *steps: list[Event], devices: object = None) -> Path:
    events = [event for each in steps for event in each]
    path.write_text(json.dumps({"traceEvents": events, "deviceProperties": devices or H100}))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Stores of kernels of 100 us against 150 and 160; the first step of each takes longer."""
    folder = tmp_path_factory.mktemp("runs")
    a = write(folder / "a.json", step(0, 700), *(step(n, 100) for n in range(1, 5)))
    slow = [step(n, 150 if n % 2 else 160) for n in range(1, 5)]
    b = write(folder / "b.json", step(0, 800), *slow)
    return pyprof2.parse(a, folder / "a"), pyprof2.parse(b, folder / "b")


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_a_run_against_itself_has_no_difference(
    runs: tuple[Path, Path], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a, _ = runs

    assert main(["compare", str(a), str(a), "--format", form]) == 0

    out = capsys.readouterr().out
    if form in {"table", "markdown"}:
        assert out.rstrip().endswith("no difference: every term is 0")
    assert "speed" not in out


def test_a_device_that_one_side_did_not_record_may_be_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [step(n, 100) for n in range(3)]
    known, unknown = (
        write(tmp_path / name, *steps, devices=devices)
        for name, devices in (("a.json", H100), ("b.json", [{"id": 0}]))
    )

    assert main(["compare", str(known), str(unknown)]) == 0

    assert "note: devices are NVIDIA H100 80GB HBM3 and" in capsys.readouterr().out


def test_the_table_adds_up(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *map(str, runs)]) == 0

    out = capsys.readouterr().out
    assert "4 steps" in out
    assert "kernel speed    55.000" in out


def test_the_api_gives_the_terms(runs: tuple[Path, Path]) -> None:
    found = pyprof2.compare(*runs)

    terms = dict(zip(found.terms["term"], found.terms["delta_ns"], strict=True))
    assert terms["kernel speed"] == 55_000
    a, b = found.comparison.step_ns
    assert sum(terms.values()) == b - a


def test_steps_are_chosen_by_number(runs: tuple[Path, Path]) -> None:
    found = pyprof2.compare(*runs, steps=0)

    assert found.comparison.steps == (1, 1)
    terms = dict(zip(found.terms["term"], found.terms["delta_ns"], strict=True))
    assert terms["kernel speed"] == 100_000
    with pytest.raises(UsageError, match="none of these steps"):
        pyprof2.compare(*runs, steps=(70, 80))


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("busy>10%", 3),
        ("busy>54us", 0),  # the interval around 55 us reaches lower
        ("busy>40us", 3),
        ("busy>0.04ms", 3),
        ("busy>60%", 0),
        ("idle>1%", 0),
        ("idle.sync>1us", 0),
    ],
)
def test_a_gate_fails_where_even_the_lower_end_exceeds_it(
    runs: tuple[Path, Path], gate: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *map(str, runs), "--fail-on", gate]) == code

    said = capsys.readouterr().err
    assert ("busy rose from 0.100 to 0.155 ms" in said) == (code == 3)


@pytest.mark.parametrize(
    "text", ["", "time", "time>", "time>x%", "speed>1%", "time>1MB", "memory>1ms"]
)
def test_what_is_no_gate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no gate"):
        parse_gate(text)


def test_a_gate_is_read() -> None:
    assert parse_gate("idle.sync > 2.5ms") == Gate("idle.sync", 2.5, "ms")
    assert parse_gate("memory>1MB") == Gate("memory", 1.0, "MB")


def test_memory_that_was_not_recorded_is_no_gate(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *map(str, runs), "--fail-on", "memory>1%"]) == 2
    assert "no memory was recorded" in capsys.readouterr().err


def test_runs_on_other_devices_are_not_comparable(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a100 = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]
    other = write(tmp_path / "other.json", step(0, 9), step(1, 9), devices=a100)

    assert main(["compare", str(runs[0]), str(other)]) == 2
    assert "devices are" in capsys.readouterr().err
    assert main(["compare", str(runs[0]), str(other), "--allow-mismatch"]) == 0


def test_another_model_is_not_comparable(runs: tuple[Path, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "other.json", step(0, 9, "aten::relu"), step(1, 9, "aten::relu"))

    with pytest.raises(UsageError, match="other models"):
        pyprof2.compare(runs[0], other)


def test_cells_that_a_spreadsheet_would_compute_get_an_apostrophe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a.json", *(step(n, 100, "=HYPERLINK(1)::x") for n in range(3)))
    b = write(tmp_path / "b.json", *(step(n, 120, "=HYPERLINK(1)::x") for n in range(3)))

    main(["-q", "compare", str(a), str(b), "--by", "op", "--format", "csv", "--csv-safe"])

    assert "\"'=HYPERLINK" in capsys.readouterr().out


def test_without_intervals_nothing_is_called_slower(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["-q", "compare", *map(str, runs), "--steps", "1"])

    out = capsys.readouterr().out
    assert "kernel speed" in out
    assert "slower" not in out


@pytest.mark.parametrize("form", ["csv", "json", "markdown", "parquet"])
def test_every_format_is_written(runs: tuple[Path, Path], tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"

    assert main(["compare", *map(str, runs), "--format", form, "-o", str(out)]) == 0
    assert out.stat().st_size > 0


def test_a_recording_of_the_cpu_is_compared_by_its_ops(tmp_path: Path) -> None:
    def trace(name: str, op_us: int) -> Path:
        host = {"ph": "X", "pid": 1, "tid": 1}
        mark = host | {"cat": "user_annotation", "dur": 900}
        events = [mark | {"name": f"ProfilerStep#{n}", "ts": n * 1000} for n in range(3)]
        op = host | {"cat": "cpu_op", "name": "aten::mm", "dur": op_us}
        return write(tmp_path / name, events, [op | {"ts": n * 1000 + 10} for n in range(3)])

    found = pyprof2.compare(trace("a.json", 50), trace("b.json", 80))

    terms = dict(zip(found.terms["term"], found.terms["delta_ns"], strict=True))
    assert {term: delta for term, delta in terms.items() if delta} == {
        "kernel speed": 30_000,
        "idle: outside_ops": -30_000,
    }


@pytest.mark.parametrize("name", ["rn50_v100_w0", "hta_df_index_v100_ddp", "dlrm_v100_w0"])
def test_windows_are_work_less_overlap_and_idle_time(
    shared_trace: Callable[[str], Path], name: str
) -> None:
    """The terms of a run against its own first step add up to the difference of the windows."""
    run = pyprof2.load(shared_trace(f"kineto/{name}.json.gz"))
    first = min(run.summary["steps"])

    found = pyprof2.compare(run, run, steps=(first, first + 1))

    totals = found.comparison.totals.set_index("metric")["a_ns"]
    causes = sum(value for metric, value in totals.items() if str(metric).startswith("idle."))
    assert causes == totals["idle"]
    assert totals["busy"] + totals["idle"] == totals["time"]


@pytest.mark.parametrize(
    ("late_us", "hidden"),
    [(0, ""), (60, ": 67 % of the gain is hidden by idle time, most of it host unrecorded")],
)
def test_the_first_line_says_what_half_precision_made_of_work_and_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], late_us: int, hidden: str
) -> None:
    """Kernels of 190 and then 100 us, whose steps end with them, the second ones launched late."""

    def recorded(name: str, dtype: str, dur: int, late: int) -> str:
        steps = []
        for number in range(4):
            at = 300 * number
            rows = step(number, dur, "aten::mm")
            for row in rows:
                row["ts"] += at - STEP_US * number
            rows[0]["dur"] = 20 + dur + late
            rows[1]["args"] = {
                "Input Dims": [[64, 64], [64, 64]], "Input type": [dtype, dtype],
                "Input Strides": [[64, 1], [64, 1]],
            }  # fmt: skip
            for row in rows[1:]:
                row["ts"] += late
            steps.append(rows)
        return str(write(tmp_path / name, *steps))

    a = recorded("a.json", "float", 190, 0)
    assert main(["compare", a, recorded("b.json", "c10::BFloat16", 100, late_us)]) == 0

    out = capsys.readouterr().out.splitlines()
    after = 120 + late_us
    assert out[0].startswith("f32 -> bf16: GPU work per step 190 -> 100 us (-47 %), step 2")
    assert f" -> {after} us" in out[0]
    assert out[0].endswith(hidden or " %)")
    assert "another batch" not in "".join(out)
    assert [line.split()[0] for line in out if line.startswith(("precision", "kernel"))][:1] == [
        "precision"
    ]


@pytest.mark.parametrize(("size", "other"), [(64, False), (32, True)])
def test_casts_that_take_longest_are_no_other_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int, *, other: bool
) -> None:
    """On the CPU: steps of a product of 1,100 us, in half precision with 3,000 us of casts."""

    def recorded(name: str, dtype: str, rows: int, casts: int) -> str:
        host = {"ph": "X", "pid": 1, "tid": 1}
        events: list[Event] = []
        for number in range(3):
            at = 10_000 * number
            product = {"Input Dims": [[rows, 8], [8, 8]], "Input type": [dtype, dtype]}
            cast = {
                "Input Dims": [[rows, 8], [rows, 8], []],
                "Input type": [dtype, "float", "Scalar"],
            }
            step = {"cat": "user_annotation", "name": f"ProfilerStep#{number}"}
            events += [
                host | step | {"ts": at, "dur": 1_200 + casts},
                host
                | {"cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 1_100, "args": product},
            ]
            if casts:
                args = {"ts": at + 1_150, "dur": casts, "args": cast}
                events.append(host | {"cat": "cpu_op", "name": "aten::copy_"} | args)
        return str(write(tmp_path / name, events))

    full = recorded("full.json", "float", 64, 0)
    assert main(["compare", full, recorded("half.json", "c10::BFloat16", size, 3_000)]) == 0

    out = capsys.readouterr().out
    assert out.startswith("f32 -> bf16: op work per step 1100 -> 4100 us (+273 %), step 1")
    assert ("another batch or model size" in out) == other
    assert ("another precision, most in f32 and bf16" in out) != other
