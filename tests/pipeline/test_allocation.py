"""What a process of our own keeps of the memory that it lets go."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.builders import mm_trace

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import resource
import numpy as np
from pyprof2.pipeline.allocation import give_memory_back

def faults(megabytes: int) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(megabytes << 20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

give_memory_back()
print(faults(8), faults(2))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")
def test_pages_of_small_blocks_are_cleared_once() -> None:
    # NumPy asks for huge pages, of which the system has some or none.
    environment = os.environ | {"NUMPY_MADVISE_HUGEPAGE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment
    )

    large, small = map(int, done.stdout.split())
    pages_of_megabyte = 100 * (1 << 20) // 4096
    assert large > 7 * pages_of_megabyte
    assert small < 2 * pages_of_megabyte / 10


@pytest.mark.parametrize("command", ["parse", "prof", "check"])
def test_a_command_changes_nothing_that_other_libraries_see(tmp_path: Path, command: str) -> None:
    trace = tmp_path / "mm.json"
    trace.write_text(json.dumps(mm_trace()))
    program = """
import gc, os, sys
def seen():
    own = [each for each in sys.meta_path if "pyprof2" in type(each).__module__]
    return dict(os.environ), own, gc.get_threshold(), gc.get_freeze_count()
before = seen()
from pyprof2.cli import main
code = main([sys.argv[2], "-q", sys.argv[1]])
import importlib.metadata, pandas, pyarrow.vendored.docscrape, tabulate
from pyarrow import dataset
libraries = importlib.metadata, pandas, pyarrow.vendored.docscrape, tabulate
real = [library.__spec__.origin for library in libraries]
print(code, seen() == before, all(real), pyarrow.array(pandas.Series([1.5, None])).null_count)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(trace), command],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.splitlines()[-1] == "0 True True 1"
