"""The batch size in the code: where it stands as a number that can be replaced, and where not.

Python is read with `ast`, YAML with the marks of its scalars: only the characters of the one number
are replaced, and nothing is written anew.

Patches of it are unified diffs of exactly the literal, but for its number. `git apply` and `patch`
end lines at LF alone, and so do these: carriage returns are part of a line.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.errors import Pyprof2Error, refuse, refuse_without
from pyprof2.lsp.positions import Text, language_of, without_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


_NAME: Final = re.compile(
    r"(?:(?:per_device_|micro_|global_|local_|mini_?)?(?:train(?:ing)?_)?)?batch_?size|bs|bsz",
    re.IGNORECASE,
)
"""Names that a batch size of the training has; not that of an evaluation."""
_FLAG: Final = re.compile(r"--?(?P<name>[\w-]+)")
_SHORT_FLAGS: Final = ("-b",)
_PROVIDER: Final = "input_provider"
KINDS: Final = {
    "provider": "default of the input provider",
    "loader": "batch size of the DataLoader",
    "argparse": "default of the option",
    "default": "default of the parameter",
    "field": "value of the field",
    "constant": "value of the name",
    "keyword": "argument",
    "key": "value of the key",
}
"""The kinds of places, in words; the likelier first."""


class Candidate(NamedTuple):
    """A place where the batch size stands.

    Attributes:
        kind: one of `KINDS`.
        name: the name that has the value, with that of the function or class around it.
        start, stop: characters of the value.
        line: of its first character, from 0.
        text: the value as it is written.
        value: as a number; None: it is none that can be replaced.
        refusal: why it cannot be replaced; empty: it can.
    """

    kind: str
    name: str
    start: int
    stop: int
    line: int
    text: str
    value: int | None
    refusal: str


def in_python(tree: ast.Module, text: Text) -> list[Candidate]:
    """Return where a program has its batch size, in the order of the text."""
    found = []
    for kind, name, value in _places(tree, ""):
        start = text.index_of_bytes(value.lineno, value.col_offset)
        stop = text.index_of_bytes(value.end_lineno or value.lineno, value.end_col_offset or 0)
        number, written = _number(value), text.source[start:stop]
        refusal = "" if number is not None else _refusal(value)
        line = value.lineno - 1
        found.append(Candidate(kind, name, start, stop, line, written, number, refusal))
    unique = {each.start: each for each in sorted(found, key=_rank, reverse=True)}
    return [unique[start] for start in sorted(unique)]


def in_yaml(text: Text) -> list[Candidate]:
    """Return where a YAML file has its batch size; nothing where it cannot be read."""
    import yaml

    try:
        documents = list(yaml.compose_all(text.source, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    found = []
    for document in documents:
        uses: dict[int, int] = {}
        _count(document, uses)
        found += [_scalar(text, *each, uses) for each in _keys(document, "", set())]
    return sorted(set(found), key=lambda each: each.start)


def _rank(candidate: Candidate) -> int:
    return list(KINDS).index(candidate.kind)


# -- Python --------------------------------------------------------------------------------------


_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _places(node: ast.AST, prefix: str) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield kind, name and value of all places in what is below a node."""
    for child in ast.iter_child_nodes(node):
        inner = f"{prefix}{child.name}." if isinstance(child, _SCOPES) else prefix
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _defaults(child, prefix)
        elif isinstance(child, ast.Call):
            yield from _arguments(child, prefix)
        elif isinstance(child, (ast.Assign, ast.AnnAssign)):
            yield from _assigned(child, prefix, is_field=isinstance(node, ast.ClassDef))
        elif isinstance(child, ast.NamedExpr):
            yield from _named([child.target], child.value, "constant", prefix)
        elif isinstance(child, ast.Dict):
            for key, item in zip(child.keys, child.values, strict=True):
                name = key.value if isinstance(key, ast.Constant) else None
                if isinstance(name, str) and _NAME.fullmatch(name):
                    yield "key", f"{prefix}{name}", item
        yield from _places(child, inner)


def _defaults(
    function: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str
) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield the defaults of parameters."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    kind = "provider" if function.name.endswith(_PROVIDER) else "default"
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, value in pairs:
        if value is not None and _NAME.fullmatch(argument.arg):
            yield kind, f"{prefix}{function.name}({argument.arg})", value


def _arguments(call: ast.Call, prefix: str) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield arguments of calls: of a DataLoader, of argparse, and of anything else by name."""
    called = _last_name(call.func)
    if called == "add_argument":
        flag = next((f for f in map(_flag, call.args) if f is not None), None)
        for keyword in call.keywords:
            if keyword.arg == "default" and flag is not None:
                yield "argparse", f"{prefix}{flag}", keyword.value
        return
    kind = "loader" if called.endswith("DataLoader") else "keyword"
    if kind == "loader" and len(call.args) > 1 and not isinstance(call.args[0], ast.Starred):
        yield kind, f"{prefix}{called}(batch_size)", call.args[1]
    for keyword in call.keywords:
        if keyword.arg is not None and _NAME.fullmatch(keyword.arg):
            # `Config(batch_size=cfg.batch_size)` only hands a value on.
            if kind == "keyword" and _number(keyword.value) is None:
                continue
            yield kind, f"{prefix}{called}({keyword.arg})", keyword.value


def _flag(argument: ast.expr) -> str | None:
    """Return an option of argparse that is a batch size; None: it is none."""
    if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
        return None
    match = _FLAG.fullmatch(argument.value)
    if match is None:
        return None
    known = argument.value in _SHORT_FLAGS or _NAME.fullmatch(match["name"].replace("-", "_"))
    return argument.value if known else None


def _assigned(
    node: ast.Assign | ast.AnnAssign, prefix: str, *, is_field: bool
) -> Iterator[tuple[str, str, ast.expr]]:
    if node.value is None:
        return
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    value = node.value
    if is_field and isinstance(value, ast.Call) and _last_name(value.func) == "field":
        value = next((k.value for k in value.keywords if k.arg == "default"), value)
    yield from _named(targets, value, "field" if is_field else "constant", prefix)


def _named(
    targets: list[Any], value: ast.expr, kind: str, prefix: str
) -> Iterator[tuple[str, str, ast.expr]]:
    for target in targets:
        name = _last_name(target)
        # `self.batch_size = batch_size` only hands a value on.
        if name and _NAME.fullmatch(name) and not isinstance(value, (ast.Name, ast.Attribute)):
            yield kind, f"{prefix}{name}", value


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _number(value: ast.expr) -> int | None:
    """Return a whole number of 1 or more that stands there; None: it is something else."""
    if isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0:
        return value.value
    return None


_CONSTANTS: Final = {
    type(None): "it is None: the program decides",
    bool: "it is a truth value",
    int: "it is no number of 1 or more",
}
"""Why a constant cannot be replaced, by its type."""


def _refusal(value: ast.expr) -> str:
    """Say why a value cannot be replaced."""
    if isinstance(value, ast.Constant):
        return _CONSTANTS.get(type(value.value), "it is no whole number")
    if "environ" in ast.unparse(value) or "getenv" in ast.unparse(value):
        return "it comes from the environment: set the variable"
    if isinstance(value, ast.UnaryOp):
        return "it is no number of 1 or more"
    if isinstance(value, (ast.Name, ast.Attribute)):
        return f"it is the value of {ast.unparse(value)}: change it there"
    return "it is computed: change it by hand"


# -- YAML ----------------------------------------------------------------------------------------


def _count(node: Any, uses: dict[int, int]) -> None:
    """Count how often each node of a document is used: an alias is the node that it names."""
    uses[id(node)] = uses.get(id(node), 0) + 1
    if uses[id(node)] > 1 or node is None or isinstance(node.value, str):
        return
    for child in node.value:
        for each in child if isinstance(child, tuple) else (child,):
            _count(each, uses)


def _keys(node: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, key and value of the keys that are a batch size."""
    if node is None or isinstance(node.value, str) or id(node) in seen:
        return
    seen.add(id(node))
    for child in node.value:
        if not isinstance(child, tuple):
            yield from _keys(child, prefix, seen)
            continue
        key, value = child
        name = key.value if isinstance(key.value, str) else ""
        if _NAME.fullmatch(name.replace("-", "_")):
            yield f"{prefix}{name}", key, value
        yield from _keys(value, f"{prefix}{name}.", seen)


def _scalar(text: Text, name: str, key: Any, value: Any, uses: dict[int, int]) -> Candidate:
    start, stop = value.start_mark.index, value.end_mark.index
    is_alias = start < key.end_mark.index
    if is_alias:
        start, stop = key.start_mark.index, key.end_mark.index
    refusal = ""
    if is_alias or uses[id(value)] > 1:
        refusal = "it is an alias or has one: other keys would change with it"
    elif not isinstance(value.value, str):
        refusal = "it is a list or a mapping"
    elif value.tag == "tag:yaml.org,2002:bool":
        refusal = "it is a truth value"
    elif value.tag != "tag:yaml.org,2002:int":
        refusal = "it is no whole number"
    if not refusal and text.source[start:stop].endswith(value.value):
        # An anchor or a tag before it stays.
        start = stop - len(value.value)
    written = text.source[start:stop]
    number = None if refusal else _whole(value.value)
    if number is None and not refusal:
        refusal = "it is no number of 1 or more"
    line = text.place(start, "utf-32").line
    return Candidate("key", name, start, stop, line, written, number, refusal)


def _whole(written: str) -> int | None:
    """Return a plain decimal number of 1 or more; other forms differ between versions of YAML."""
    return int(written) if re.fullmatch(r"[1-9][0-9]{0,8}", written, re.ASCII) else None


_AROUND: Final = 3
"""Lines of a patch before and after the one that changes."""


def code_of(path: Path, recorded: Sequence[int]) -> dict[str, Any]:
    """Return where a file has its batch size, with a hunk for each place, as the dials need it.

    Args:
        path: of a program or a YAML file; a patch names it as it is given, if it is relative.
        recorded: batch sizes of the recordings: a number that is none of them may be another
            when the program runs, and is not to be changed.

    Raises:
        Pyprof2Error: the file cannot be read.
        UsageError: it is neither, or its name cannot stand in a patch.
    """
    text = Text(_read(path))
    name = path.name if path.is_absolute() or ".." in path.parts else path.as_posix()
    if not name.isprintable() or '"' in name or "\\" in name:
        refuse(f"{name!r}: this name cannot stand in a patch")
    found = _candidates(path, text)
    places = [_place(name, text, each, found, recorded) for each in found]
    free = [at for at, place in enumerate(places) if place["value"] is not None]
    chosen = free[0] if len(free) == 1 else None
    return {"places": places, "chosen": chosen, "refusal": refusal_of(places, chosen, path.name)}


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise Pyprof2Error(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{path}: it is not UTF-8, and a patch of it could change other bytes"
        raise Pyprof2Error(msg) from error


def _candidates(path: Path, text: Text) -> list[Candidate]:
    language = language_of(None, str(path))
    if language == "yaml":
        if importlib.util.find_spec("yaml") is None:
            refuse_without("reading YAML", "PyYAML")
        return in_yaml(text)
    if language != "python":
        refuse(f"{path}: neither a program (.py) nor YAML (.yaml, .yml)")
    try:
        return in_python(ast.parse(without_mark(text.source)), text)
    except (SyntaxError, ValueError, RecursionError) as error:
        msg = f"{path}: cannot be read as Python: {error}"
        raise Pyprof2Error(msg) from error


def _place(
    name: str, text: Text, candidate: Candidate, found: Sequence[Candidate], recorded: Sequence[int]
) -> dict[str, Any]:
    alike = [each for each in found if each[:2] == candidate[:2]]
    refusal = candidate.refusal
    if candidate.value is not None and candidate.value not in recorded:
        refusal = (
            f"it is {candidate.value}, and the recordings have batches of "
            f"{', '.join(map(str, recorded))}: it was changed since, or something else says it "
            "when the program runs"
        )
    return {
        "key": [name, candidate.kind, candidate.name, alike.index(candidate)],
        "place": f"{name}:{candidate.line + 1}", "name": candidate.name, "text": candidate.text,
        "value": candidate.value, "refusal": refusal,
        "hunk": _hunk(name, text, candidate) if candidate.value is not None else None,
    }  # fmt: skip


def refusal_of(places: Sequence[dict[str, Any]], chosen: int | None, name: str) -> str:
    """Return why nothing can be dialled yet; empty: it can."""
    if chosen is not None:
        return str(places[chosen]["refusal"])
    if not places:
        return f"no batch size was found in {name}"
    if all(place["value"] is None for place in places):
        return "; ".join(f"{p['place']}: {p['text']}: {p['refusal']}" for p in places)
    return "choose which of these is the batch size"


def _hunk(name: str, text: Text, candidate: Candidate) -> dict[str, Any]:
    """Return a hunk without its number: the lines around, and the rest of its own.

    A value that takes several lines is none that can be replaced, so its line is one.
    """
    lines = text.source.split("\n")
    ends = lines[-1] == ""
    if ends:
        lines.pop()
    before_it = text.source[: candidate.start]
    at = before_it.count("\n")
    start = len(before_it) - before_it.rfind("\n") - 1
    first = max(0, at - _AROUND)
    last = min(len(lines), at + 1 + _AROUND)
    return {
        "path": name, "first": first + 1, "before": lines[first:at], "text": candidate.text,
        "head": lines[at][:start], "tail": lines[at][start + len(candidate.text) :],
        "after": lines[at + 1 : last], "ends": ends or last < len(lines),
    }  # fmt: skip
