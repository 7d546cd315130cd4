"""`batch --csv-files` writes what `skyline-evaluate` writes, with its headers."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.cli import main
from tests.kineto_events import kernel, launch, memory, op, step, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SIZES = (2, 4, 8)


def events(batch: int, device: int = 1) -> Iterator[Any]:
    """Yield three steps of 100 + 30 B us, the first 7 longer, with 5000 + 1000 B bytes."""
    for number in range(3):
        at = 2000 * number
        yield step(number, at, 100 + 30 * batch + (7 if number == 0 else 0))
        yield op("aten::mm", at + 10, 50, dims=[[batch, 16], [16, 16]], types=["float", "float"])
        yield launch(at + 20, number)
        yield kernel(at + 30, 10 + 3 * batch, number, name="gemm")
        for size, time in ((1000 * batch, 25), (-1000 * batch, 70)):
            sizes = {"Bytes": size, "Addr": 77, "Device Type": device, "Device Id": device - 1}
            sizes |= {"Total Allocated": 5000 + max(size, 0), "Total Reserved": 1 << 20}
            yield memory(at + time, **sizes)


def recordings(folder: Path, device: int = 1) -> list[str]:
    return [f"{b}={trace(folder / f'b{b}.json', *events(b, device))}" for b in SIZES]


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_each_step_is_a_trial_and_each_batch_has_its_lines(tmp_path: Path) -> None:
    assert main(["batch", *recordings(tmp_path), "--csv-files", str(tmp_path)]) == 0

    head, *measured = rows(tmp_path / "measure-batches.csv")
    assert head == ["batch_size", "trial", "samples_per_second", "memory_usage_bytes"]
    # The first step is left out, as in all of the model.
    assert [[float(cell) for cell in row] for row in measured] == [
        pytest.approx([b, trial, b * 1e6 / (100 + 30 * b), 5000 + 1000 * b])
        for b in SIZES
        for trial in range(2)
    ]
    head, *models = rows(tmp_path / "prediction-models.csv")
    assert head == [
        "batch_size", "run_time_ms_slope", "run_time_ms_bias", "memory_usage_bytes_slope",
        "memory_usage_bytes_bias",
    ]  # fmt: skip
    assert [[float(cell) for cell in row] for row in models] == [
        pytest.approx([b, 0.03, 0.1, 1000, 5000]) for b in SIZES
    ]


def test_memory_above_an_unknown_base_is_no_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["batch", *recordings(tmp_path, device=0), "--csv-files", str(tmp_path)]

    assert main(arguments) == 0

    assert {row[3] for row in rows(tmp_path / "measure-batches.csv")[1:]} == {""}
    assert {tuple(row[3:]) for row in rows(tmp_path / "prediction-models.csv")[1:]} == {("", "")}
    assert "no memory_usage_bytes" in capsys.readouterr().err


def test_the_folder_is_made_and_where_none_can_be_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = recordings(tmp_path)

    assert main(["batch", *recorded, "--csv-files", str(tmp_path / "new" / "one")]) == 0

    assert len(rows(tmp_path / "new" / "one" / "measure-batches.csv")) == 1 + 2 * len(SIZES)
    (tmp_path / "file").write_text("")
    capsys.readouterr()
    assert main(["batch", *recorded, "--csv-files", str(tmp_path / "file" / "x")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path / 'file' / 'x'}: no folder can be made there" in line


MACHINE = (
    "{'pyprof2':2,'kind':'process','host':'box','system':'Linux 6','name':'A CPU','bytes':60000}"
)


def told(batch: int) -> Iterator[Any]:
    """Yield the events on a CPU whose program tells what was there before, and the machine."""
    of_gpu = ("kernel", "cuda_runtime")
    yield from (event for event in events(batch, device=0) if event["cat"] not in of_gpu)
    yield op("{'pyprof2':2,'kind':'memory','moment':'begins','device':'cpu','bytes':5000}", 1, 0)
    yield op(MACHINE, 0, 0)


def test_on_a_cpu_peak_and_largest_batch_are_known_as_on_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = [f"{b}={trace(tmp_path / f'b{b}.json', *told(b))}" for b in SIZES]

    assert main(["batch", *recorded, "--csv-files", str(tmp_path)]) == 0

    # (5000 + 1000 b) · 1.02 bytes fit into those of the machine.
    largest = max(b for b in range(1, 99) if 5000 + 1000 * b <= 60_000 * 0.98)
    out = capsys.readouterr().out
    assert f"largest batch that fits: about {largest};" in out
    assert "60.000 kB (recorded, A CPU)" in out
    measured = rows(tmp_path / "measure-batches.csv")[1:]
    assert [row[3] for row in measured] == [str(5000 + 1000 * b) for b in SIZES for _ in range(2)]
    models = rows(tmp_path / "prediction-models.csv")[1:]
    assert [[float(c) for c in row[3:]] for row in models] == [pytest.approx([1000, 5000])] * 3
    assert main(["batch", *recorded, "--memory", "30kB"]) == 0
    smaller = max(b for b in range(1, 99) if 5000 + 1000 * b <= 30_000 * 0.98)
    assert f"largest batch that fits: about {smaller};" in capsys.readouterr().out


def test_files_that_are_there_stay_unless_force_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prediction-models.csv").write_text("mine")
    arguments = ["batch", *recordings(tmp_path), "--csv-files", str(tmp_path)]

    assert main(arguments) == 1

    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (tmp_path / "prediction-models.csv").read_text() == "mine"
    assert not (tmp_path / "measure-batches.csv").exists()
    assert main([*arguments, "--force"]) == 0
    assert len(rows(tmp_path / "prediction-models.csv")) == 1 + len(SIZES)


def test_a_real_sweep_of_single_passes_has_no_steps_and_no_line_in_the_batch(
    shared_trace: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = (2, 16, 64, 256)
    inputs = [f"{b}={shared_trace(f'more/kineto/part_a100_b{b}.json.gz')}" for b in sizes]

    assert main(["batch", *inputs, "--csv-files", str(tmp_path)]) == 0

    # The peaks stand in the truth file of the traces.
    peaks = (35_727_872, 170_874_368, 590_053_376, 6_588_780_544)
    assert rows(tmp_path / "measure-batches.csv")[1:] == [
        [str(b), "0", "", str(peak)] for b, peak in zip(sizes, peaks, strict=True)
    ]
    models = rows(tmp_path / "prediction-models.csv")[1:]
    assert models == [[str(b), "", "", "", ""] for b in sizes]
    assert len(capsys.readouterr().err.splitlines()) == 2
