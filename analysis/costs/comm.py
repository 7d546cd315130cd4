"""Collective communication: what each rank has to read and write in its own memory.

Per rank and byte of payload S: an all-reduce reads S and writes S, at least; the other
collectives read what they send and write what they receive. Additions on the way are not counted:
they are the network's. The time is the network's too: S over it is the algorithm bandwidth. Over
each link go S·2(n-1)/n for an all-reduce among n, S·(n-1)/n for a gather, scatter or exchange of
all, S for a broadcast: that over the time is the bus bandwidth. ``pyprof2 explain`` shows both.
There is no roof: what the links can do is not recorded.

Source: the performance notes of nccl-tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.analysis.costs.operands import (
    ANY_DTYPE,
    bounded,
    fresh,
    maybe_tensor,
    maybe_tensors,
    numel,
    over_dtypes,
    refuse,
    tally,
    typed,
    value,
)
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.signatures import OpCall, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable


class Bandwidth(NamedTuple):
    """How fast a collective was, in GB/s (10⁹ bytes per second).

    Attributes:
        collective: its name as recorded.
        ranks: how many take part.
        payload_bytes: S, the larger of what goes in and what comes out.
        algorithm_gbps: S over the time.
        bus_factor: the bytes on each link for each byte of S; None where it is not defined.
        bus_gbps: S times that over the time: to be compared with the bandwidth of the links.
    """

    collective: str
    ranks: int
    payload_bytes: int
    algorithm_gbps: float
    bus_factor: float | None
    bus_gbps: float | None


def bandwidth(params: str, read: int, written: int, time_ns: int) -> Bandwidth | None:
    """Return the bandwidth of a collective; None where the recording does not describe it.

    Args:
        params: `collective=allreduce,ranks=8`.
        read: bytes that go in.
        written: bytes that come out.
        time_ns: of its kernels.
    """
    found = re.fullmatch(r"collective=(\w+),ranks=(\d{1,9})", params)
    if found is None or time_ns <= 0:
        return None
    collective, ranks = found[1], int(found[2])
    payload = max(read, written)
    rate, factor = payload / time_ns, bus_factor(collective, ranks)
    bus = None if factor is None else factor * rate
    return Bandwidth(collective, ranks, payload, rate, factor, bus)


def bus_factor(collective: str, group_size: int) -> float | None:
    """Return the bytes on each link for each byte of payload; None where it is not defined.

    Args:
        collective: its name, such as `allreduce` or `_allgather_base`.
        group_size: the number of ranks.
    """
    name = collective.replace("_", "").lower()
    if group_size < 1 or name.startswith("barrier"):
        return None
    if group_size == 1:
        return 0.0
    if name.startswith("allreduce"):
        return 2 * (group_size - 1) / group_size
    if name.startswith(("allgather", "reducescatter", "alltoall", "gather", "scatter")):
        return (group_size - 1) / group_size
    return 1.0 if name.startswith(("broadcast", "reduce", "send", "recv")) else None


@cost_of("record_param_comms", category="comm")
def record_param_comms(call: OpCall) -> Cost:
    """Tensors, …, and what was said of the collective: its name, elements in and out, their type.

    bytes: what goes in is read, what comes out is written. Without the description: the list of
    tensors is taken to be read and written.
    """
    collective = call.inputs and value(call, len(call.inputs) - 1)
    if isinstance(collective, Mapping):
        return _described(collective, call)
    return in_place(call)


def fits_group(collective: str, sent: int, received: int, ranks: int | None) -> bool:
    """Return whether recorded sizes can be those of a collective; True where nothing says not.

    Args:
        collective: its name, such as `allgather` or `_reduce_scatter_base`.
        sent: what goes in.
        received: what comes out, in the same unit.
        ranks: the size of the group.
    """
    name = collective.replace("_", "").lower()
    if name.startswith("reducescatter"):
        sent, received = received, sent
    elif not name.startswith("allgather"):
        return True
    return ranks is None or received == ranks * sent


def _described(collective: Mapping[str, Any], call: OpCall) -> Cost:
    sent, received, dtype = (collective.get(key) for key in ("in_count", "out_count", "dtype"))
    if sent is None or received is None:
        return in_place(call)
    if not fits_group(
        str(collective.get("collective")), sent, received, collective.get("group_size")
    ):
        refuse("the recorded sizes do not fit the number of ranks")
    params = f"collective={collective.get('collective')},ranks={collective.get('group_size')}"
    ends = fresh((sent,), dtype), fresh((received,), dtype)

    def make(guess: str) -> Cost:
        one, other = typed(ends, guess)
        return tally(read=[one], written=[other], params=params)

    return over_dtypes(ends, make, ANY_DTYPE)


def _moved(read: Iterable[Tensor], written: Iterable[Tensor], dtype: str | None = None) -> Cost:
    """Return the cost of reading and writing these; a missing type is that of the others."""
    sources, targets = tuple(read), tuple(written)
    if not sources and not targets:
        refuse("the shapes are not in the recording")
    known = next((item.dtype for item in (*sources, *targets) if item.dtype), dtype)

    def make(guess: str) -> Cost:
        one, other = (typed(items, known or guess) for items in (sources, targets))
        count = max(sum(numel(item.shape) for item in items) for items in (one, other))
        return tally(read=one, written=other, params=f"N={count}")

    return over_dtypes(() if known else (*sources, *targets), make, ANY_DTYPE)


@cost_of(
    "c10d::allreduce_", "c10d::allreduce_coalesced_", "c10d::broadcast_", "c10d::reduce_",
    "_c10d_functional::all_reduce_coalesced", "_c10d_functional::all_reduce_coalesced_",
    category="comm",
)  # fmt: skip
def in_place(call: OpCall) -> Cost:
    """A list of tensors: read and written."""
    items = maybe_tensors(call, 0)
    if not items and maybe_tensor(call, 0) is not None:
        items = (maybe_tensor(call, 0) or fresh((), None),)
    return _moved(items, items)


@cost_of(
    "_c10d_functional::all_reduce", "_c10d_functional::all_reduce_",
    "_c10d_functional::broadcast", "_c10d_functional::broadcast_",
    "symm_mem::multimem_all_reduce_", "symm_mem::two_shot_all_reduce_",
    "symm_mem::one_shot_all_reduce", "symm_mem::multimem_one_shot_all_reduce",
    "_C_custom_ar::all_reduce", "vllm::all_reduce", "sgl_kernel::all_reduce",
    "aiter::all_reduce", category="comm",
)  # fmt: skip
def all_reduce(call: OpCall) -> Cost:
    """One tensor: read and written, S each; more comes over the links."""
    x = next((item for item in call.inputs if isinstance(item, Tensor)), None)
    return _moved([x] if x else [], [x] if x else [])


@cost_of(
    "c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "c10d::alltoall_base_",
    category="comm",
)  # fmt: skip
def base(call: OpCall) -> Cost:
    """Result, input: the input read, the result written."""
    out, x = maybe_tensor(call, 0), maybe_tensor(call, 1)
    return _moved([x] if x else [], [out] if out else [])


@cost_of(
    "c10d::allgather_", "c10d::allgather_into_tensor_coalesced_", "c10d::reduce_scatter_",
    "c10d::reduce_scatter_tensor_coalesced_", "c10d::alltoall_", "c10d::gather_",
    "c10d::scatter_", category="comm",
)  # fmt: skip
def lists(call: OpCall) -> Cost:
    """Results and inputs as lists: the inputs read, the results written.

    A list of lists is not in recordings; what is, counts.
    """
    return _moved(maybe_tensors(call, 1), maybe_tensors(call, 0))


@cost_of("c10d::send", category="comm")
def send(call: OpCall) -> Cost:
    """A list: read."""
    return _moved(maybe_tensors(call, 0), ())


@cost_of("c10d::recv_", "c10d::recv_any_source_", category="comm")
def receive(call: OpCall) -> Cost:
    """A list: written."""
    return _moved((), maybe_tensors(call, 0))


@cost_of(
    "_c10d_functional::all_gather_into_tensor", "_c10d_functional::all_gather_into_tensor_out",
    "_c10d_functional_autograd::all_gather_into_tensor", category="comm",
)  # fmt: skip
def all_gather(call: OpCall) -> Cost:
    """x, ranks -> x of all ranks: x read, ranks·x written."""
    return _resized(call, lambda count, ranks: count * ranks)


@cost_of(
    "_c10d_functional::reduce_scatter_tensor", "_c10d_functional::reduce_scatter_tensor_out",
    "_c10d_functional_autograd::reduce_scatter_tensor", category="comm",
)  # fmt: skip
def reduce_scatter(call: OpCall) -> Cost:
    """x, kind, ranks -> a part of the sum: x read, x/ranks written."""
    return _resized(call, lambda count, ranks: count // ranks)


def _resized(call: OpCall, resize: Any) -> Cost:
    x = maybe_tensor(call, 0)
    ranks = next(
        (
            item
            for at in (1, 2)
            if isinstance(item := value(call, at), int) and not isinstance(item, bool)
        ),
        None,
    )
    if x is None or not ranks:
        refuse("the tensor or the number of ranks is not in the recording")
    return _moved([x], [fresh((resize(numel(x.shape), ranks),), x.dtype)])


@cost_of("_c10d_functional::all_to_all_single", "_c10d_functional_autograd::all_to_all_single",
         "_dtensor::shard_dim_alltoall", category="comm")  # fmt: skip
def all_to_all(call: OpCall) -> Cost:
    """x -> as much from the other ranks, if each gets the same: x read and as much written."""
    return all_reduce(call)


_EXCHANGED: Final = "as much is taken to come in as goes out"


@cost_of("nccl:all_to_all", category="comm")
def exchange(call: OpCall) -> Cost:
    """Tensors that go out, as NCCL's own range shows them: read, and as much written.

    Assumed: as much comes in; where the ranks' shares differ, it may be more or less.
    """
    items = [item for item in call.inputs if isinstance(item, Tensor)]
    listed = [item for group in call.inputs if isinstance(group, tuple) for item in group]
    cost = _moved([*items, *listed], [*items, *listed])
    return bounded(cost, _EXCHANGED, traffic=(cost.bytes_read, None))
