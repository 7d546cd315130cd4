"""Marks collectives: which one of its group each is, and what it moves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist

from pyprof2.markers import Marker
from pyprof2.nvtx.describe import group_of_value, tensor_bytes
from pyprof2.nvtx.internals import own_number, schema_of
from pyprof2.signatures import TORCH_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyprof2.nvtx.session import AnnotationSession

_ODD_GROUPS: Final = (AttributeError, KeyError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors that a group of an unknown class may raise when it is looked at: it gets no marker."""
_FROM_ANYBODY: Final = "c10d::recv_any_source_"
_PEERS: Final = {"c10d::send": "dst", "c10d::recv_": "src", _FROM_ANYBODY: ""}
_NO_DATA: Final = ("c10d::barrier", "c10d::monitored_barrier_")


class _Count:
    """Counts the calls of a group, by peer; `since` is PyTorch's own number when that began."""

    __slots__ = ("last", "numbers", "since")

    def __init__(self, since: int | None) -> None:
        self.since = self.last = since
        self.numbers: dict[tuple[str, int | None], int] = {}

    def next(self, what: str, peer: int | None) -> int:
        """Return the number of a call, from 0."""
        found = self.numbers.get((what, peer), 0)
        self.numbers[what, peer] = found + 1
        return found


class CollectiveMarks:
    """Numbers the collectives of every group, whether anything records or not, and marks them.

    All members of a group call its collectives in the same order, so calls of the same number
    belong together, if all began to count at the same place: `since` of the marker says where.
    """

    def __init__(self, session: AnnotationSession) -> None:
        self._session = session
        self._counts: dict[str, _Count] = {}
        self._lock = threading.Lock()

    def mark(self, op: Any, args: tuple[Any, ...]) -> None:
        """Count a call of an op of c10d, and write its marker if something is written."""
        try:
            self._mark(op, args)
        except _ODD_GROUPS:
            return

    def _mark(self, op: Any, args: tuple[Any, ...]) -> None:
        schema = schema_of(op)
        given = dict(zip((argument.name for argument in schema.arguments), args, strict=False))
        group = group_of_value(given["process_group"])
        ranks = dist.get_process_group_ranks(group)
        place = given.get(_PEERS.get(schema.name, "root_rank"))
        peer = None if place is None else ranks[place]
        with self._lock:
            count = self._count(group)
            is_pair = schema.name in _PEERS
            number = count.next(schema.name, peer) if is_pair else count.next("", None)
        if self._session.writes and schema.name != _FROM_ANYBODY:
            marker = Marker(
                "collective", op=schema.name, group=group.group_name, desc=group.group_desc or None,
                **_places(ranks), since=count.since, peer=peer,
                **_moved(schema.name, given, ranks),
                # The argument had another name before torch 2.9.
                waits=given.get("async_op", given.get("asyncOp", True)) is False,
            )  # fmt: skip
            self._session.mark_range(marker, number)

    def _count(self, group: Any) -> _Count:
        """Return the count of a group; one that PyTorch began to count anew is another group."""
        own, count = own_number(group), self._counts.get(group.group_name)
        if count is None or (own is not None and own < (count.last or 0)):
            count = self._counts[group.group_name] = _Count(own)
        count.last = own
        return count


def _places(ranks: Sequence[int]) -> dict[str, Any]:
    """Return the ranks of a group for its marker: counted where they are evenly spaced."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if step > 0 and list(ranks) == list(range(ranks[0], ranks[0] + step * len(ranks), step)):
        return {"span": (ranks[0], len(ranks), step)}
    return {"ranks": tuple(ranks)}


def _moved(op: str, given: Mapping[str, Any], ranks: Sequence[int]) -> dict[str, Any]:
    """Return what a call moves, for its marker: bytes, and the dtype if all have one."""
    if op in _NO_DATA:
        return {"in_bytes": 0, "out_bytes": 0}
    tensors = list(_tensors(given.values()))
    dtypes = {TORCH_DTYPES.get(str(t.dtype).removeprefix("torch.")) for t in tensors}
    found: dict[str, Any] = {"dtype": dtypes.pop() if len(dtypes) == 1 else None}
    sides = {"in_bytes": "input", "out_bytes": "output"}
    for name, word in sides.items():
        own = [v for k, v in given.items() if k.startswith((word, "tensor")) and "split" not in k]
        found[name] = sum(map(tensor_bytes, own))
    if op.startswith("c10d::alltoall"):
        place = ranks.index(dist.get_rank())
        into, out = (_parts(given, word, len(ranks)) for word in ("input", "output"))
        found["sent_bytes"] = sum(into) - into[place]
        found["received_bytes"] = sum(out) - out[place]
        found["uneven"] = len({*into}) > 1 or len({*out}) > 1
    return found


def _parts(given: Mapping[str, Any], word: str, size: int) -> list[int]:
    """Return the bytes of an all-to-all that go to each rank, or come from it."""
    listed = given.get(f"{word}_tensors")
    if listed is not None:
        return [tensor_bytes(tensor) for tensor in listed]
    whole, splits = tensor_bytes(given[word]), given.get(f"{word}_split_sizes") or [1] * size
    rows = sum(splits) or 1
    return [whole * part // rows for part in splits]


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
