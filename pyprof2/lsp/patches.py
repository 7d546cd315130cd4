"""Patches of the batch size in a file: unified diffs of exactly the literal, but for its number.

`git apply` and `patch` end lines at LF alone, and so do these: carriage returns are part of a line.
"""

from __future__ import annotations

import ast
import importlib.util
from typing import TYPE_CHECKING, Any, Final

from pyprof2.errors import Pyprof2Error, UsageError
from pyprof2.lsp.batch_size import in_python, in_yaml
from pyprof2.lsp.positions import Text, language_of, without_mark

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyprof2.lsp.batch_size import Candidate

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
        msg = f"{name!r}: this name cannot stand in a patch"
        raise UsageError(msg)
    found = _candidates(path, text)
    places = [_place(name, text, each, found, recorded) for each in found]
    free = [at for at, place in enumerate(places) if place["value"] is not None]
    chosen = free[0] if len(free) == 1 else None
    return {"places": places, "chosen": chosen, "refusal": _refusal(places, chosen, path.name)}


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
            msg = "reading YAML needs one more package: pip install 'pyprof2[lsp]'"
            raise UsageError(msg)
        return in_yaml(text)
    if language != "python":
        msg = f"{path}: neither a program (.py) nor YAML (.yaml, .yml)"
        raise UsageError(msg)
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


def _refusal(places: Sequence[dict[str, Any]], chosen: int | None, name: str) -> str:
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
