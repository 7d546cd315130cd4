"""What the names of ops and kernels say of a collective: its kind, and what carries it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

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
"""Of the ranges by which our annotation says what an op communicates."""

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
"""Kind and the words that tell it, the most telling first."""
_KIND_RULES: Final = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in _WORDS)
_COMM_OP: Final = re.compile(
    r"c10d::|_c10d_functional(?:_autograd)?::|nccl:|gloo:|mpi:|symm_mem::|record_param_comms$"
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
    """Return the kind of collective that the name of an op, range or kernel tells; None: none."""
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
    """Return what carries a collective, by the name of its kernel or op; None: it is silent."""
    return next((word for word, pattern in _TRANSPORTS if pattern.search(name)), None)


def is_work(name: str) -> bool:
    """Whether a range is a collective that a worker does."""
    return bool(_WORK.match(name))
