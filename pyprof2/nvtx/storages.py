"""Storages of tensors, followed without keeping one alive.

Blocks of memory are followed by storage, never by tensor: views of one, tied weights and parts of a
fused projection are one storage, and count once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, UntypedStorage

from pyprof2.nvtx.internals import (
    StorageWeakRef,
    identity_of,
    inner_tensors,
    parts_of_sparse,
    storage_of_weak_ref,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEEPEST: Final = 4
"""How deep tensors lie in what is passed to a module, or in the state of an optimizer."""
_SCAN_AT: Final = 1 << 12


class Storages:
    """Some storages, by weak references."""

    def __init__(self) -> None:
        self._refs: dict[int, StorageWeakRef] = {}
        self._scan_at = _SCAN_AT

    def add(self, tensor: Tensor) -> None:
        """Add the storages of a tensor."""
        for storage in storages_of(tensor):
            key = identity_of(storage)
            # The weak reference keeps the number from being given to another storage.
            if key not in self._refs:
                self._refs[key] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        if len(self._refs) >= self._scan_at:
            for key, ref in list(self._refs.items()):
                if ref.expired():  # type: ignore[no-untyped-call]
                    self._refs.pop(key, None)
            self._scan_at = max(_SCAN_AT, 2 * len(self._refs))

    def __contains__(self, storage: UntypedStorage) -> bool:
        return identity_of(storage) in self._refs

    def living(self) -> Iterator[UntypedStorage]:
        """Yield those that still exist; to be let go of one by one."""
        for key in list(self._refs):
            storage = storage_of_weak_ref(key)
            if storage is None:
                self._refs.pop(key, None)
            else:
                yield storage

    def clear(self) -> None:
        """Forget all of them."""
        self._refs.clear()


def storages_of(tensor: Tensor) -> Iterator[UntypedStorage]:
    """Yield the storages of a tensor: of a wrapper those inside, of one without memory none."""
    if tensor.device.type == "meta":
        return
    # The public accessors of a sparse one want it coalesced, which would change it.
    is_sparse = tensor.layout == torch.sparse_coo
    inner = parts_of_sparse(tensor) if is_sparse else inner_tensors(tensor)
    if inner is not None:
        for part in inner:
            yield from storages_of(part)
        return
    try:
        yield tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        # A tensor of a transform of torch.func, an opaque or another sparse one.
        return


def place_of(storage: UntypedStorage) -> tuple[int, int] | None:
    """Return address and size in bytes of a storage; None: it has no memory."""
    try:
        size, address = storage.nbytes(), storage.data_ptr()
    except RuntimeError:
        return None  # of a tensor that stands for another one while a program is traced
    return (address, size) if address and size else None


def tensors_in(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors in lists, tuples and dictionaries, to a depth that programs use."""
    if isinstance(value, Tensor):
        yield value
    elif depth < _DEEPEST:
        inside = value.values() if isinstance(value, Mapping) else value
        if isinstance(value, (Mapping, list, tuple)):
            for each in inside:
                yield from tensors_in(each, depth + 1)
