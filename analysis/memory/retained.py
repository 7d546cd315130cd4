"""Memory that forward leaves for backward: who holds it, and which parts are worth running again.

A checkpointed part of a model keeps what goes into it, and runs its forward again in backward.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.chunked import RunningCodes
from pyprof2.analysis.memory.curves import NO_NUMBER
from pyprof2.columns import as_text, combine_keys, groups_of, sum_at
from pyprof2.recording import has_text, int_column
from pyprof2.tables import text, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from pyprof2.analysis.memory.tags import Tagged

SAVED: Final = "saved by autograd"
OTHERWISE: Final = "(held otherwise)"
INFERRED: Final = "(released in backward)"

CHECKPOINT_COLUMNS: Final = (
    text("layer", "The layer; `*` stands for the numbers of several alike."),
    text("line", "`path:line` in it that allocates most of what is kept."),
    whole("layers", "How many layers that are.", nullable=False),
    whole(
        "frees_bytes",
        "Kept for backward in them, less what each returns: that is needed by what follows.",
        "B",
        nullable=False
    ),
    whole(
        "again_bytes", "The largest of them: so much comes back while it runs again.",
        "B", nullable=False
    ),
    whole("recompute_ns", "Time of their forward in a step; null: not known.", "ns"),
)  # fmt: skip
"""The columns of `checkpoints`."""

_LEAST: Final = 0.05
"""Layers that keep a smaller share are not worth a checkpoint."""
_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")


class Retained(NamedTuple):
    """The memory that lives from a forward into its backward.

    Attributes:
        saved: bytes that autograd holds.
        otherwise: bytes that others hold; None: the program did not say.
        output: bytes of what forward returns, such as the loss; None: not tagged.
        rows: the entries behind `saved` and `otherwise`, with column `held_by`.
        certainty: `exact` or `inferred`.
    """

    saved: int
    otherwise: int | None
    output: int | None
    rows: pd.DataFrame
    certainty: str


def retained(entries: pd.DataFrame, moment: int, tagged: Tagged | None) -> Retained:
    """Return what forward left at the moment before a backward.

    Args:
        entries: everything that lived on a device, see `live.entries`.
        moment: see `profile.moment_of`.
        tagged: what the program tagged; without it what backward releases counts.
    """
    rows = entries[(entries["begin"] <= moment) & (entries["end"] > moment)]
    category = as_text(rows["category"])
    if tagged is None or not len(tagged.forward):
        own = rows[(category == "activation").to_numpy()]
        return Retained(_sum(own), None, None, own.assign(held_by=INFERRED), "inferred")
    began = tagged.forward[tagged.forward <= moment]
    since = int(began[-1]) if len(began) else -1
    is_new = (rows["begin"] > since).to_numpy()
    saved = (category == "activation").to_numpy()
    output = is_new & (category == "output").to_numpy()
    is_tagged = rows["tagged"].to_numpy(bool)
    held_by = np.where(saved, SAVED, OTHERWISE)
    kept = saved | (output & ~is_tagged)
    return Retained(
        _sum(rows[saved]), _sum(rows[output & ~is_tagged]), _sum(rows[output & is_tagged]),
        rows.assign(held_by=held_by)[kept], "exact",
    )  # fmt: skip


def _sum(rows: pd.DataFrame) -> int:
    return int(rows["bytes"].sum())


def forward_times(parts: Iterable[pa.Table], time: str) -> pd.DataFrame:
    """Return `layer` and `time_ns` of forward in a step: what running it again takes.

    It is the mean over the steps; on a device the time of the kernels, else that of the ops
    themselves, without what is inside of them.

    Args:
        parts: of kernels or ops of one rank: `layer`, `direction`, `recompute`, `step` and `time`.
        time: `dur_ns` or `self_ns`.
    """
    layers, found, has_steps = RunningCodes(), [], False
    for part in parts:
        layer, step = layers.add(part, "layer"), int_column(part, "step", NO_NUMBER)
        again = part["recompute"].fill_null(fill_value=False).to_numpy()
        own = (layer >= 0) & has_text(part, "direction", ("forward",)) & ~again
        first, place = groups_of(combine_keys(layer[own].astype(np.int64), step[own]))
        sums = sum_at(place, int_column(part, time, 0)[own], len(first))
        found.append((layer[own][first], step[own][first], sums))
        has_steps |= part["step"].null_count < part.num_rows
    code, step, sums = np.concatenate(found, axis=1)
    counts = step != NO_NUMBER if has_steps else np.ones(len(step), bool)
    steps = max(1, len(np.unique(step[counts])))
    names = pd.Series(layers.texts, dtype=object)[code[counts]]
    by_layer = pd.Series(sums[counts]).groupby(names.to_numpy(), observed=True).sum()
    means = (by_layer.to_numpy() / steps).round()
    return pd.DataFrame({"layer": by_layer.index, "time_ns": means})


def checkpoints(kept: pd.DataFrame, forward: Callable[[], pd.DataFrame] | None) -> pd.DataFrame:
    """Return the layers that are worth a checkpoint, those that free most first.

    Layers that differ in numbers alone are one row: `blocks.*`. A layer holds what is inside of it.

    Args:
        kept: `Retained.rows`.
        forward: gives `layer` and `time_ns` of forward in a step, where any layer is worth it;
            None: not known.

    Returns:
        `CHECKPOINT_COLUMNS`.
    """
    texts = dict.fromkeys(("layer", "line", "op"), object)
    rows = kept[[*texts, "begin", "bytes"]].astype(texts).sort_values("begin")
    rows = rows[~rows["layer"].str.startswith("(")]
    groups: dict[str, list[str]] = {}
    for layer in sorted({part for path in rows["layer"].unique() for part in _around(path)}):
        groups.setdefault(_NUMBER.sub("*", layer), []).append(layer)
    least = _LEAST * _sum(kept)
    # A layer without blocks of its own and with numbered layers inside is a list: it is not called.
    own = set(rows["layer"].map(lambda layer: _NUMBER.sub("*", layer)))
    lists = {name for name in groups if f"{name}.*" in groups and name not in own}
    found = [
        each
        for name, layers in groups.items()
        if name not in lists and (each := _checkpoint(name, layers, rows))["frees_bytes"] > least
    ]
    frame = pd.DataFrame(found, columns=[column.name for column in CHECKPOINT_COLUMNS])
    if found and forward is not None:
        times = forward()
        frame["recompute_ns"] = [
            int(
                sum(
                    times.loc[_is_inside(times["layer"], layer), "time_ns"].sum()
                    for layer in groups[name]
                )
            )
            for name in frame["layer"]
        ]
    frame = frame.astype({"recompute_ns": "Int64"})
    return frame.sort_values(["frees_bytes", "layer"], ascending=[False, True], ignore_index=True)


def _around(path: str) -> Iterator[str]:
    """Yield a layer and those around it."""
    parts = path.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _checkpoint(name: str, layers: list[str], rows: pd.DataFrame) -> dict[str, Any]:
    inside = [rows[_is_inside(rows["layer"], layer)] for layer in layers]
    frees = []
    for own in inside:
        # The result of a layer's last op is kept by what follows. An op may allocate beside its
        # result what backward needs of it: the largest counts.
        texts = own[["layer", "line", "op"]]
        last = (texts == texts.iloc[-1]).all(axis=1)[::-1].cummin()[::-1]
        frees.append(_sum(own) - int(own.loc[last, "bytes"].max()))
    lines = pd.concat(inside).groupby("line", observed=True)["bytes"].sum()
    named = lines[~lines.index.str.startswith("(")]
    return {
        "layer": name,
        "line": named.idxmax() if len(named) else None,
        "layers": len(layers),
        "frees_bytes": sum(frees),
        "again_bytes": max(frees),
    }


def _is_inside(layers: pd.Series, layer: str) -> pd.Series:
    found: pd.Series = (layers == layer) | layers.str.startswith(f"{layer}.", na=False)
    return found
