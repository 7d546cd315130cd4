"""The causes of idle time, their groups, and what kind of GPU call a name stands for."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Cause(NamedTuple):
    """A cause: its name, the group that it is summed up in, and its meaning in a sentence."""

    name: str
    group: str
    meaning: str


_WAITS: Final = "host waits for the device"
_LATE: Final = "host late"
_DEVICE: Final = "device"
_RECORDING: Final = "recording"

CAUSES: Final = (
    Cause("sync", _WAITS, "The host was in a call that waits for the device, or had just been."),
    Cause("allocator", _WAITS, "The host allocated or released memory of the device."),
    Cause("copy_call", _WAITS, "The host was in the call of a copy or a memset."),
    Cause("data_loading", _LATE, "The host waited for the next batch."),
    Cause("host_comm", _LATE, "The host was in an op that prepares communication."),
    Cause("module_load", _LATE, "The runtime loaded or compiled code for the device."),
    Cause("launch_call", _LATE, "The host was in the call that launches a kernel."),
    Cause("runtime_call", _LATE, "The host was in another call of the GPU runtime or driver."),
    Cause("host_op", _LATE, "The host was in a PyTorch op, outside of GPU calls."),
    Cause("host_python", _LATE, "The host ran Python, or was in an annotation, outside of ops."),
    Cause("host_unrecorded", _LATE, "The host did something that was not recorded."),
    Cause("launch_latency", _DEVICE, "The launch had returned; the device had yet to start."),
    Cause("kernel_gap", _DEVICE, "The next one was queued on the stream of the last one."),
    Cause("graph_gap", _DEVICE, "The next one is the next node of the graph that is replayed."),
    Cause("stream_wait", _DEVICE, "What was queued waited for work of another stream."),
    Cause("profiler", _RECORDING, "The profiler itself held the host up."),
    Cause("unknown", _RECORDING, "The recording lacks the evidence; the note says which."),
    Cause("start", _RECORDING, "Before the first step, op or GPU call of the process."),
    Cause("end", _RECORDING, "After the last step, op or GPU call of the process."),
)
"""All of them; every nanosecond of idle time has exactly one."""

NAMES: Final = [cause.name for cause in CAUSES]
CODES: Final = {name: code for code, name in enumerate(NAMES)}
HOST_CAUSES: Final = [CODES[cause.name] for cause in CAUSES if cause.group in (_WAITS, _LATE)]
"""Those that the host is to blame for, by code."""

_OPS: Final = "ops"
_FOR_OTHERS: Final = "waits"
_OUTSIDE: Final = "outside of ops"
GROUPS_WITHOUT_DEVICE: Final = (
    {name: group if group == _RECORDING else _OUTSIDE for name, group, _ in CAUSES}
    | {"host_op": _OPS}
    | dict.fromkeys(("data_loading", "sync", "host_comm"), _FOR_OTHERS)
)
"""The group of each cause where no device worked, and the host is what a step waits for."""

BLOCKING: Final = ("sync", "allocator", "copy_call")
"""The classes of calls that may return only when the device is empty."""

_CALL_CLASSES: Final = (
    (
        "sync",
        re.compile(
            r"Synchronize(?![a-z])|^(?:ur|pi)(?:Queue|Event)(?:Finish|s?Wait)$"
            r"|^synchronize(?:Stream)?$|^event_(?:wait|record)$"
        ),
    ),
    ("copy_call", re.compile(r"Memcpy|Memset|memcpy|memset")),
    ("launch_call", re.compile(r"Launch")),
    (
        "allocator",
        re.compile(
            r"Malloc|Free|HostAlloc|Host(?:Unr|R)egister"
            r"|Mem(?:Alloc|Create|Map|Unmap|Release|AddressReserve|SetAccess)"
        ),
    ),
    ("module_load", re.compile(r"Module|Library|GraphInstantiate|Link(?:Create|Add|Complete)")),
)
"""By name, of CUDA's and HIP's runtime and driver and of SYCL's; the first that fits holds."""


def call_cause(name: str) -> int:
    """Return the code of the cause that idle time inside of a GPU call has, by the call's name."""
    for cause, pattern in _CALL_CLASSES:
        if pattern.search(name):
            return CODES[cause]
    return CODES["runtime_call"]
