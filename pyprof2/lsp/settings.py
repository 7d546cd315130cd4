"""The user's settings: options of `initialize`, and `workspace/didChangeConfiguration`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OFF, ASK, ON = "off", "ask", "on"
SECTION: Final = "pyprof2"
_SIZE: Final = re.compile(r"[0-9]*[1-9][0-9]*")


@dataclass(frozen=True)
class Settings:
    """The user's settings, by the names that a configuration has.

    Attributes:
        hints: whether lines have hints.
        lenses: whether functions, classes and the recording have lenses.
        diagnostics: whether findings are diagnostics.
        threshold: lines below this share of the step have no hint, in %.
        maxHints: so many lines and functions of a file have one, those with the most time.
        recording: the store or trace to show; empty: the newest that is of the workspace.
        batches: recordings that the dials are made of, by batch size; empty: those that the server
            made itself.
        pathMap: folders as they are called where it was recorded, and here.
        onSave: whether saving records anew: `off`, `ask` or `on`.
        capture: the script to record, and its arguments.
        python: the interpreter that runs it; given as empty: that of the server.
        restricted: nothing may run, whatever was allowed before.
    """

    hints: bool = True
    lenses: bool = True
    diagnostics: bool = False
    threshold: float = 1.0
    maxHints: int = 60  # noqa: N815 - as a configuration writes it
    recording: str = ""
    batches: dict[str, str] = field(default_factory=dict)
    pathMap: dict[str, str] = field(default_factory=dict)  # noqa: N815 - the same
    onSave: str = OFF  # noqa: N815 - the same
    capture: tuple[str, ...] = ()
    python: str = sys.executable
    restricted: bool = False

    def changed(self, given: Mapping[str, Any] | None) -> tuple[Settings, list[str]]:
        """Return the settings with what is given, and what is wrong with the rest of it."""
        values: dict[str, Any] = {}
        wrong = []
        for name, value in (given or {}).items():
            current = getattr(self, name, None)
            if name not in self.__dataclass_fields__:
                wrong.append(f"{name}: no such setting")
            elif (known := _as(current, value)) is None:
                wrong.append(f"{name}: {value!r} is no {type(current).__name__}")
            # Batch sizes are keys of an object, which JSON writes as text.
            elif name == "batches" and (bad := [b for b in known if not _SIZE.fullmatch(b)]):
                wrong.append(f"batches: {bad[0]!r} is no batch size")
            elif name == "onSave" and known not in (OFF, ASK, ON):
                wrong.append(f"onSave: {value!r} is none of off, ask, on")
            elif name == "python":
                # Editors send what is not set as empty.
                values[name] = known or sys.executable
            else:
                values[name] = known
        return replace(self, **values), wrong


def _as(current: Any, value: Any) -> Any:
    """Return a value as the type that a setting has; None: it is none."""
    if isinstance(current, bool):
        return value if isinstance(value, bool) else None
    if isinstance(current, (int, float)):
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
        return type(current)(value) if good else None
    if isinstance(current, tuple):
        texts = [value] if isinstance(value, str) else value
        good = isinstance(texts, list) and all(isinstance(each, str) for each in texts)
        return tuple(texts) if good else None
    if isinstance(current, dict):
        good = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
        return dict(value) if good else None
    return value if isinstance(value, str) else None
