"""What a file is: formats are told apart by content, then by a suffix that only one has.

Files that lie where traces do, made by the tools that make them, are refused with what to do.
"""

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
from pyprof2.parsers import find_traces, read_recordings
from pyprof2.parsers.formats import FORMATS, find_format, in_words, other_file, stem_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SQLITE = b"SQLite format 3\x00"


@pytest.mark.parametrize(
    ("name", "head", "format_name"),
    [
        ("x.json", b'{"traceEvents": []}', "kineto"),
        ("x", b"\x1f\x8b\x08", "kineto"),
        ("x.sqlite", b" \n[", "kineto"),
        ("x.json", SQLITE, "nsight"),
        ("x", b"NVIDIA Tegra Profiler Report", "nsight"),
        ("x.nsys-rep", b"nonsense", "nsight"),
        ("x.json", b"nonsense", None),
        ("x.gz", b"", None),
    ],
)
def test_content_comes_before_the_name(name: str, head: bytes, format_name: str | None) -> None:
    found = find_format(name, head)

    assert (found and found.name) == format_name


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("net.json", "net"),
        ("net.json.gz", "net"),
        ("net.1.pt.trace.json.gz", "net.1"),
        ("net.pt.trace.json", "net"),
        ("net.gz", "net"),
        ("net.sqlite", "net"),
        ("net.nsys-rep", "net"),
        ("net.v2", "net.v2"),
        (".json", ".json"),
    ],
)
def test_a_store_is_named_after_its_recording(name: str, stem: str) -> None:
    assert stem_of(name) == stem


def test_every_format_has_a_name_of_its_own_and_a_reader() -> None:
    assert len({known.name for known in FORMATS}) == len(FORMATS)
    for known in FORMATS:
        reader = known.load_reader()
        assert callable(reader.read_recordings)
        assert callable(reader.holds_work)


def test_a_list_in_words() -> None:
    assert in_words(["a", "b", "c"]) == "a, b or c"
    assert in_words(["a"]) == "a"


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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("r.parquet", b"PAR1\x15\x04", id="parquet"),
        pytest.param("r.arrow", b"ARROW1\0\0\xff\xff\xff\xff", id="arrow"),
        pytest.param("r.arrows", b"\xff\xff\xff\xff\x10\0\0\0", id="a stream of arrow"),
        pytest.param("r.h5", b"\x89HDF\r\n\x1a\n", id="hdf"),
        pytest.param(
            "r.jsonl", b'{"Type":48,"CudaEvent":{"startNs":"1"}}\n{"Type":59,"NvtxEvent":{}}\n',
            id="lines",
        ),
        pytest.param(
            "r.json", b'{"globalTid":281,"start":1,"end":2}\n{"globalTid":281}\n', id="rows"
        ),
    ],
)  # fmt: skip
def test_other_exports_of_nsys_are_told_how_to_become_sqlite(
    name: str, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(content)

    with pytest.raises(TraceError, match="nsys export --type sqlite"):
        read_recordings(file, tmp_path)


def test_a_folder_of_tables_of_nsys_says_so_too(tmp_path: Path) -> None:
    (tmp_path / "NVTX_EVENTS.parquet").write_bytes(b"PAR1")

    with pytest.raises(TraceError, match="nsys export --type sqlite"):
        find_traces(tmp_path)


def test_a_trace_that_names_events_of_cuda_is_a_trace() -> None:
    head = b'{"schemaVersion": 1, "traceEvents": [{"name": "CudaEvent"}]}'

    assert other_file("t.json", head) is None
