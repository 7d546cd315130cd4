"""What a process of our own keeps of the memory that it lets go."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from pyprof2.allocation import give_memory_back, pieces_kept

def faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(2 << 20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

give_memory_back()
given_back = faults()
with pieces_kept():
    kept = faults()
print(given_back, kept, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")
def test_pages_of_pieces_are_cleared_once_and_those_of_other_blocks_each_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )

    given_back, kept, again = map(int, done.stdout.split())
    pages = 100 * (2 << 20) // 4096
    assert given_back > pages / 2
    assert kept < pages / 10
    assert again > pages / 2
