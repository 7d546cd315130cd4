"""Real traces give the numbers that others computed, and give them in any order and numbering."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter, defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from msgspec import Raw

from pyprof2.api.run import Run, load
from tests.kineto_events import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

KEYS: Final = {
    "n_kernels": "kernel_count",
    "kernel_time_ns": "kernel_time_ns",
    "busy_all_ns": "busy_ns",
    "busy_kernels_ns": "busy_kernels_ns",
    "k_with_launch": "launched_count",
    "k_linked_cpu_op": "linked_count",
    "k_leaf_has_shape": "shapes_count",
    "k_backward": "backward_count",
    "k_bwd_linked_any": "backward_paired_count",
    "k_recompute": "recompute_count",
}
"""What the truth calls a total, and what a summary calls it."""

pytestmark = pytest.mark.slow


def truth(shared: Path, trace: Path) -> dict[str, int]:
    """The totals of a trace, corrected; the truth leaves out what it has none of."""
    known = json.loads((shared / "truth" / "kineto_truth.json").read_text())
    more = json.loads((shared / "truth" / "more_truth.json").read_text())
    name = trace.name.removesuffix(".json.gz")
    values = known[name]["truth"] | more["corrected"].get(name, {})
    numbers = {key: values[key] for key in KEYS if key in values}
    return {key: n["n"] if isinstance(n, dict) else n for key, n in numbers.items()}


def totals(run: Run) -> dict[str, int]:
    return {key: run.summary[name] for key, name in KEYS.items()}


def test_totals_are_those_of_the_truth(kineto_trace: Path, shared: Path) -> None:
    wanted = truth(shared, kineto_trace)

    found = totals(load(kineto_trace))

    assert len(wanted) >= len(KEYS) - 1
    assert {key: found[key] for key in wanted} == wanted


# The same trace in another order, at another time, and with other numbers


SHIFT_US: Final = Decimal("86400000001.234")
_IDS: Final = (
    "External id", "external id", "correlation", "Sequence number", "Ev Idx",
    "Profiler Event Index", "Record function id", "Python id", "Python parent id",
)  # fmt: skip


def disguised(path: Path, renumber: Callable[[int], int], seed: int) -> bytes:
    """Return a trace with events shuffled, times shifted, and ids and threads renumbered."""
    with gzip.open(path) as file:
        whole = msgspec.json.decode(file.read(), type=dict[str, Raw] | list[Raw])
    around = whole if isinstance(whole, dict) else {}
    listed = whole["traceEvents"] if isinstance(whole, dict) else msgspec.json.encode(whole)
    events = msgspec.json.decode(listed, type=list[dict[str, Raw]])
    for event in events:
        if "ts" in event:
            event["ts"] = Raw(str(Decimal(bytes(event["ts"]).decode()) + SHIFT_US).encode())
        if "id" in event:
            event["id"] = _renumbered(event["id"], renumber)
        if _category(event) in _ON_HOST:
            event["tid"] = _renumbered(event["tid"], lambda tid: 90_000_000 - tid)
        if "args" in event:
            event["args"] = _with_ids(event["args"], renumber)
    random.Random(seed).shuffle(events)  # noqa: S311  (no secret)
    return msgspec.json.encode({**around, "traceEvents": events})


_ON_HOST: Final = (
    "cpu_op", "operator", "user_annotation", "python_function", "cuda_runtime", "cuda_driver",
    "runtime", "fwdbwd",
)  # fmt: skip


def _category(event: dict[str, Raw]) -> str:
    return str(msgspec.json.decode(event.get("cat", Raw(b'""')))).lower()


def _with_ids(args: Raw, renumber: Callable[[int], int]) -> Raw:
    fields = msgspec.json.decode(args, type=dict[str, Raw])
    fields |= {key: _renumbered(fields[key], renumber) for key in _IDS if key in fields}
    return Raw(msgspec.json.encode(fields))


def _renumbered(value: Raw, renumber: Callable[[int], int]) -> Raw:
    number = msgspec.json.decode(value)
    if isinstance(number, str) and number.isdigit():
        return Raw(b'"%d"' % renumber(int(number)))
    return Raw(b"%d" % renumber(number)) if isinstance(number, int) else value


def kernels(run: Run, shift_ns: int = 0) -> Counter[tuple[Any, ...]]:
    """What is known of every kernel and copy, but for the numbers that may be others."""
    columns = (
        "dur_ns", "kernel", "stream", "op", "signature", "layer", "source", "direction", "step",
        "recompute", "link", "link_note", "category", "flops", "bytes", "cost_status",
    )  # fmt: skip
    found: Counter[tuple[Any, ...]] = Counter()
    for name in ("kernels", "copies"):
        table = run.table(name)
        starts = [start - shift_ns for start in rows(table, "start_ns")]
        values = (rows(table, column) for column in columns)
        found.update(zip(starts, forward_ops(run, table), *values, strict=True))
    return found


def forward_ops(run: Run, table: Any) -> list[str | None]:
    names = rows(run.table("ops"), "op")
    return [None if at is None else names[at] for at in rows(table, "forward_op_id")]


def test_order_time_and_numbering_do_not_matter(
    kineto_trace: Path, shared: Path, tmp_path: Path
) -> None:
    copy = tmp_path / kineto_trace.name.removesuffix(".gz")
    copy.write_bytes(
        disguised(kineto_trace, lambda number: 3 * number + 7_000_001, seed=len(kineto_trace.name))
    )
    wanted = truth(shared, kineto_trace)

    original, found = load(kineto_trace), load(copy)

    assert {key: totals(found)[key] for key in wanted} == wanted
    assert kernels(found, int(SHIFT_US * 1000)) == kernels(original)


# A reader that shares nothing with ours


def slow_ops_of_kernels(path: Path) -> Counter[tuple[str, int, int, str | None]]:
    """Name, start, duration and op of every kernel, found by brute force from plain JSON."""
    with gzip.open(path) as file:
        whole = json.load(file, parse_float=Decimal)
    events = [e for e in whole["traceEvents"] if e.get("ph") == "X"]
    ops = defaultdict(list)
    launches = {}
    for event in events:
        start, args = _ns(event["ts"]), event.get("args", {})
        category, thread = event.get("cat", "").lower(), (event["pid"], str(event["tid"]))
        if category in ("cpu_op", "operator") and not event["name"].startswith(_NO_OPS):
            number = args.get("External id", args.get("external id", 0))
            ops[thread].append((start, -_ns(event["dur"]), number, event["name"]))
        elif category.endswith(("runtime", "driver")):
            launches[args.get("correlation")] = (thread, start)
    for each in ops.values():
        each.sort()
    op_at = _Sweep(ops).names(sorted(set(launches.values())))
    return Counter(
        (e["name"], _ns(e["ts"]), _ns(e["dur"]), op_at.get(launches.get(_correlation(e), NOWHERE)))
        for e in events
        if e.get("cat", "").lower() == "kernel"
    )


NOWHERE: Final = (None, 0)
_NO_OPS: Final = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#")


def _ns(us: Decimal | int) -> int:
    return int((Decimal(us) * 1000 + Decimal("0.5")) // 1)


def _correlation(event: dict[str, Any]) -> Any:
    return event.get("args", {}).get("correlation")


class _Sweep:
    """Walks over the threads in time, with a list of all ops that are open."""

    def __init__(self, ops: dict[Any, list[tuple[int, int, int, str]]]) -> None:
        self._ops = ops

    def names(self, times: Iterable[tuple[Any, int]]) -> dict[tuple[Any, int], str]:
        """Return the op that is open at each (thread, time) and was opened last."""
        found = {}
        opened: dict[Any, list[tuple[int, str]]] = defaultdict(list)
        position: Counter[Any] = Counter()
        for thread, time in times:
            ops, stack = self._ops.get(thread, []), opened[thread]
            while position[thread] < len(ops) and ops[position[thread]][0] <= time:
                start, length, _, name = ops[position[thread]]
                stack.append((start - length, name))
                position[thread] += 1
            stack[:] = [each for each in stack if each[0] >= time]
            if stack:
                found[thread, time] = stack[-1][1]
        return found


@pytest.mark.parametrize(
    "name",
    ["hta_alexnet_a100", "hta_mi250_toy", "hta_ns_v100", "hta_sampled_r0", "rn50_v100_w0",
     "tl_norm_mi300", "tl_qwen_mi300", "tl_resnet_ckpt_mi300", "tl_sglang_dec"],
)  # fmt: skip
def test_the_op_of_every_kernel_is_the_one_that_a_slow_reader_finds(
    name: str, shared_trace: Callable[[str], Path]
) -> None:
    path = shared_trace(f"kineto/{name}.json.gz")

    found = Counter(rows(load(path).table("kernels"), "kernel", "start_ns", "dur_ns", "op"))

    assert found == slow_ops_of_kernels(path)


# Pairs


@pytest.mark.parametrize(
    ("name", "count"),
    [("tl_norm_mi300", 51), ("hta_ns_v100", 905), ("tl_resnet_ckpt_mi300", 213),
     ("hta_mi250_toy", 4)],
)  # fmt: skip
def test_every_node_has_the_forward_op_that_the_recorder_ties_it_to(
    name: str, count: int, shared_trace: Callable[[str], Path]
) -> None:
    run = load(shared_trace(f"kineto/{name}.json.gz"))

    (rank,) = run.tables.manifest["ranks"]
    assert (rank["pairs_recorded"], rank["pairs_agree"]) == (count, count)
    ops = rows(run.table("ops"), "op", "forward_thread", "sequence_nr", "forward_op_id")
    nodes = [
        forward
        for op, thread, sequence, forward in ops
        if thread and sequence is not None and "::" not in op
    ]
    assert len(nodes) == count
    assert None not in nodes
    unpaired = {op for op, thread, _, forward in ops if thread and forward is None}
    assert all("AccumulateGrad" in op for op in unpaired)


def test_what_a_checkpoint_runs_again_has_layers_of_forward(
    shared_trace: Callable[[str], Path],
) -> None:
    run = load(shared_trace("kineto/tl_resnet_ckpt_mi300.json.gz"))

    found = rows(run.table("kernels"), "layer", "recompute", "direction")
    again = [layer for layer, recompute, _ in found if recompute]
    first = {layer for layer, recompute, way in found if way == "forward" and not recompute}
    assert len(again) == 591
    assert set(again) <= first - {None}


# FLOPs


def flops(run: Run, *categories: str, **values: Any) -> int:
    found = run.profile()
    found = found[found["category"].isin(categories)]
    for column, value in values.items():
        found = found[found[column] == value]
    return int(found["flops"].sum())


@pytest.mark.parametrize(
    ("direction", "count"), [("forward", 261_707_792_384), ("backward", 515_862_691_840)]
)
def test_every_step_of_resnet_50_does_the_flops_of_its_formula(
    direction: str, count: int, shared_trace: Callable[[str], Path]
) -> None:
    run = load(shared_trace("kineto/rn50_v100_w0.json.gz"))

    steps = run.summary["steps"]
    assert len(steps) == 6
    for step in steps:
        assert flops(run, "matmul", "conv", direction=direction, step=step) == count


def test_four_vision_transformers_do_the_flops_of_their_formula(
    shared_trace: Callable[[str], Path],
) -> None:
    run = load(shared_trace("kineto/tl_nsfwvit_h100.json.gz"))

    parts = {name: flops(run, name) for name in ("conv", "matmul", "attention")}
    assert sum(parts.values()) == 140_509_200_384
    assert parts["conv"] == 924_844_032


def test_totals_of_the_further_traces_are_those_of_the_truth(
    shared: Path, shared_trace: Callable[[str], Path]
) -> None:
    known = json.loads((shared / "truth" / "more_truth.json").read_text())["traces"]
    assert known

    for name, expected in known.items():
        run = load(shared_trace(f"more/kineto/{name}.json.gz"))
        kernels, ops = run.kernels, run.ops
        # The truth of these counts what is launched as an op ends as in it.
        over = set(zip(ops["tid"], ops["start_ns"] + ops["dur_ns"], strict=True))
        loose = kernels[kernels["op_id"].isna() & kernels["launch_ns"].notna()]
        at_end = sum(key in over for key in zip(loose["tid"], loose["launch_ns"], strict=True))
        backward = kernels["direction"].eq("backward").fillna(value=False)
        # The truth of these counts with backward what custom functions run again in it.
        again = kernels["recompute"].fillna(value=False)
        assert {
            "n_kernels": len(kernels),
            "kernel_time_ns": kernels["dur_ns"].sum(),
            "k_linked_cpu_op": kernels["op_id"].notna().sum() + at_end,
            "k_backward": (backward | again).sum(),
            "k_bwd_linked_any": kernels["forward_op_id"][backward].notna().sum(),
        } == expected, name
