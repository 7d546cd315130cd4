"""Whether a recording's clocks of host and device agree: no work begins before its launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.units import format_time

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int

_APART_NS: Final = 10_000
"""Recorders align host and device that well."""
_FEWEST: Final = 3
_LEAST_SHARE: Final = 0.001
"""Fewer activities that begin before their launch, or a smaller share, have a wrong time each."""
CERTAIN: Final = 10
"""A time between host and device that is so many times as long as the clocks are apart is known."""


def clock_error_ns(ahead: Int) -> int:
    """Return by how much the clocks of host and device are apart at least, in ns; 0: they agree.

    All statements of host against device ask this: causes of idle time, the critical path, gains.

    Args:
        ahead: how long before its launch each activity begins, in ns, of those with a launch.
    """
    early = ahead[ahead > _APART_NS]
    if len(early) < max(_FEWEST, _LEAST_SHARE * len(ahead)):
        return 0
    # A single wrong time may be anything.
    return int(np.quantile(early, 0.95, method="inverted_cdf"))


def clock_words(error_ns: int) -> str:
    """Return in words that clocks are so far apart."""
    return (
        f"GPU work begins up to {format_time(error_ns)} before its launch: the clocks of host and "
        "device differ, so it is not known which waited for which"
    )
