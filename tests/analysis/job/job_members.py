"""Members of collectives to test with: a test states what matters, the rest is filled in.

And what shows that a graph of them is whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.job.replay import replay

if TYPE_CHECKING:
    from pyprof2.analysis.job.job_graph import JobGraph

_DEFAULTS: Final[dict[str, Any]] = {
    "rank": 0, "step": None, "start_ns": 0, "dur_ns": 1, "issued_ns": None, "stream": 7,
    "kind": "all_reduce", "dtype": "f32", "group_key": None, "group_desc": None,
    "group_size": None, "seq": None, "in_bytes": None, "out_bytes": None, "peer": None,
    "coalesced": 1, "uneven": None, "send_bytes_to_others": None, "recv_bytes_from_others": None,
    "seq_source": None, "seq_since": None,
}  # fmt: skip
_WHOLE: Final = (
    "step", "issued_ns", "stream", "group_size", "seq", "in_bytes", "out_bytes", "peer",
    "coalesced", "send_bytes_to_others", "recv_bytes_from_others", "seq_since",
)  # fmt: skip


def members(*rows: dict[str, Any]) -> pd.DataFrame:
    """Return members as the table `collectives` has them, in the order given."""
    full = [_DEFAULTS | {"collective_id": at} | row for at, row in enumerate(rows)]
    frame = pd.DataFrame(full).astype({"kind": "str", "group_key": object, "dtype": object})
    frame = frame.astype(dict.fromkeys(_WHOLE, "Int64"))
    return frame.astype({"uneven": "boolean", "start_ns": "int64", "dur_ns": "int64"})


def by_hand(clocks: tuple[int, int, int] = (0, 1000, -500)) -> pd.DataFrame:
    """Return three ranks with two all_reduce, on clocks that are that far off."""
    starts = [(100, 400), (150, 380), (130, 460)]
    ends = [(200, 520), (202, 518), (198, 521)]
    return members(
        *(
            {
                "rank": rank, "start_ns": a + clocks[rank], "dur_ns": e - a, "seq": n,
                "group_key": "0-2||0", "group_size": 3, "issued_ns": a + clocks[rank] - 5,
            }
            for rank in range(3)
            for n, (a, e) in enumerate(zip(starts[rank], ends[rank], strict=True))
        )
    )  # fmt: skip


def traces(count: int, **fields: Any) -> pd.DataFrame:
    """Return the rows of table `trace` of so many ranks."""
    row = {
        "source": "a", "profiler": "kineto", "world_size": count, "host": None, "start_ns": 0,
        "end_ns": 10**6, "unix_ns": 0,
    } | fields  # fmt: skip
    whole = dict.fromkeys(("world_size", "start_ns", "end_ns", "unix_ns"), "Int64")
    return pd.DataFrame([{"rank": rank} | row for rank in range(count)]).astype(whole)


def replay_error_ns(job: JobGraph) -> int:
    """Return how far any start of the replay is from the recording; 0, or the graph is wrong."""
    return int(np.abs(replay(job.graph).end - job.end).max(initial=0))
