"""Words of private dialect in source, documentation and page, each with the standard term.

`python -m tests.words` prints where they stand, and `make check` is red where one does. Parts of
pages that `docs/generate.py` writes are left out: their words come from the source.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent

FOLDERS: Final = (
    "pyprof2", "parsers", "analysis", "docs", "web", "editors/vscode/src",
    "README.rst", "CONTRIBUTING.rst",
)  # fmt: skip
"""Where to look."""

_SUFFIXES: Final = (".py", ".rst", ".js", ".ts", ".md")
_SKIPPED: Final = ("node_modules", "__pycache__")
_BUILT: Final = frozenset((ROOT / "pyprof2" / "data").rglob("*.js"))
"""Programs that `make web` writes: their words come from `web`."""


class Term(NamedTuple):
    """The standard term for a word, and why the word is none."""

    standard: str
    reason: str


WORDS: Final = {
    r"told|tells|untold": Term("known, recorded, says, shows", "a recording does not speak"),
    r"makers?": Term("forward op", "autograd's word for the op that made a value"),
    r"legs?": Term("segment between collectives", "nobody else has legs in a graph of a job"),
    r"parted": Term("chunked", "the word of Arrow and NumPy for a column in several arrays"),
    r"pieces": Term("parts, intervals", "a gap has parts, an interval has bounds"),
    r"strangers?": Term("unpaired, of another job", "rows are not acquainted"),
    r"kin": Term("the others, by their names", "ops have no family"),
    r"plumb": Term("inherit", "a number is inherited, not plumbed"),
}
"""By regular expression, in any case; `_` ends a word, so names of functions count."""

SENTENCE: Final = re.compile(r'(?:"""|^\s*#|^\s*//|/\*\*) ?(?:Of|What) ')
"""A docstring or a comment that begins so hides its subject: name that first."""

KEPT: Final = {
    r"(?:told|tells?|telling)(?: \w+){0,3} apart": "plain English for to distinguish",
}
"""Expressions that stay, and why."""

_GENERATED: Final = re.compile(r"^\.\. generated:.*?^\.\. end generated", re.MULTILINE | re.DOTALL)
_WORD: Final = re.compile(rf"(?<![a-z])(?:{'|'.join(WORDS)})(?![a-z])", re.IGNORECASE)
_KEPT: Final = re.compile("|".join(KEPT), re.IGNORECASE)


def found_in(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, from 1, expression and advice of all that is dialect in a text."""
    plain = _GENERATED.sub(lambda part: "\n" * part[0].count("\n"), text)
    plain = _KEPT.sub(lambda kept: "\n" * kept[0].count("\n"), plain)
    for number, line in enumerate(plain.split("\n"), start=1):
        for match in _WORD.finditer(line):
            term = next(t for w, t in WORDS.items() if re.fullmatch(w, match[0], re.IGNORECASE))
            yield number, match[0], f"{term.standard}: {term.reason}"
        if start := SENTENCE.search(line):
            yield number, start[0].strip(), "begin with the subject of the sentence"


def files() -> Iterator[Path]:
    """Yield the files to look at."""
    for name in FOLDERS:
        place = ROOT / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.suffix in _SUFFIXES and path not in _BUILT and not {*path.parts} & {*_SKIPPED}:
                yield path


if __name__ == "__main__":
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {word!r}: {advice}"
        for path in files()
        for number, word, advice in found_in(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(lines))
    sys.exit(bool(lines))
