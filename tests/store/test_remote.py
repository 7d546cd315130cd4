"""What is far away, or on standard input, is read and written; what cannot be is one line."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.errors import OutputExistsError, RemoteError, StoreError, TraceError
from pyprof2.store.folder import read_manifest
from tests.builders import mm_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

fsspec = pytest.importorskip("fsspec", reason="needs the extra [remote]")

TRACE = json.dumps(mm_trace()).encode()


@pytest.fixture
def far() -> Iterator[Any]:
    """Return a file system that no path here leads to, and that is empty."""
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Return a function that puts bytes on standard input."""

    def put(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return put


def test_a_recording_far_away_is_read_as_one_here(far: Any, tmp_path: Path) -> None:
    far.pipe("/runs/net.json", TRACE)
    (tmp_path / "net.json").write_bytes(TRACE)

    run, same = pyprof2.load("memory://runs/net.json"), pyprof2.load(tmp_path / "net.json")

    assert run.kernels.equals(same.kernels)
    assert run.tables.manifest["sources"][0]["path"] == "memory://runs/net.json"


def test_a_folder_far_away_has_a_recording_for_each_rank(far: Any) -> None:
    far.pipe({f"/job/rank-{n}.json": TRACE for n in (0, 1)} | {"/job/notes.txt": b"x"})

    run = pyprof2.load("memory://job")

    assert run.summary["ranks"] == [0, 1]


def test_a_store_is_written_far_away_and_read_there(far: Any, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_bytes(TRACE)

    store = pyprof2.parse(tmp_path / "net.json", "memory://stores/net.pyprof2")

    assert str(store) == "memory://stores/net.pyprof2"
    assert far.exists("/stores/net.pyprof2/manifest.json")
    same = pyprof2.load(tmp_path / "net.json")
    assert pyprof2.load(store).kernels.equals(same.kernels)


def test_a_store_far_away_is_replaced_only_when_asked(far: Any, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_bytes(TRACE)
    target = "memory://stores/net.pyprof2"
    pyprof2.parse(tmp_path / "net.json", target)
    far.pipe("/stores/net.pyprof2/kernels/rank-7.parquet", b"of another job")

    with pytest.raises(OutputExistsError, match=f"{target}: exists; give another name, or --force"):
        pyprof2.parse(tmp_path / "net.json", target)
    pyprof2.parse(tmp_path / "net.json", target, force=True)

    assert not far.exists("/stores/net.pyprof2/kernels/rank-7.parquet")
    assert len(pyprof2.load(target).kernels) == 1


def test_a_folder_far_away_that_is_no_store_is_not_replaced(far: Any, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_bytes(TRACE)
    far.pipe("/runs/notes.txt", b"precious")

    with pytest.raises(RemoteError, match="memory://runs: a folder that is no store"):
        pyprof2.parse(tmp_path / "net.json", "memory://runs", force=True)

    assert far.cat("/runs/notes.txt") == b"precious"


def test_the_manifest_is_written_last_and_removed_first(
    far: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a connection that breaks leaves no store that is read as a whole one."""
    (tmp_path / "net.json").write_bytes(TRACE)
    target = "memory://stores/net.pyprof2"
    pyprof2.parse(tmp_path / "net.json", target)
    put = type(far).put_file

    def put_few(self: Any, source: str, name: str, **options: Any) -> None:
        if "kernels" in name:
            msg = "Connection reset by peer"
            raise ConnectionResetError(msg)
        put(self, source, name, **options)

    monkeypatch.setattr(type(far), "put_file", put_few)
    with pytest.raises(RemoteError, match=r"no connection \(Connection reset by peer\)"):
        pyprof2.parse(tmp_path / "net.json", target, force=True)

    assert not far.exists("/stores/net.pyprof2/manifest.json")


def test_names_far_away_lead_nowhere_else_here(far: Any, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_bytes(TRACE)
    store = pyprof2.parse(tmp_path / "net.json", tmp_path / "net.pyprof2")
    for path in (path for path in store.rglob("*") if path.is_file()):
        far.pipe(f"/net.pyprof2/{path.relative_to(store)}", path.read_bytes())
    far.store["/net.pyprof2/../../planted"] = far.store["/net.pyprof2/manifest.json"]

    run = pyprof2.load("memory://net.pyprof2")

    assert len(run.kernels) == 1
    assert not list(run.path.parent.parent.rglob("planted"))


def test_errors_name_the_address(far: Any) -> None:
    far.pipe("/runs/net.json", b"nonsense")
    far.pipe("/runs/net.pyprof2/notes.txt", b"")

    with pytest.raises(TraceError, match=r"^memory://runs/net.json: not a trace"):
        pyprof2.load("memory://runs/net.json")
    with pytest.raises(RemoteError, match=r"^memory://runs/none.json: nothing is there"):
        pyprof2.load("memory://runs/none.json")
    with pytest.raises((RemoteError, StoreError), match=r"^memory://runs/net.pyprof2: no "):
        pyprof2.load("memory://runs/net.pyprof2")
    with pytest.raises(RemoteError, match=r"^s9://runs/net.json: no kind of address"):
        pyprof2.load("s9://runs/net.json")


def test_a_damaged_recording_of_a_folder_far_away_has_its_own_name(
    far: Any, tmp_path: Path
) -> None:
    far.pipe({"/job/rank-0.json": TRACE, "/job/rank-1.json": b"nonsense"})

    with pytest.warns(UserWarning, match="memory://job/rank-1.json: not a trace"):
        store = pyprof2.parse("memory://job", tmp_path / "job.pyprof2")

    assert read_manifest(store)["failed"][0]["path"] == "memory://job/rank-1.json"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError("Access Denied"), r"no rights \(Access Denied\); give credentials"),
        (RuntimeError("403, message='Forbidden'"), r"no rights \(403, message='Forbidden'\)"),
        (
            RuntimeError("Could not connect to the endpoint"),
            "no connection .*; look at the network",
        ),
        (TimeoutError(), r"no connection \(TimeoutError\)"),
        (ImportError("Install s3fs to access S3"), "memory:// needs fsspec: pip install fsspec"),
        (KeyError("odd"), "it failed: KeyError 'odd'"),
        (
            OSError("no connection to https://a:b@h/x?key=secret"),
            r"\(no connection to https://h/x\)",
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_fails_below_is_one_line(
    error: Exception, words: str, far: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.pipe("/net.json", TRACE)

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(type(far), "get_file", fail)

    with pytest.raises(RemoteError, match=words) as caught:
        pyprof2.load("memory://net.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [TRACE, gzip.compress(TRACE)], ids=["plain", "gzip"])
def test_a_recording_on_standard_input_is_read(
    content: bytes, pipe: Callable[[bytes], None]
) -> None:
    pipe(content)

    run = pyprof2.load("-")

    assert len(run.kernels) == 1
    assert run.tables.manifest["sources"][0]["path"] == "-"


def test_what_is_wrong_with_standard_input_is_said_of_it(pipe: Callable[[bytes], None]) -> None:
    pipe(b"nonsense")

    with pytest.raises(TraceError, match=r"^-: not a trace"):
        pyprof2.load("-")


def test_what_parse_printed_leads_to_the_store(
    tmp_path: Path, pipe: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.json").write_bytes(TRACE)
    store = pyprof2.parse(tmp_path / "net.json")
    (tmp_path / "net.dict").write_text("net.pyprof2\n")

    beside = pyprof2.load(tmp_path / "net.dict")
    monkeypatch.chdir(tmp_path)
    pipe(b"net.pyprof2\n")

    assert beside.path == store
    assert len(pyprof2.load("-").kernels) == len(beside.kernels) == 1


def test_memory_far_away_is_shown(far: Any) -> None:
    far.pipe("/net.json", TRACE)

    found = pyprof2.memory("memory://net.json")

    assert str(found.path) == "memory://net.json"


def test_results_are_written_far_away(far: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from pyprof2.cli import main

    far.pipe("/net.json", TRACE)

    assert main(["prof", "memory://net.json", "-o", "memory://out/net.csv"]) == 0
    assert main(["report", "memory://net.json", "-o", "memory://out/net.html"]) == 0
    assert main(["prof", "memory://net.json", "-o", "memory://out/net.csv"]) == 1

    assert far.cat("/out/net.csv").startswith(b'"kernel_id"')
    assert b"<html" in far.cat("/out/net.html")[:200]
    assert "memory://out/net.csv: exists" in capsys.readouterr().err


def test_parse_says_where_the_store_is(
    far: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pyprof2.cli import main

    monkeypatch.chdir(tmp_path)
    far.pipe("/runs/net.json", TRACE)

    assert main(["parse", "memory://runs/net.json"]) == 0
    assert main(["parse", "net.pyprof2/../net.json", "-o", "memory://x.pyprof2"]) == 1
    assert main(["parse", "memory://runs/net.json", "-o", "memory://runs/net.pyprof2"]) == 0

    assert capsys.readouterr().out.splitlines() == ["net.pyprof2", "memory://runs/net.pyprof2"]
    assert Path("net.pyprof2/manifest.json").is_file()
