"""What a recording lacks, what was repaired, and how to record better next time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.summaries.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BOTH: Final = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
_INIT: Final = "call pyprof2.init() in the script"
_SHAPES: Final = f"{_INIT}, or nsys profile --pytorch=autograd-shapes-nvtx"
_ADVICE: Final = {
    "kineto": {
        "gpu": f"on a machine with a GPU: {_BOTH}",
        "ops": _BOTH,
        "launches": "start recording before the work: use a schedule with warm-up steps",
        "outside": "wrap own CUDA calls in record_function or a custom op",
        "other_threads": "torch.profiler records the thread that starts it: "
        "pyprof2 capture --kineto records all, as does profile(experimental_config=…) with "
        "profile_all_threads=True",
        "shapes": "profile(record_shapes=True)",
        "layers": f"profile(with_stack=True, with_modules=True), or {_INIT}",
        "sources": f"profile(with_stack=True), or {_INIT}",
        "steps": "call prof.step() once per iteration",
        "threads": "record from the forward pass on, and every thread: "
        "profile(experimental_config=_ExperimentalConfig(profile_all_threads=True))",
        "problem": "newer PyTorch writes cleaner files",
    },
    "nsight": {
        "gpu": "on a machine with a GPU: nsys profile --trace=cuda,nvtx",
        "ops": _SHAPES,
        "launches": "let nsys start before the work, and export the whole of its report",
        "outside": "mark the functions that launch them with pyprof2.wrap()",
        "other_threads": "call pyprof2.init() before the threads start, or use pyprof2 capture",
        "shapes": _SHAPES,
        "layers": _INIT,
        "sources": _INIT,
        "steps": _INIT,
        "threads": "record from the forward pass on",
        "problem": "export the report again, with a newer nsys",
    },
}
"""What to do next time, by profiler and by what is missing."""
_COPY_AGAIN: Final = "let the program write its trace to the end, or copy the file again"
_NOTHING_LOST: Final = (
    ("external ids",),
    "nothing is lost: ops are found by time; newer PyTorch writes better ids",
)
_PROBLEM_ADVICE: Final = (
    (("cut off", "ends inside", "not valid JSON, about"), _COPY_AGAIN),
    (("nothing says are of one job",), "parse unrelated recordings into stores of their own"),
    (("a second document",), "split the file, and parse each part into a store of its own"),
    _NOTHING_LOST,
    (("before the first recorded call",), _ADVICE["nsight"]["launches"]),
    (("no call of the CUDA API",), "nsys profile --trace=cuda,nvtx"),
    (("recorded as a whole",), "nsys profile --cuda-graph-trace=node"),
    (("open at the end",), "let the program end its ranges before nsys stops"),
    (("cost formulas of",), "mend the package that names them, or uninstall it"),
    (("Nsight Systems: ",), "see the diagnostics of the report in nsys-ui"),
    (
        ("marker of another version", "broken marker"),
        "record and parse with the same version of pyprof2",
    ),
)
"""Words of a problem, and what to do about it."""


def find_lacks(summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the problems met while parsing, what is missing, and what is fine to know.

    Args:
        summary: as `pyprof2.analysis.summaries.summary.summary` returns it.
        manifest: of the store.
    """
    advice = _advice(summary)
    yield from _problems(manifest, advice["problem"])
    yield from _lacks(summary, advice)
    yield from _lost_nodes(manifest, advice["threads"])
    yield from _facts(summary, manifest)


def problem_lines(manifest: Mapping[str, Any]) -> list[str]:
    """Return a line for each kind of damage and loss that was met while parsing, with its count."""
    counts: Counter[str] = Counter()
    for rank in manifest["ranks"]:
        counts.update(rank["problems"])
    harmless = [name for name in counts if any(word in name for word in _NOTHING_LOST[0])]
    for name in harmless:
        del counts[name]
    return [f"{problem} ({count:,})" for problem, count in sorted(counts.items())]


def _advice(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return what to do next time, without what was done already."""
    profilers = summary.get("profilers") or ["kineto"]
    advice = dict(_ADVICE[profilers[0]])
    if summary["ops_with_shapes_count"]:
        advice["shapes"] = "other ops have shapes: what these work on is not recorded by any option"
    if min(summary["steps"], default=0) > 0:
        advice["launches"] = "they were launched before the recording began: later steps are whole"
    return advice


def _problems(manifest: Mapping[str, Any], otherwise: str) -> Iterator[Finding]:
    for rank in manifest["ranks"]:
        for problem, count in sorted(rank["problems"].items()):
            known = (text for words, text in _PROBLEM_ADVICE if any(w in problem for w in words))
            advice = next(known, otherwise)
            yield Finding("problem", problem, count, None, advice, rank["rank"])


def _lacks(s: Mapping[str, Any], advice_on: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is missing, each with the flag to record with."""
    kernels, ops, backward = s["kernel_count"], s["op_count"], s["backward_count"]
    linked = s["linked_count"]
    missing = [
        (
            "no GPU activity: op calls are profiled by their time on the CPU",
            1 if s["no_gpu"] and ops else 0, None,
            advice_on["gpu"],
        ),
        ("nothing was recorded", 0 if kernels or ops or s["copy_count"] else 1, None,
         "let the profiler run while the program works"),
        ("no PyTorch ops", 0 if ops or not kernels else 1, None,
         advice_on["ops"]),
        ("kernels without a launch in the recording", kernels - s["launched_count"], kernels,
         advice_on["launches"]),
        ("kernels launched outside of any op",
         s["launched_count"] - linked - s["other_threads_count"] - s["loose_graph_count"], kernels,
         advice_on["outside"]),
        ("kernels launched on threads without any op", s["other_threads_count"], kernels,
         advice_on["other_threads"]),
        ("kernels of replayed CUDA graphs: ops ran at capture time", s["graph_count"], kernels,
         "record a few steps without graphs to see their ops"),
        ("linked kernels whose op has no shapes", s["shapeless_count"], linked,
         advice_on["shapes"]),
        ("ops without recorded inputs", ops - s["ops_with_shapes_count"] if not kernels else 0, ops,
         advice_on["shapes"]),
        ("backward kernels without a forward op", backward - s["backward_paired_count"], backward,
         "gradients are accumulated without a forward op; for others record whole steps"),
        ("no layers", 1 if ops and not s["ops_with_layer_count"] else 0, None,
         advice_on["layers"]),
        ("no source lines", 1 if ops and not s["ops_with_source_count"] else 0, None,
         advice_on["sources"]),
        ("no steps", 1 if ops and not s["steps"] else 0, None,
         advice_on["steps"]),
    ]  # fmt: skip
    for finding, count, whole, advice in missing:
        if count:
            share = 100 * count / whole if whole else None
            yield Finding("lack", finding, count, share, advice)


def _lost_nodes(manifest: Mapping[str, Any], advice: str) -> Iterator[Finding]:
    for rank in manifest["ranks"]:
        count = rank.get("nodes_lost", 0)
        if count:
            text = "autograd nodes whose forward thread was not found: no forward op, no layer"
            yield Finding("lack", text, count, None, advice, rank["rank"])


def _facts(summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Finding]:
    if summary["recompute_count"]:
        share = 100 * summary["recompute_count"] / summary["kernel_count"]
        text = "kernels of forward ops that checkpointing runs again"
        yield Finding("info", text, summary["recompute_count"], share)
    for rank in manifest["ranks"]:
        pairs, agree = rank.get("pairs_recorded", 0), rank.get("pairs_agree", 0)
        if pairs:
            text = "forward-backward pairs of the recorder that agree with ours"
            share = 100 * agree / pairs
            yield Finding("info", text, agree, share, rank=rank["rank"])
        for what, count in sorted(rank.get("annotated", {}).items()):
            text = f"known only from markers that the recorded program wrote: {what}"
            yield Finding("info", text, count, rank=rank["rank"])
        for what, count in sorted(rank["ignored"].items()):
            yield Finding("info", f"not read: {what}", count, rank=rank["rank"])
