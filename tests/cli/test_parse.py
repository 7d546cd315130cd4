"""`pyprof2 parse`, and what every command does with a file that is no good."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import mm_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a trace of one kernel."""
    path = tmp_path / "mm.json"
    path.write_text(json.dumps(mm_trace()))
    return path


def test_parse_prints_the_store_and_hints_at_the_next_command(
    trace: Path, invoke: Callable[..., Any]
) -> None:
    store = trace.with_name("mm.pyprof2")

    result = invoke("parse", trace)

    assert (result.code, result.out) == (0, f"{store}\n")
    assert result.err == f"pyprof2: next: pyprof2 prof {store} --by op\n"
    assert (store / "manifest.json").is_file()


def test_a_store_is_the_same_profile_as_its_trace(trace: Path, invoke: Callable[..., Any]) -> None:
    store = invoke("parse", trace, "-q").out.strip()

    from_store, from_trace = (invoke("prof", path, "--csv") for path in (store, trace))

    assert from_store.out == from_trace.out
    assert '"aten::mm"' in from_store.out


def test_a_store_that_is_there_is_not_overwritten(trace: Path, invoke: Callable[..., Any]) -> None:
    invoke("parse", trace)

    refused, forced = invoke("parse", trace), invoke("parse", trace, "--force")

    assert (refused.code, refused.out) == (1, "")
    assert "--force" in refused.err
    assert forced.code == 0


def test_the_store_goes_where_it_is_told(
    trace: Path, invoke: Callable[..., Any], tmp_path: Path
) -> None:
    assert invoke("parse", trace, "-o", tmp_path / "s").out == f"{tmp_path / 's'}\n"


def _no_gzip(folder: Path) -> Path:
    path = folder / "x.json.gz"
    path.write_bytes(b"\x1f\x8b but no more")
    return path


def _named(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return make


def _other_schema(folder: Path) -> Path:
    path = folder / "old.pyprof2"
    path.mkdir()
    (path / "manifest.json").write_text('{"schema_version": 999}')
    return path


BAD = [
    pytest.param(lambda folder: folder / "no.json", "No such file", id="no such file"),
    pytest.param(lambda folder: folder, "no traces", id="no traces in the folder"),
    pytest.param(_named("x.json", b""), "empty", id="empty"),
    pytest.param(_named("x.json", b"hello\n"), "torch.profiler", id="no json"),
    pytest.param(_named("x.json", b'{"a": 1}'), "no traceEvents", id="no traceEvents"),
    pytest.param(_named("x.gz", gzip.compress(b"hello")), "torch.profiler", id="no json in gzip"),
    pytest.param(_no_gzip, "x.json.gz", id="no gzip"),
    pytest.param(_named("x.sqlite", b"SQLite format 3\0"), "SQLite", id="sqlite"),
]


@pytest.mark.parametrize("command", ["parse", "prof", "check"])
@pytest.mark.parametrize(("make", "words"), BAD)
def test_bad_input_is_one_line_and_nothing_is_written(
    command: str,
    make: Callable[[Path], Path],
    words: str,
    invoke: Callable[..., Any],
    tmp_path: Path,
) -> None:
    path = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    result = invoke(command, path)

    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"pyprof2: {path}: ")
    assert result.err.count("\n") == 1
    assert words in result.err
    assert "; " in result.err  # what to do about it
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", ["prof", "check"])
def test_a_store_of_another_schema_is_refused_with_what_makes_it_anew(
    command: str, invoke: Callable[..., Any], tmp_path: Path
) -> None:
    result = invoke(command, _other_schema(tmp_path))

    assert (result.code, result.out) == (1, "")
    assert "pyprof2 parse --force" in result.err
    assert result.err.count("\n") == 1


def test_a_trace_that_was_cut_off_gives_what_is_whole(
    trace: Path, invoke: Callable[..., Any]
) -> None:
    text = trace.read_text()
    trace.write_text(text[: text.rindex("}")])
    trace.write_text(trace.read_text()[:-30])

    result = invoke("prof", trace, "--csv", "-c", "op")

    assert result.code == 0
    assert "aten::mm" in result.out
    assert "problem" in invoke("check", trace).out


def test_a_folder_of_traces_is_a_rank_each(
    trace: Path, invoke: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(3):
        shutil.copy(trace, folder / f"rank{rank}.json")

    result = invoke("prof", folder, "--by", "rank", "--csv", "-c", "rank,time_ns")

    assert result.lines == ['"rank","time_ns"', "0,40000", "1,40000", "2,40000"]
