"""Many files: one that cannot be read leaves the others; parsed again, only what is missing is."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

import pyprof2
from pyprof2.cli import main
from pyprof2.errors import LeftOutWarning, OutputExistsError, TraceError
from pyprof2.pipeline import parsing
from pyprof2.store.folder import STORED, read_manifest, read_table
from tests.kineto_events import kernel, launch, op, trace

if TYPE_CHECKING:
    from pathlib import Path

RANKS: Final = 3


def _rank(folder: Path, rank: int, world: int = RANKS) -> Path:
    """Write the trace of a rank: an op, its launch, and a kernel whose length tells the rank."""
    events = [op("aten::mm", 1, 9), launch(2, 7), kernel(20, 10 + rank, 7)]
    around = {"rank": rank, "world_size": world}
    return trace(folder / f"rank{rank}.json", *events, distributedInfo=around)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the traces of a job."""
    found = tmp_path / "job"
    found.mkdir()
    for rank in range(RANKS):
        _rank(found, rank)
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files that are read from now on."""
    names: list[str] = []
    step = parsing._read_file

    def noted(file: Path, *rest: Any) -> Any:
        names.append(file.name)
        return step(file, *rest)

    monkeypatch.setattr(parsing, "_read_file", noted)
    return names


def _assert_same(store: Path, expected: Path) -> None:
    for name in STORED:
        assert read_table(store, name).equals(read_table(expected, name)), name
    one, other = (read_manifest(path) for path in (store, expected))
    assert one == other


def test_a_file_that_cannot_be_read_is_left_out_and_named(folder: Path, tmp_path: Path) -> None:
    (folder / "rank1.json").write_text("hello")

    with pytest.warns(LeftOutWarning, match=r"left out of .*: .*rank1.json: not a trace"):
        store = pyprof2.parse(folder, tmp_path / "s")

    (failed,) = read_manifest(store)["failed"]
    assert failed["path"] == str(folder / "rank1.json")
    assert read_table(store, "kernels")["dur_ns"].to_pylist() == [10_000, 12_000]
    assert read_table(store, "kernels")["rank"].to_pylist() == [0, 2]


def test_the_command_says_what_is_left_out_and_fails(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rank1.json").write_text("hello")

    assert main(["parse", str(folder), "-o", str(tmp_path / "s")]) == 1

    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 's'}\n"
    assert "1 of 3 recordings are left out" in err.splitlines()[-1]
    assert main(["check", str(tmp_path / "s")]) == 0
    assert "left out: " in capsys.readouterr().out


def test_where_no_file_can_be_read_there_is_no_store(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        file.write_text("hello")

    with pytest.raises(TraceError, match=r"rank0.json: not a trace"):
        pyprof2.parse(folder, tmp_path / "s")

    assert not (tmp_path / "s").exists()


def test_parsed_again_only_what_is_missing_is_read(
    folder: Path, tmp_path: Path, read: list[str]
) -> None:
    whole = pyprof2.parse(folder, tmp_path / "whole")
    text = (folder / "rank1.json").read_text()
    (folder / "rank1.json").write_text(text[:40])
    with pytest.warns(LeftOutWarning):
        store = pyprof2.parse(folder, tmp_path / "s")
    (folder / "rank1.json").write_text(text)
    read.clear()

    assert pyprof2.parse(folder, tmp_path / "s") == store

    assert read == ["rank1.json"]
    _assert_same(store, whole)
    pyprof2.parse(folder, tmp_path / "s")
    assert read == ["rank1.json"], "nothing is missing"


def test_a_file_with_other_content_is_read_again(
    folder: Path, tmp_path: Path, read: list[str]
) -> None:
    store = pyprof2.parse(folder, tmp_path / "s")
    _rank(folder, 2).write_text((folder / "rank2.json").read_text().replace('"dur":12', '"dur":99'))
    read.clear()

    pyprof2.parse(folder, tmp_path / "s")

    assert read == ["rank2.json"]
    _assert_same(store, pyprof2.parse(folder, tmp_path / "whole"))


def test_what_would_change_the_ranks_that_are_kept_has_all_of_them_read(
    folder: Path, tmp_path: Path, read: list[str]
) -> None:
    store = pyprof2.parse(folder, tmp_path / "s")
    _rank(folder, 3, world=4)  # of another job, as it says: every rank has a warning
    read.clear()

    pyprof2.parse(folder, tmp_path / "s")

    assert sorted(set(read)) == [f"rank{rank}.json" for rank in range(4)]
    _assert_same(store, pyprof2.parse(folder, tmp_path / "whole"))


@pytest.mark.parametrize("change", ["file gone", "root", "one file", "version"])
def test_a_store_of_something_else_is_refused(change: str, folder: Path, tmp_path: Path) -> None:
    store = pyprof2.parse(folder, tmp_path / "s")
    manifest = (store / "manifest.json").read_text()
    paths, root = [folder], None
    if change == "file gone":
        (folder / "rank0.json").unlink()
    elif change == "root":
        root = tmp_path
    elif change == "one file":
        paths = [folder / "rank0.json"]
    else:
        changed = json.loads(manifest) | {"tool": "pyprof2 0.0.1"}
        (store / "manifest.json").write_text(manifest := json.dumps(changed))

    with pytest.raises(OutputExistsError):
        pyprof2.parse(paths, store, source_root=root)

    assert (store / "manifest.json").read_text() == manifest


def test_a_damaged_archive_among_ranks_is_left_out_by_workers(folder: Path, tmp_path: Path) -> None:
    with gzip.open(folder / "rank9.json.gz", "wb") as file:
        file.write(b"hello")
    shutil.copy(folder / "rank9.json.gz", folder / "rank8.json.gz")

    with pytest.warns(LeftOutWarning) as noted:
        store = pyprof2.parse(folder, tmp_path / "s", jobs=2)

    assert len(noted) == 2
    assert len(read_manifest(store)["ranks"]) == RANKS
