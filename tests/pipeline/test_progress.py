"""The bar over the bytes of the files that are read."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

import pytest

from pyprof2.pipeline.parsing import _FilesProgress

if TYPE_CHECKING:
    from pathlib import Path

pty = pytest.importorskip("pty", reason="no terminals of its own on this system")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files of 3 and 4 bytes."""
    made = [tmp_path / "one", tmp_path / "two"]
    for file, size in zip(made, (3, 4), strict=True):
        file.write_bytes(b"x" * size)
    return made


def test_a_terminal_has_a_bar_over_all_files(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader says its position in its own file; where that is less, another file begins."""
    near, far = pty.openpty()
    with os.fdopen(far, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with _FilesProgress(files, shown=True) as progress:
            report = progress.callback(parallel=False)
            assert report is not None
            for position in (2, 3, 1, 4):
                report(position)
            bar = progress._bar  # what the terminal shows depends on the time
            assert bar is not None
            assert (bar.n, bar.total) == (7, 7)
            assert progress.callback(parallel=True) is None
    os.close(near)


def test_what_is_no_terminal_has_none(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither has one that is not asked for, nor a program without any output for errors."""
    for stderr, shown in ((io.StringIO(), True), (None, True), (sys.stderr, False)):
        monkeypatch.setattr(sys, "stderr", stderr)
        with _FilesProgress(files, shown=shown) as progress:
            assert progress.callback(parallel=False) is None
