"""Ranges of the user's own: which they are, and which of them are around an op or a launch.

A path holds the names of all that are open on a thread at one time, outermost first. A thread of
autograd's, one that runs nodes and never has a range, borrows the path of the one other thread of
its process that is inside one; where two are, whose it is cannot be known. Other threads, as those
that fetch data, do work of their own and borrow nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.axes import SEPARATOR
from pyprof2.analysis.intervals import Bool, Int, Nest, last_not_after
from pyprof2.analysis.linking.cuts import marked_texts
from pyprof2.analysis.linking.passes import is_node_name
from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.columns import lookup
from pyprof2.markers import DOMAIN
from pyprof2.recording import UNNAMED_DOMAIN, Recording, code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyprof2.analysis.linking.ranges import Ranges
    from pyprof2.analysis.linking.threads import Threads
    from pyprof2.columns import TextColumn

BORROWED: Final = "range of the one other thread of the process that was inside one"
"""The `link_note` of a path that a thread borrowed."""

_DEPTH_MAX: Final = 32
"""Ranges that are nested deeper were never closed: of their paths the inner end is kept."""
_CUT: Final = "…"

_PYTORCH: Final = re.compile(
    r"Optimizer\.\w+#|enumerate\(\w+\)#|rpc_(?:sync|async|remote)#"
    r"|(?:nccl|gloo|mpi|ucc|xccl|hccl):"
    r"|(?:Distributed)?DataParallel\.forward\Z|FSDP::|FullyShardedDataParallel\."
    r"|## Call CompiledFxGraph |Torch-Compiled Region: |CompiledFunction(?:Backward)?\Z"
    r"|TorchDynamo Cache Lookup\Z|Pregraph bytecode\Z|AOTDispatcher Runtime Wrapper "
    r"|.*\(dynamo_timed\)\Z|graph_\d+_inductor_wrapper_call\Z"
)
"""Names of PyTorch's own ranges, from 1.8 to 2.13."""

_LIBRARIES: Final = frozenset({
    "cccl", "cub", "cublas", "cublaslt", "cudf", "cudnn", "cufft", "cufile", "cugraph", "cuml",
    "curand", "cusolver", "cusparse", "cutensor", "cutlass", "dali", "dask", "kvikio", "libcudf",
    "libkvikio", "mpi", "nccl", "nvimgcodec", "nvjpeg", "nvshmem", "openacc", "openmp", "openshmem",
    "pytorch", "raft", "rmm", "tensorrt", "thrust", "tsl", "ucx", "xla",
})  # fmt: skip
"""The NVTX domains of libraries, in lower case."""


def is_users(name: str, domain: str | None = None) -> bool:
    """Whether a range is the user's own, not PyTorch's or a library's.

    Args:
        name: its text.
        domain: its NVTX domain; None for the default one, and for recordings without domains.
            A domain whose name was not recorded may be a library's.
    """
    if not name or domain == UNNAMED_DOMAIN or _PYTORCH.match(name):
        return False
    return domain is None or domain == DOMAIN or domain.lower() not in _LIBRARIES


def choose_users(recording: Recording, annotations: Ranges) -> Ranges:
    """Return the user's own ranges among those of kind `annotation`."""
    kind, kinds = code_column(recording.read("ranges", ["kind"]), "kind")
    rows = np.flatnonzero(kind == kinds.index("annotation")) if "annotation" in kinds else None
    if rows is None or not len(rows):
        return annotations
    domain, domains = code_column(recording.read("ranges", ["domain"], rows), "domain")
    pairs, inverse = np.unique(np.stack((annotations.name, domain)), axis=1, return_inverse=True)
    wanted = [
        is_users(annotations.names[name], domains[number] if number >= 0 else None)
        for name, number in pairs.T.tolist()
    ]
    return annotations.where(np.array(wanted)[inverse.reshape(-1)])


def node_threads(recording: Recording) -> set[tuple[int, int]]:
    """Return process and thread id of all threads that run nodes of autograd, `NO_ID` for null.

    Where ops were not recorded, the name of a thread may say it.
    """
    named = marked_texts(recording, "ops", "op", is_node_name)
    backward = marked_texts(recording, "ops", "direction", lambda text: text == "backward")
    found = set(recording.autograd_threads)
    for rows in recording.spool.slices("ops", ("op", "direction", "forward_thread", "pid", "tid")):
        is_node = named[int_column(rows, "op", -1)] | (int_column(rows, "forward_thread", 0) > 0)
        is_node |= backward[int_column(rows, "direction", -1)]
        ids = np.stack([int_column(rows, name, NO_ID)[is_node] for name in ("pid", "tid")])
        found.update((pid, tid) for pid, tid in np.unique(ids, axis=1).T.tolist())
    return found


class RangePaths(NamedTuple):
    """The path at each time, -1 for none, and whether it is borrowed from another thread."""

    path: Int
    borrowed: Bool

    def at(self, positions: Int) -> RangePaths:
        """Return those at the positions; -1 gives none."""
        return RangePaths(lookup(self.path, positions, -1), lookup(self.borrowed, positions, 0) > 0)


@dataclass(frozen=True)
class _Timeline:
    """A path for every time of every key: from each `time` on, until the next one of its key."""

    key: Int
    time: Int
    path: Int

    def at(self, key: Int, time: Int) -> Int:
        """Return the path of each key at each time."""
        return lookup(self.path, last_not_after(self.key, self.time, key, time), -1)


@dataclass(frozen=True)
class UserRanges:
    """Where the user's own ranges are.

    Attributes:
        paths: the distinct paths.
        threads: numbers the threads.
        borrowers: process and thread id of those that may borrow.
    """

    paths: list[str]
    threads: Threads
    borrowers: Collection[tuple[int, int]]
    _own: _Timeline
    _borrowed: _Timeline

    @classmethod
    def of(
        cls, ranges: Ranges, threads: Threads, borrowers: Collection[tuple[int, int]]
    ) -> UserRanges:
        """Return the timelines of the ranges, which are all the user's own."""
        thread = np.concatenate((ranges.thread,) * 2)
        time = np.concatenate((ranges.start, ranges.end))
        order = np.lexsort((time, thread))
        thread, time = thread[order], time[order]
        path, paths = _join(_levels(ranges.nest(), (thread, time)), ranges)
        # The path of every process while exactly one of its threads is inside a range.
        before = np.concatenate(([-1], path[:-1]))[: len(path)]
        before[np.concatenate(([True], thread[1:] != thread[:-1]))[: len(before)]] = -1
        process = threads.process(thread)
        order = np.lexsort((time, process))
        # How many threads are inside, and the sum of their codes: of one thread that is its code.
        count = np.cumsum(((path >= 0).astype(np.int64) - (before >= 0))[order])
        code = np.cumsum((path - before)[order]) - 1
        lending = _Timeline(process[order], time[order], np.where(count == 1, code, -1))
        return cls(paths, threads, borrowers, _Timeline(thread, time, path), lending)

    def at(self, thread: Int, time: Int) -> RangePaths:
        """Return the path around each (thread, time)."""
        if not self.paths:
            return RangePaths(np.full(len(time), -1, np.int64), np.zeros(len(time), bool))
        without = np.setdiff1d(thread, self._own.key)
        ids = zip(
            self.threads.pid(without).tolist(), self.threads.tid(without).tolist(), strict=True
        )
        may_borrow = np.array([each in self.borrowers for each in ids], bool)
        borrows = np.isin(thread, without[may_borrow])
        path = self._own.at(thread, time)
        process = self.threads.process(thread[borrows])
        path[borrows] = self._borrowed.at(process, time[borrows])
        return RangePaths(path, borrows & (path >= 0))


def _levels(nest: Nest, at: tuple[Int, Int]) -> list[Int]:
    """Return the ranges around each (thread, time), the innermost first; -1 for none.

    Where there are more than `_DEPTH_MAX`, the last one is -2.
    """
    levels: list[Int] = []
    for found in nest.holders(*at):
        if len(levels) == _DEPTH_MAX:
            levels.append(np.where(found >= 0, -2, -1))
            break
        levels.append(found)
    return levels


def _join(levels: Sequence[Int], ranges: Ranges) -> tuple[Int, list[str]]:
    """Return the names of the ranges of each column, outermost first, as codes, and the texts."""
    names = [*ranges.names, _CUT]
    path = np.full(2 * len(ranges.name), -1, np.int64)
    paths: list[str] = []
    for level in reversed(levels):
        rows = np.flatnonzero(level != -1)
        name = np.where(level[rows] == -2, len(names) - 1, ranges.name[level[rows]])
        pairs, inverse = np.unique(np.stack((path[rows], name)), axis=1, return_inverse=True)
        path[rows] = len(paths) + inverse.reshape(-1)
        paths += [
            f"{paths[above]}{SEPARATOR}{names[name]}" if above >= 0 else names[name]
            for above, name in pairs.T.tolist()
        ]
    return path, paths


def with_borrowed(notes: TextColumn, borrowed: Bool) -> TextColumn:
    """Return the notes, and where the path was borrowed, that too; notes join with `; `."""
    codes, words = notes
    joined = [*words, *(f"{word}; {BORROWED}" if word else BORROWED for word in words), BORROWED]
    moved = np.where(codes >= 0, codes + len(words), len(joined) - 1)
    return np.where(borrowed, moved, codes), joined
