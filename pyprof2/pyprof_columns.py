"""PyProf's columns, for scripts and eyes that know them: its 20 keys, headers and words.

What differs on purpose: the table has copies too, counts that are not known are null instead of
0, `altseq` is always `-`, since an op has one sequence number, and `trace` is the innermost frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd


@dataclass(frozen=True, slots=True)
class PyprofColumn:
    """One column: key for `-c`, header, meaning, how it is made from rows, and of which columns."""

    key: str
    header: str
    meaning: str
    make: Callable[[pd.DataFrame], pd.Series]
    reads: tuple[str, ...]


def _text(values: pd.Series, missing: str) -> pd.Series:
    return values.astype("str").fillna(missing)


def _copied(column: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda rows: rows[column]


def _worded(column: str, missing: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda rows: _text(rows[column], missing)


def _idx(rows: pd.DataFrame) -> pd.Series:
    import numpy as np
    import pandas as pd

    return pd.Series(np.arange(1, len(rows) + 1), index=rows.index)


def _seq(rows: pd.DataFrame) -> pd.Series:
    return _text(rows["sequence_nr"], "-")


def _altseq(rows: pd.DataFrame) -> pd.Series:
    import pandas as pd

    return pd.Series("-", index=rows.index, dtype="str")


def _dir(rows: pd.DataFrame) -> pd.Series:
    words = {"forward": "fprop", "backward": "bprop"}
    return _text(rows["direction"], "na").map(words).astype("str").fillna("na")


def _sub(rows: pd.DataFrame) -> pd.Series:
    order = rows.groupby(["rank", "op_id"], sort=False).cumcount()
    return order.where(rows["op_id"].notna(), 0).astype("int64")


def _mod(rows: pd.DataFrame) -> pd.Series:
    op = _text(rows["op"], "na")
    return op.str.partition("::")[0].where(op.str.contains("::", regex=False), "na")


def _op(rows: pd.DataFrame) -> pd.Series:
    op = _text(rows["op"], "na")
    return op.str.partition("::")[2].where(op.str.contains("::", regex=False), op)


def _kernel(rows: pd.DataFrame) -> pd.Series:
    return _text(rows["kernel_short"], "na").str.replace(r"\s", "_", regex=True)


def _params(rows: pd.DataFrame) -> pd.Series:
    return _text(rows["params"], "na=na").str.replace(r"\s", "", regex=True) + ","


def _tc(rows: pd.DataFrame) -> pd.Series:
    """`1` used; `0` could have been; `-` does not apply; `na` not known."""
    import numpy as np
    import pandas as pd

    used = rows["tensor_core"].isin(["yes"]).to_numpy(dtype=bool)
    unused = rows["tensor_core"].isin(["no"]).to_numpy(dtype=bool)
    eligible = rows["tensor_core_eligible"]
    possible = eligible.fillna(value=False).to_numpy(dtype=bool)
    impossible = (eligible.notna() & ~eligible.fillna(value=True)).to_numpy(dtype=bool)
    copy = rows["category"].isin(["memcpy", "memset"]).to_numpy(dtype=bool)
    no_op = rows["op"].isna().to_numpy()
    words = np.select(
        [used, copy | impossible, no_op, unused & possible, unused],
        ["1", "-", "na", "0", "-"],
        default="na",
    )
    return pd.Series(words, index=rows.index, dtype="str")


PYPROF_COLUMNS: Final = {
    column.key: column
    for column in (
        PyprofColumn("idx", "Idx", "Number of the row in the whole profile, from 1.", _idx, ()),
        PyprofColumn("seq", "SeqId", "Autograd's sequence number.", _seq, ("sequence_nr",)),
        PyprofColumn("altseq", "AltSeqId", "Further sequence numbers.", _altseq, ()),
        PyprofColumn("tid", "TId", "Host thread of the launch.", _copied("tid"), ("tid",)),
        PyprofColumn("layer", "Layer", "Layer.", _worded("layer", "-"), ("layer",)),
        PyprofColumn("trace", "Trace", "Line of user code.", _worded("source", "-"), ("source",)),
        PyprofColumn("dir", "Direction", "`fprop`, `bprop` or `na`.", _dir, ("direction",)),
        PyprofColumn(
            "sub", "Sub", "Number of the kernel in its op call, from 0.", _sub, ("rank", "op_id")
        ),
        PyprofColumn("mod", "Module", "Namespace of the op.", _mod, ("op",)),
        PyprofColumn("op", "Op", "Name of the op in its namespace.", _op, ("op",)),
        PyprofColumn("kernel", "Kernel", "Short name, blanks as `_`.", _kernel, ("kernel_short",)),
        PyprofColumn(
            "params", "Params", "The numbers that matter; `na=na,` unknown.", _params, ("params",)
        ),
        PyprofColumn("sil", "Sil(ns)", "Duration.", _copied("dur_ns"), ("dur_ns",)),
        PyprofColumn(
            "tc",
            "TC",
            "Tensor Cores: `1` used, `0` possible, `-`, `na`.",
            _tc,
            ("tensor_core", "tensor_core_eligible", "category", "op"),
        ),
        PyprofColumn("device", "Device", "Ordinal of the device.", _copied("device"), ("device",)),
        PyprofColumn("stream", "Stream", "Queue in the device.", _copied("stream"), ("stream",)),
        PyprofColumn("grid", "Grid", "Blocks per grid.", _worded("grid", "-"), ("grid",)),
        PyprofColumn("block", "Block", "Threads per block.", _worded("block", "-"), ("block",)),
        PyprofColumn("flops", "FLOPs", "Algorithmic operations.", _copied("flops"), ("flops",)),
        PyprofColumn("bytes", "Bytes", "Algorithmic traffic.", _copied("bytes"), ("bytes",)),
    )
}
"""PyProf's columns by key, in its order."""

PYPROF_DEFAULT: Final = ("idx", "dir", "sub", "mod", "op", "kernel", "params", "sil")
"""The columns that PyProf shows when none are named."""

PYPROF_ONLY: Final = ("idx", "seq", "altseq", "tid", "trace", "dir", "sub", "mod", "sil", "tc")
"""The keys that pyprof2's own columns do not have, or mean the same by."""
