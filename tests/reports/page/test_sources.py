"""Which files a recording can put into a page: none but Python files below the named folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pyprof2.reports.page.sources import LARGEST, sources_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with one file of the user's own, and a secret beside it."""
    folder = tmp_path / "work"
    (folder / "models").mkdir(parents=True)
    (folder / "models" / "net.py").write_text("import torch\n\nx = 1\n")
    (tmp_path / "secret.py").write_text("password = 1\n")
    return folder


def paths(root: Path, *lines: str) -> list[str]:
    return [file["path"] for file in sources_of(lines, root)]


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
def test_a_file_below_the_folder_is_embedded_once(root: Path, absolute: bool) -> None:  # noqa: FBT001
    path = str(root / "models/net.py") if absolute else "models/net.py"

    assert sources_of([f"{path}:1", f"{path}:3"], root) == [
        {"path": path, "lines": ["import torch", "", "x = 1", ""]}
    ]


@pytest.mark.parametrize(
    "path",
    [
        "../secret.py",
        "models/../../secret.py",
        "models/../models/net.py",
        "{outside}/secret.py",
        "{root}/../secret.py",
        "/etc/passwd",
        "models",
        "models/none.py",
        "models/net.py\0.py",
        "a" * 5000 + ".py",
        "C:/work/net.py",
        "\\\\server\\net.py",
        "",
        "\u202emodels/net.py",
        "models/net.py\n",
        "</script>.py",
    ],
)
def test_another_path_is_not(root: Path, path: str) -> None:
    named = path.format(outside=root.parent, root=root)

    assert paths(root, f"{named}:1") == []


@pytest.mark.parametrize("name", [".env", ".hidden.py", "key.pem", "notes.txt", ".git/config.py"])
def test_what_is_hidden_or_no_python_is_not(root: Path, name: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("x")

    assert paths(root, f"{name}:1") == []


def test_a_link_that_leads_out_is_not_and_one_that_stays_is(root: Path) -> None:
    (root / "out.py").symlink_to(root.parent / "secret.py")
    (root / "folder").symlink_to(root.parent)
    (root / "in.py").symlink_to(root / "models" / "net.py")
    (root / "text.py").symlink_to(root / "plain.txt")
    (root / "plain.txt").write_text("x")

    assert paths(root, "out.py:1", "folder/secret.py:1", "in.py:1", "text.py:1") == ["in.py"]


def test_the_named_folder_may_be_a_link_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)

    assert paths(tmp_path / "link", f"{tmp_path}/link/models/net.py:1", "models/net.py:1") == [
        f"{tmp_path}/link/models/net.py",
        "models/net.py",
    ]


def test_what_is_no_plain_file_is_not_and_nothing_waits_for_it(root: Path) -> None:
    os.mkfifo(root / "pipe.py")
    (root / "folder.py").mkdir()
    (root / "zero.py").symlink_to("/dev/zero")

    assert paths(root, "pipe.py:1", "folder.py:1", "zero.py:1") == []


@pytest.mark.parametrize(
    ("content", "is_embedded"),
    [
        pytest.param(b"#" * LARGEST, True, id="as large as may be"),
        pytest.param(b"#" * (LARGEST + 1), False, id="larger"),
        pytest.param(b"x\0y", False, id="binary"),
        pytest.param(b"\xff\xfe", True, id="another encoding"),
    ],
)
def test_files_are_of_text_and_not_large(root: Path, content: bytes, is_embedded: bool) -> None:  # noqa: FBT001
    (root / "a.py").write_bytes(content)

    assert paths(root, "a.py:1") == ["a.py"] * is_embedded


def test_all_files_together_are_not_large(root: Path) -> None:
    for number in range(6):
        (root / f"{number}.py").write_bytes(b"#" * LARGEST)

    assert paths(root, *(f"{number}.py:1" for number in range(6))) == [f"{n}.py" for n in range(4)]
