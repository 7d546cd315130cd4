"""Kineto traces of a few events to test with: a test states what matters, the rest is filled in.

Times are µs, as Kineto has them: a number, or text for digits that a float does not hold.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from pyprof2.analysis.assembly.linked import Linked, link_recording
from pyprof2.api.run import Run, load
from pyprof2.parsers.kineto import read_recordings

if TYPE_CHECKING:
    import pyarrow as pa

    from pyprof2.recording import Recording

Event: TypeAlias = dict[str, Any]
Time: TypeAlias = int | float | str

PID: Final = 100
MAIN: Final = 101
"""The thread that runs forward, unless a test says otherwise."""
ENGINE: Final = 102
"""The thread that runs backward."""


def number(value: Time) -> Any:
    """Return a number as JSON that has exactly the digits of `value`, if that is text."""
    return msgspec.Raw(value.encode()) if isinstance(value, str) else value


def complete(category: str, name: str, ts: Time, dur: Time, **fields: Any) -> Event:
    """Return an event of phase X."""
    times = {"ts": number(ts), "dur": number(dur)}
    return {"ph": "X", "cat": category, "name": name, "pid": PID, "tid": MAIN} | times | fields


def op(name: str, ts: Time, dur: Time, *, tid: Any = MAIN, pid: Any = PID, **args: Any) -> Event:
    """Return an op; `id`, `seq`, `fwd`, `dims`, `types`, `strides`, `values` are its arguments."""
    long = {
        "id": "External id", "seq": "Sequence number", "fwd": "Fwd thread id",
        "dims": "Input Dims", "types": "Input type", "strides": "Input Strides",
        "values": "Concrete Inputs",
    }  # fmt: skip
    args = {long.get(key, key): value for key, value in args.items()}
    return complete("cpu_op", name, ts, dur, pid=pid, tid=tid, args=args)


def node(name: str, ts: Time, dur: Time, *, seq: int, fwd: int = 1, **rest: Any) -> Event:
    """Return an autograd node on the engine's thread."""
    return op(name, ts, dur, seq=seq, fwd=fwd, **{"tid": ENGINE, **rest})


def launch(
    ts: Time, correlation: Any, *, name: str = "cudaLaunchKernel", dur: Time = 1, **rest: Any
) -> Event:
    """Return a launch; `rest` holds fields of the event, and `id`."""
    args = {"correlation": correlation}
    if "id" in rest:
        args["External id"] = rest.pop("id")
    return complete("cuda_runtime", name, ts, dur, args=args, **rest)


def kernel(
    ts: Time, dur: Time, correlation: Any, args: Event | None = None, *, name: str = "k"
) -> Event:
    """Return a kernel, on device 0 and stream 7 unless `args`, its arguments, say otherwise."""
    args = {"device": 0, "stream": 7, "correlation": correlation} | (args or {})
    return complete("kernel", name, ts, dur, pid=args["device"], tid=args["stream"], args=args)


def copy(ts: Time, dur: Time, correlation: Any, *, name: str, **args: Any) -> Event:
    """Return a memcpy or memset, whichever the name says."""
    category = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
    return kernel(ts, dur, correlation, args, name=name) | {"cat": category}


def launched(
    ts: Time, correlation: int, *, at: Time, dur: Time, name: str = "k", **rest: Any
) -> list[Event]:
    """Return a launch at `ts` and its kernel, which runs `dur` from `at`."""
    return [launch(ts, correlation, **rest), kernel(at, dur, correlation, name=name)]


def step(number_: int, ts: Time, dur: Time, **fields: Any) -> Event:
    """Return a step range."""
    return annotation(f"ProfilerStep#{number_}", ts, dur, **fields)


def annotation(name: str, ts: Time, dur: Time, **fields: Any) -> Event:
    """Return a range of the user's own."""
    return complete("user_annotation", name, ts, dur, **fields)


def frame(name: str, ts: Time, dur: Time, **fields: Any) -> Event:
    """Return a Python frame, or a module's call if `name` is `nn.Module: …`."""
    return complete("python_function", name, ts, dur, **fields)


def memory(ts: Time, **args: Any) -> Event:
    """Return an allocation or release."""
    event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t"}
    return event | {"pid": PID, "tid": MAIN, "ts": number(ts), "args": args}


def flow(number_: int, forward: Time, backward: Time) -> list[Event]:
    """Return a forward-backward flow from the op at `forward` to the node at `backward`."""
    event = {"cat": "fwdbwd", "name": "fwdbwd", "id": number_, "pid": PID}
    return [
        event | {"ph": "s", "tid": MAIN, "ts": number(forward)},
        event | {"ph": "f", "bp": "e", "tid": ENGINE, "ts": number(backward)},
    ]


def json_text(*events: Event | list[Event], **around: Any) -> bytes:
    """Return the trace as text; lists of events count as their events."""
    flat = [e for item in events for e in (item if isinstance(item, list) else [item])]
    return msgspec.json.encode({"schemaVersion": 1, **around, "traceEvents": flat})


def trace(path: Path, *events: Event | list[Event], **around: Any) -> Path:
    """Write a trace to `path`, or to a file in the folder `path`; return where it is."""
    path = path / "trace.json" if path.is_dir() else path
    path.write_bytes(json_text(*events, **around))
    return path


def read(path: Path) -> Recording:
    """Return what the parser makes of a trace, its raw tables beside it."""
    folder = Path(tempfile.mkdtemp(dir=path.parent))
    (recording,) = read_recordings(path, folder)
    return recording


def linked(folder: Path, *events: Event | list[Event]) -> Linked:
    """Return what is known of the ops in `events`."""
    return link_recording(read(trace(folder, *events)))


def load_events(folder: Path, *events: Event | list[Event], **around: Any) -> Run:
    """Return `events` as a run, through parser, analyses and store."""
    return load(trace(folder, *events, **around))


def rows(table: pa.Table, *columns: str) -> list[Any]:
    """Return the values of one column, or tuples of those of several."""
    values = [table[name].to_pylist() for name in columns]
    return values[0] if len(values) == 1 else list(zip(*values, strict=True))
