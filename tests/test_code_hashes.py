"""Tests for the hashes of code, which stores keep."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from pyprof2.frames import WIDTH, code_of, line_hashes

if TYPE_CHECKING:
    from pathlib import Path

_LATER = 4e9  # seconds since the epoch: after any file here was written


def test_only_code_that_is_there_and_was_not_changed_since_is_hashed(tmp_path: Path) -> None:
    """A trace may name any file of who reads it."""
    code, secret, pipe = tmp_path / "train.py", tmp_path / "id_rsa", tmp_path / "pipe.py"
    code.write_text("x = 1\n")
    secret.write_text("a secret\n")
    os.mkfifo(pipe)
    named = [str(path) for path in (code, secret, pipe, tmp_path / "gone.py")] + [
        "train.py",
        "\0.py",
    ]

    found = list(code_of(named, _LATER))

    assert [each["path"] for each in found] == [str(code)]
    assert found[0]["sha256"] == hashlib.sha256(b"x = 1\n").hexdigest()
    assert list(code_of(named, 0)) == []


def test_lines_end_where_editors_end_them_and_blanks_around_them_do_not_count() -> None:
    hashes = line_hashes("a\r\n  b  \rc\u2028d\n")
    lines = [hashes[at : at + WIDTH] for at in range(0, len(hashes), WIDTH)]

    assert len(lines) == 4
    assert lines[1] == line_hashes("b")
    assert len(set(lines)) == 4
