"""The traces that recorders write, and their lines for the user."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.profiler import profile


def say(text: str) -> None:
    """Print one line for the user."""
    print(f"pyprof2: {text}", file=sys.stderr, flush=True)  # noqa: T201 -- no command line here


def write_trace(profiler: profile, path: Path) -> None:
    """Write what a profiler recorded, whole or not at all."""
    # In a folder that no other user can write to: a known name could be planted as a link.
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        unfinished = Path(folder, path.name)
        profiler.export_chrome_trace(str(unfinished))
        unfinished.replace(path)
