"""Costs of lines in a recording, as plain values: made in the worker, shown by the server.

Lines are in a tree of calls, and a line may be in it more than once. The cost of a line or a
function is the sum of its nodes that are below no other of its own, so recursion counts once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pyprof2.analysis.time.line_tree import LINE
from pyprof2.api import run_memory, run_time
from pyprof2.frames import is_own_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from pyprof2.analysis.summaries.line_profile import LineProfile
    from pyprof2.api.run import Run

VALUES: Final = (
    "time_ns", "forward_ns", "backward_ns", "recompute_ns", "optimizer_ns", "other_ns", "calls",
    "count", "flops", "bytes", "tensor_core_ns", "idle_caused_ns",
)  # fmt: skip
"""The sums of a node, over all steps; null where nothing of it is known."""
_MOST_BRANCHES: Final = 400
_FINDING: Final = ("rule", "severity", "finding", "source", "remedy", "at_stake_hi_ns")
_RATES: Final = ("tflops", "gbps", "roofline_pct", "tensor_core_pct")


class Node(TypedDict):
    """A line in the tree of calls.

    Attributes:
        line: from 0.
        parent: position of the next node above that is in the same file; -1 for none.
        module: the common path of the layers below.
        values: `VALUES`.
    """

    line: int
    parent: int
    module: str | None
    values: list[int | None]


class FileCosts(TypedDict):
    """The costs of a file.

    Attributes:
        sha256, hashes: of the recorded text; null where that is not known.
        nodes: its lines in the tree.
        memory: bytes at the peak of the device by line, from 0, as text.
        rates: of lines that call ops: `_RATES` by line.
    """

    sha256: str | None
    hashes: str | None
    nodes: list[Node]
    memory: dict[str, int]
    rates: dict[str, dict[str, float]]


class EntryRecorded(TypedDict):
    """The entry point that a recording is of.

    Attributes:
        file: its path, as it was recorded.
        batch_size: samples in a step.
    """

    file: str
    batch_size: int


class Costs(TypedDict):
    """The costs in a recording.

    Attributes:
        path: the recording.
        entry: the entry point that it is of: `file` as it was recorded, and `batch_size`.
        root: the folder of the user's own code where it was recorded.
        ledger: `device` or `host`.
        steps: how many its numbers are of; 0: no steps were recorded, it is one whole.
        step_ns: the mean time of a step, as `pyprof2 prof` has it; of a part of a model its own.
        total_ns: the time of all steps.
        recorded_at: seconds since the epoch.
        by_function: whether lines are where functions begin, not where they call.
        device: its name.
        memory_of: the device whose peak `memory` is of.
        peak_bytes: that peak; 0: not recorded.
        leading: first dimensions of inputs in forward, and the share of calls that have them.
        files: by path as it was recorded.
        layers: `path:line` of the layer's own calls.
        tree: the largest branches: [parent, kind, name, module, time, calls].
        findings: rows of what fires.
    """

    path: str
    entry: EntryRecorded | None
    root: str | None
    ledger: str
    steps: int
    step_ns: float
    total_ns: int
    recorded_at: float
    by_function: bool
    device: str
    memory_of: str
    peak_bytes: int
    leading: list[tuple[int, float]]
    files: dict[str, FileCosts]
    layers: dict[str, str]
    tree: list[list[Any]]
    findings: list[dict[str, Any]]


def costs_of(path: Path, within: str | None = None) -> Costs:
    """Return the costs in a store or a trace.

    Args:
        path: of it.
        within: only what runs in this module.

    Raises:
        TraceError, StoreError: it cannot be read.
        UsageError: there is no such module.
    """
    from pyprof2.analysis.summaries.line_profile import LineQuery
    from pyprof2.api.run import load

    run = load(path)
    profile = run_time.line_profile(run.tables, LineQuery(within=within))
    steps = len([1 for _, number in profile.steps if number is not None])
    root = next(iter(run.tables.source_roots), None)
    files = _files(profile.table, root)
    memory_of, peak = _add_memory(run, files)
    _add_rates(run, files)
    for code in run.tables.manifest.get("code", []):
        if code["path"] in files:
            files[code["path"]]["sha256"] = code["sha256"]
            files[code["path"]]["hashes"] = code["lines"]
    trace = run.trace.iloc[0]
    to_unix = _whole(trace["unix_ns"])
    return Costs(
        path=str(path),
        entry=_entry(run),
        root=root,
        ledger=profile.ledger,
        steps=steps,
        step_ns=(None if within else run.tables.mean_step_ns) or profile.total_ns / max(1, steps),
        total_ns=profile.total_ns,
        # When the recording ended, else when it was written.
        recorded_at=path.stat().st_mtime
        if to_unix is None
        else float((int(trace["end_ns"]) + to_unix) / 1e9),
        by_function=run_time.lines_are_functions(run.tables),
        device=", ".join(dict.fromkeys(str(n) for n in run.devices["name"].dropna())),
        memory_of=memory_of,
        peak_bytes=peak,
        leading=leading_dimensions(run),
        files=files,
        layers=_layers(run),
        tree=_tree(profile),
        findings=_findings(run),
    )


def _entry(run: Run) -> EntryRecorded | None:
    """Return the entry point of a recording; None: it is of none, or of several."""
    found = [rank["entry"] for rank in run.tables.manifest["ranks"] if "entry" in rank]
    if not found or any(each != found[0] for each in found):
        return None
    return EntryRecorded(file=found[0]["file"], batch_size=found[0]["batch_size"])


def _files(table: pd.DataFrame, root: str | None) -> dict[str, FileCosts]:
    """Return the nodes of each file of the user's own."""
    files: dict[str, FileCosts] = {}
    parents = table["parent_id"].fillna(-1).astype(int).tolist()
    kinds, names, modules = (table[name].tolist() for name in ("kind", "name", "module"))
    values = _values(table)
    places: dict[int, tuple[str, int]] = {}
    for at, (kind, name) in enumerate(zip(kinds, names, strict=True)):
        path, _, line = name.rpartition(":")
        if kind != LINE or not line.isdecimal() or not is_own_path(path, root):
            continue
        nodes = files.setdefault(path, _nothing())["nodes"]
        above = parents[at]
        while above >= 0 and places.get(above, ("", 0))[0] != path:
            above = parents[above]
        parent = places[above][1] if above >= 0 else -1
        module = _text(modules[at])
        nodes.append(Node(line=int(line) - 1, parent=parent, module=module, values=values[at]))
        places[at] = path, len(nodes) - 1
    return files


def _nothing() -> FileCosts:
    return FileCosts(sha256=None, hashes=None, nodes=[], memory={}, rates={})


def _values(table: pd.DataFrame) -> list[list[int | None]]:
    columns = [[_whole(value) for value in table[name].tolist()] for name in VALUES]
    return [list(row) for row in zip(*columns, strict=True)]


def _whole(value: Any) -> int | None:
    """Return a value of a table as an integer; None for null."""
    import pandas as pd

    return None if pd.isna(value) else int(value)


def _text(value: Any) -> str | None:
    """Return a value of a table as text; None for null."""
    import pandas as pd

    return None if pd.isna(value) else str(value)


def _add_memory(run: Run, files: dict[str, FileCosts]) -> tuple[str, int]:
    """Add the bytes of each line at the peak of the fullest device; return its name and peak."""
    memory = run_memory.memory_by_device(run.tables)
    if not memory.curves:
        return "", 0
    # By place: the CPU has no number, and null is no part of a key.
    held = [replace(memory, curves=[each]).rows(("line",), "peak") for each in memory.curves]
    sums = [int(rows["bytes"].sum()) for rows in held]
    at = max(range(len(sums)), key=lambda at: (memory.curves[at].device_type != "cpu", sums[at]))
    kind, number = memory.curves[at].device_type, memory.curves[at].device
    for line, size in zip(held[at]["line"].tolist(), held[at]["bytes"].tolist(), strict=True):
        path, _, where = str(line).rpartition(":")
        if path in files and where.isdecimal():
            files[path]["memory"][str(int(where) - 1)] = int(size)
    return kind if number is None else f"{kind}:{number}", sums[at]


def _add_rates(run: Run, files: dict[str, FileCosts]) -> None:
    """Add rates of the ops of lines, and their share of the roof."""
    rows = run.profile(by="source")
    for row in rows[["source", *_RATES]].to_dict("records"):
        path, _, at = str(row["source"]).rpartition(":")
        found = {n: float(row[n]) for n in _RATES if isinstance(row[n], float) and row[n] >= 0}
        if path in files and at.isdecimal() and found:
            files[path]["rates"][str(int(at) - 1)] = found


def leading_dimensions(run: Run) -> list[tuple[int, float]]:
    """Return the first dimensions of the inputs of forward ops with a layer, commonest first.

    With each the share of these ops that has it as first dimension of its first tensor.
    """
    import re

    ops = run.ops
    own = ops[(ops["direction"] == "forward") & ops["layer"].notna() & ops["signature_id"].notna()]
    texts = run.signatures.set_index("signature_id")["signature"]
    counts: dict[int, int] = {}
    for signature, count in own["signature_id"].map(texts).value_counts().items():
        match = re.search(r"\(\[(\d+)[,\]]", str(signature))
        if match:
            counts[int(match[1])] = counts.get(int(match[1]), 0) + int(count)
    whole = sum(counts.values()) or 1
    ordered = sorted(counts.items(), key=lambda each: -each[1])[:8]
    return [(size, count / whole) for size, count in ordered]


def _layers(run: Run) -> dict[str, str]:
    """Return for each layer the line of its own that took the most time."""
    rows = run.profile(by=["layer", "source"])
    found: dict[str, str] = {}
    for layer, source in zip(rows["layer"].tolist(), rows["source"].tolist(), strict=True):
        # Kernels of several layers or lines are of none of them alone.
        if not any(str(each).startswith(("(none)", "(shared: ")) for each in (layer, source)):
            found.setdefault(layer, source)
    return found


def _tree(profile: LineProfile) -> list[list[Any]]:
    """Return the largest branches, each after its parent, with new numbers."""
    table = profile.table
    kept = table.nlargest(_MOST_BRANCHES, "time_ns").index.sort_values()
    number = {int(at): new for new, at in enumerate(kept)}
    rows = []
    for row in table.loc[kept].to_dict("records"):
        above = number.get(_whole(row["parent_id"]) or 0, -1) if row["depth"] > 1 else -1
        place = [row["kind"], row["name"], _text(row["module"])]
        rows.append([above, *place, int(row["time_ns"]), int(row["calls"])])
    return rows


def _findings(run: Run) -> list[dict[str, Any]]:
    """Return the findings of advice at lines."""
    found = run.advise()
    fires = found[(found["status"] == "fires") & found["source"].notna()]
    return [
        {name: _whole(row[name]) if name.endswith("_ns") else _text(row[name]) for name in _FINDING}
        for row in fires[list(_FINDING)].to_dict("records")
    ]


# -- sums of nodes --------------------------------------------------------------------


def total(nodes: Sequence[Node], first: int, last: int) -> list[int | None] | None:
    """Return the sum over lines from `first` to `last`; of nodes below one another the upper one.

    None: there is none of them.
    """
    inside = [first <= node["line"] <= last for node in nodes]
    below = [False] * len(nodes)
    sums: list[int | None] | None = None
    for at, node in enumerate(nodes):
        parent = node["parent"]
        below[at] = parent >= 0 and (below[parent] or inside[parent])
        if inside[at] and not below[at]:
            sums = list(node["values"]) if sums is None else _added(sums, node["values"])
    return sums


def totals_of_lines(nodes: Sequence[Node]) -> Iterator[tuple[int, list[int | None]]]:
    """Yield each line with its costs over all callers, recursion once."""
    sums: dict[int, list[int | None]] = {}
    above: list[frozenset[int]] = []
    for node in nodes:
        parent = node["parent"]
        lines = frozenset() if parent < 0 else above[parent] | {nodes[parent]["line"]}
        above.append(lines)
        line = node["line"]
        if line not in lines:
            sums[line] = _added(sums.get(line, [None] * len(VALUES)), node["values"])
    yield from sums.items()


def _added(left: Sequence[int | None], right: Iterable[int | None]) -> list[int | None]:
    return [b if a is None else a if b is None else a + b for a, b in zip(left, right, strict=True)]
