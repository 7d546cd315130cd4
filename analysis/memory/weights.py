"""Weights: the parameters and buffers that the recorded program names, held against its blocks.

As tags, names are not trusted: a weight counts where a block was tagged at its address that is
large enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyprof2.analysis.memory.tags import of_device
from pyprof2.columns import combine_keys
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from pyprof2.analysis.memory.curves import Curve
    from pyprof2.analysis.memory.tags import Tagged


def last_weights(weights: pa.Table) -> pa.Table:
    """Return the last row of each weight, in the order in which they were told first.

    Args:
        weights: rows of the table `weights`.
    """
    names, _ = code_column(weights, "name")
    key = combine_keys(int_column(weights, "rank", 0), np.asarray(names, np.int64))
    order = np.argsort(int_column(weights, "time_ns", 0), kind="stable")
    _, first = np.unique(key[order], return_index=True)
    _, last = np.unique(key[order][::-1], return_index=True)
    rows = order[len(order) - 1 - last][np.argsort(first, kind="stable")]
    return weights.take(pa.array(rows))


def weights_of(curve: Curve, tagged: Tagged, weights: pa.Table) -> tuple[pa.Table, int]:
    """Return the weights on a device, and how many the recording contradicts.

    Args:
        curve: of the device.
        tagged: what was tagged of it.
        weights: see `last_weights`.
    """
    own = weights.filter(pa.array(of_device(curve, weights)))
    blocks, before = curve.blocks, tagged.before
    is_tagged = tagged.category >= 0
    address = np.r_[curve.addresses[blocks.alloc][is_tagged], before.address]
    size = np.r_[curve.change[blocks.alloc][is_tagged], before.bytes]
    room: dict[int, int] = {}
    for place, held in zip(address.tolist(), size.tolist(), strict=True):
        room[place] = max(held, room.get(place, 0))
    places, sizes = int_column(own, "address", -1).tolist(), int_column(own, "bytes", 0).tolist()
    fits = [room.get(at, -1) >= takes for at, takes in zip(places, sizes, strict=True)]
    return own.filter(pa.array(fits, pa.bool_())), fits.count(False)
