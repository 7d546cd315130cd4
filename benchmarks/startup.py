"""How long `pyprof2 --help` and `import pyprof2` take, with the start of the interpreter.

Usage: python benchmarks/startup.py [--rounds N]

The claim is that `--help` answers in under 0.3 s. Exit code 1 if the median does not.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from typing import Final

LIMIT_S: Final = 0.3
PROGRAMS: Final = {
    "python -c pass": ["-c", "pass"],
    "import pyprof2": ["-c", "import pyprof2"],
    "pyprof2 --help": ["-m", "pyprof2", "--help"],
    "pyprof2 prof --help": ["-m", "pyprof2", "prof", "--help"],
}


def main() -> int:
    """Time every program in turn, and print the medians."""
    parser = argparse.ArgumentParser(description="Time the start of pyprof2.")
    parser.add_argument("--rounds", type=int, default=9, help="default: %(default)s")
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for arguments in PROGRAMS.values():  # the first start also writes bytecode
        _seconds(arguments)
    for _ in range(rounds):
        for name, arguments in PROGRAMS.items():
            seconds[name].append(_seconds(arguments))
    for name, times in seconds.items():
        low, high = min(times), max(times)
        print(f"{name:<20} {statistics.median(times):.3f} s  [{low:.3f} … {high:.3f}]")
    slow = statistics.median(seconds["pyprof2 --help"]) >= LIMIT_S
    print(f"--help in under {LIMIT_S} s: {'no' if slow else 'yes'}")
    return int(slow)


def _seconds(arguments: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
