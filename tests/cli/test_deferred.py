"""A rank alone is parsed without pandas, and what all ranks tell of it is the same."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from pyprof2.pipeline.many_ranks import write_job
from pyprof2.pipeline.parsing import parse
from pyprof2.store.folder import STORED, read_table
from tests.kineto_events import launched, op, trace

if TYPE_CHECKING:
    from pathlib import Path

_PARSED = """
import sys
from pyprof2.cli import main
code = main(["parse", sys.argv[1], "-o", sys.argv[2], "-q"])
print(code, "pandas" in sys.modules)
"""
_COLLECTED = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count() > 0))
from pyprof2.cli import main
main([*sys.argv[1].split(), sys.argv[2]])
"""
_DEFERRED = """
import sys
import pyarrow as pa
from pyprof2.cli.deferred import defer_pandas
defer_pandas()
table = pa.table({"a": pa.array([1, None])})
before = "pandas" in sys.modules
frame = table.to_pandas()
import pandas as pd
print(before, frame["a"].isna().tolist(), pa.array(pd.Series([1.5, float("nan")])).null_count)
"""
_NOTHING = dict.fromkeys(STORED["clocks"].names, 0)
"""A rank is not off its own clock; it is rank 0."""


def _output(code: str, *arguments: object) -> list[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def _trace(folder: Path, host: str) -> Path:
    work = launched(10, 5, at=20, dur=9, name="ampere_sgemm")
    around = {"host_name": host} if host else {}
    return trace(folder / f"{host or 'none'}.json", op("aten::mm", 0, 30), work, **around)


def test_a_rank_alone_is_parsed_without_pandas(tmp_path: Path) -> None:
    last = _output(_PARSED, _trace(tmp_path, "a"), tmp_path / "out.pyprof2")[-1]

    assert last == "0 False"


def test_garbage_is_looked_for_seldom_but_not_in_a_program_that_is_recorded(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("import gc; print(gc.get_threshold()[0], gc.get_freeze_count() > 0)")

    assert _output(_COLLECTED, "check -q", _trace(tmp_path, "a"))[-1] == "100000 True"
    assert _output(_COLLECTED, f"capture --kineto -q -o {tmp_path}/out", script)[0] == "700 False"


def test_arrow_knows_pandas_once_a_table_has_become_a_frame() -> None:
    """NaN of a `Series` is null only where Arrow knows what a `Series` is."""
    assert _output(_DEFERRED)[-1] == "False [False, True] 1"


def test_a_later_command_of_the_process_writes_nullable_columns(tmp_path: Path) -> None:
    code = f"{_PARSED}print(main(['check', sys.argv[2], '--format', 'json']))"

    assert _output(code, _trace(tmp_path, "a"), tmp_path / "out.pyprof2")[-1] == "0"


def test_what_all_ranks_tell_of_one_alone_is_what_many_would(tmp_path: Path) -> None:
    for host in ("", "a"):
        store = parse(_trace(tmp_path, host), tmp_path / f"store-{host}")
        names = ("clocks", "parts", "segments", "collectives")
        alone = {name: read_table(store, name).to_pylist() for name in names}

        write_job(store, [0], map)

        assert {name: read_table(store, name).to_pylist() for name in names} == alone
        assert alone["clocks"] == [_NOTHING | {"applied": False, "reason": "the reference"}]
