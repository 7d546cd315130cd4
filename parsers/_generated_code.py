"""The code that Inductor generates for a graph: which kernels it starts and ops it calls, in order.

The text is looked at and never run. Its form is that of torch 2.5 to 2.13.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.recording import CodeLaunch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FUNCTION: Final = re.compile(r"(?P<indent> *)def (?P<name>call|partition_\d+)\(")
_HANDLES: Final = re.compile(r" *# \[Provenance debug handles\] (?P<names>\S.*)")
_KERNEL: Final = re.compile(r" *(?P<name>\w+)\.run\((?P<args>.*)")
_PLAIN: Final = re.compile(r" *(?P<name>cpp_\w+)\((?P<args>.*)")
_CALL: Final = re.compile(
    r" *(?:(?P<result>\w+) = )?"
    r"(?:extern_kernels\.(?P<extern>\w+)|torch\.ops\.(?P<space>\w+)\.(?P<op>\w+)(?:\.\w+)?"
    r"|aten\.(?P<aten>\w+)\.\w+)\((?P<args>.*)"
)
_PARTITION: Final = re.compile(r".*\bself\.partitions\[(\d+)\]\(|.*\b(partition_\d+)\(")
_PART_OF: Final = re.compile(r" *(?P<result>\w+) = (?P<of>\w+)\[\d+\]\Z")
_BRANCH: Final = re.compile(r" *(?:if|elif|else|while|for)\b.*:\s*\Z")
_OUT: Final = re.compile(r"\bout=(?:reinterpret_tensor\()?(\w+)")
_NAME: Final = re.compile(r"\b[A-Za-z_]\w*\b")
_DEFINED: Final = re.compile(r"^(?P<name>\w+) = async_compile\.\w+\((?P<args>.*)", re.MULTILINE)
_TYPES: Final = re.compile(r"\[([^\]]*)\]")
_SIGNATURE: Final = re.compile(r"^(?:async_compile|def) ?", re.MULTILINE)
_ORIGINALS: Final = re.compile(r"Original ATen: \[([^\]]*)\]")
_FRAGMENT: Final = re.compile(r"^#   %(\w+) : .*= call_function\[", re.MULTILINE)
_CALLED_AS: Final = {"bias_addmm": "addmm"}
"""The ops that functions of another name call."""
_AROUND: Final = frozenset({
    "higher_order::run_and_save_rng_state", "higher_order::run_with_rng_state",
})  # fmt: skip
"""Calls of another op, with the state of random numbers kept or set."""
_INNER: Final = re.compile(r"(?:[^,]*, )?torch\.ops\.(\w+)\.(\w+)")
_MARKS: Final = frozenset({"aten::assert_size_stride"})


class GeneratedCode(NamedTuple):
    """The launches of a graph; None where the code chooses among several ways.

    Attributes:
        launches: in their order.
        note: why there are none.
    """

    launches: tuple[CodeLaunch, ...] | None
    note: str | None = None


def read_code(code: str, listed: Mapping[str, Sequence[str]]) -> GeneratedCode:
    """Return what the code of a graph starts and calls.

    Args:
        code: the text of the module.
        listed: the names of nodes by kernel and number, `NAME:3`, or by kernel alone.
    """
    lines = code.split("\n")
    bodies = _bodies(lines)
    if "call" not in bodies:
        return GeneratedCode(None, "its code was not noted")
    kernels = _Kernels(code)
    found = _Reader(lines, bodies, kernels, listed)
    if not found.add("call"):
        return GeneratedCode(None, "its code has branches")
    return GeneratedCode(tuple(found.launches))


def _bodies(lines: Sequence[str]) -> dict[str, range]:
    """Return where the functions are that start kernels; those of one name: the last."""
    bodies = {}
    for at, line in enumerate(lines):
        match = _FUNCTION.match(line)
        if match is None:
            continue
        inside = match["indent"] + " "
        end = at + 1
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith(inside)):
            end += 1
        bodies[match["name"]] = range(at + 1, end)
    return bodies


class _Kernels:
    """The kernels that a module defines: which of their arguments they write."""

    def __init__(self, code: str) -> None:
        self._roles: dict[str, list[str]] = {}
        self.fragments: dict[str, tuple[str, ...]] = {}
        last = 0
        for match in _DEFINED.finditer(code):
            name, rest = match["name"], match["args"]
            types = _TYPES.match(rest)
            if types is not None:
                texts = [text.strip(" '\"") for text in types[1].split(",")]
                self._roles[name] = [
                    "" if "*" not in t else "in" if t.startswith("const") else "in_out"
                    for t in texts
                ]
            else:
                inner = re.compile(rf"^def {re.escape(name)}\(([^)]*)\)", re.MULTILINE)
                signature = inner.search(code, match.end())
                if signature is None:
                    inner = re.compile(r"^def triton_\(([^)]*)\)", re.MULTILINE)
                    signature = inner.search(code, match.end())
                names = signature[1].split(",") if signature else []
                self._roles[name] = [_role(each.strip()) for each in names]
            fragment = _FRAGMENT.findall(code, last, match.start())
            if fragment:
                self.fragments[name] = tuple(dict.fromkeys(fragment))
            last = match.end()

    def buffers(
        self, name: str, args: str
    ) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """Return the names of what a call of a kernel reads and writes; None: not known."""
        roles = self._roles.get(name)
        given = list(_arguments(args))
        if not roles or not any(roles) or len(given) < len([r for r in roles if r]):
            return None, None
        named = [
            (role, match[0])
            for role, text in zip(roles, given, strict=False)
            if role and (match := _NAME.search(text.removeprefix("reinterpret_tensor(")))
        ]
        reads = tuple(text for role, text in named if "in" in role)
        return reads, tuple(text for role, text in named if "out" in role)


def _role(parameter: str) -> str:
    return next((r for r in ("in_out", "in", "out") if parameter.startswith(f"{r}_ptr")), "")


def _arguments(text: str) -> Iterator[str]:
    """Yield the arguments of a call up to its closing bracket."""
    depth, begin = 0, 0
    for at, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth < 0:
                yield text[begin:at].strip()
                return
        elif char == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
    yield text[begin:].strip()


class _Reader:
    """Reads the bodies of functions, each where it is called.

    Attributes:
        launches: those that were found.
    """

    def __init__(
        self,
        lines: Sequence[str],
        bodies: Mapping[str, range],
        kernels: _Kernels,
        listed: Mapping[str, Sequence[str]],
    ) -> None:
        self.launches: list[CodeLaunch] = []
        self._lines, self._bodies, self._kernels = lines, bodies, kernels
        self._listed = listed
        self._results: dict[str, int] = {}
        self._handles: list[str] = []
        self._originals: tuple[str, ...] = ()
        self._called: list[str] = []
        self._names = [each.rpartition(":")[0] or each for each in listed]

    def add(self, function: str) -> bool:
        """Take up what a function does; return whether it always does just that."""
        if function in self._called:
            return False
        self._called.append(function)
        for at in self._bodies[function]:
            line = self._lines[at]
            handles = _HANDLES.match(line)
            if handles is not None:
                self._handles = [each.strip(" ,") for each in handles["names"].split(" ")]
                continue
            if line.lstrip().startswith("#"):
                self._note(line)
                continue
            if _BRANCH.match(line):
                # A branch that starts nothing, nor what follows it: else it is no sequence.
                rest = self._lines[at : at + 400]
                return not any(p.match(own) for own in rest for p in (_KERNEL, _PLAIN, _CALL))
            part = _PARTITION.match(line)
            if part is not None and function == "call":
                name = part[2] or f"partition_{part[1]}"
                if name not in self._bodies or not self.add(name):
                    return False
                continue
            self._add_line(at, line)
        return True

    def _note(self, line: str) -> None:
        said = _ORIGINALS.search(line)
        if said is not None:
            names = [each.strip() for each in said[1].split(",")]
            self._originals = tuple(f"aten::{n[5:]}" for n in names if n.startswith("aten."))

    def _add_line(self, at: int, line: str) -> None:
        kernel = _KERNEL.match(line) or _PLAIN.match(line)
        if kernel is not None:
            name = kernel["name"]
            reads, writes = self._kernels.buffers(name, kernel["args"])
            listed = self._nodes_of(name)
            if listed is None:
                listed = self._kernels.fragments.get(name)
            self._append(CodeLaunch(name, listed, reads, writes, at + 1))
            return
        call = _CALL.match(line)
        if call is not None:
            self._add_call(at, call)
            return
        part = _PART_OF.match(line)
        if part is not None and part["of"] in self._results:
            # One of several results.
            number = self._results[part["of"]]
            launch = self.launches[number]
            self.launches[number] = launch._replace(writes=(*(launch.writes or ()), part["result"]))

    def _append(self, launch: CodeLaunch) -> None:
        self.launches.append(launch._replace(originals=self._originals))
        self._originals = ()

    def _add_call(self, at: int, call: re.Match[str]) -> None:
        if call["extern"]:
            short = call["extern"]
            name, written = f"aten::{_CALLED_AS.get(short, short)}", f"extern_kernels.{short}"
        elif call["aten"]:
            name = written = f"aten::{call['aten']}"
        else:
            name = f"{call['space']}::{call['op']}"
            written = f"torch.ops.{call['space']}.{call['op']}"
        if name in _MARKS:
            return
        inner = _INNER.match(call["args"]) if name in _AROUND else None
        if inner is not None:
            name = f"{inner[1]}::{inner[2]}"
        out = _OUT.findall(call["args"])
        writes = tuple(filter(None, (call["result"], *out)))
        if call["result"]:
            self._results[call["result"]] = len(self.launches)
        self._append(CodeLaunch(name, self._nodes_of(written), None, writes, at + 1))

    def _nodes_of(self, name: str) -> tuple[str, ...] | None:
        """Return the nodes that are listed for the next launch."""
        handles, self._handles = self._handles, []
        for handle in handles:
            if handle in self._listed and handle.startswith(name):
                return tuple(self._listed[handle])
        # Without numbers a name says it where it has just one list.
        alone = [key for key, own in zip(self._listed, self._names, strict=True) if own == name]
        if not handles and len(alone) == 1 and ":" not in alone[0]:
            return tuple(self._listed[alone[0]])
        return None
