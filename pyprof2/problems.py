"""The register of problems: what is repaired or dropped while a recording is read.

Who finds a problem counts its slug, which the store keeps; what `check` and the warnings say of it,
and what they advise, stands here alone. Where a problem has a name or a number of its own, that
follows the slug: `nsight-error: …`, and stands in the text at `{}`. Rows that are undamaged but
have no place in any table are skipped: the second register.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How to record with a profiler what a recording lacks.

    Attributes:
        gpu: work of a GPU.
        ops: any ops.
        launches: the launches of all kernels.
        outside: an op around kernels that none encloses.
        other_threads: ops on all threads.
        shapes: the shapes of ops.
        inputs: the shapes of ops that have no counts without them.
        layers: layers.
        sources: lines of code.
        steps: steps.
        threads: the forward thread of each autograd node.
        stacks: what Python does while no op runs.
        memory: what is allocated.
        allocations: which op allocates.
        later: not the start of a program.
        problem: a file without damage that has no advice of its own.
    """

    gpu: str
    ops: str
    launches: str
    outside: str
    other_threads: str
    shapes: str
    inputs: str
    layers: str
    sources: str
    steps: str
    threads: str
    stacks: str
    memory: str
    allocations: str
    later: str
    problem: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of damage or loss.

    Attributes:
        slug: its name, in a store and in the documentation.
        text: what `check` says, with `{}` for the detail.
        advice: what to do next time; if empty, what the format of the recording advises.
        is_harmless: whether no number changes by it, so that nobody is warned.
        changes_sums: whether sums of time rest on it, so that every heading says it.
    """

    slug: str
    text: str
    advice: str = ""
    is_harmless: bool = False
    changes_sums: bool = False

    def advice_of(self, of_format: Advice) -> str:
        """Return what to do next time."""
        return self.advice or of_format.problem


WITH_GPU: Final = "on a machine with a GPU: "
"""How advice begins that is on recordings without any GPU."""
FORMULA_FAILED: Final = "the formula failed:"
"""How the note of an estimate begins whose formula raised what it should not."""
SEPARATOR: Final = ": "
_COPY_AGAIN: Final = "let the program write its trace to the end, or copy the file again"
_SAME_VERSION: Final = "record and parse with the same version of pyprof2"

PROBLEMS: Final[dict[str, Problem]] = {}
"""Every problem, by its slug."""


def _register(
    slug: str,
    text: str,
    advice: str = "",
    *,
    is_harmless: bool = False,
    changes_sums: bool = False,
) -> str:
    """Return the slug under which the problem is now known."""
    PROBLEMS[slug] = Problem(slug, text, advice, is_harmless, changes_sums)
    return slug


# The file.
FILE_CUT: Final = _register(
    "file-cut", "the file is cut off or damaged; what was whole before is kept", _COPY_AGAIN
)
LIST_CUT: Final = _register(
    "list-cut", "the file ends inside the list of events; what is whole is kept", _COPY_AGAIN
)
LAST_EVENT_CUT: Final = _register(
    "last-event-cut", "the last event is cut off: dropped", _COPY_AGAIN
)
END_NO_EVENT: Final = _register(
    "end-no-event", "text that is no event at the end of the list: dropped"
)
BYTES_LOST: Final = _register(
    "bytes-lost",
    "{} bytes that are not valid JSON, about so many events: dropped",
    _COPY_AGAIN,
)
TOO_MUCH_DAMAGE: Final = _register(
    "too-much-damage", "{} damaged events: the rest of the file is not read"
)
EVENT_TOO_LONG: Final = _register(
    "event-too-long", "an event of over 4 MB: the rest of the file is not read"
)
SECOND_DOCUMENT: Final = _register(
    "second-document",
    "a second document behind the trace: not read",
    "split the file, and parse each part into a store of its own",
)
METADATA_TOO_LONG: Final = _register("metadata-too-long", "metadata of over 32 MB: left out")
METADATA_BROKEN: Final = _register("metadata-broken", "metadata that is not valid JSON: left out")
METADATA_WRONG: Final = _register("metadata-wrong", "metadata of the wrong type or size: left out")
STRANGE_FILES: Final = _register(
    "strange-files",
    "files merged that nothing says are of one job: no rank, or another job's size",
    "parse unrelated recordings into stores of their own",
)

# Its events or rows.
COMMA_REPAIRED: Final = _register(
    "comma-repaired", "a comma too many or too few between events: repaired"
)
EVENT_REPAIRED: Final = _register("event-repaired", "an event that is not valid JSON: repaired")
BARE_BACKSLASHES: Final = _register(
    "bare-backslashes",
    "backslashes that escape nothing, as in paths of Windows: none in the file is an escape",
    "nothing is lost: newer PyTorch escapes them",
    is_harmless=True,
)
NO_EVENT: Final = _register("no-event", "an event that is no event: dropped")
WRONG_TYPE: Final = _register("wrong-type", "a field of an event of the wrong type: left out")
NOT_UTF8: Final = _register("not-utf8", "text that is not UTF-8: repaired")
NAME_CUT: Final = _register("name-cut", "a name of over 16,384 characters: cut")
STACK_CUT: Final = _register("stack-cut", "a call stack of over 65,536 characters: cut")
PATH_CUT: Final = _register("path-cut", "a module path of over 16,384 characters: cut")
EVENT_TIME: Final = _register("event-time", "an event without a sensible time: dropped")
ROW_TIME: Final = _register("row-time", "a row without a sensible time: dropped")
NEGATIVE_DURATION: Final = _register("negative-duration", "a negative duration: taken as 0")
RANGE_OPEN: Final = _register(
    "range-open",
    "a range that was open at the end of the recording: it ends there",
    "let the program end its ranges before nsys stops",
)
UNPAIRED_END: Final = _register(
    "unpaired-end",
    "an event that begins and never ends, or ends and never began: dropped",
    _COPY_AGAIN,
)
_TIMES_WRONG: Final = "busy time, spans and shares are wrong with it: leave it out, or record again"
WORK_TOO_LONG: Final = _register(
    "work-too-long", "GPU work that lasts over an hour", _TIMES_WRONG, changes_sums=True
)
WORK_AT_ZERO: Final = _register(
    "work-at-zero", "GPU work at time 0, hours from all other work", _TIMES_WRONG, changes_sums=True
)
WORK_OVERRUNS: Final = _register(
    "work-overruns",
    "GPU work that ends after later work of its stream: cut where that begins",
    "a stream does one thing after another, so the recorded end is wrong, and the time that is "
    "left to such work is its upper bound; record again",
    changes_sums=True,
)
DEVICE_NUMBER: Final = _register(
    "device-number",
    "GPU work whose device has a number that no machine has: of an unknown device",
    "all such work is summed as that of one device, which is right if it was one; record again",
    changes_sums=True,
)
FOREIGN_WORK: Final = _register(
    "foreign-work",
    "work of a device that pyprof2 does not read: {}",
    "it reads that of NVIDIA, AMD and Intel GPUs and of MTIA; of others it shows what the host did",
    changes_sums=True,
)
WORK_BEFORE_LAUNCH: Final = _register(
    "work-before-launch",
    "GPU work that begins before its launch, by up to {}",
    "the clocks of host and device differ, or a time is wrong: idle time and waits are wrong with "
    "it; record again",
)
WORK_REPEATED: Final = _register(
    "work-repeated",
    "GPU work that is in the file more than once: counted once",
    "nothing is lost: the recorder, or who merged its files, wrote it again",
)
EXTERNAL_IDS: Final = _register(
    "external-ids",
    "the file's external ids repeat the correlation ids: not used",
    "nothing is lost: ops are found by time; newer PyTorch writes better ids",
    is_harmless=True,
)
FRAMES_ENDLESS: Final = _register(
    "frames-endless",
    "Python frames whose return was not recorded: ended where what they called does",
    "ops after that, up to the next frame of the caller, have no layer and no line; newer PyTorch "
    "records these returns",
)
STEPS_EMPTY: Final = _register(
    "steps-empty",
    "steps in which no op begins and no GPU work is launched",
    "means of steps count them: let each step end where the next one begins, prof.step() once in "
    "each iteration",
    is_harmless=True,
)

# Markers.
MARKER_BROKEN: Final = _register("marker-broken", "a broken marker: dropped", _SAME_VERSION)
MARKER_VERSION: Final = _register(
    "marker-version", "a marker of another version of pyprof2: dropped", _SAME_VERSION
)
MARKER_OF_OP: Final = _register(
    "marker-of-op", "a marker of an op that the profiler records itself: not used"
)
MARKER_RANK: Final = _register("marker-rank", "a marker of another rank than the file's: not used")
FRAMES_LOST: Final = _register(
    "frames-lost", "recorded with with_stack, but the file holds no Python frames",
    "keep the trace as the profiler writes it: its frames were left out",
    is_harmless=True,
)  # fmt: skip
MARKER_PEAKS: Final = _register(
    "marker-peaks", "a marker with peaks of a CPU where a GPU works: not used"
)
PLACES_DOUBLE: Final = _register(
    "places-double",
    "ops of one id, of which the annotation says where they were called: not used",
    "nothing makes sure which op is meant: record the processes into files of their own",
)
PLACE_OF_OTHER: Final = _register(
    "place-of-other",
    "ops of which the annotation says where another one was called: not used",
    "the file was put together of several: parse each recording by itself",
)
PYPROF_BROKEN: Final = _register("pyprof-broken", "a broken marker of PyProf's: dropped")
PYPROF_TOO_LONG: Final = _register(
    "pyprof-too-long", "a marker of PyProf's that is too long: dropped"
)

# Events that the profiler left out, and problems elsewhere.
LAUNCHED_EARLY: Final = _register(
    "launched-early",
    "GPU work launched before the first recorded call: its launch is not in the file",
    "let nsys start before the work, and export the whole of its report",
)
NO_CALLS: Final = _register(
    "no-calls",
    "no call of the CUDA API in the file: GPU work has no launch",
    "nsys profile --trace=cuda,nvtx",
)
WHOLE_GRAPHS: Final = _register(
    "whole-graphs",
    "CUDA graphs recorded as a whole: their kernels are not in the file",
    "nsys profile --cuda-graph-trace=node",
)
NODE_NOTES: Final = _register(
    "graph-annotations",
    "a file of annotations of CUDA graphs beside the recording that is none, or is damaged",
    "pickle torch.cuda._graph_annotations.get_kernel_annotations() anew, after the graph was made "
    "executable",
)
COMPILE_NOTES: Final = _register(
    "compile-notes",
    "notes of compiled graphs in the recording that are damaged, or of another version of pyprof2",
    "parse with the version of pyprof2 that recorded",
)
UNKNOWN_PROCESS: Final = _register(
    "unknown-process",
    "GPU work of an unknown one of several processes: not linked",
    "launches of its id are in the file, and nothing says which process's: name the files of the "
    "ranks, or their folder, not one that they were merged into",
)
DEVICES_APART: Final = _register(
    "devices-apart",
    "devices of one number in processes with labels of their own: counted apart, under new numbers",
    "each rank's own file says which device it used: name those, or their folder",
)
DEVICE_SHARED: Final = _register(
    "device-shared",
    "devices of one number that several processes of the file use: taken for one",
    "if they are of different machines, name the files of the ranks, or their folder",
)
NSIGHT_ERROR: Final = _register(
    "nsight-error", "Nsight Systems: {}", "see the diagnostics of the report in nsys-ui"
)
FORMULAS_NOT_LOADED: Final = _register(
    "formulas-not-loaded",
    "cost formulas of {}",
    "mend the package that names them, or uninstall it",
)


def with_detail(slug: str, detail: str) -> str:
    """Return the key under which a problem with a name or number of its own is counted."""
    return f"{slug}{SEPARATOR}{detail}"


def look_up(key: str) -> Problem:
    """Return the problem that was counted under this key, with the detail in its text.

    A store of another version may have one that is not registered: the key is its text.
    """
    slug, _, detail = key.partition(SEPARATOR)
    found = PROBLEMS.get(slug)
    if found is None:
        return Problem(key, key)
    text = found.text.replace("{}", detail, 1)
    return replace(found, text=text)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A kind of events or rows that are not read.

    Attributes:
        slug: its name, in a store and in the documentation.
        what: what they are, with `{}` for the detail.
        may_matter: whether a number may lack them; else none needs them.
    """

    slug: str
    what: str
    may_matter: bool = False

    @property
    def text(self) -> str:
        """The sentence in `check`."""
        return self.what if self.may_matter else f"{self.what}, which no number needs"


SKIPPED: Final[dict[str, Skipped]] = {}
"""Every kind, by its slug."""


def _skip(slug: str, what: str, *, may_matter: bool = False) -> str:
    """Return the slug under which the kind is now known."""
    SKIPPED[slug] = Skipped(slug, what, may_matter)
    return slug


COUNTERS: Final = _skip(
    "counters",
    "values of counters that are no numbers, and counters without values",
    may_matter=True,
)
NAMES: Final = _skip("names", "names of processes, threads and categories")
MARKS: Final = _skip("marks", "marks of a moment")
ARROWS: Final = _skip("arrows", "arrows between launches and GPU work")
OWN_SPAN: Final = _skip("own-span", "the recorder's own span")
GPU_ANNOTATIONS: Final = _skip("gpu-annotations", "annotations repeated for the GPU")
CUDA_EVENTS: Final = _skip("cuda-events", "CUDA events")
GPU_MEMORY: Final = _skip("gpu-memory", "events of GPU memory")
BACKTRACES: Final = _skip("backtraces", "backtraces of CUDA calls")
GRAPHS_WITH_NODES: Final = _skip("graphs-with-nodes", "CUDA graphs whose nodes are in the file too")
OTHER_PROCESSES: Final = _skip("other-processes", "rows of processes that used no GPU")
TRACED_OPS: Final = _skip("traced-ops", "ops that torch.compile traced, and did not run")
PLACES_LOST: Final = _skip(
    "places-lost", "ops that the annotation saw, and the profiler did not record"
)
OPEN_STEPS: Final = _skip(
    "open-step",
    "as a step, {}: it is open, as recording stopped in it, or nothing begins in it any more; no "
    "count or mean of steps has it",
    may_matter=True,
)
GPU_STEPS: Final = _skip(
    "gpu-steps",
    "steps that only the GPU's annotations name, beside launches that are recorded: record the "
    "CPU's activities, too",
    may_matter=True,
)
NO_PHASE: Final = _skip("no-phase", "events without a phase", may_matter=True)
UNKNOWN_EVENT: Final = _skip("unknown-event", "events of an unknown kind: {}", may_matter=True)


def look_up_skipped(key: str) -> Skipped:
    """Return the kind that was counted under this key, with the detail in its text.

    A store of another version may have one that is not registered: the key is its text.
    """
    slug, _, detail = key.partition(SEPARATOR)
    found = SKIPPED.get(slug)
    if found is None:
        return Skipped(key, key, may_matter=True)
    return Skipped(slug, found.what.replace("{}", detail, 1), found.may_matter)
