"""Lacks of a recording, what was repaired, and how to record better next time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.summaries.findings import Finding
from pyprof2.problems import (
    FOREIGN_WORK,
    FRAMES_LOST,
    OPEN_STEPS,
    PROBLEMS,
    SEPARATOR,
    UNKNOWN_EVENT,
    WITH_GPU,
    look_up,
    look_up_skipped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from pyprof2.problems import Advice, Problem

    _Lack: TypeAlias = tuple[str, int, int | None, str]
    """A lack: how often, of how many if that says something, and what to do."""

_RECORD_CAPTURE: Final = (
    "record while graphs are captured, and name that recording: pyprof2 parse --capture (SGLang: "
    "--enable-profile-cuda-graph; vLLM: capture_torch_profiler; yours: pyprof2 capture); or record "
    "a few steps without graphs to see their ops"
)
_NOTE_GRAPHS: Final = (
    "record with pyprof2 capture, or call pyprof2.init() before the program compiles; of a "
    "recording made otherwise: pyprof2 parse --torch-trace"
)
_NO_GPU: Final = "no GPU activity: op calls are profiled by their time on the CPU"
_LISTED: Final = "a GPU is listed, but none of its work: op calls are profiled by their time"
_UNDELIVERED: Final = "calls gave the GPU work, and none of it is in the recording"
_SHOWN: Final = "prof --by range shows the time of the ranges on the host"
_OTHER_TOOL: Final = "these are not events of torch.profiler, or of one from before 2021: use it"
_GRAPHS_SHOWN: Final = 5
"""So many graphs that nothing explains are named, those with the most kernels."""
_FOUND: Final = {
    "graph_id": "by the ids of nodes", "graph_names": "by names and order",
    "graph_order": "by order alone",
}  # fmt: skip
_SCANNERS: Final = {"python": "Python"}


def find_lacks(
    summary: Mapping[str, Any], manifest: Mapping[str, Any], advice: Advice
) -> Iterator[Finding]:
    """Yield the problems met while parsing, what is missing, and what is fine to know.

    Args:
        summary: as `pyprof2.analysis.summaries.summary.summary` returns it.
        manifest: of the store.
        advice: on the recording, as `decided` returns it.
    """
    yield from _problems(manifest, advice)
    lacks = _lacks(summary, manifest, advice)
    if has_foreign_work(manifest):
        lacks = (lack for lack in lacks if lack.finding not in (_NO_GPU, _LISTED))
    yield from lacks
    yield from _graphs(manifest)
    yield from _compiled(manifest)
    for rank in manifest["ranks"]:
        if count := rank.get("nodes_lost", 0):
            text = "autograd nodes whose forward thread was not found: no forward op, no layer"
            yield Finding("lack", text, count, None, advice.threads, rank["rank"])
    yield from _facts(summary, manifest)


def decided(summary: Mapping[str, Any], manifest: Mapping[str, Any], advice: Advice) -> Advice:
    """Return the advice on a recording without what was done already, by what is in it.

    All that speaks of a lack takes it from here, so that no two lines contradict each other.

    Args:
        summary: as `pyprof2.analysis.summaries.summary.summary` returns it.
        manifest: of the store.
        advice: of the format of the recording.
    """
    s = summary
    found = {}
    if s["ops_with_shapes_count"]:
        found = dict.fromkeys(("shapes", "inputs"), _NO_OPTION)
    missing = s["kernel_count"] - s["launched_count"] - s["unsure_count"]
    if lost := s["lost_launch_count"]:
        found["launches"] = (
            f"{lost:,} of them ran after work that has a launch: the recorder lost launches, or a "
            "process that was not recorded made them; record fewer steps at once, and all processes"
        )
    elif missing and missing == s["early_launch_count"]:
        found["launches"] = (
            "they ran before all work of their stream that has a launch: launched before the "
            "recording began; later work is whole"
        )
    if s["frame_count"]:
        found["sources"] = (
            "Python frames are recorded, and none is of a file that is taken for yours: "
            "--source-root DIR names the folder of your code"
        )
        found["layers"] = "Python frames are recorded, and none calls an nn.Module"
    if any(FRAMES_LOST in rank["problems"] for rank in manifest["ranks"]):
        found |= dict.fromkeys(("layers", "sources"), PROBLEMS[FRAMES_LOST].advice)
    if s["gpu_call_count"]:
        found["gpu"] = _NOT_DELIVERED
    elif s["listed_gpu_count"]:
        how = advice.gpu.removeprefix(WITH_GPU)
        found["gpu"] = f"{how}; if this was done, {_NOT_DELIVERED}"
    return replace(advice, **found)


_NO_OPTION: Final = "PyTorch does not record shapes for these ops; no option changes that"
_NOT_DELIVERED: Final = (
    "the GPU's profiling interface (CUPTI, ROCm: roctracer) delivered nothing: check the driver, "
    "the permission to profile, WSL, and that no other profiler runs"
)
_PARSE_AGAIN: Final = (
    "copy the file again, and parse the folder again: only what is missing is read"
)


def problem_lines(manifest: Mapping[str, Any]) -> list[str]:
    """Return a line for each kind of damage and loss that was met while parsing, with its count."""
    return [*_left_out(manifest), *_counted(manifest, lambda problem: not problem.is_harmless)]


def doubts(manifest: Mapping[str, Any]) -> list[str]:
    """Return a line for each kind of damage that sums of time rest on, with its count."""
    return _counted(manifest, lambda problem: problem.changes_sums)


def _counted(manifest: Mapping[str, Any], is_wanted: Callable[[Problem], bool]) -> list[str]:
    counts: Counter[str] = Counter()
    for rank in manifest["ranks"]:
        for problem, count in _known(rank):
            if is_wanted(problem):
                counts[problem.text] += count
    return [f"{text} ({count:,})" for text, count in sorted(counts.items())]


def has_foreign_work(manifest: Mapping[str, Any]) -> bool:
    """Return whether a device worked whose work is not read."""
    keys = (key for rank in manifest["ranks"] for key in rank["problems"])
    return any(key.startswith(FOREIGN_WORK) for key in keys)


def open_steps(manifest: Mapping[str, Any]) -> list[str]:
    """Return the names of ranges that are called like steps, and are open."""
    keys = dict.fromkeys(key for rank in manifest["ranks"] for key in rank["skipped"])
    return [key.partition(SEPARATOR)[2] for key in keys if key.startswith(OPEN_STEPS)]


def _left_out(manifest: Mapping[str, Any]) -> list[str]:
    """Return a line for each recording that the store lacks because it could not be read."""
    return [f"left out: {failed['error']}" for failed in manifest.get("failed", ())]


def _known(rank: Mapping[str, Any]) -> list[tuple[Problem, int]]:
    """Return the problems of a rank with their counts, in the order of their texts."""
    found = [(look_up(key), count) for key, count in rank["problems"].items()]
    return sorted(found, key=lambda each: each[0].text)


def _problems(manifest: Mapping[str, Any], advice: Advice) -> Iterator[Finding]:
    for text in _left_out(manifest):
        yield Finding("problem", text, 1, None, _PARSE_AGAIN)
    for rank in manifest["ranks"]:
        for problem, count in _known(rank):
            what_to_do = problem.advice_of(advice)
            yield Finding("problem", problem.text, count, None, what_to_do, rank["rank"])


def _held(s: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[str]:
    """Name what a file holds that is neither an op nor work of a GPU."""
    for name, what in (("range_count", "ranges"), ("frame_count", "calls of Python functions")):
        if s[name]:
            yield f"{s[name]:,} {what}"
    counts: Counter[str] = Counter()
    for rank in manifest["ranks"]:
        counts.update({k: n for k, n in rank["skipped"].items() if k.startswith(UNKNOWN_EVENT)})
    for key, count in counts.most_common(_GRAPHS_SHOWN):
        yield f"{count:,} {look_up_skipped(key).text}"


def _lacks(
    s: Mapping[str, Any], manifest: Mapping[str, Any], advice_on: Advice
) -> Iterator[Finding]:
    """Yield what is missing, each with the flag to record with."""
    kernels, ops, backward = s["kernel_count"], s["op_count"], s["backward_count"]
    linked = s["linked_count"]
    nothing = not (kernels or ops or s["copy_count"])
    held = list(_held(s, manifest))
    calls = s["gpu_call_count"]
    missing: tuple[_Lack, ...] = (
        (_UNDELIVERED, calls if s["no_gpu"] else 0, None, advice_on.gpu),
        (_LISTED if s["listed_gpu_count"] else _NO_GPU,
         int(s["no_gpu"] and ops > 0 and not calls), None, advice_on.gpu),
        ("nothing was recorded", int(nothing and not (calls or held)), None,
         "let the profiler run while the program works"),
        (f"neither ops nor work of a GPU: the file holds {' and '.join(held)}",
         int(nothing and bool(held) and not calls), None,
         _SHOWN if s["range_count"] else advice_on.ops if s["frame_count"] else _OTHER_TOOL),
        ("no PyTorch ops", int(kernels > 0 and not ops), None, advice_on.ops),
        *_unlinked(s, advice_on),
        ("linked kernels whose op has no shapes", s["shapeless_count"], linked, advice_on.shapes),
        ("ops without recorded inputs", ops - s["ops_with_shapes_count"] if not kernels else 0, ops,
         advice_on.shapes),
        ("backward kernels without a forward op", backward - s["backward_paired_count"], backward,
         "gradients are accumulated without a forward op; for others record whole steps"),
        ("no layers", int(ops and not s["ops_with_layer_count"] + s["layer_count"]), None,
         advice_on.layers),
        ("no source lines", int(ops and not s["ops_with_source_count"] + s["source_count"]), None,
         advice_on.sources),
        ("no steps", int((ops or kernels) and not s["steps"]), None, advice_on.steps),
    )  # fmt: skip
    for finding, count, whole, advice in missing:
        if count:
            share = 100 * count / whole if whole else None
            yield Finding("lack", finding, count, share, advice)


def _unlinked(s: Mapping[str, Any], advice_on: Advice) -> Iterator[_Lack]:
    kernels, linked = s["kernel_count"], s["linked_count"]
    yield from (
        ("kernels without a launch in the recording",
         kernels - s["launched_count"] - s["unsure_count"], kernels, advice_on.launches),
        ("kernels launched outside of any op",
         s["launched_count"] - linked
         - sum(s[f"{name}_count"] for name in ("other_threads", "graph")), kernels,
         advice_on.outside),
        ("kernels launched on threads without any op", s["other_threads_count"], kernels,
         advice_on.other_threads),
        ("kernels of replayed CUDA graphs: ops ran at capture time", s["graph_count"], kernels,
         _RECORD_CAPTURE),
    )  # fmt: skip


def _graphs(manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield how the nodes of replayed graphs were found, and which graphs nothing explains."""
    for rank in manifest["ranks"]:
        graphs = rank.get("graphs", ())
        for link, how in _FOUND.items():
            own = [each for each in graphs if each["link"] == link]
            total = sum(each["nodes"] * each["replays"] for each in own)
            known = sum(each["linked"] for each in own)
            if own:
                severity = "info" if known == total else "lack"
                text = f"kernels of replayed graphs: {known:,} of {total:,} {how}"
                advice = "; ".join(dict.fromkeys(each["note"] for each in own[:_GRAPHS_SHOWN]))
                share = 100 * known / total
                yield Finding(severity, text, known, share, advice, rank["rank"])
        unknown = sorted(
            (each for each in graphs if each["link"] not in _FOUND),
            key=lambda each: -each["nodes"] * each["replays"],
        )
        for each in unknown[:_GRAPHS_SHOWN]:
            text = f"graph of {each['nodes']:,} nodes: {each['note']}"
            yield Finding("lack", text, each["replays"], None, _RECORD_CAPTURE, rank["rank"])
        if others := unknown[_GRAPHS_SHOWN:]:
            text = "replays of other graphs that nothing explains"
            count = sum(each["replays"] for each in others)
            yield Finding("lack", text, count, None, _RECORD_CAPTURE, rank["rank"])


def _compiled(manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield how many calls of compiled graphs have lines, and why others have none."""
    for rank in manifest["ranks"]:
        calls = rank.get("compiled", ())
        total = sum(each["calls"] for each in calls)
        known = sum(each["calls"] for each in calls if each["known"])
        if known:
            text = "calls of compiled graphs whose kernels are found in their code"
            yield Finding("info", text, known, 100 * known / total, "", rank["rank"])
        why = sorted((e for e in calls if not e["known"]), key=lambda each: -each["calls"])
        for each in why[:_GRAPHS_SHOWN]:
            text = f"calls of compiled graphs without lines: {each['note']}"
            share = 100 * each["calls"] / total
            yield Finding("lack", text, each["calls"], share, _NOTE_GRAPHS, rank["rank"])


def _facts(summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Finding]:
    if count := summary["fused_count"]:
        text = "kernels of compiled code that do the work of several ops"
        share = 100 * count / summary["kernel_count"]
        advice = "prof --by op has rows (shared: …) for them"
        yield Finding("info", text, count, share, advice)
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
        if entry := rank.get("entry"):
            where = ", on the CPU in place of a GPU" if entry["on_cpu"] else ""
            text = f"entry point {entry['file']}{where}: samples in a step"
            yield Finding("info", text, entry["batch_size"], rank=rank["rank"])
        if values := rank.get("counter_values"):
            yield Finding("info", "values of counters in the recording", values, rank=rank["rank"])
        for scanner, count in sorted(rank.get("scanned", {}).items()):
            text = f"events read with the {_SCANNERS.get(scanner, scanner)} scanner"
            yield Finding("info", text, count, rank=rank["rank"])
        for key, count in sorted(rank["skipped"].items()):
            text = f"not read: {look_up_skipped(key).text}"
            yield Finding("info", text, count, rank=rank["rank"])
