"""The real traces that benchmarks measure on, where they are there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
SHARED: Final = Path(os.environ.get("PYPROF2_SHARED") or ROOT.parent / "shared") / "traces"


def add_traces(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Declare the argument `trace`: Kineto traces, by default the real ones of these names."""
    default = [SHARED / "kineto" / f"{name}.json.gz" for name in names]
    parser.add_argument("trace", type=Path, nargs="*", default=default, metavar="TRACE")


def existing(traces: Sequence[Path]) -> list[Path]:
    """Return the traces that are there, and say so if there are none."""
    found = [trace for trace in traces if trace.exists()]
    if not found:
        print(f"no traces: {', '.join(map(str, traces))}")
    return found
