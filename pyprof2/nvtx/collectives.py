"""The process group and the size of a collective, from its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from pyprof2.nvtx.describe import tensor_bytes
from pyprof2.nvtx.internals import resolve_group

if TYPE_CHECKING:
    from collections.abc import Iterable


class Group(NamedTuple):
    """A process group: its name and the ranks in it; None where not known."""

    name: str | None
    ranks: tuple[int, ...] | None


def group_of(values: Iterable[Any]) -> Group:
    """Return the group that is among the arguments of a collective, as an object or by name."""
    if not (dist.is_available() and dist.is_initialized()):
        return Group(None, None)
    for value in values:
        group = group_of_value(value)
        if group is not None:
            return Group(group.group_name, tuple(dist.get_process_group_ranks(group)))
    return Group(None, None)


def group_of_value(value: Any) -> Any:
    """Return the group that an argument is, as an object or by name; None: it is none."""
    try:
        if isinstance(value, torch.ScriptObject):
            return dist.ProcessGroup.unbox(value)
        if isinstance(value, str):
            return resolve_group(value)
    except (RuntimeError, ValueError, KeyError):
        pass  # another object, such as the operation, or a text that names no group
    return None


def collective_bytes(values: Iterable[Any]) -> int:
    """Return the size of the largest argument.

    That is what comes out of a gather, what goes into a scatter, and both for a reduction.
    """
    return max((tensor_bytes(value) for value in values), default=0)
