"""Editors for the tests of the server; all are skipped where its packages are not installed."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.lsp.editor import Editor

NEEDED = ("pygls", "yaml")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
collect_ignore_glob = ["test_*.py"] if MISSING else []


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Editor]]:
    """Return a function that starts an editor in a folder; all are shut in the end."""
    from tests.lsp.editor import Editor, is_alive

    editors: list[Editor] = []

    def started(root: Path, profile: str = "neovim-0.12.4", **options: Any) -> Editor:
        editors.append(Editor(profile, root, tmp_path / "state", **options))
        return editors[-1]

    yield started
    for editor in editors:
        if is_alive(editor.pid):
            editor.shut()
