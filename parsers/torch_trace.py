"""Logs that torch writes where `TORCH_TRACE` names a folder: what its compiler did, graph by graph.

A record is a line that begins with `V`, ends in JSON, and may have a payload: the lines behind it
that begin with a tab. Of a graph the post-grad graph comes first, then its code, then whether it
came from a cache, with its key; up to 2.8 the kernels' nodes come last. What comes from a cache may
name lines of a file as it was: of such a graph only lines that are known from elsewhere are kept.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from pyprof2.errors import TraceError
from pyprof2.parsers._generated_code import fragments, read_code, repeated_fragments
from pyprof2.parsers.compile_notes import is_view, one_line, op_name
from pyprof2.recording import CodeNode, CompiledGraph, CompileEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyprof2.recording import Sizes

LOG_NAME: Final = "dedicated_log_torch_trace*.log"
"""How torch names its logs."""
_RECORD: Final = re.compile(r"V\d{4} .*?\] (\{.*)")
_PAYLOAD_MAX: Final = 64 << 20
"""A longer payload is damage."""
_FILE: Final = re.compile(r"\s*# File: (?P<path>.+):(?P<line>\d+) in .*?, code: (?P<text>.*)")
_NO_FILE: Final = re.compile(r"\s*# No stacktrace")
_NODE: Final = re.compile(r"\s*(?P<name>\w+)(?:: \"(?P<type>[^\"]*)\")? = (?P<what>[^;]*)")
_CALL: Final = re.compile(r"(?P<target>[\w.]+)\((?P<args>.*)")
_SIZES: Final = re.compile(r"(\w+)\[([^\]]*)\]")
_HEAD: Final = re.compile(r"^ *def forward\(self, (.*)\)", re.MULTILINE)
_GIVEN: Final = re.compile(r"\b(\w+): \"([^\"]{0,20000})\"")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_GRAPHS: Final = ("inductor_post_grad_graph", "after_post_grad_graph")
_MAPS: Final = ("inductor_provenance_tracking_node_mappings",)
_STACKS: Final = "inductor_provenance_tracking_kernel_stack_traces"
_FRAME: Final = re.compile(r'File "(.+?)", line (\d+), in .*')
_HANDLES: Final = re.compile(r"# \[Provenance debug handles\] (\S.*)")
_OLD_MAP: Final = "inductor_triton_kernel_to_post_grad_nodes"
_CODE_FILE: Final = "output_code.py"
_BROKE: Final = re.compile(r"Graph break in user code at (\S.*:\d+)")
_CACHE: Final = re.compile(r"fx_graph_cache_(miss|hit|bypass)")


@dataclass
class _Compilation:
    """The facts that a log has said of a code that is compiled, until its next graph."""

    fresh: dict[str, str] = field(default_factory=dict)
    post_grad: str = ""
    graphs: list[_Logged] = field(default_factory=list)
    first: int = 0


@dataclass
class _Logged:
    """A graph of a log."""

    code: str
    post_grad: str
    file: str
    fresh: dict[str, str]
    is_backward: bool
    key: str | None = None
    cache: str | None = None
    kernels: dict[str, list[str]] = field(default_factory=dict)
    before: dict[str, list[str]] = field(default_factory=dict)
    stacks: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def numbered(self) -> set[str]:
        """The kernels and calls in the code, with their numbers."""
        return {each for line in _HANDLES.findall(self.code) for each in re.split(r"[ ,]+", line)}


def find_logs(folder: Path) -> list[Path]:
    """Return the logs in a folder, and in those directly in it; a file is one itself.

    Where `TORCH_COMPILE_DEBUG` wrote folders and no log, these: one for each graph.
    """
    if folder.is_file():
        return [folder]
    others = sorted(folder.iterdir()) if folder.is_dir() else []
    # In a folder that many share, some are not ours to look into.
    inside = [each for each in others if each.is_dir() and os.access(each, os.R_OK | os.X_OK)]
    places = [folder, *inside, *(each / "tlparse" for each in inside)]
    logs = sorted(path for each in places for path in each.glob(LOG_NAME))
    if logs:
        return logs
    patterns = [f"{start}torchinductor/model_*/{_CODE_FILE}" for start in ("", "*/", "*/*/")]
    return sorted({path.parent for each in patterns for path in folder.glob(each)})


class CompileLog(NamedTuple):
    """All that a log says, each with its rank, None where it says none.

    Attributes:
        graphs: those that were compiled.
        events: why they are not fewer.
    """

    graphs: list[tuple[int | None, CompiledGraph]]
    events: list[tuple[int | None, CompileEvent]]


def read_log(path: Path) -> CompileLog:
    """Return what was compiled, and why not as one graph; of a folder of a graph that one.

    Raises:
        TraceError: the file cannot be read, or is no such log.
    """
    compilations: dict[tuple[int | None, str], _Compilation] = {}
    events: list[tuple[int | None, CompileEvent]] = []
    count = 0
    if path.is_dir():
        return CompileLog([(None, _read_folder(path))], [])
    try:
        for record, payload in _records(path):
            count += 1
            compile_id = _compile_id(record)
            said = record.get("rank")
            rank = said if isinstance(said, int) else None
            if (event := _event(record, payload)) is not None:
                events.append((rank, event))
            if compile_id is not None:
                key = (rank, compile_id)
                _take(compilations.setdefault(key, _Compilation()), record, payload)
    except OSError as error:
        msg = f"{path}: {error.strerror or error}"
        raise TraceError(msg) from error
    if not count:
        msg = f"{path}: no record of torch's trace in it; name what TORCH_TRACE=DIR wrote"
        raise TraceError(msg)
    graphs = [
        (rank, _graph(each, compile_id))
        for (rank, compile_id), found in compilations.items()
        for each in found.graphs
    ]
    return CompileLog(graphs, events)


def _read_folder(path: Path) -> CompiledGraph:
    """Return the graph that a folder of `TORCH_COMPILE_DEBUG` is of.

    Raises:
        TraceError: it cannot be read.
    """
    texts = {}
    for name in (_CODE_FILE, "fx_graph_transformed.py", f"{_MAPS[0]}.json"):
        file = path / name
        try:
            found = file.is_file() and file.stat().st_size <= _PAYLOAD_MAX
            texts[name] = file.read_text("utf-8", "replace") if found else ""
        except OSError as error:
            msg = f"{file}: {error.strerror or error}"
            raise TraceError(msg) from error
    code, graph, maps = texts.values()
    kernels = _lists(_dict(maps).get("cppCodeToPost"))
    is_backward = "_backward_" in path.name
    logged = _Logged(code, graph, str(path / _CODE_FILE), {}, is_backward, kernels=kernels)
    return _graph(logged, None)


def _event(record: dict[str, Any], payload: str) -> CompileEvent | None:
    """Return what a record says of a break, or of why code is compiled again."""
    artifact, metrics = record.get("artifact"), record.get("compilation_metrics")
    if isinstance(artifact, dict) and artifact.get("name") == "dynamo_graph_break_reason":
        place = _BROKE.search(payload)
        return CompileEvent("graph break", place and place[1], one_line(payload))
    if isinstance(metrics, dict) and isinstance(why := metrics.get("recompile_reason"), str):
        file, line = metrics.get("co_filename"), metrics.get("co_firstlineno")
        return CompileEvent("recompilation", f"{file}:{line}" if file else None, one_line(why))
    return None


def _records(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the records of a log with their payloads."""
    record: dict[str, Any] | None = None
    payload: list[str] = []
    size = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("\t"):
                size += len(line)
                if size <= _PAYLOAD_MAX:
                    payload.append(line[1:])
                continue
            match = _RECORD.match(line)
            if match is None:
                continue
            if record is not None:
                yield record, "".join(payload)
            payload, size = [], 0
            try:
                found = msgspec.json.decode(match[1])
            except (msgspec.DecodeError, RecursionError):
                found = None
            record = found if isinstance(found, dict) else None
    if record is not None:
        yield record, "".join(payload)


def _compile_id(record: dict[str, Any]) -> str | None:
    """Return the id of the compilation as the recording of a call shows it: `0/1`, `0/1_2`."""
    frame, number = record.get("frame_id"), record.get("frame_compile_id")
    if type(frame) is not int or type(number) is not int:
        return None
    attempt = record.get("attempt")
    return f"{frame}/{number}" + (f"_{attempt}" if attempt else "")


def _take(found: _Compilation, record: dict[str, Any], payload: str) -> None:
    artifact = record.get("artifact")
    name = str(artifact.get("name")) if isinstance(artifact, dict) else ""
    if "dynamo_start" in record:
        # A process that resets the compiler counts anew.
        found.first = len(found.graphs)
    elif "dynamo_output_graph" in record:
        found.fresh = {node: line for node, (line, _, _) in _nodes(payload).items() if line}
    elif name in _GRAPHS or any(each in record for each in _GRAPHS):
        found.post_grad = payload
    elif "inductor_output_code" in record:
        said = record["inductor_output_code"]
        file = str(said.get("filename")) if isinstance(said, dict) else ""
        found.graphs.append(
            _Logged(
                payload,
                found.post_grad,
                file,
                found.fresh,
                is_backward=len(found.graphs) > found.first,
            )
        )
        found.post_grad = ""
    elif found.graphs and (cache := _CACHE.fullmatch(name)) is not None:
        found.graphs[-1].cache, found.graphs[-1].key = cache[1], _dict(payload).get("key")
    elif found.graphs and name in (*_MAPS, _STACKS, _OLD_MAP):
        _take_kernels(found.graphs[found.first :], name, _dict(payload))


def _take_kernels(graphs: Sequence[_Logged], name: str, said: dict[str, Any]) -> None:
    """Take what a record says of kernels: of those of the last graph, or of one before.

    Records may come late. Kernels have numbers, which the code of a graph has too.
    """
    lists = _lists(said if name not in _MAPS else said.get("cppCodeToPost"))
    numbered = {each for each in lists if ":" in each.replace("::", "")}
    own = [each for each in graphs if numbered <= each.numbered]
    if not own:
        return
    graph = own[-1]
    if name == _STACKS:
        graph.stacks = lists
    elif name in _MAPS:
        graph.kernels |= lists
        graph.before |= _lists(said.get("postToPre"))
    elif not graph.kernels:
        graph.kernels = lists


def _dict(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _lists(found: Any) -> dict[str, list[str]]:
    if not isinstance(found, dict):
        return {}
    return {
        name: [str(each) for each in nodes]
        for name, nodes in found.items()
        if isinstance(nodes, list)
    }


def _nodes(text: str) -> dict[str, tuple[str | None, str, re.Match[str]]]:
    """Return by name the line, its code, and the text of each node of a printed graph."""
    found: dict[str, tuple[str | None, str, re.Match[str]]] = {}
    place: tuple[str | None, str] = (None, "")
    for line in text.split("\n"):
        file = _FILE.match(line)
        if file is not None:
            place = f"{file['path']}:{file['line']}", file["text"].strip()
        elif _NO_FILE.match(line):
            place = None, ""
        else:
            node = _NODE.match(line)
            if node is not None:
                found[node["name"]] = (*place, node)
    return found


def _graph(logged: _Logged, compile_id: str | None) -> CompiledGraph:
    # A list for a name says nothing of the calls of that name when there are several.
    listed = {
        name: nodes
        for name, nodes in logged.kernels.items()
        if ":" in name or ("::" not in name and not name.startswith(("extern_kernels.", "torch.")))
    }
    nodes, inputs = _nodes(logged.post_grad), _inputs(logged.post_grad)
    is_old = logged.cache == "hit"
    # A backward graph that is compiled late has only the stacks of kernels in the log.
    known = {*nodes, *inputs}
    placed = {name for name, own in listed.items() if own}
    if any(line for line, _, _ in nodes.values()):
        placed |= set(fragments(logged.code))
        same = _same_starts(logged)
        listed = same | listed
        placed |= set(same)
    late = {} if is_old else _by_stacks(logged, placed)
    listed |= {kernel: list(own) for kernel, own in late.items()}
    code = read_code(logged.code, listed)
    return CompiledGraph(
        logged.key if isinstance(logged.key, str) else None,
        compile_id,
        logged.is_backward,
        None,
        {
            name: _node(name, text, known, _lines(name, line, logged, is_old=is_old), words)
            for name, (line, words, text) in nodes.items()
        }
        | {name: node for own in late.values() for name, node in own.items()},
        inputs,
        code.launches,
        {},
        code.note,
        logged.file,
    )


def _same_starts(logged: _Logged) -> dict[str, list[str]]:
    """Return the nodes of kernels that start several times, where all starts have the same stacks.

    A comment names the nodes of the first start.
    """
    found: dict[str, list[str]] = {}
    for name, nodes in repeated_fragments(logged.code).items():
        own = [key for key in logged.numbered if key.rpartition(":")[0] == name]
        stacks = {tuple(logged.stacks.get(key, ())) for key in own}
        if len(stacks) == 1 and () not in stacks:
            found |= {key: list(nodes) for key in own}
    return found


def _by_stacks(logged: _Logged, known: set[str]) -> dict[str, dict[str, CodeNode]]:
    """Return of kernels whose nodes are not known a node for each stack that is logged."""
    found = {}
    for kernel, stacks in logged.stacks.items():
        if not known & {kernel, kernel.rpartition(":")[0]} and ":" in kernel:
            lines = [[f"{path}:{line}" for path, line in _FRAME.findall(s)][::-1] for s in stacks]
            distinct = dict.fromkeys(tuple(each) for each in lines if each)
            found[kernel] = {
                f"{kernel}/{number}": CodeNode("", lines=own)
                for number, own in enumerate(distinct, 1)
            }
    return found


def _lines(name: str, line: str | None, logged: _Logged, *, is_old: bool) -> tuple[str, ...]:
    """Return the line of a node; of a graph from a cache that of the node it was made from."""
    if not is_old:
        return () if line is None else (line,)
    if logged.is_backward:
        return ()
    known = {logged.fresh.get(each) for each in logged.before.get(name, ())}
    first = known.pop() if len(known) == 1 else None
    return () if first is None else (first,)


def _node(
    name: str, text: re.Match[str], known: set[str], lines: tuple[str, ...], words: str
) -> CodeNode:
    call = _CALL.match(text["what"])
    op = "getitem" if call is None else op_name(call["target"])
    names = _NAME.findall("" if call is None else call["args"])
    inputs = tuple(dict.fromkeys(each for each in names if each in known))
    return CodeNode(
        op, None, None, tuple(each for each in inputs if each != name), lines,
        (words,) if lines else (), None, None, is_view(op), *_sizes(text["type"] or ""),
    )  # fmt: skip


def _sizes(text: str) -> tuple[Sizes | None, str | None]:
    """Return sizes and element type that `f32[8, 128][128, 1]cuda:0` says."""
    found = _SIZES.match(text)
    if found is None:
        return None, None
    sizes = (each.strip() for each in found[2].split(","))
    known = tuple(
        int(each) if each.isdecimal() and len(each) < 20 else each for each in sizes if each
    )
    return known, {"b8": "bool"}.get(found[1], found[1])


def _inputs(text: str) -> dict[str, CodeNode]:
    """Return what is given to a printed graph, by name."""
    head = _HEAD.search(text)
    given = _GIVEN.findall(head[1]) if head is not None else ()
    found = {name: _sizes(kind) for name, kind in given}
    return {name: CodeNode("", sizes=s, dtype=d) for name, (s, d) in found.items()}
