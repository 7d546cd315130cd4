"""Read Kineto traces: the Chrome JSON that `torch.profiler` exports, plain or gzip.

Only this module, and those that begin with its name, know Kineto's words. Tried with the dialects
of 2021 (capital categories, string thread ids, whole µs), 2022-23 (the external id repeats the
correlation id), 2024 (ns in decimals, absolute or on a base time) to 2026, from NVIDIA, AMD and
CPU-only machines.

The file is cut into chunks, a scanner makes columns of each, and a builder tables of these; see
`pyprof2.parsers._kineto_columns`.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from pyprof2 import is_pure, problems
from pyprof2.errors import TraceError
from pyprof2.markers import COMPILED_KEY
from pyprof2.parsers._columns import Meaning
from pyprof2.parsers._json import (
    AROUND_BYTES_MAX,
    JsonStream,
    inflate,
    open_trace,
)
from pyprof2.parsers._kineto_columns import BEGIN, END, FOREIGN, FOREIGN_KINDS, UNKNOWN
from pyprof2.parsers._kineto_devices import CounterTable, DeviceTables
from pyprof2.parsers._kineto_ops import OpTable
from pyprof2.parsers._kineto_pairs import PairedEvents
from pyprof2.parsers._kineto_places import join_places, layers_of, read_places
from pyprof2.parsers._kineto_ranges import RangeTables
from pyprof2.parsers._kineto_scanner import EventScanner, RecordedJob
from pyprof2.parsers._kineto_values import TableContext, first_of, to_int
from pyprof2.parsers._labels import (
    LayerPath,
    cpu_device,
    entry_of,
    machine_of,
    may_be_step,
)
from pyprof2.parsers.compile_notes import read_notes
from pyprof2.parsers.graph_annotations import find_annotations, read_annotations
from pyprof2.problems import (
    BARE_BACKSLASHES,
    EXTERNAL_IDS,
    FRAMES_LOST,
    MARKER_RANK,
    NODE_NOTES,
    with_detail,
)
from pyprof2.recording import ANNOTATED_PEAKS, ANNOTATED_RANK, Recording, Spool, host_pids
from pyprof2.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyprof2.markers import PlacesById
    from pyprof2.parsers._kineto_columns import EventColumns, Scan, Scanner
    from pyprof2.recording import CompiledGraph, CompileEvent, OpPlaces

SCANNERS: Final[dict[str, type[Scanner]]] = {"python": EventScanner}
"""The scanners by name; their columns are equal. One is there only where a compiler was."""
with contextlib.suppress(ImportError):
    from pyprof2.parsers._kineto_native import NativeScanner

    SCANNERS["compiled"] = NativeScanner

# The name of our own marker begins with a brace, and no op's does.
_WORK: Final = re.compile(
    rb'"cat":\s{0,9}"(?:cpu_op",\s{0,9}"name":\s{0,9}"[^{]|kernel"|gpu_memcpy"|gpu_memset")'
)
_WORK_BYTES: Final = 80
"""No less than any text that the pattern finds."""
_TORN: Final = re.compile(r"[\b\f\n\r\t]")
"""Characters of a Python frame's name only where a backslash of its path was an escape."""
_RANK_END: Final = 10**9
_HOST_IN_NAME: Final = re.compile(r"(.+)_\d+\.\d+\.pt\.trace\.json(?:\.gz)?")
"""How `tensorboard_trace_handler` names its files: machine and process, then the time."""


class _BareBackslashError(Exception):
    """A string has a backslash that escapes nothing: read again, as none in the file does."""


def holds_work(path: Path) -> bool:
    """Return whether there is an op or a kernel among the events of a trace."""
    with open_trace(path) as file:
        end = b""
        for block in inflate(file):
            if _WORK.search(end + block):
                return True
            end = block[-_WORK_BYTES:]
    return False


def read_recordings(
    path: Path,
    folder: Path,
    on_progress: Callable[[int], None] | None = None,
    *,
    scanner: str | None = None,
) -> list[Recording]:
    """Return the recording in `path`; its raw tables are spooled into `folder`.

    `on_progress` is called with the position in the file; `scanner` is one of `SCANNERS`, by
    default the compiled one, where there is one and PYPROF2_PURE is not set.

    Raises:
        TraceError: the file cannot be read, is not JSON, or has no list of events.
    """
    try:
        return [_read(JsonStream(path, "traceEvents", on_progress), folder, scanner)]
    except _BareBackslashError:
        again = folder / "again"
        again.mkdir()
        stream = JsonStream(path, "traceEvents", on_progress, is_bare=True)
        stream.problems[BARE_BACKSLASHES] += 1
        return [_read(stream, again, scanner)]


def _read(stream: JsonStream, folder: Path, scanner: str | None) -> Recording:
    """Return the recording in a stream; see `read_recordings`."""
    default = "compiled" if "compiled" in SCANNERS and not is_pure() else "python"
    scan = SCANNERS[scanner or default](stream).scan
    builder = TableBuilder(Spool(folder), stream.problems, is_bare=stream.is_bare)
    try:
        for text in stream.chunks():
            found = scan(text)
            if stream.has_bare_backslash and not stream.is_bare:
                raise _BareBackslashError
            builder.add(found)
        builder.finish(read_places(stream))
    finally:
        builder.spool.finish()
    return _recording(stream, builder)


def _recording(stream: JsonStream, builder: TableBuilder) -> Recording:
    """Return what was read, with what the file says of itself."""
    job = stream.member("distributedInfo", RecordedJob, AROUND_BYTES_MAX) or RecordedJob()
    process = builder.ranges.process
    host_in_name = _HOST_IN_NAME.fullmatch(stream.path.name)
    claimed = process and process.rank
    rank = first_of(to_int(job.rank), claimed)
    if claimed is not None:
        if to_int(job.rank) is None:
            builder.annotated[ANNOTATED_RANK] += 1
        if rank != claimed:
            stream.problems[MARKER_RANK] += 1
    if not builder.devices.trusts_external_ids:
        stream.problems[EXTERNAL_IDS] += 1
    has_frames = "python" in builder.spool.texts["ranges"]["kind"]
    if stream.member("with_stack", bool | int) and builder.spool.counts["ops"] and not has_frames:
        stream.problems[FRAMES_LOST] += 1
    rank = rank if rank is not None and 0 <= rank < _RANK_END else None
    notes: dict[int, str] = {}
    if builder.spool.known["activities", "graph_node_id"]:
        try:
            path = find_annotations(stream.path, rank)
            notes = {} if path is None else read_annotations(path)
        except TraceError:
            stream.problems[NODE_NOTES] += 1
    events: list[CompileEvent] = []
    return Recording(
        builder.spool,
        rank=rank,
        host=stream.member("host_name", str),
        pids=host_pids(builder.spool),
        process_labels=builder.process_labels,
        signatures=builder.ops.signatures(),
        devices=_devices(stream, builder),
        trace={
            "source": stream.path.name,
            "profiler": "kineto",
            "world_size": first_of(to_int(job.world_size), process and process.world_size),
            "event_count": builder.scanned.total(),
            "host": first_of(
                stream.member("host_name", str),
                host_in_name and host_in_name[1],
                process and process.host,
            ),
            **machine_of(process),
            **_times(stream, builder),
        },
        problems=stream.problems,
        skipped=builder.skipped,
        annotated=+builder.annotated,
        node_notes=notes,
        scanned=builder.scanned,
        trusts_recorded_id=builder.devices.trusts_external_ids,
        source_root=process.source_root if process else None,
        entry=entry_of(builder.ranges.entry),
        places=builder.places(),
        compiled=_compiled(stream, builder, events),
        compile_events=events,
    )


def _compiled(
    stream: JsonStream, builder: TableBuilder, events: list[CompileEvent]
) -> list[CompiledGraph]:
    """Return what our annotation noted of the graphs that the program compiled, and of breaks."""
    text = stream.member(COMPILED_KEY, str, AROUND_BYTES_MAX)
    if text is None:
        return []
    named = builder.ranges.name_layer

    def name(path: str, root: str | None, outermost: bool) -> str:  # noqa: FBT001 - of a note
        return named(LayerPath(path, root, outermost))

    found = read_notes(text, name, events)
    if found is None:
        stream.problems[problems.COMPILE_NOTES] += 1
    return found or []


def _times(stream: JsonStream, builder: TableBuilder) -> dict[str, int | None]:
    """Return the span of the recording, and what leads from its clock to that of the machine."""
    first, last = builder.span
    base = stream.member("baseTimeNanoseconds", Any)
    # Without a base time, times are since 1970, unless they are too small to be.
    absolute = 0 if first > 10**18 else None
    return {
        "start_ns": first if last >= first else None,
        "end_ns": last if last >= first else None,
        "unix_ns": absolute if base is None else to_int(base),
    }


def _devices(stream: JsonStream, builder: TableBuilder) -> list[dict[str, Any]]:
    """Return the devices that the file lists; without GPU work the CPU that was measured."""
    if builder.ranges.cpu is not None:
        used_gpu = builder.spool.counts["activities"] > 0
        cpu = cpu_device(builder.ranges.cpu, used_gpu=used_gpu, problems=stream.problems)
        if cpu is not None:
            builder.annotated[ANNOTATED_PEAKS] += 1
            return [cpu]
    launches = builder.spool.texts["launches"]["name"]
    hip = any(name.startswith("hip") for name in launches)
    hip |= "hip_runtime_version" in stream.around
    listed = stream.member("deviceProperties", list[Any]) or []
    return [_device(d, "hip" if hip else "cuda") for d in listed if isinstance(d, dict)]


def _device(properties: dict[str, Any], device_type: str) -> dict[str, Any]:
    major, minor = (to_int(properties.get(f"compute{part}")) for part in ("Major", "Minor"))
    units = first_of(properties.get("numSms"), properties.get("maxComputeUnits"))
    name = properties.get("name")
    return {
        "device": to_int(properties.get("id")) or 0,
        "device_type": "xpu" if "maxComputeUnits" in properties else device_type,
        "name": name if isinstance(name, str) else None,
        "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
        "multiprocessors": to_int(units),
        "clock_hz": None,
        "memory_bytes": to_int(
            first_of(properties.get("totalGlobalMem"), properties.get("maxMemAllocSize"))
        ),
        "memory_bytes_per_s": None,
    }


_SKIPPED_PHASES: Final = {"M": problems.NAMES, "i": problems.MARKS}
_SKIPPED_CATEGORIES: Final = {
    "ac2g": problems.ARROWS,
    "async": problems.ARROWS,
    "async_cpu_to_gpu": problems.ARROWS,
    "async_gpu": problems.ARROWS,
    "trace": problems.OWN_SPAN,
    "cuda_event": problems.CUDA_EVENTS,
}


class TableBuilder:
    """Appends columns of events to the raw tables of one process.

    Attributes:
        spool: the raw tables.
        problems, skipped, annotated, process_labels: as in `Recording`.
        scanned: how many events there were, by the scanner that read them.
        span: the first start and the last end of what the program did.
        ranges, devices, ops: tables of several kinds of events, and what they say beside.
    """

    def __init__(self, spool: Spool, problems: Counter[str], *, is_bare: bool) -> None:
        shared = TableContext(spool, problems)
        self.spool, self.problems = spool, problems
        self.annotated, self.span = shared.annotated, shared.span
        self.process_labels = shared.process_labels
        self.skipped: Counter[str] = Counter()
        self.scanned: Counter[str] = Counter()
        self.ranges, self.devices = RangeTables(shared), DeviceTables(shared)
        self.ops = OpTable(shared, self.ranges)
        self._counters = CounterTable(shared, self.skipped)
        self._device_annotations: list[EventColumns] = []
        self._append = {
            "op": self.ops.add, "annotation": self.ranges.add, "python": self.ranges.add,
            "launch": self.devices.add_launches, "kernel": self.devices.add_activities,
            "memcpy": self.devices.add_activities, "memset": self.devices.add_activities,
            "mtia": self.devices.add_mtia,
            "overhead": self.devices.add_stalls, "wait": self.devices.add_stalls,
            "memory": self.devices.add_memory, "flow": self.devices.add_flows,
            "device annotation": self._device_annotations.append,
            "counter": self._counters.add_samples, "counted range": self._counters.add_ranges,
        }  # fmt: skip
        self._append |= {FOREIGN + kind: self._add_foreign for kind in FOREIGN_KINDS}
        self._foreign: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._pairs = PairedEvents(shared)
        self._may_be_bare = not is_bare
        self._is_torn = Meaning(lambda name: bool(_TORN.search(name)))
        self._places: PlacesById | None = None
        self._layer_names: Mapping[LayerPath, str] = {}

    def add(self, scan: Scan) -> None:
        """Append what was scanned of a chunk of the file.

        Raises:
            _BareBackslashError: backslashes in paths were taken for escapes.
        """
        self.scanned[scan.scanner] += scan.count
        for events in scan.groups:
            may_be_torn = self._may_be_bare and events.group == "python"
            if may_be_torn and self._is_torn.flags(events.name).any():
                raise _BareBackslashError
            if events.group == END or events.group.startswith(BEGIN):
                self._pairs.add(events)
            else:
                self._append[events.group](events)
        for (phase, category), count in scan.skipped.items():
            key = _skipped(phase, category)
            self.skipped[key] += count

    def _add_foreign(self, events: EventColumns) -> None:
        """Count events, and the time of those that are work of a device."""
        args, word = events.args, events.group.removeprefix(FOREIGN)
        of_device = args["device"].known | args["stream"].known | (args["task"].codes >= 0)
        if (others := int((~of_device).sum())) > 0:
            key = _skipped("X", word)
            self.skipped[key] += others
        events = events.where(of_device)
        tasks = [word or task or "without a name" for task in events.args["task"].to_list()]
        for kind, dur in zip(tasks, events.dur_ns.tolist(), strict=True):
            self._foreign[kind][0] += 1
            self._foreign[kind][1] += dur

    def finish(self, places: PlacesById | None = None) -> None:
        """Append what could not be before the end of the recording was known.

        Args:
            places: where ops were called, as the annotation says it beside them.
        """
        for events in self._pairs.joined():
            if events.group == UNKNOWN:
                self.skipped[with_detail(problems.UNKNOWN_EVENT, "pairs of B and E")] += len(events)
            else:
                self._append[events.group](events)
        for events in self._device_annotations:
            # Where launches are recorded, they say more: what the host did when.
            if self.spool.counts["launches"]:
                self.skipped[problems.GPU_ANNOTATIONS] += len(events)
            else:
                self.ranges.add_of_devices(events)
        for kind, (count, time_ns) in self._foreign.items():
            detail = f"{kind}, {format_time(time_ns)}"
            self.problems[with_detail(problems.FOREIGN_WORK, detail)] += count
        self._places = places
        self._layer_names = self.ranges.finish(self.ops.span, layers_of(places))
        self.ranges.steps.report(self.problems, self.skipped)
        of_devices = [
            may_be_step(name) for e in self._device_annotations for name in e.name.to_list()
        ]
        if self.spool.counts["launches"] and not self.ranges.steps.count and any(of_devices):
            self.skipped[problems.GPU_STEPS] += sum(of_devices)

    def places(self) -> OpPlaces | None:
        """Return where ops were called, once the files of the spool are closed."""
        return join_places(self._places, self._layer_names, self.spool, self.problems, self.skipped)


def _skipped(phase: str, category: str) -> str:
    """Return what events are that no table has: of a known kind, or of one that may matter."""
    if not phase:
        return problems.NO_PHASE
    if phase in _SKIPPED_PHASES:
        return _SKIPPED_PHASES[phase]
    detail = f"phase {phase}, category {category or 'none'}"
    unknown = with_detail(problems.UNKNOWN_EVENT, detail)
    return _SKIPPED_CATEGORIES.get(category.lower(), unknown)
