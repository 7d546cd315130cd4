"""Which rows of a rank communicate, and what their names say: the kind, and what carries it.

The rows that collectives are made of are few, whatever the size of the recording.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int


KINDS: Final = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather",
    "scatter", "send", "recv", "barrier", "other",
)  # fmt: skip
SYNCHRONISING: Final = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}
)
"""Kinds in which every member needs every other: none ends before another starts."""
POINT_TO_POINT: Final = frozenset({"send", "recv"})
MARKER_KIND: Final = "collective"
"""The kind of the ranges by which our annotation describes the collective of an op."""

_WORDS: Final = (
    ("all_reduce", r"all_?reduce|cross_?device_?reduce|quick_?reduce|one_?shot|two_?shot"),
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_gather", r"all_?gather"),
    ("all_to_all", r"all_?to_?all|all2all|send_?recv|dispatch|combine"),
    ("broadcast", r"broadcast|bcast"),
    ("barrier", r"barrier"),
    ("scatter", r"scatter"),
    ("gather", r"gather"),
    ("reduce", r"reduce"),
    ("recv", r"recv"),
    ("send", r"send"),
)
"""Kind and its words, the most specific first."""
_KIND_RULES: Final = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in _WORDS)
_COMM_OP: Final = re.compile(
    r"p?nccl[A-Z]|c10d::|_c10d_functional(?:_autograd)?::|nccl:|gloo:|mpi:|symm_mem::|record_param_comms$"
    r"|_C_custom_ar::|(?:vllm|sgl_kernel|aiter)::all_|_dtensor::|deep_ep"
)
_WORK: Final = re.compile(r"gloo:(?!.*(?:wait|monitored))")
_NO_WORK: Final = re.compile(r"wait|monitored|work_|group_|_alloc|rendezvous|coalesced$|get_")
_TRANSPORTS: Final = (
    ("nvshmem", re.compile(r"nvshmem|rocshmem", re.IGNORECASE)),
    ("deepep", re.compile(r"deep_?ep", re.IGNORECASE)),
    ("symmetric_memory", re.compile(r"multimem|symm_?mem|one_shot_all|two_shot_all")),
    ("nccl", re.compile(r"nccl|rccl", re.IGNORECASE)),
    ("gloo", re.compile(r"gloo", re.IGNORECASE)),
    ("mpi", re.compile(r"\bmpi", re.IGNORECASE)),
    ("custom", re.compile(r"cross_device_reduce|custom|vllm|sgl_|aiter|lamport|quick_?reduce")),
)


@lru_cache(1 << 12)
def kind_of(name: str) -> str | None:
    """Return the kind of collective by the name of an op, range or kernel; None: none."""
    last = name.rsplit("::", 1)[-1]
    return next((kind for kind, words in _KIND_RULES if words.search(last)), None)


@lru_cache(1 << 12)
def is_comm_op(name: str) -> bool:
    """Whether an op by its name communicates."""
    return _COMM_OP.match(name) is not None


@lru_cache(1 << 12)
def is_collective_op(name: str) -> bool:
    """Whether an op by its name is a collective of its own, and no wait or bookkeeping."""
    if not is_comm_op(name) or name == "record_param_comms":
        return False
    return kind_of(name) is not None and not _NO_WORK.search(name)


@lru_cache(1 << 12)
def transport_of(name: str) -> str | None:
    """Return what carries a collective, by the name of its kernel or op; None: not known."""
    return next((word for word, pattern in _TRANSPORTS if pattern.search(name)), None)


def is_work(name: str) -> bool:
    """Whether a range is a collective that a worker thread carries out."""
    return bool(_WORK.match(name))


INPUT: Final = {
    "kernels": (
        "kernel_id", "start_ns", "dur_ns", "launch_ns", "device", "device_type", "stream", "step",
        "kernel_short", "category", "op_id", "pid", "tid", "layer", "source", "direction",
    ),
    "ops": (
        "op_id", "parent_op_id", "start_ns", "dur_ns", "pid", "tid", "op", "signature_id", "step",
        "layer", "source", "direction", "comm_seq",
    ),
    "signatures": ("signature_id", "op", "inputs"),
    "ranges": ("start_ns", "dur_ns", "pid", "tid", "name", "domain", "kind", "signature_id"),
}  # fmt: skip
"""The columns of the tables from which members are made."""

RANGE_WORDS: Final = re.compile(r"^(?:p?nccl)[A-Z]\w+$")
"""The names of NCCL's own ranges."""


def rows_of_collectives(
    tables: Mapping[str, ChunkedTable], rows: Callable[[str, Int], pa.Table]
) -> dict[str, pa.Table]:
    """Return the rows of a rank's tables from which its members are made; they are few.

    They are the kernels that communicate; the ops that do, those that launched such a kernel, and
    those around both; and the ranges that name a collective.

    Args:
        tables: `kernels`, `ops` and `ranges`, in parts.
        rows: returns the rows of a table at ascending positions, with its columns of `INPUT`.

    Returns:
        The three, with the columns `INPUT`.
    """
    found = {name: rows(name, _positions(tables[name], *how)) for name, how in _CHOSEN.items()}
    parts = tables["ops"]
    wanted = np.zeros(int(parts.offsets[-1]) + 1, bool)  # the last one is that of null
    wanted[int_column(found["kernels"], "op_id", -1)] = True
    wanted[-1] = False
    for number in reversed(range(len(parts))):
        first, last = parts.offsets[number : number + 2].tolist()
        part = parts.read(number, ("parent_op_id", "op"))
        parent, own = int_column(part, "parent_op_id", -1), wanted[first:last]
        own |= _named(part, "op", is_comm_op)
        new = np.flatnonzero(own)
        # An op stands after the one around it, so its parent is here or in a part to come.
        while len(new):
            above = np.unique(parent[new])
            above = above[(above >= 0) & ~wanted[above]]
            wanted[above] = True
            new = above[above >= first] - first
    found["ops"] = rows("ops", np.flatnonzero(wanted[:-1]))
    return found


def _positions(
    parts: ChunkedTable, columns: Sequence[str], chosen: Callable[[pa.Table], Bool]
) -> Int:
    """Return the positions of the rows that are chosen by some columns."""
    found = [
        parts.offsets[number] + np.flatnonzero(chosen(parts.read(number, columns)))
        for number in range(len(parts))
    ]
    return np.concatenate([np.empty(0, np.int64), *found])


def _named(rows: pa.Table, column: str, test: Callable[[str], object]) -> Bool:
    """Return the rows whose text passes a test, which is made once for each text."""
    code, names = code_column(rows, column)
    found: Bool = np.array([*(bool(test(name)) for name in names), False])[code]
    return found


def _names_collective(ranges: pa.Table) -> Bool:
    called = int_column(ranges, "signature_id", -1) >= 0
    return (
        has_text(ranges, "kind", (MARKER_KIND,))
        | _named(ranges, "name", lambda name: RANGE_WORDS.search(name) or is_work(name))
        | (called & _named(ranges, "name", is_comm_op))
    )


_CHOSEN: Final[Mapping[str, tuple[Sequence[str], Callable[[pa.Table], Bool]]]] = {
    "kernels": (("category",), lambda rows: has_text(rows, "category", ("comm",))),
    "ranges": (("name", "kind", "signature_id"), _names_collective),
}
"""Tables whose rows are chosen one by one: by which columns, and how."""
