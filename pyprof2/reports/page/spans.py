"""Where a device was: the phase of a step and the layers of the network, kernel after kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_DEPTHS: Final = 3
_MOST_OF_ALL: Final = 0.95
"""Names below one that holds more of the time than this are shown instead of it."""


def spans(work: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Give tracks of spans: user's ranges, directions, and layers at a few depths.

    Args:
        work: the kernels and copies of a device in a window: `start_ns, dur_ns, range, direction,
            layer, category`.

    Yields:
        The name of a track, its kind (`phase` or `layer`), and its spans: `start_ns, dur_ns,
        busy_ns` (any kernel of it ran), `name, layer, op` (null), `category` (of most of it).
    """
    work = work.sort_values("start_ns", kind="stable").reset_index(drop=True)
    for name, key in (("range", "range"), ("phase", "direction")):
        found = _in_a_row(work, work[key].astype(object))
        if len(found):
            yield name, "phase", found.assign(layer=None)
    yield from _layers(work)


def _layers(work: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Give the layers, each depth a track whose names begin where those above it end."""
    work = work[work["layer"].notna()].reset_index(drop=True)
    codes, paths = pd.factorize(work["layer"].astype(object))
    split = [str(path).split(".") for path in paths]
    time = work["dur_ns"].to_numpy(np.int64)
    above, drawn = 0, 0
    for depth in range(1, 1 + max(map(len, split), default=0)):
        names = [".".join(each[:depth]) if len(each) >= depth else None for each in split]
        prefix = pd.Series(np.array([*names, None], object)[codes])
        share = pd.Series(time).groupby(prefix).sum().max() / max(1, time.sum())
        if share > _MOST_OF_ALL and depth < max(map(len, split)):
            above = depth
            continue
        found = _in_a_row(work, prefix)
        short = {name: ".".join(name.split(".")[above:]) for name in found["name"].unique()}
        yield (
            f"layer {depth}",
            "layer",
            found.assign(layer=found["name"], name=found["name"].map(short)),
        )
        above, drawn = depth, drawn + 1
        if drawn == MOST_DEPTHS:
            return


def _in_a_row(work: pd.DataFrame, key: pd.Series) -> pd.DataFrame:
    """Return the spans of kernels that follow one another and have one key; null has none."""
    known = key.notna().to_numpy()
    work, key = work[known], key[known]
    if work.empty:
        return pd.DataFrame(columns=["start_ns", "dur_ns", "busy_ns", "name", "op", "category"])
    start = work["start_ns"].to_numpy(np.int64)
    end = start + work["dur_ns"].to_numpy(np.int64)
    latest = np.maximum.accumulate(end)
    # Time that an earlier kernel covers already counts once.
    own = np.maximum(end - np.maximum(start, np.r_[start[0], latest[:-1]]), 0)
    codes = pd.factorize(key)[0]
    group = np.cumsum(np.r_[0, codes[1:] != codes[:-1]])
    first = np.flatnonzero(np.diff(group, prepend=-1))
    until = np.maximum.reduceat(end, first)
    category = work["category"].astype(object).reset_index(drop=True)
    time = pd.Series(end - start).groupby([group, category], dropna=False).sum()
    most = time.groupby(level=0).idxmax().str[1]
    return pd.DataFrame(
        {
            "start_ns": start[first],
            "dur_ns": until - start[first],
            "busy_ns": np.add.reduceat(own, first),
            "name": key.to_numpy()[first],
            "op": None,
            "category": most.to_numpy(),
        }
    )
