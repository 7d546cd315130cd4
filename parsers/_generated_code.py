"""The code that Inductor generates for a graph: which kernels it starts and ops it calls, in order.

The text is looked at and never run. Its form is that of torch 2.5 to 2.13.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.recording import CodeLaunch, CodeTensor
from pyprof2.signatures import TORCH_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.recording import Sizes

_FUNCTION: Final = re.compile(r"(?P<indent> *)def (?P<name>call|partition_\d+)\(")
_HANDLES: Final = re.compile(r" *# \[Provenance debug handles\] (?P<names>\S.*)")
_KERNEL: Final = re.compile(r" *(?P<name>\w+)\.run\((?P<args>.*)")
_STARTED: Final = re.compile(r"^ *(\w+)\.run\(", re.MULTILINE)
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
_PLAIN_SIGNATURE: Final = re.compile(r"^extern \"C\"[^(]*\(([^)]*)\)", re.MULTILINE)
_TYPED: Final = re.compile(r"'signature': \{([^{}]*)\}")
_TYPE: Final = re.compile(r"'(\w+)': '\*(\w+)'")
_ORIGINALS: Final = re.compile(r"Original ATen: \[([^\]]*)\]")
_FRAGMENT: Final = re.compile(r"^#   %(\w+) : .*= call_function\[", re.MULTILINE)
_RESULTS: Final = re.compile(r"^#   return (%.*)", re.MULTILINE)
_CALLED_AS: Final = {"bias_addmm": "addmm"}
"""The ops that functions of another name call."""
_AROUND: Final = frozenset({
    "higher_order::run_and_save_rng_state", "higher_order::run_with_rng_state",
})  # fmt: skip
"""Calls of another op, with the state of random numbers kept or set."""
_INNER: Final = re.compile(r"(?:[^,]*, )?torch\.ops\.(\w+)\.(\w+)")
_MARKS: Final = frozenset({"aten::assert_size_stride"})
_MADE: Final = re.compile(r" *(?P<name>\w+) = empty_strided\w*\((?P<args>.*)")
_ASSERTED: Final = re.compile(r" *assert_size_stride\((?P<args>.*)")
_VIEWED: Final = re.compile(r" *(?P<name>\w+) = (?P<args>reinterpret_tensor\(.*)")
_RENAMED: Final = re.compile(r" *(?P<name>\w+) = (?P<of>\w+)(?:; *del \w+.*)?\Z")
_COUNTED: Final = re.compile(r" *(?P<name>\w+) = (?P<value>[-+*/() \w]+)\Z")
_ELEMENT: Final = re.compile(r"(?:const )?(?:\w+::)*(\w+)\*\Z")
_ELEMENTS: Final = {
    "fp64": "f64", "fp32": "f32", "fp16": "f16", "bf16": "bf16", "i1": "bool",
    "fp8e4nv": "f8e4m3", "fp8e5": "f8e5m2", "fp8e4b8": "f8e4m3fnuz", "fp8e5b16": "f8e5m2fnuz",
    **{f"{sign}{bits}": f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)},
    **{f"int{bits}_t": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}_t": f"u{bits}" for bits in (8, 16, 32, 64)},
    "Half": "f16", "BFloat16": "bf16", "Float8_e4m3fn": "f8e4m3", "Float8_e5m2": "f8e5m2",
    **TORCH_DTYPES,
}  # fmt: skip
"""Element types as Triton and C++ name them."""


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


def fragments(code: str) -> dict[str, tuple[str, ...]]:
    """Return the nodes that comments in the code of a graph name, by kernel that starts once."""
    return _Kernels(code).fragments


def repeated_fragments(code: str) -> dict[str, tuple[str, ...]]:
    """Return the nodes of the first start of kernels that start several times, by kernel."""
    return _Kernels(code).repeated


class _Parameter(NamedTuple):
    """A parameter of a kernel: `in`, `out`, `in_out` of a tensor, else empty, and what it is."""

    role: str = ""
    dtype: str | None = None
    is_size: bool = False


class _Kernels:
    """The kernels that a module defines: which of their arguments they write."""

    def __init__(self, code: str) -> None:
        self._parameters: dict[str, list[_Parameter]] = {}
        self.fragments: dict[str, tuple[str, ...]] = {}
        self.repeated: dict[str, tuple[str, ...]] = {}
        self.results: dict[str, tuple[str, ...]] = {}
        last = 0
        started = Counter(_STARTED.findall(code))
        defined = list(_DEFINED.finditer(code))
        ends = [*(match.start() for match in defined), len(code)][1:]
        for match, end in zip(defined, ends, strict=True):
            name = match["name"]
            types = _TYPES.match(match["args"])
            self._parameters[name] = (
                _triton_parameters(code, name, match.end(), end)
                if types is None
                else _plain_parameters(code, types[1], match.end(), end)
            )
            fragment = _FRAGMENT.findall(code, last, match.start())
            if fragment:
                # A kernel that is started again has the comment of its first start.
                into = self.fragments if started[name] < 2 else self.repeated
                into[name] = tuple(dict.fromkeys(fragment))
                returned = _RESULTS.findall(code, last, match.start())
                self.results[name] = tuple(_NAME.findall(returned[-1])) if returned else ()
            last = match.end()

    def given(self, name: str, args: Sequence[str]) -> list[tuple[_Parameter, str]] | None:
        """Return what is given to a kernel; None: not known."""
        known = self._parameters.get(name, [])
        pointers = sum(bool(each.role) for each in known)
        if not pointers or len(args) < pointers:
            return None
        return list(zip(known, args, strict=False))


def _plain_parameters(code: str, types: str, at: int, end: int) -> list[_Parameter]:
    """Return the parameters of a kernel in C++ by their types, and their names behind a place."""
    texts = [text.strip(" '\"") for text in types.split(",")]
    signature = _PLAIN_SIGNATURE.search(code, at, end)
    names = re.findall(r"\b(\w+)(?:,|\Z)", signature[1]) if signature is not None else []
    # Without a name it may be read and written.
    roles = map(_role, names) if len(names) == len(texts) else [""] * len(texts)
    found = []
    for text, role in zip(texts, roles, strict=True):
        element = _ELEMENT.match(text)
        if element is None:
            found.append(_Parameter())
        else:
            known = "in" if text.startswith("const") else role or "in_out"
            found.append(_Parameter(known, _ELEMENTS.get(element[1])))
    return found


def _triton_parameters(code: str, name: str, at: int, end: int) -> list[_Parameter]:
    """Return the parameters of a kernel in Triton, whose text is behind a place."""
    signature = None
    for each in (name, "triton_"):
        pattern = re.compile(rf"^def {re.escape(each)}\(([^()]*)\)", re.MULTILINE)
        signature = signature or pattern.search(code, at, end)
    if signature is None:
        return []
    types = _TYPED.search(code, at, signature.start())
    said = dict(_TYPE.findall(types[1])) if types is not None else {}
    names = [each.strip() for each in signature[1].split(",")]
    return [
        _Parameter(_role(each), _ELEMENTS.get(said.get(each, "")), each.endswith("numel"))
        for each in names
    ]


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


def _size(text: str, known: Mapping[str, int | str]) -> int | str:
    """Return a size: a number, or a text in which a call decides."""
    text = text.strip()
    return int(text) if text.isdecimal() and len(text) < 20 else known.get(text, text)


def _shape(texts: Sequence[str]) -> Sizes | None:
    """Return the sizes that the text of a tuple says; None: it is none."""
    if not texts or not (texts[0].startswith("(") and texts[0].endswith(")")):
        return None
    return tuple(_size(each, {}) for each in _arguments(texts[0][1:]) if each.strip())


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
        self._tensors: dict[str, CodeTensor] = {}
        self._counts: dict[str, int | str] = {}
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
            self._append(self._kernel(at, kernel["name"], list(_arguments(kernel["args"]))))
            return
        call = _CALL.match(line)
        if call is not None:
            self._add_call(at, call)
            return
        self._learn(line)
        part = _PART_OF.match(line)
        if part is not None and part["of"] in self._results:
            # One of several results.
            number = self._results[part["of"]]
            launch = self.launches[number]
            self.launches[number] = launch._replace(writes=(*(launch.writes or ()), part["result"]))

    def _kernel(self, at: int, name: str, args: Sequence[str]) -> CodeLaunch:
        """Return the launch of a kernel."""
        listed = self._nodes_of(name)
        if listed is None:
            listed = self._kernels.fragments.get(name)
        launch = CodeLaunch(name, listed, line=at + 1, results=self._kernels.results.get(name, ()))
        given = self._kernels.given(name, args)
        if given is None:
            return launch
        tensors, elements = [], []
        for place, (parameter, text) in enumerate(given):
            if parameter.role:
                known = self._tensor(text)
                tensors.append(
                    known._replace(
                        at=place, dtype=parameter.dtype or known.dtype,
                        is_read="in" in parameter.role, is_written="out" in parameter.role,
                    )
                )  # fmt: skip
            elif parameter.is_size:
                elements.append(_size(text, self._counts))
        return launch._replace(
            tensors=tuple(tensors), elements=tuple(elements),
            writes=tuple(each.name for each in tensors if each.is_written),
        )  # fmt: skip

    def _tensor(self, text: str) -> CodeTensor:
        """Return what is known of a tensor, as an argument or a view of one names it."""
        view = text.removeprefix("reinterpret_tensor(")
        name, *rest = _arguments(view)
        known = self._tensors.get(name, CodeTensor(name, -1))
        if view == text:
            match = _NAME.search(name)
            return known if match is None else known._replace(name=match[0])
        return known._replace(sizes=_shape(rest[:1]), strides=_shape(rest[1:2]))

    def _learn(self, line: str) -> None:
        """Take up what a line says of the sizes of buffers."""
        made = _MADE.match(line) or _ASSERTED.match(line)
        view, renamed = _VIEWED.match(line), _RENAMED.match(line)
        if made is not None:
            args = list(_arguments(made["args"]))
            name = made.groupdict().get("name") or args.pop(0)
            known = self._tensors.get(name, CodeTensor(name, -1))
            dtype = TORCH_DTYPES.get(args[2].removeprefix("torch.")) if len(args) > 2 else None
            self._tensors[name] = known._replace(
                sizes=_shape(args[:1]), strides=_shape(args[1:2]), dtype=dtype or known.dtype
            )
        elif view is not None:
            self._tensors[view["name"]] = self._tensor(view["args"])._replace(name=view["name"])
        elif renamed is not None and renamed["of"] in self._tensors:
            known = self._tensors[renamed["of"]]
            self._tensors[renamed["name"]] = known._replace(name=renamed["name"])
        elif (counted := _COUNTED.match(line)) is not None:
            self._counts[counted["name"]] = _size(counted["value"], self._counts)

    def _append(self, launch: CodeLaunch) -> None:
        self.launches.append(launch._replace(originals=self._originals))
        self._originals = ()

    def _add_call(self, number: int, call: re.Match[str]) -> None:
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
        args = (each for each in _arguments(call["args"]) if "=" not in each)
        tensors = [self._tensor(text)._replace(at=at) for at, text in enumerate(args)]
        known = tuple(each for each in tensors if each.sizes is not None)
        self._append(CodeLaunch(name, self._nodes_of(written), writes, number + 1, tensors=known))

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
