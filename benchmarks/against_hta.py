"""CPU time of `parse` and `prof` against Holistic Trace Analysis on the same file.

Usage: python -m benchmarks.against_hta [TRACE] [--bytes N] [--rounds N]

HTA 0.5.0 is installed into an environment of its own, under build/. In each round both read the
same file, in turns: pyprof2 parses and profiles it, HTA loads it and breaks the kernels down.
What counts is the ratio within a round.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.processes import measure
from benchmarks.traces import ROOT, SHARED

TRACE: Final = SHARED / "kineto" / "tl_owlv2_h100.json.gz"
HTA: Final = "HolisticTraceAnalysis==0.5.0"
LOAD: Final = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
analysis.get_gpu_kernel_breakdown(visualize=False)
"""


def main() -> int:
    """Measure, print, and say whether pyprof2 takes less."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("trace", type=Path, nargs="?", default=TRACE, metavar="TRACE")
    parser.add_argument("--bytes", type=int, default=10**8, help="of JSON; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    args = parser.parse_args()
    if not args.trace.exists():
        print(f"no trace {args.trace}")
        return 0
    python = _install()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        big, store = Path(folder, "big.json.gz"), Path(folder, "big.pyprof2")
        scale = [sys.executable, "-m", "benchmarks.scale_trace", args.trace, big]
        measure([*scale, "--bytes", str(args.bytes)])
        pyprof2 = [sys.executable, "-m", "pyprof2"]
        print("pyprof2, parse + prof:")
        for _ in range(args.rounds):
            parse = measure([*pyprof2, "parse", "-q", "--force", big, "-o", store])
            prof = measure([*pyprof2, "prof", "-q", store, "--by", "name", "--csv"])
            hta = measure([python, "-c", LOAD, big])
            ratios.append((parse.cpu_s + prof.cpu_s) / hta.cpu_s)
            print(
                f"{parse.cpu_s:.1f} + {prof.cpu_s:.1f} s CPU, {parse.peak_bytes / 1e6:.0f} MB; "
                f"HTA {hta.cpu_s:.1f} s, {hta.peak_bytes / 1e6:.0f} MB; ratio {ratios[-1]:.2f}"
            )
    print(
        f"pyprof2 to HTA: {statistics.median(ratios):.2f} [{min(ratios):.2f} … {max(ratios):.2f}]"
    )
    return int(statistics.median(ratios) >= 1)


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
