"""The open files: their text, its analysis, and where that is after edits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.workspace import TextDocument

from pyprof2.lsp.batch_size import Candidate
from pyprof2.lsp.positions import LineEdit, Text, TextPosition, change_between
from pyprof2.lsp.shown import time_of

if TYPE_CHECKING:
    from pyprof2.lsp.analysis import Analysis, Function, LineCosts


class Document(TextDocument):
    """A document whose lines end where the protocol says; see `pyprof2.lsp.positions`.

    Attributes:
        text: of the current version.
        encoding: what its columns are counted in.
    """

    def __init__(self, item: lsp.TextDocumentItem, encoding: str) -> None:
        super().__init__(item.uri, item.text, item.version, item.language_id)
        self.encoding = encoding
        self.text = Text(item.text)

    @property
    def source(self) -> str:
        """The whole text."""
        return self.text.source

    @property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return self.text.lines

    def apply_change(self, change: lsp.TextDocumentContentChangeEvent) -> None:
        """Change the text as the editor did."""
        if not isinstance(change, lsp.TextDocumentContentChangePartial):
            self.text = Text(change.text)
            return
        start, end = (
            self.text.index(TextPosition(each.line, each.character), self.encoding)
            for each in (change.range.start, change.range.end)
        )
        self.text = self.text.replaced(start, max(start, end), change.text)

    def range_of(self, start: int, stop: int) -> lsp.Range:
        """Return a range of characters as the editor counts."""
        first, last = (self.text.place(index, self.encoding) for index in (start, stop))
        return lsp.Range(lsp.Position(*first), lsp.Position(*last))

    def range_of_line(self, line: int) -> lsp.Range:
        """Return a line without the blanks before it."""
        text = self.text.lines[line]
        start = self.text.starts[line]
        return self.range_of(start + len(text) - len(text.lstrip()), start + len(text))

    def end_of_line(self, line: int) -> lsp.Position:
        """Return the end of a line."""
        text = self.text.lines[line]
        return lsp.Position(*self.text.in_units(TextPosition(line, len(text)), self.encoding))


@dataclass
class View:
    """The costs of the current text of a file: of older text, moved along with it.

    Attributes:
        lines: with costs, in order.
        functions: all of the file.
    """

    lines: list[LineCosts] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)

    @classmethod
    def of(cls, analysis: Analysis) -> View:
        """Return the view of an analysis of this very text."""
        return cls(analysis["lines"], analysis["functions"])

    def after(self, change: LineEdit) -> View:
        """Return it moved with an edit: all stale, without what the edit touched."""
        lines = [
            moved for line in self.lines if (moved := _moved(line, ("now",), change)) is not None
        ]
        functions = [
            moved
            for function in self.functions
            if (moved := _moved(function, ("first", "line", "last"), change)) is not None
        ]
        return View(lines, functions)

    def at(self, line: int) -> LineCosts | None:
        """Return the costs of a line."""
        return next((each for each in self.lines if each["now"] == line), None)

    def largest(self, threshold_ns: float, most: int) -> list[LineCosts]:
        """Return the lines with the most time, in order of the text."""
        found = [line for line in self.lines if time_of(line["values"]) >= max(1, threshold_ns)]
        found.sort(key=lambda line: -time_of(line["values"]))
        return sorted(found[:most], key=lambda line: line["now"])


def _moved(found: Any, names: tuple[str, ...], change: LineEdit) -> Any:
    """Return a line or function after an edit; None: one of its lines is gone."""
    places = {name: change.moved(found[name]) for name in names}
    if None in places.values():
        return None
    return found | places | {"fresh": False}


@dataclass
class File:
    """An open file.

    Attributes:
        document: its text.
        path: where it is; None: nowhere yet.
        language: `python`, `yaml`, or another.
        candidates: where the batch size stands, in the text of `analysed`.
        analysed: the version that views and candidates are of; None: none yet.
        has_diagnostics: whether the editor was sent any that are not taken back.
    """

    document: Document
    path: str | None
    language: str
    candidates: list[Candidate] = field(default_factory=list)
    analysed: Text | None = None
    has_diagnostics: bool = False
    _views: dict[str, tuple[Text, View]] = field(default_factory=dict)

    @property
    def is_current(self) -> bool:
        """Whether the analysis is of the current text."""
        return self.analysed is self.document.text

    def found(self, name: str, analysis: Analysis, text: Text) -> None:
        """Take the analysis of a text, which may have been edited since."""
        self._views[name] = text, View.of(analysis)
        self.candidates = [Candidate(*each) for each in analysis["candidates"]]
        self.analysed = text

    def view(self, name: str) -> View:
        """Return the costs of the current text: of older text, moved along with it.

        It is moved when it is asked for, once for all edits since.
        """
        text, view = self._views.get(name, (self.document.text, View()))
        if text is not self.document.text:
            view = view.after(change_between(text, self.document.text))
            self._views[name] = self.document.text, view
        return view

    def drop(self, name: str) -> None:
        """Forget the costs of a recording."""
        self._views.pop(name, None)
