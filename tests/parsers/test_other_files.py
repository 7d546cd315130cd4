"""Files that lie where traces do, made by the tools that make them, are refused with what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from pyprof2.errors import TraceError
from pyprof2.parsers import read_recordings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TRACE = b'{"traceEvents": []}'
PYPROF_DICT = "{'kShortName': 'gemm', 'kDuration': 4000, 'layer': [], 'trace': []}\n"


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net.json", TRACE)


def _tar(path: Path, mode: str = "w") -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        member = tarfile.TarInfo("net.json")
        member.size = len(TRACE)
        archive.addfile(member, io.BytesIO(TRACE))


def _rocpd(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE rocpd_kernel_dispatch_0f3 (id INTEGER)")
    database.close()


def _nvprof(path: Path) -> None:
    """Write tables of nvprof's, of which Nsight Systems has some by the same names."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (start INT, end INT)")
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT)")
        database.execute("CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT)")
    database.close()


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("net.zip", _zip, "a zip archive; unpack it"),
        ("net.json.gz", lambda path: _tar(path, "w:gz"), "a tar archive; unpack it"),
        ("net.tar", _tar, "a tar archive; unpack it"),
        ("net.json.zst", lambda p: p.write_bytes(b"\x28\xb5\x2f\xfd\x04\x00"), "zstd -d FILE"),
        ("net.json.xz", lambda p: p.write_bytes(lzma.compress(TRACE)), "xz -d FILE"),
        ("net.json.bz2", lambda p: p.write_bytes(bz2.compress(TRACE)), "bzip2 -d FILE"),
        ("net.pftrace", lambda p: p.write_bytes(b"\n\x04\x10\x01"), "a Perfetto trace; let"),
        ("net.sqlite", _rocpd, "a rocpd database of rocprofv3"),
        ("net.sql", _nvprof, r"a recording of nvprof \(.nvvp\).*; record again with Nsight"),
        ("net.nvvp", _nvprof, r"a recording of nvprof \(.nvvp\).*; record again with Nsight"),
        ("net.dict", lambda p: p.write_text(PYPROF_DICT), "PyProf's parse.*; name the export"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_what_to_do(
    name: str, make: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    make(tmp_path / name)

    with pytest.raises(TraceError, match=words) as caught:
        read_recordings(tmp_path / name, tmp_path)

    assert str(caught.value).startswith(f"{tmp_path / name}: ")


@pytest.mark.parametrize("name", ["net.zip", "net.tar", "net.json"])
def test_a_trace_is_read_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(TRACE))

    assert len(read_recordings(tmp_path / name, tmp_path)) == 1
