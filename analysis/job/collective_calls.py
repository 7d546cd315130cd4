"""The description of a collective by a distinct call: its group, its bytes, its parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.costs.comm import fits_group
from pyprof2.analysis.costs.registry import with_elements
from pyprof2.analysis.job.collective_rows import POINT_TO_POINT, kind_of
from pyprof2.signatures import Input, Scalar, Tensor, nbytes, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

_OUT_FIRST: Final = (
    "c10d::_allgather_base_",
    "c10d::_reduce_scatter_base_",
    "c10d::alltoall_base_",
)
"""Ops whose first input is the result, and whose second one is what goes in."""
_OUT_LIST_FIRST: Final = (
    "c10d::allgather_", "c10d::reduce_scatter_", "c10d::alltoall_", "c10d::gather_",
    "c10d::scatter_", "c10d::allgather_into_tensor_coalesced_",
    "c10d::reduce_scatter_tensor_coalesced_",
)  # fmt: skip
_RANGE: Final = re.compile(r"(?:nccl|gloo|mpi):")
"""PyTorch's own ranges, whose inputs are the tensors that go in."""
_IN_PLACE: Final = frozenset({"all_reduce", "broadcast", "reduce", "send", "recv"})
_GROWS: Final = "all_gather"
_SHRINKS: Final = "reduce_scatter"


@dataclass(frozen=True)
class DescribedCall:
    """The description by one distinct call; None where it says nothing.

    Attributes:
        kind: of collective.
        name, desc, size, ranks: of the group.
        in_bytes, out_bytes: that go in and come out on this rank.
        sent, received: the bytes of it that go to others and come from others.
        dtype, uneven, root, peer, asynchronous: see table `collectives`.
        bytes_source, note: where the bytes are from; why recorded ones are not used.
    """

    kind: str | None = None
    name: str | None = None
    desc: str | None = None
    size: int | None = None
    ranks: tuple[int, ...] | None = None
    in_bytes: int | None = None
    out_bytes: int | None = None
    sent: int | None = None
    received: int | None = None
    dtype: str | None = None
    uneven: bool | None = None
    root: int | None = None
    peer: int | None = None
    asynchronous: bool | None = None
    bytes_source: str | None = None
    note: str | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether the recorder itself described the collective."""
        return self.kind is not None


def describe(op: str, inputs: str, rank: int, elements: Sequence[str] = ()) -> DescribedCall:
    """Return the description by a call.

    Args:
        op: its name.
        inputs: as in column `signatures.inputs`.
        rank: that made it.
        elements: the element type of lists that lack one.
    """
    items = with_elements(parse_inputs(inputs), elements)
    last = items[-1] if items else None
    said = last.value if isinstance(last, Scalar) and isinstance(last.value, Mapping) else None
    if said is not None and isinstance(said.get("collective"), str):
        return _recorded(said, rank)
    tensors = items if said is None else items[:-1]
    found = _by_shapes(op, tensors)
    if said is None:
        return found
    ranks = _ranks(said)
    found = replace(
        found, name=_text(said.get("group_name")), ranks=ranks, size=len(ranks) if ranks else None
    )
    return found if found.bytes_source else _marked(found, op, said)


def _recorded(said: Mapping[str, Any], rank: int) -> DescribedCall:
    """Return the recorder's description; bytes that contradict their group are not used."""
    kind = kind_of(said["collective"]) or "other"
    dtype, ranks = _text(said.get("dtype")), _ranks(said)
    size = said.get("group_size")
    size = size if isinstance(size, int) and size > 0 else (len(ranks) if ranks else None)
    counts = [said.get(key) for key in ("in_count", "out_count")]
    into, out = (None if not isinstance(n, int) else nbytes(n, dtype) for n in counts)
    into, out = said.get("in_bytes", into), said.get("out_bytes", out)
    found = DescribedCall(
        kind, _text(said.get("group_name")), _text(said.get("group_desc")), size, ranks,
        dtype=dtype, root=said.get("root"), peer=said.get("peer"),
        asynchronous=said.get("asynchronous"),
    )  # fmt: skip
    if into is None and out is None:
        return found
    if into is not None and out is not None and not fits_group(kind, into, out, size):
        note = f"recorded {into} bytes in and {out} out do not fit {size} ranks of {kind}"
        return replace(found, note=note)
    found = replace(found, in_bytes=into, out_bytes=out, bytes_source="recorded")
    return _with_parts(found, said, rank)


def _with_parts(found: DescribedCall, said: Mapping[str, Any], rank: int) -> DescribedCall:
    """Return it with the bytes to and from other ranks, where the parts are known."""
    into, out = found.in_bytes or 0, found.out_bytes or 0
    if found.kind != "all_to_all":
        return _plain_parts(found, into, out)
    sizes, got = _split(said.get("in_split")), _split(said.get("out_split"))
    if sizes is None or got is None:
        return found
    if len(set(sizes)) <= 1 and len(set(got)) <= 1:
        even = replace(found, uneven=False)
        return _plain_parts(even, into, out)
    place = found.ranks.index(rank) if found.ranks and rank in found.ranks else None
    found = replace(found, uneven=True)
    if place is None:
        return found
    return replace(found, sent=_others(into, sizes, place), received=_others(out, got, place))


def _plain_parts(found: DescribedCall, into: int, out: int) -> DescribedCall:
    """Return it with the bytes to and from other ranks, of equal parts; rings: see `bus_factor`."""
    n = found.size
    if found.kind == "all_to_all" and n:
        return replace(found, sent=into * (n - 1) // n, received=out * (n - 1) // n)
    if found.kind == "send":
        return replace(found, sent=into, received=0)
    if found.kind == "recv":
        return replace(found, sent=0, received=out)
    return found


def _others(total: int, sizes: list[int], place: int) -> int | None:
    """Return the bytes of `total` that are not for `place`; sizes are rows of equal length."""
    if not sizes:  # the parts on this side are equal, and do not say how many ranks there are
        return None
    if place >= len(sizes) or sum(sizes) == 0:
        return 0 if sum(sizes) == 0 else None
    return total - total * sizes[place] // sum(sizes)


def _by_shapes(op: str, tensors: Sequence[Input]) -> DescribedCall:
    """Return the bytes by the shapes of the inputs, if the op's name says which is which."""
    kind = kind_of(op)
    if kind == "barrier":  # its tensor is there to be waited for
        return DescribedCall()
    if _RANGE.match(op):
        listed = (item if isinstance(item, tuple) else (item,) for item in tensors)
        tensors = [tuple(part for parts in listed for part in parts if isinstance(part, Tensor))]
    lists = [_bytes_of(item) for item in tensors[:2]] + [None, None]
    if op in _OUT_FIRST or op in _OUT_LIST_FIRST:
        out, into = lists[0], lists[1]
        if into is None:
            return DescribedCall()
        known = DescribedCall(in_bytes=into, out_bytes=out, bytes_source="input_dims")
        return replace(known, dtype=_dtype(tensors[1]))
    first = lists[0]
    if first is None:
        return DescribedCall()
    out = first if kind in _IN_PLACE else None
    known = DescribedCall(in_bytes=first, out_bytes=out, bytes_source="input_dims")
    return replace(known, dtype=_dtype(tensors[0]))


def with_range(found: DescribedCall, op: str, called: Sequence[DescribedCall]) -> DescribedCall:
    """Return the description of an op; where it lacks bytes, those of PyTorch's ranges in it.

    Args:
        found: by the op.
        op: its name.
        called: by its ranges, each with its `kind`. An op that is carried out as collectives of
            another kind, such as a barrier, does not move their bytes.
    """
    if not called or found.bytes_source or found.note:
        return found
    # NCCL's own description of a call is nearer to it than the range of PyTorch around.
    called = [each for each in called if each.bytes_source == "recorded"] or called
    kind = found.kind or kind_of(op) or called[0].kind
    if any(each.kind != kind or each.bytes_source is None for each in called):
        return found
    sums = together(called)
    into, out, size = sums.in_bytes, sums.out_bytes, found.size or sums.size
    if size and into is not None and kind == _GROWS:
        out = into * size
    elif size and into is not None and kind == _SHRINKS:
        out = into // size
    return replace(
        found, in_bytes=into, out_bytes=out, dtype=found.dtype or sums.dtype, size=size,
        name=found.name or sums.name, root=sums.root if found.root is None else found.root,
        bytes_source=sums.bytes_source,
    )  # fmt: skip


def _bytes_of(item: Input) -> int | None:
    """Return the bytes of a tensor or a list of them; None where a part is not known."""
    parts = item if isinstance(item, tuple) else (item,)
    sizes = []
    for part in parts:
        if not isinstance(part, Tensor):
            return None
        count = 1
        for size in part.shape:
            count *= size
        sizes.append(nbytes(count, part.dtype))
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _dtype(item: Input) -> str | None:
    parts = item if isinstance(item, tuple) else (item,)
    names = {part.dtype for part in parts if isinstance(part, Tensor)}
    return names.pop() if len(names) == 1 else None


def _marked(found: DescribedCall, op: str, said: Mapping[str, Any]) -> DescribedCall:
    """Return the bytes of our annotation's marker, which has the larger of in and out."""
    kind, size, larger = kind_of(op), found.size, said.get("marked_bytes")
    if not isinstance(larger, int) or kind is None:
        return found
    known = replace(found, bytes_source="marker")
    if kind in _IN_PLACE or kind == "all_to_all":
        return replace(known, in_bytes=larger, out_bytes=larger)
    if size and kind == _GROWS:
        return replace(known, in_bytes=larger // size, out_bytes=larger)
    if size and kind == _SHRINKS:
        return replace(known, in_bytes=larger, out_bytes=larger // size)
    return found


def _ranks(said: Mapping[str, Any]) -> tuple[int, ...] | None:
    listed = said.get("group_ranks")
    if not isinstance(listed, (list, tuple)) or not all(isinstance(n, int) for n in listed):
        return None
    return tuple(listed) or None


def _split(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(isinstance(n, int) for n in value) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def together(calls: Sequence[DescribedCall]) -> DescribedCall:
    """Return the description of several calls in one kernel: words of the first, summed bytes."""
    sums = {}
    for name in ("in_bytes", "out_bytes", "sent", "received"):
        values = [getattr(call, name) for call in calls]
        sums[name] = None if None in values else sum(values)
    kinds = {call.kind for call in calls}
    # Sends and receives in one group are an exchange of all.
    kind = "all_to_all" if kinds & POINT_TO_POINT else calls[0].kind
    peer = calls[0].peer if len(calls) == 1 else None
    return replace(calls[0], kind=kind if len(calls) > 1 else calls[0].kind, peer=peer, **sums)
