"""Notes of a program on the kernels of its CUDA graphs, `torch.cuda._graph_annotations`.

It is pickled beside recordings, by the ids of nodes that these name. Read from torch's source of
2.13, not recorded: it needs a driver of CUDA 13.1.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from pyprof2.errors import TraceError
from pyprof2.parsers import _annotation_pickle

if TYPE_CHECKING:
    from pathlib import Path

_FILES: Final = "kernel_annotations_rank{}_*.pkl"
_RANK_FIRST: Final = re.compile(r"(?:rank)?(\d{1,9})(?!\d)")
"""How names of recordings begin with which torch writes annotations."""


def find_annotations(trace: Path, rank: int | None) -> Path | None:
    """Return the file of annotations of a recording, one folder above it; None: there is none."""
    named = _RANK_FIRST.match(trace.name)
    number = rank if rank is not None else int(named[1]) if named else None
    if number is None:
        return None
    return next(iter(sorted(trace.absolute().parent.parent.glob(_FILES.format(number)))), None)


def read_annotations(path: Path) -> dict[int, str]:
    """Return what is noted of nodes, by their id.

    Raises:
        TraceError: it is not what torch writes.
    """
    program = [sys.executable, "-I", _annotation_pickle.__file__, str(path.resolve())]
    done = subprocess.run(program, capture_output=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        msg = f"{path}: not read as annotations of a graph: {said[-1] if said else 'damaged'}"
        raise TraceError(msg)
    texts: dict[str, str] = json.loads(done.stdout)
    return {int(node): text for node, text in texts.items()}
