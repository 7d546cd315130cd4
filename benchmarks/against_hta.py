"""CPU time and memory of `parse` and `prof` beside other ways to read the same trace.

Usage: python -m benchmarks.against_hta [TRACE] [--bytes N] [--rounds N] [--save FILE]
       [--tree FOLDER …]

In each round all read the same file, in turns: pyprof2 parses and profiles it, Holistic Trace
Analysis 0.5.0 loads it and breaks the kernels down, and Python's `json` loads it into a DataFrame
of pandas. HTA is installed into an environment of its own, under build/. What counts is the ratio
to pyprof2 within a round. Other trees of this repository, with what they compile, parse it in the
same rounds. `--save` writes the medians, with the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.processes import measure
from benchmarks.traces import ROOT, SHARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.processes import Usage

TRACE: Final = SHARED / "kineto" / "tl_owlv2_h100.json.gz"
HTA: Final = "HolisticTraceAnalysis==0.5.0"
LOAD: Final = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
analysis.get_gpu_kernel_breakdown(visualize=False)
"""
JSON: Final = """
import gzip, json, sys, pandas
with gzip.open(sys.argv[1]) as file:
    pandas.DataFrame(json.load(file)["traceEvents"])
"""


def main() -> int:
    """Measure, print, and say whether pyprof2 takes less than HTA."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("trace", type=Path, nargs="?", default=TRACE, metavar="TRACE")
    parser.add_argument("--bytes", type=int, default=10**8, help="of JSON; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--tree", nargs="*", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--save", type=Path, help="write the medians into this file, as JSON")
    args = parser.parse_args()
    if not args.trace.exists():
        print(f"no trace {args.trace}")
        return 0
    rounds = _rounds(args.trace, args.bytes, args.rounds, args.tree)
    found = {name: _medians(rounds, name) for name in rounds[0]}
    for name, numbers in found.items():
        print(f"{name:14} {numbers}")
    if args.save:
        machine = {"cores": os.cpu_count(), "cpu": _cpu(), "python": platform.python_version()}
        what = {"json_bytes": args.bytes, "rounds": args.rounds, "machine": machine, "ways": found}
        args.save.write_text(json.dumps(what, indent=2) + "\n")
    return int(found["HTA"]["cpu_of_parse"] <= 1)


def _rounds(trace: Path, size: int, count: int, trees: list[Path]) -> list[dict[str, Usage]]:
    """Return what each way took in each round."""
    hta = _install()
    with tempfile.TemporaryDirectory() as folder:
        big, store = Path(folder, "big.json.gz"), Path(folder, "big.pyprof2")
        module = [sys.executable, "-m"]
        measure([*module, "benchmarks.scale_trace", trace, big, "--bytes", str(size)])
        ways: dict[str, Sequence[str | Path]] = {
            "parse": [*module, "pyprof2", "parse", "-q", "--force", big, "-o", store],
            "prof": [*module, "pyprof2", "prof", "-q", store, "--by", "name", "--csv"],
            "HTA": [hta, "-c", LOAD, big],
            "json + pandas": [sys.executable, "-c", JSON, big],
        }
        for tree in trees:
            own = ["env", f"PYTHONPATH={tree.absolute()}", "PYTHONSAFEPATH=1"]
            ways[f"parse, {tree.name}"] = [*own, *ways["parse"]]
        return [{name: measure(command) for name, command in ways.items()} for _ in range(count)]


def _medians(rounds: Sequence[dict[str, Usage]], name: str) -> dict[str, Any]:
    """Return CPU, that as a multiple of what `parse` took in the same round, and peak."""
    ratios = [each[name].cpu_s / each["parse"].cpu_s for each in rounds]
    return {
        "cpu_s": round(statistics.median(each[name].cpu_s for each in rounds), 1),
        "cpu_of_parse": round(statistics.median(ratios), 2),
        "least": round(min(ratios), 2),
        "most": round(max(ratios), 2),
        "peak_mb": round(statistics.median(each[name].peak_bytes for each in rounds) / 1e6),
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _install() -> Path:
    """Return the Python of an environment that has HTA."""
    home = ROOT / "build" / "hta"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "-qqq", HTA], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
