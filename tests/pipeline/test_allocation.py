"""What a process of our own keeps of the memory that it lets go."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
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


@pytest.mark.parametrize("command", ["parse", "prof"])
def test_nothing_is_taken_from_the_allocator_of_arrow_s_own(tmp_path: Path, command: str) -> None:
    trace = tmp_path / "mm.json"
    trace.write_text(json.dumps(mm_trace()))
    program = """
import os, sys
from pyprof2.cli import main
before = dict(os.environ)
main([sys.argv[2], "-q", sys.argv[1]])
import pyarrow as pa
print(os.environ == before)
own = {"mimalloc", "jemalloc"} & set(pa.supported_memory_backends())
print([getattr(pa, f"{name}_memory_pool")().max_memory() for name in own])
"""
    # A test before this one may have parsed in this process, which sets them for its children.
    settings = {"ARROW_DEFAULT_MEMORY_POOL", "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(trace), command],
        env={name: value for name, value in os.environ.items() if name not in settings},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    same, found = done.stdout.splitlines()[-2:]
    taken = json.loads(found)
    # A program that a command which reads starts is the user's own, and has their settings.
    assert same == str(command != "parse")
    assert taken == [0] * len({"mimalloc", "jemalloc"} & set(pa.supported_memory_backends()))
