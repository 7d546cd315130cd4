"""The traces that recorders write."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.profiler import profile


def write_trace(
    profiler: profile, path: Path, finish: Callable[[Path, Path], None] | None = None
) -> None:
    """Write what a profiler recorded, whole or not at all.

    Args:
        profiler: it has stopped.
        path: of the trace.
        finish: writes the trace from the plain text of it; by default it stays as it is.
    """
    # In a folder that no other user can write to: a known name could be planted as a link.
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        unfinished = Path(folder, path.name)
        if finish is None:
            profiler.export_chrome_trace(str(unfinished))
        else:
            plain = Path(folder, "trace")
            profiler.export_chrome_trace(str(plain))
            finish(plain, unfinished)
        unfinished.replace(path)
