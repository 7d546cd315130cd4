"""Too little memory is said to be that, whoever says so and however."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyprof2.api.run import load, parse
from pyprof2.cli import main
from pyprof2.errors import (
    CaptureError,
    MemoryShortError,
    StoreError,
    TraceError,
    is_shortage,
    shortage,
)
from tests.kineto_events import launched, op, trace

if TYPE_CHECKING:
    from pathlib import Path


def of_numpy() -> BaseException:
    with pytest.raises(MemoryError) as caught:
        np.empty(1 << 44)
    return caught.value


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        pytest.param(of_numpy(), "140,737.5 GB", id="NumPy"),
        pytest.param(pa.ArrowMemoryError("malloc of size 262144 failed"), "262.1 kB", id="Arrow"),
        pytest.param(pa.ArrowException("Unknown error: std::bad_alloc"), "", id="bad_alloc"),
        pytest.param(OSError("Unknown error: std::bad_alloc"), "", id="Parquet"),
        pytest.param(OSError(errno.ENOMEM, "Cannot allocate memory"), "", id="the system"),
        pytest.param(sqlite3.OperationalError("out of memory"), "", id="SQLite"),
        pytest.param(RuntimeError("can't start new thread"), "", id="a thread"),
        pytest.param(
            pa.ArrowException("Failed to launch worker thread: Resource temporarily unavailable"),
            "",
            id="a thread of Arrow",
        ),
        pytest.param(
            ImportError("x.so: failed to map segment from shared object"), "", id="a library"
        ),
        pytest.param(MemoryError(), "", id="C"),
    ],
)
def test_each_way_of_saying_it_is_known(error: BaseException, asked: str) -> None:
    assert is_shortage(error)
    message = str(shortage(error, "net.json"))

    assert message.startswith("net.json: not enough memory")
    assert "--jobs" in message
    assert ("asked for" in message) == bool(asked)
    assert asked in message


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"), pa.ArrowInvalid("not a Parquet file"),
        StoreError("x: damaged"), CaptureError("train.py: CUDA out of memory"), ValueError(),
    ],
)  # fmt: skip
def test_other_errors_are_none(error: BaseException) -> None:
    assert not is_shortage(error)


@pytest.mark.kept("check-300000", "prof-320000")
@pytest.mark.parametrize("kilobytes", [300_000, 310_000, 320_000])
@pytest.mark.parametrize("command", ["prof", "check"])
def test_a_library_that_gets_no_thread_is_no_interrupt(
    tmp_path: Path, command: str, kilobytes: int
) -> None:
    """OpenBLAS interrupts the program that loads it."""
    path = trace(tmp_path, op("aten::a", 0, 9), *launched(1, 5, at=20, dur=8))
    words = f"ulimit -v {kilobytes}; {sys.executable} -m pyprof2 {command} {path}"

    done = subprocess.run(
        ["/bin/sh", "-c", words], capture_output=True, text=True, check=False,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "8"},
    )  # fmt: skip

    said = done.stderr.splitlines()[-1:]
    assert done.returncode != 130
    assert done.returncode == 0 or "emory" in said[0]


def test_a_key_that_is_pressed_is_one() -> None:
    assert not is_shortage(KeyboardInterrupt())


def test_an_error_of_ours_that_comes_from_it_is_one() -> None:
    error = TraceError("x.sqlite: cannot be read")
    error.__cause__ = sqlite3.OperationalError("out of memory")

    assert is_shortage(error)


def fails(*_: object, **__: object) -> Any:
    msg = "malloc of size 400000000 failed"
    raise pa.ArrowMemoryError(msg)


def test_a_store_is_not_called_damaged_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = trace(tmp_path, op("aten::mm", 0, 9), launched(1, 5, at=20, dur=8))
    store = parse(file, tmp_path / "s")
    monkeypatch.setattr(pq.ParquetFile, "read", fails)

    with pytest.raises(MemoryShortError, match=r"400.0 MB more were asked for"):
        load(store).kernels  # noqa: B018 - a table is read when it is asked for
    assert main(["prof", str(store), "--by", "kernel", "--csv"]) == 1

    err = capsys.readouterr().err
    assert "not enough memory (400.0 MB more were asked for)" in err
    assert f"pyprof2: {store}: not enough" in err


def test_an_output_is_not_to_blame_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = trace(tmp_path, op("aten::mm", 0, 9), launched(1, 5, at=20, dur=8))
    for name, error in (("arrow", fails), ("os", OSError(errno.ENOMEM, "Cannot allocate memory"))):
        monkeypatch.setattr(
            "pyprof2.pipeline.parsing.write_results",
            fails if callable(error) else lambda *_, error=error: (_ for _ in ()).throw(error),
        )
        assert main(["parse", str(file), "-o", str(tmp_path / name)]) == 1
        err = capsys.readouterr().err
        assert "not enough memory" in err
        assert "cannot write" not in err
        assert not (tmp_path / name).exists()
