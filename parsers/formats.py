"""Find what a file is, before it is read: a recording of one of the formats, or something else.

One more format is one more `TraceFormat` here, and its own modules.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

from pyprof2.problems import WITH_GPU, Advice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyprof2.recording import Recording

_INIT: Final = "call pyprof2.init() in the script"
_GZIP: Final = b"\x1f\x8b"
REPORT_MAGIC: Final = b"NVIDIA Tegra Profiler Report"
"""How every report of Nsight Systems begins."""


class Reader(Protocol):
    """The functions of a module that reads a format."""

    def read_recordings(
        self, path: Path, folder: Path, on_progress: Callable[[int], None] | None = None
    ) -> list[Recording]:
        """Return the recordings in a file, one per process; their tables go into `folder`."""

    def holds_work(self, path: Path) -> bool:
        """Return whether any op or GPU activity is in a file; reads no further than the first."""


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format of recordings.

    Attributes:
        name: as the table `trace` has it in `profiler`.
        files: its files, in words for people.
        source: what makes them, in words.
        suffixes: of its files; the longest that fits is no part of the name of the store.
        recognises: whether a file that begins with these bytes is one.
        reader: the module that reads them, by name: it is imported when a file is read.
        advice: how to record with it what a recording lacks.
        sole_suffixes: those that no other format has; the reader is asked what is wrong with a
            file that has one and is not recognised.
        exports: the suffix of a file, and that of its export; beside it the first is not read.
        is_session: whether a file is one session of several processes, on one clock.
    """

    name: str
    files: str
    source: str
    suffixes: tuple[str, ...]
    recognises: Callable[[bytes], bool]
    reader: str
    advice: Advice
    sole_suffixes: tuple[str, ...] = ()
    exports: tuple[tuple[str, str], ...] = ()
    is_session: bool = False

    def load_reader(self) -> Reader:
        """Import the module that reads the format."""
        return cast("Reader", import_module(self.reader))


def _is_kineto(head: bytes) -> bool:
    """Whether a file that begins with `head` may be a Kineto trace: gzip, or JSON."""
    before_json = b"\xef\xbb\xbf \r\n\t"
    return head.startswith(_GZIP) or head.lstrip(before_json)[:1] in (b"{", b"[")


_BOTH: Final = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
_SHAPES: Final = "profile(record_shapes=True)"
_KINETO: Final = TraceFormat(
    name="kineto",
    files="a Kineto .json or .json.gz",
    source="the JSON that torch.profiler exports",
    suffixes=(".pt.trace.json.gz", ".pt.trace.json", ".json.gz", ".json", ".gz"),
    recognises=_is_kineto,
    reader="pyprof2.parsers.kineto",
    advice=Advice(
        gpu=f"{WITH_GPU}{_BOTH}",
        ops=_BOTH,
        launches="start recording before the work: use a schedule with warm-up steps",
        outside="wrap own CUDA calls in record_function or a custom op",
        other_threads="torch.profiler records the thread that starts it: "
        "pyprof2 capture --kineto records all, as does profile(experimental_config=…) with "
        "profile_all_threads=True",
        shapes=_SHAPES,
        inputs=_SHAPES,
        layers=f"profile(with_stack=True, with_modules=True), or {_INIT}",
        sources=f"profile(with_stack=True), or {_INIT}",
        steps="profile(schedule=torch.profiler.schedule(…)), and prof.step() at the end of each "
        "iteration",
        threads="record from the forward pass on, and every thread: "
        "profile(experimental_config=_ExperimentalConfig(profile_all_threads=True))",
        stacks="profile(with_stack=True), and a file that keeps its frames",
        memory="profile(profile_memory=True)",
        allocations="profile(profile_memory=True), or pyprof2 capture --memory",
        later="record later steps: schedule(wait=…, warmup=…), or pyprof2 capture --steps A:B",
        problem="if it matters, record with another version of PyTorch",
    ),
)


def _is_nsight(head: bytes) -> bool:
    """Whether a file that begins with `head` may be an export or a report of nsys."""
    return head.startswith((b"SQLite format 3\x00", REPORT_MAGIC))


_NSYS_SHAPES: Final = f"{_INIT}, or nsys profile --pytorch=autograd-shapes-nvtx"
_NSIGHT: Final = TraceFormat(
    name="nsight",
    files="a .sqlite or .nsys-rep of Nsight Systems",
    source="the SQLite that nsys exports",
    suffixes=(".sqlite", ".nsys-rep"),
    recognises=_is_nsight,
    reader="pyprof2.parsers.nsight",
    advice=Advice(
        gpu=f"{WITH_GPU}nsys profile --trace=cuda,nvtx",
        ops=_NSYS_SHAPES,
        launches="let nsys start before the work, and export the whole of its report",
        outside="mark the functions that launch them with pyprof2.wrap()",
        other_threads="call pyprof2.init() before the threads start, or use pyprof2 capture",
        shapes=_NSYS_SHAPES,
        inputs=_INIT,
        layers=_INIT,
        sources=_INIT,
        steps=_INIT,
        threads="record from the forward pass on",
        stacks="nsys profile --python-sampling=true",
        memory="nsys profile --cuda-memory-usage=true",
        allocations="nsys does not; pyprof2 capture --memory",
        later="record later: pyprof2 capture --steps A:B, or nsys profile --delay=SECONDS",
        problem="export the report again, with a newer nsys",
    ),
    sole_suffixes=(".sqlite", ".nsys-rep"),
    exports=((".nsys-rep", ".sqlite"),),
    is_session=True,
)

FORMATS: Final[tuple[TraceFormat, ...]] = (_KINETO, _NSIGHT)
"""The formats that are read."""
SESSIONS: Final = frozenset(known.name for known in FORMATS if known.is_session)
"""Those of which a file is one session of several processes, on one clock."""

_SUFFIXES: Final = [suffix for known in FORMATS for suffix in known.suffixes]

ENDINGS: Final = tuple(dict.fromkeys("." + suffix.rpartition(".")[2] for suffix in _SUFFIXES))
"""The endings of the names of recordings."""


def find_format(name: str, head: bytes) -> TraceFormat | None:
    """Return the format of a file: by its content, else by a suffix that only one format has.

    Args:
        name: of the file.
        head: its first bytes.
    """
    recognised = (known for known in FORMATS if known.recognises(head))
    named = (known for known in FORMATS if name.endswith(known.sole_suffixes or ("\0",)))
    return next(recognised, None) or next(named, None)


def advice_of(profilers: Sequence[str]) -> Advice:
    """Return how to record what is missing, with the first of these profilers that is known."""
    named = [known for name in profilers for known in FORMATS if known.name == name]
    return (named or list(FORMATS))[0].advice


def stem_of(name: str) -> str:
    """Return the name of a recording without its suffix: `net` for `net.json.gz`."""
    fitting = [suffix for suffix in _SUFFIXES if name.endswith(suffix)]
    return name.removesuffix(max(fitting, key=len, default="")) or name


def in_words(parts: list[str]) -> str:
    """Return parts of a sentence as a list in words: `a, b or c`."""
    return f"{', '.join(parts[:-1])} or {parts[-1]}" if len(parts) > 1 else "".join(parts)


NSYS_SQLITE: Final = (
    "of a report of Nsight Systems pyprof2 reads the export as SQLite: nsys export --type sqlite "
    "REPORT.nsys-rep"
)
"""The remedy for other exports."""
_NSYS_LINES: Final = re.compile(
    rb'\A\{(?![^\n]*"traceEvents")[^\n]*"'
    rb'(?:CudaEvent|NvtxEvent|TraceProcessEvent|[gG]lobal[PT]id)"'
)
_TAR_AT: Final = 257
_ARCHIVE: Final = "a tar archive; unpack it, and name the trace in it"
_BEGINNINGS: Final = (
    (b"PK\x03\x04", "a zip archive; unpack it, and name the trace in it"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first: zstd -d FILE"),
    (b"\xfd7zXZ\x00", "compressed with xz; unpack it first: xz -d FILE"),
    (b"BZh", "compressed with bzip2; unpack it first: bzip2 -d FILE"),
    (b"PAR1", f"a Parquet file; {NSYS_SQLITE}"),
    (b"ARROW1", f"an Arrow file; {NSYS_SQLITE}"),
    (b"\xff\xff\xff\xff", f"an Arrow file; {NSYS_SQLITE}"),
    (b"\x89HDF", f"an HDF5 file; {NSYS_SQLITE}"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it, and name the trace in it"),
)
_PICKLE: Final = re.compile(rb"\A\x80[\x02-\x05]")
_PYPROF_DICT: Final = re.compile(rb"^\{'kShortName':", re.MULTILINE)
_OF_PYPROF: Final = (
    "the output of PyProf's parse, which lacks when kernels ran; name the export of Nsight Systems "
    "that it was made from, whose markers of PyProf are read, or record again: pyprof2 capture"
)
_SNAPSHOT: Final = (
    "a pickle; if torch.cuda.memory._dump_snapshot wrote it, 'pyprof2 memory FILE' reads it"
)
_PATTERNS: Final = (
    (_NSYS_LINES, f"a file of JSON lines; {NSYS_SQLITE}"),
    (_PICKLE, _SNAPSHOT),
    (_PYPROF_DICT, _OF_PYPROF),
)
_PERFETTO: Final = (".pftrace", ".perfetto-trace")
_SQLITE_TABLES: Final = {
    "StringTable": "a recording of nvprof (.nvvp), which pyprof2 does not read and nothing "
    "converts; record again with Nsight Systems or torch.profiler: pyprof2 capture",
    "rocpd_": "a rocpd database of rocprofv3, which pyprof2 does not read; record with "
    "torch.profiler, which works on AMD GPUs too",
}


def other_file(name: str, head: bytes) -> str | None:
    """Return what a file is that is no trace, and what to do; None where it may be one.

    Args:
        name: of the file.
        head: its first 4096 bytes or so.
    """
    known = (text for beginning, text in _BEGINNINGS if head.startswith(beginning))
    if (found := next(known, None)) is not None:
        return found
    patterns = (text for pattern, text in _PATTERNS if pattern.search(head))
    if (found := next(patterns, None)) is not None:
        return found
    if _is_tar(head) or (head.startswith(_GZIP) and _is_tar(_inflated(head))):
        return _ARCHIVE
    if name.lower().endswith(_PERFETTO):
        return "a Perfetto trace; let the profiler write JSON (Kineto) instead"
    return None


def other_database(tables: list[str]) -> str | None:
    """Return what an SQLite file with these tables is, and what to do; None: unknown."""
    known = (
        text for start, text in _SQLITE_TABLES.items() if any(t.startswith(start) for t in tables)
    )
    return next(known, None)


def _is_tar(head: bytes) -> bool:
    return head[_TAR_AT : _TAR_AT + 5] == b"ustar"


def _inflated(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 2 * _TAR_AT)
    except zlib.error:
        return b""
