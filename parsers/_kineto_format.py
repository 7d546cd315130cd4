"""How a Kineto trace is known, before anything of it is read."""

from __future__ import annotations

from typing import Final

from pyprof2.parsers._trace_format import TraceFormat
from pyprof2.problems import Advice

_BOTH: Final = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
_SHAPES: Final = "profile(record_shapes=True)"
_INIT: Final = "call pyprof2.init() in the script"
_GZIP: Final = b"\x1f\x8b"
_BEFORE_JSON: Final = b"\xef\xbb\xbf \r\n\t"


def looks_like(head: bytes) -> bool:
    """Whether a file that begins with `head` may be a Kineto trace: gzip, or JSON."""
    return head.startswith(_GZIP) or head.lstrip(_BEFORE_JSON)[:1] in (b"{", b"[")


KINETO: Final = TraceFormat(
    name="kineto",
    files="a Kineto .json or .json.gz",
    source="the JSON that torch.profiler exports",
    suffixes=(".pt.trace.json.gz", ".pt.trace.json", ".json.gz", ".json", ".gz"),
    recognises=looks_like,
    reader="pyprof2.parsers.kineto",
    advice=Advice(
        gpu=f"on a machine with a GPU: {_BOTH}",
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
        problem="newer PyTorch writes cleaner files",
    ),
)
