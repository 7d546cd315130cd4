"""`pyprof2 export` writes one kind of file, and says what an option is for."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.cli import main
from tests.builders import kineto_trace, mm_trace
from tests.reports.perfetto_reader import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Return the path of a recording of one `aten::mm`, a kernel of 40 us."""
    path = tmp_path / "mm.json"
    path.write_text(json.dumps(mm_trace()))
    return str(path)


def test_folded_stacks_go_to_stdout(invoke: Callable[..., Any], trace: str) -> None:
    result = invoke("export", trace, "--folded", "--of", "ops")

    assert (result.code, result.lines) == (0, ["aten::mm;gemm 40000"])


def test_a_perfetto_trace_goes_to_the_file(
    invoke: Callable[..., Any], trace: str, tmp_path: Path
) -> None:
    out = tmp_path / "mm.pftrace"

    result = invoke("export", trace, "--perfetto", "-o", str(out))

    assert (result.code, result.out) == (0, "")
    names = {each.name for each in read(out).slices}
    assert names >= {"aten::mm", "cudaLaunchKernel"}


@pytest.mark.parametrize(
    ("kind", "name"), [("--chrome", "a.json"), ("--perfetto", "a.pftrace"), ("--folded", "a.txt")]
)
def test_an_export_whose_name_ends_in_gz_is_compressed(
    kind: str, name: str, invoke: Callable[..., Any], trace: str, tmp_path: Path
) -> None:
    for out in (name, f"{name}.gz"):
        assert invoke("export", trace, kind, "-o", str(tmp_path / out)).code == 0

    assert gzip.decompress((tmp_path / f"{name}.gz").read_bytes()) == (tmp_path / name).read_bytes()


def test_a_database_is_not_compressed(
    invoke: Callable[..., Any], trace: str, tmp_path: Path
) -> None:
    result = invoke("export", trace, "--skyline", str(tmp_path / "net.sqlite.gz"))

    assert result.code == 2
    assert "a database, which is not compressed: FILE.sqlite" in result.err


def test_a_perfetto_trace_goes_through_a_pipe(trace: str, capfdbinary: Any) -> None:
    code = main(["export", trace, "--perfetto", "--no-findings"])

    out, err = capfdbinary.readouterr()
    assert (code, err) == (0, b"")
    assert out.startswith(b"\n")


def test_a_perfetto_trace_does_not_go_to_a_terminal(
    invoke: Callable[..., Any], trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)

    result = invoke("export", trace, "--perfetto")

    assert result.code == 2
    assert "is for programs, and stdout is a terminal; give -o FILE" in result.err


def test_nothing_is_replaced_without_force(
    invoke: Callable[..., Any], trace: str, tmp_path: Path
) -> None:
    out = tmp_path / "x.txt"
    out.write_text("mine")

    refused = invoke("export", trace, "--folded", "-o", str(out))
    assert (refused.code, out.read_text()) == (1, "mine")
    assert invoke("export", trace, "--folded", "-o", str(out), "--force").code == 0
    assert out.read_text() == "(none);aten::mm 40000\n"


def test_a_failed_export_leaves_no_file(
    invoke: Callable[..., Any], trace: str, tmp_path: Path
) -> None:
    store = pyprof2.parse(trace, tmp_path / "s.pyprof2")
    (store / "ops" / "rank-0.parquet").write_bytes(b"PAR1 is not enough")
    before = set(tmp_path.iterdir())

    result = invoke("export", str(store), "--perfetto", "-o", str(tmp_path / "x.pftrace"))

    assert result.code == 1
    assert "damaged" in result.err
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "one of the arguments --perfetto --chrome --folded --speedscope"),
        (["--perfetto", "--folded"], "not allowed with argument"),
        (["--perfetto", "--of", "ops"], "--of and --measure are for stacks"),
        (["--chrome", "--of", "ops"], "--of and --measure are for stacks"),
        (["--perfetto", "--measure", "flops"], "--of and --measure are for stacks"),
        (["--folded", "--no-findings"], "--no-findings is for --perfetto"),
        (["--folded", "--measure", "joules"], "invalid choice"),
        (["--folded", "--rank", "3"], "rank 3: no such rank; there is 0"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(
    invoke: Callable[..., Any], trace: str, options: list[str], said: str
) -> None:
    result = invoke("export", trace, *options)

    assert result.code == 2
    assert said in result.err


def test_what_the_sums_lack_is_said_on_stderr(invoke: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(kineto_trace({"cat": "cpu_op", "name": "x::y", "ts": 0, "dur": 9})))

    result = invoke("export", str(path), "--folded", "--measure", "flops")

    assert (result.code, result.out) == (0, "")
    assert result.err == "pyprof2: flops: not known of 100.0 % of the time, which adds nothing\n"
    assert invoke("export", str(path), "--folded", "--measure", "flops", "-q").err == ""
