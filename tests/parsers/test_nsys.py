"""What is secret in the environments that `nsys` records is in no export of ours."""

from __future__ import annotations

import sqlite3
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.parsers import _nsys

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = "HOME=/root\0HF_TOKEN=s3cret;A=1\0aws_secret_access_key=s3cret=\0PATH=/bin"
LIST = "HOME=/root;DB_PASSWORD=s3cret;PATH=/bin:/usr;API_KEY=s3cret;_=/usr/bin/nsys"
HIDDEN_BLOCK = "HOME=/root\0HF_TOKEN=(hidden)\0aws_secret_access_key=(hidden)\0PATH=/bin"
HIDDEN_LIST = "HOME=/root;DB_PASSWORD=(hidden);PATH=/bin:/usr;API_KEY=(hidden);_=/usr/bin/nsys"
KERNEL = "void sort<KeyToken>(Key*) [with KEY=float; TOKEN=int]"


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Export a report with an `nsys` that writes environments where the real one does."""

    def export(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        (path,) = (word.partition("=")[2] for word in command if word.startswith("--output="))
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
            database.executemany(
                "INSERT INTO StringIds VALUES (?, ?)", [(7, KERNEL), (9, BLOCK), (11, None)]
            )
            database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
            database.executemany(
                "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?)",
                [("Hostname", "node;KEY=1"), ("DeviceEnvironment", LIST)],
            )
            database.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
            database.executemany(
                "INSERT INTO META_DATA_CAPTURE VALUES (?, ?)",
                [
                    ("PROCESS_0:ENVIRONMENT_VARIABLE", 'MY_CREDENTIALS="s3cret"'),
                    ("NVTX_OPTIONS:TRACE_NVTX_RANGE_HOT_KEY", "false"),
                ],
            )
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/nsys")
    monkeypatch.setattr("subprocess.run", export)
    return _nsys.export_report(tmp_path / "net.nsys-rep", tmp_path / "net.sqlite")


def test_variables_with_secret_names_have_no_values(exported: Path) -> None:
    assert b"s3cret" not in exported.read_bytes()
    with sqlite3.connect(exported) as database:
        rows = {
            table: [tuple(row) for row in database.execute(f"SELECT * FROM {table}")]  # noqa: S608
            for table in ("StringIds", "TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE")
        }

    # A kernel's name is no environment, and a row is found by its id.
    assert rows["StringIds"] == [(7, KERNEL), (9, HIDDEN_BLOCK), (11, None)]
    assert rows["TARGET_INFO_SYSTEM_ENV"] == [
        ("Hostname", "node;KEY=1"),
        ("DeviceEnvironment", HIDDEN_LIST),
    ]
    assert rows["META_DATA_CAPTURE"] == [
        ("PROCESS_0:ENVIRONMENT_VARIABLE", "MY_CREDENTIALS=(hidden)"),
        ("NVTX_OPTIONS:TRACE_NVTX_RANGE_HOT_KEY", "false"),
    ]
