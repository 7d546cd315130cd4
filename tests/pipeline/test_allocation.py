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
from pyprof2.pipeline.allocation import give_memory_back, release_spare

def faults(megabytes: int) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(megabytes << 20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident() -> int:
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20

give_memory_back()
print(faults(8), faults(2))
before = resident()
for count in (24, 96):
    blocks = [np.ones(2 << 20, np.uint8) for _ in range(count)]
    wall = bytearray(1 << 20)  # behind the blocks: the heap cannot end before it
    del blocks
    release_spare()
    print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")
def test_pages_of_small_blocks_are_cleared_once_and_not_many_are_kept() -> None:
    # NumPy asks for huge pages, of which the system has some or none.
    environment = os.environ | {"NUMPY_MADVISE_HUGEPAGE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment
    )

    (large, small), *kept = ([int(n) for n in line.split()] for line in done.stdout.splitlines())
    pages_of_megabyte = 100 * (1 << 20) // 4096
    assert large > 7 * pages_of_megabyte
    assert small < 2 * pages_of_megabyte / 10
    few, many = (megabytes for (megabytes,) in kept)
    assert few >= 40
    assert many < 16


def test_parse_takes_nothing_from_the_allocator_of_arrow_s_own(tmp_path: Path) -> None:
    trace = tmp_path / "mm.json"
    trace.write_text(json.dumps(mm_trace()))
    program = """
import sys
from pyprof2.cli import main
main(["parse", "-q", sys.argv[1]])
import pyarrow as pa
own = {"mimalloc", "jemalloc"} & set(pa.supported_memory_backends())
print([getattr(pa, f"{name}_memory_pool")().max_memory() for name in own])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(trace)], capture_output=True, text=True, check=True
    )

    taken = json.loads(done.stdout.splitlines()[-1])
    assert taken == [0] * len({"mimalloc", "jemalloc"} & set(pa.supported_memory_backends()))
