"""An explanation as text, a section below the other, or as JSON."""

from __future__ import annotations

import math
import textwrap
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyprof2 import units
from pyprof2.reports import cells, files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Facts = Mapping[str, Any]

FORMATS: Final = ("text", "json")

_LABEL: Final = 14
_KERNELS_SHOWN: Final = 12
_BASIS: Final = {
    "compute": "bound by compute", "memory": "bound by memory", "kept": "as recorded",
    "extrapolated": "extrapolated by the bandwidths",
}  # fmt: skip
_OTHER_ROLES: Final = {"helper": "a helper", "nested": "other work, of {op} inside"}
"""The roles of a kernel that does not do the work of the op that accounts for it."""


def write(facts: Facts, form: str) -> None:
    """Write the facts of `run.explain()` to stdout, in one of `FORMATS`."""
    if form == "json":
        import msgspec

        files.write_text(msgspec.json.format(files.json_text(facts), indent=2) + "\n", None)
    else:
        target = files.Target()
        lines = prediction_lines if "peaks" in facts else explanation_lines
        target.write_lines(lines(facts, target.line_width))


def explanation_lines(facts: Facts, width: int) -> Iterator[str]:
    """Give the sections of the facts of `run.explain()`, one below the other."""
    return _laid_out(sections(facts), width)


def _laid_out(sections: Iterable[tuple[str, Iterable[str]]], width: int) -> Iterator[str]:
    for name, paragraphs in sections:
        label = name
        for paragraph in paragraphs:
            yield from _wrap(label, cells.clean(paragraph), width)
            label = ""


def sections(facts: Facts) -> tuple[tuple[str, Iterator[str]], ...]:
    """Return the sections of the facts of `run.explain()`: the name of each and its paragraphs."""
    return (
        (facts["reference"], _kernel(facts)),
        ("op", _op(facts["op"]) if facts["node"] is None else _op_of_node(facts["node"])),
        ("link", _known(_link, facts["link"])),
        ("works for", _parts(facts["parts"])),
        ("graph", _known(_node, facts["node"])),
        ("range", _known(_range, facts["range"])),
        ("pair", _known(_pair, facts["pair"])),
        ("counts", _known(_counts, facts["cost"])),
        ("formula", _formula(facts["cost"])),
        ("kernels", _sharing(facts["sharing"], of_op=facts["kernel"] is None)),
        ("Tensor Cores", _tensor_core(facts["tensor_core"])),
        ("collective", _known(_communication, facts["communication"])),
        ("roof", _helped(facts) if facts["roof"] is None else _roof(facts["roof"])),
    )


def _known(section: Callable[[Facts], Iterator[str]], fact: Facts | None) -> Iterator[str]:
    return iter(()) if fact is None else section(fact)


def prediction_lines(facts: Facts, width: int) -> Iterator[str]:
    """Give the sections of the facts of `run.explain("predict:DEVICE")`."""
    row, kernels = facts["row"], facts["kernels"]
    more = [f"and {len(kernels) - _KERNELS_SHOWN} more"] * (len(kernels) > _KERNELS_SHOWN)
    return _laid_out(
        (
            (facts["reference"], _predicted(row)),
            ("peaks", map(_peak, facts["peaks"])),
            ("kernels", map(_moved, kernels[:_KERNELS_SHOWN])),
            ("", more),
        ),
        width,
    )


def _predicted(row: Facts) -> Iterator[str]:
    if row.get("lo_ms") is not None:
        value = row.get("step_ms")
        said = "no value" if value is None else f"{value:.4g} ms"
        yield (
            f"{said}, from {row['lo_ms']:.4g} to {row['hi_ms']:.4g} ms; bound by "
            f"{row['bound_by']}, idle {row['idle_pct']:.0f} %"
        )
        parts = ("compute", "memory", "extrapolated", "kept")
        shares = [f"{name} {row[f'{name}_pct']:.1f} %" for name in parts]
        yield f"the time of its kernels rests on: {', '.join(shares)}"
    if row.get("why"):
        yield row["why"]


def _peak(peak: Facts) -> str:
    is_memory = peak["dtype"] is None
    what = "memory" if is_memory else f"{peak['dtype']}, matrix units: {peak['tensor_core']}"
    scale, unit = (1e9, "GB/s") if is_memory else (1e12, "TFLOP/s")
    sides = []
    for where in ("here", "there"):
        rate = peak[f"peak_{where}"]
        known = "unknown" if rate is None else f"{rate / scale:,.4g} {unit}"
        sides.append(
            f"{where} {known} × {peak[f'eta_{where}']:.2f} ({peak[f'eta_source_{where}']})"
        )
    return f"{what}: {', '.join(sides)}; {_time(peak['time_ns'])}"


def _moved(kernel: Facts) -> str:
    times = f"{_time(kernel['here_ns'])} here, {_time(kernel['there_ns'])} there"
    said = f"{kernel['kernel']} ({kernel['count']}): {times}, {_BASIS[kernel['basis']]}"
    if kernel["kept_residual"] is None or kernel["basis"] in ("kept", "extrapolated"):
        return said
    factors = (math.exp(kernel[name]) for name in ("residual", "kept_residual"))
    return (
        f"{said}; least {_time(kernel['least_here_ns'])} and {_time(kernel['least_there_ns'])}, "
        "of it {:.2f} times as long here and {:.2f} there".format(*factors)
    )


@lru_cache(maxsize=1 << 12)  # most that is said of one row is said of others too
def _wrap(label: str, words: str, width: int) -> list[str]:
    """Return a paragraph beside its label; blanks at its start indent all of it."""
    shift = " " * (len(words) - len(words.lstrip()))
    blank = " " * _LABEL + shift
    first = f"{label:{_LABEL}}" + shift
    if len(label) >= _LABEL:
        first = f"{label} "
    return textwrap.wrap(
        words.strip(), max(width, 2 * _LABEL), initial_indent=first, subsequent_indent=blank,
        break_on_hyphens=False,
    ) or [first.rstrip()]  # fmt: skip


def _joined(**parts: Any) -> str:
    """Return `name value, name value` of the known values; `_` in a name is a blank."""
    return ", ".join(
        f"{name.replace('_', ' ').strip()} {value}".strip()
        for name, value in parts.items()
        if value is not None
    )


def _time(ns: float | None) -> str:
    if ns is None:
        return "an unknown time"
    return f"{units.format_rate(ns)} ns" if ns < 1000 else units.format_time(round(ns))


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _kernel(facts: Facts) -> Iterator[str]:
    kernel = facts["kernel"]
    if kernel is None:
        yield f"rank {facts['rank']}"
        return
    yield kernel["kernel"] or "a kernel without a name"
    device = _joined(device=kernel["device"], _=kernel["device_name"], stream=kernel["stream"])
    yield f"{_time(kernel['dur_ns'])}, {_joined(rank=facts['rank'], step=kernel['step'])}, {device}"
    geometry = _joined(
        grid=kernel["grid"],
        block=kernel["block"],
        registers=kernel["registers"],
        shared_memory=_amount(kernel["shared_bytes"], "B"),
        occupancy=_amount(kernel["occupancy_pct"], "%"),
        copied=_amount(kernel.get("bytes"), "B"),
        _=kernel["copy_kind"],
    )
    if geometry:
        yield geometry


def _amount(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:,.10g} {unit}"


def _op(op: Facts | None) -> Iterator[str]:
    if op is None:
        yield "none: nothing is known of what the kernel was launched for"
        return
    yield f"op:{op['op_id']} {op['signature'] or op['op'] + ', inputs not recorded'}"
    recompute = "run again by checkpointing" if op["recompute"] else None
    yield _joined(_=op["direction"], __=recompute, step=op["step"], on_the_CPU=_time(op["dur_ns"]))
    if op["layer"] is not None:
        yield f"layer {op['layer']}"
    if op["source"] is not None:
        yield f"source {op['source']} ({op['source_evidence']})"
    if op["library_source"] not in (None, op["source"]):
        yield f"in the library at {op['library_source']}"
    if op["inside"]:
        yield f"inside {', '.join(map(_reference, op['inside']))}"


def _op_of_node(node: Facts) -> Iterator[str]:
    """Name the op of a node of a graph, which ran when the graph was captured."""
    if node["op"] is None:
        yield "none: launched outside of any op when the graph was captured"
        return
    yield node["signature"] or f"{node['op']}, its inputs are not known"
    yield _joined(_=node["direction"], backward_of=node["forward_op"])
    for name in ("layer", "source"):
        if node[name] is not None:
            yield f"{name} {node[name]}"


def _node(node: Facts) -> Iterator[str]:
    place = _joined(node=node["node"], of_capture=node["capture"], _in=node["file"])
    yield f"{place}; candidates: {_number(node['candidates'])}"
    known = node["sizes_known"]
    yield (
        f"sizes of its replay: {_number(node['sizes_equal'])} of {_number(known)} equal"
        if known
        else "sizes of its replay: not recorded on both sides"
    )


def _parts(parts: list[Facts] | None) -> Iterator[str]:
    """Name the lines that a kernel of compiled code works for, with their ops, layers and nodes."""
    groups: dict[tuple[Any, ...], list[Facts]] = {}
    for part in parts or ():
        direction = "recompute" if part["recompute"] else part["direction"]
        groups.setdefault((part["source"], part["layer"], direction), []).append(part)
    for (source, layer, direction), own in groups.items():
        code = own[0]["code"]
        ops = dict.fromkeys(part["op"] or "an op that is not known" for part in own)
        yield f"{source or 'no line'}" + (f": {code}" if code else "")
        nodes = ", ".join(part["node"] for part in own)
        of_layer = _joined(layer=layer, _=direction)
        counts = [part["flops"] for part in own if part["flops"] is not None]
        flops = f"; {_number(sum(counts))} flops" if len(counts) == len(own) else ""
        yield f"{', '.join(ops)}; {of_layer}; nodes {nodes} ({own[0]['evidence']}){flops}"
    for words, name in (("reads", "reads"), ("writes", "writes"), ("generated code", "generated")):
        for text in dict.fromkeys(part[name] for part in parts or () if part[name]):
            yield f"{words} {text}"


def _reference(op: Facts) -> str:
    return f"op:{op['op_id']} {op['op']}"


def _link(link: Facts) -> Iterator[str]:
    if link["link"] != "none" or not link["note"]:
        yield f"{link['link']}: {link['meaning']}"
    if link["note"]:
        yield link["note"]
    launch = link["launch"]
    if launch is not None:
        number = f"correlation id {link['correlation_id']}"
        yield f"launched by {launch['name']} on thread {launch['tid']}, {number}"


def _range(found: Facts) -> Iterator[str]:
    yield found["range"]
    yield found["meaning"]


def _pair(pair: Facts) -> Iterator[str]:
    number = _joined(sequence_number=pair["sequence_nr"]) or "no sequence number"
    if pair["forward"] is not None:
        yield f"{number}: backward of {_reference(pair['forward'])}"
        place = _joined(layer=pair["forward"]["layer"], source=pair["forward"]["source"])
        if place:
            yield place
    elif pair["backward"]:
        yield f"{number}: its backward is {', '.join(map(_reference, pair['backward']))}"
    else:
        yield f"{number}: no forward or backward op belongs to it"


def _counts(cost: Facts) -> Iterator[str]:
    if "of" not in cost:
        if cost["cost_note"]:
            yield f"{cost['cost_status']}: {cost['cost_note']}"
        return
    if cost["counted_inside"]:
        yield f"counted at the ops inside: {', '.join(map(_reference, cost['counted_inside']))}"
        return
    note = f" ({cost['cost_note']})" if cost["cost_note"] else ""
    yield f"{cost['cost_status']}{note}, at {_reference(cost['of'])}"
    if cost["params"]:
        yield cost["params"]
    for name, how in _sums(cost):
        if cost[name] is not None:
            yield f"{name} {_number(cost[name])}{how}{_bounds(cost, name)}"
    if cost["dtype"]:
        yield f"computed in {cost['dtype']}"
    if cost["shapes_from"]:
        other = cost["shapes_op"]
        see = f"; see op:{other['op_id']} {other['signature'] or other['op']}" if other else ""
        yield f"shapes from {cost['shapes_from']}{see}"


def _sums(cost: Facts) -> Iterator[tuple[str, str]]:
    """Give FLOPs and bytes, each with its terms where they are known."""
    formula, read, written = (cost[n] for n in ("flops_formula", "bytes_read", "bytes_written"))
    yield "flops", "" if formula is None else f" = {formula} = {cost['flops_numbers']}"
    known = read is not None and written is not None
    yield "bytes", f" = {_number(read)} read + {_number(written)} written" if known else ""


def _bounds(cost: Facts, name: str) -> str:
    low, high = cost[f"{name}_lo"], cost[f"{name}_hi"]
    if low == high or low is None or high is None:
        return ""
    return f", at least {_number(low)}, at most {_number(high)}"


def _formula(cost: Facts | None) -> Iterator[str]:
    formula = None if cost is None else cost.get("formula")
    if formula is None or (cost and cost["counted_inside"]):
        return
    yield formula["name"]
    for paragraph in formula["text"].split("\n\n"):
        yield f"  {' '.join(paragraph.split())}"


def _sharing(kernels: list[Facts] | None, *, of_op: bool) -> Iterator[str]:
    if not kernels or (len(kernels) == 1 and not of_op):
        return
    if len(kernels) > 1:
        yield "the op's counts, by time, among the kernels that do its work; the others get none"
    for kernel in kernels[:_KERNELS_SHOWN]:
        share = f"{_number(kernel['flops'])} flops, {_number(kernel['bytes'])} bytes"
        share = _OTHER_ROLES.get(kernel["cost_role"], share).format(op=kernel["op"])
        name = kernel["kernel_short"]
        yield f"  kernel:{kernel['kernel_id']} {name}, {_time(kernel['dur_ns'])}: {share}"
    if len(kernels) > _KERNELS_SHOWN:
        yield f"  and {len(kernels) - _KERNELS_SHOWN} more"


def _tensor_core(verdicts: list[Facts] | None) -> Iterator[str]:
    could = {
        True: "eligible: its category, dtype and sizes allow them",
        False: "not eligible: its category, dtype or sizes do not allow them",
        None: "whether it is eligible is not known",
    }
    for verdict in verdicts or ():
        name = f"kernel:{verdict['kernel_id']} {verdict['kernel_short']}: "
        name = name if len(verdicts or ()) > 1 else ""
        yield f"{name}{verdict['tensor_core']}: {verdict['evidence']}"
        yield could[verdict["tensor_core_eligible"]]
        if verdict["tensor_core_eligible"] is not True and verdict["tensor_core_eligible_half"]:
            dtype = verdict["compute_dtype"] or "a dtype that is not recorded"
            yield f"eligible in half precision: it is {dtype} that keeps it off"
        if verdict["missed"]:
            yield f"missed: {verdict['missed']}; {verdict['advice']}"


def _communication(found: Facts) -> Iterator[str]:
    what = f"{found['collective']} among {units.counted(found['ranks'], 'rank')}"
    rate = units.format_rate(found["algorithm_gbps"])
    yield f"{what}: {_number(found['payload_bytes'])} bytes: algorithm bandwidth {rate} GB/s"
    if found["bus_gbps"] is not None:
        factor = units.format_rate(found["bus_factor"])
        yield f"bus bandwidth {units.format_rate(found['bus_gbps'])} GB/s, {factor} times that"


def _helped(facts: Facts) -> Iterator[str]:
    """Name the kernel with the rates of the op, where this one is a helper."""
    number = None if facts["kernel"] is None else facts["kernel"]["kernel_id"]
    kernels = facts["sharing"] or ()
    if any(k["cost_role"] in _OTHER_ROLES and k["kernel_id"] == number for k in kernels):
        main = next(k["kernel_id"] for k in kernels if k["cost_role"] == "main")
        yield f"a helper has none, nor rates: kernel:{main} does the work of the op"


def _roof(roof: Facts) -> Iterator[str]:
    if roof["device"] is None:
        yield f"unknown: {roof['unknown_because']}"
        return
    yield f"{roof['device']} ({roof['device_source']})"
    yield from _needs(roof)
    whole = (
        "from its start to its end"
        if roof["device_type"] == "cpu"
        else "all kernels of the op together"
    )
    took = f"it took {_time(roof['time_ns'])}, {whole}"
    if roof["roofline_pct"] is None:
        yield f"{took}: no percentage, for {roof['unknown_because']}"
    else:
        share = units.format_rate(roof["roofline_pct"])
        yield f"{took}: {share} % of its roof, bound by {roof['bound']}"
    if roof["flag"]:
        yield f"flag: {roof['flag']}"


def _needs(roof: Facts) -> Iterator[str]:
    """Give the least times: counts over peaks."""
    if roof["flops"] is not None and roof["peak_flop_per_s"] is not None:
        peak = f"{roof['peak_flop_per_s'] / 1e12:g} TFLOP/s ({roof['dtype']}, {roof['unit']} units)"
        if (saving := roof["saving"]) is not None:
            peak += f" × {saving['factor']:.4g}, saved by {saving['evidence']},"
        yield f"compute: {_number(roof['flops'])} flops at {peak} need {_time(roof['compute_ns'])}"
    if roof["bytes"] is not None and roof["memory_bytes_per_s"] is not None:
        speed = f"{roof['memory_bytes_per_s'] / 1e9:g} GB/s"
        yield f"memory: {_number(roof['bytes'])} bytes at {speed} need {_time(roof['memory_ns'])}"
    if roof["cache_ns"] is not None:
        speed = f"{roof['cache_bytes_per_s'] / 1e9:g} GB/s"
        size = f"{roof['cache_bytes'] / (1 << 20):g} MiB"
        yield (
            f"faster than the memory, and they fit in the cache of {size}: "
            f"at its {speed} they need {_time(roof['cache_ns'])}"
        )
