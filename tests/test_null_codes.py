"""What stands in a column of text where it is null is never looked up.

Arrow's grouping leaves what was in memory there, and putting dictionaries together reads it: with
glibc's MALLOC_PERTURB_ that is a code far out of any dictionary, and the process dies.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa

from pyprof2.columns import text_array

PROGRAM = """
import pandas as pd, pyarrow as pa
from pyprof2.analysis.summaries.spent import IDLE_INPUT, idle_sums, spent
from pyprof2.tables import IDLE

def part(*sources):
    rows = {"cause": ["host"] * len(sources), "source": sources, "step": None, "time_ns": 7}
    filled = {n: rows[n] if isinstance(rows[n], (list, tuple)) else [rows[n]] * len(sources)
              for n in rows}
    return pa.table({n: pa.array(filled[n]).cast(IDLE.schema([n]).field(n).type)
                     for n in IDLE_INPUT})

sums = idle_sums([part(None, "a", "b", None), part("c", None), part(None, None)])
found = spent({"busy_ns": 1, "ledger": {}}, [], sums.to_pylist(), lambda: pd.DataFrame())
print(found.idle_ns)
"""


def test_idle_time_of_parts_in_memory_that_was_used() -> None:
    used = {"MALLOC_PERTURB_": "165", "ARROW_DEFAULT_MEMORY_POOL": "system"}

    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True, text=True, check=False, env=os.environ | used,
    )  # fmt: skip

    assert (found.returncode, found.stdout) == (0, "56\n"), found.stderr[-2000:]


def test_the_code_of_null_is_one_of_the_dictionary() -> None:
    column = text_array((np.array([-1, 0, -1, 1]), ["a", "b"]))

    codes = np.frombuffer(column.indices.buffers()[1], np.int32)[: len(column)]
    assert (codes >= 0).all()
    assert column.to_pylist() == [None, "a", None, "b"]
    assert pa.chunked_array([column, column]).unify_dictionaries().null_count == 4
