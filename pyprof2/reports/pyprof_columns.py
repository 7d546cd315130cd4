"""PyProf's columns, for scripts and eyes that know them: its 20 keys, headers and words.

Two things differ on purpose: the table has copies too, and unknown counts are null instead of 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyprof2.columns import as_text
from pyprof2.frames import STACK_SEPARATOR

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
    return as_text(values).fillna(missing)


def _copied(column: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda rows: rows[column]


def _worded(column: str, missing: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda rows: _text(rows[column], missing)


def _idx(rows: pd.DataFrame) -> pd.Series:
    import numpy as np
    import pandas as pd

    return pd.Series(np.arange(1, len(rows) + 1), index=rows.index)


def _seq(rows: pd.DataFrame) -> pd.Series:
    """The number of the op; without one the last of those around it, which is its own there."""
    around = as_text(rows["other_sequence_nrs"]).str.replace(r".*,", "", regex=True)
    return as_text(rows["sequence_nr"]).fillna(around.fillna("-"))


def _altseq(rows: pd.DataFrame) -> pd.Series:
    around = as_text(rows["other_sequence_nrs"])
    outer = around.str.replace(r"(^|,)[^,]*$", "", regex=True)
    return around.where(rows["sequence_nr"].notna(), outer).fillna("-").replace("", "-")


def _trace(rows: pd.DataFrame) -> pd.Series:
    """The whole stack, outermost first; in a recording without stacks its one line."""
    whole = as_text(rows["stack"]).str.replace(STACK_SEPARATOR, ",", regex=False)
    return whole.fillna(_text(rows["source"], "-"))


def _dir(rows: pd.DataFrame) -> pd.Series:
    words = {"forward": "fprop", "backward": "bprop"}
    return as_text(_text(rows["direction"], "na").map(words)).fillna("na")


def _sub(rows: pd.DataFrame) -> pd.Series:
    # Each replay of a graph calls its ops anew.
    of_op, call = (rows[name].astype("Int64") for name in ("op_id", "call_id"))
    key = call.fillna(-1 - of_op)
    order = rows.groupby(["rank", key], sort=False, observed=True).cumcount()
    return order.where(key.notna(), 0).astype("int64")


def _mod(rows: pd.DataFrame) -> pd.Series:
    op = _text(rows["op"], "na")
    return op.str.split("::", n=1).str[0].where(op.str.contains("::", regex=False), "na")


def _op(rows: pd.DataFrame) -> pd.Series:
    op = _text(rows["op"], "na")
    return op.str.split("::", n=1).str[-1].where(op.str.contains("::", regex=False), op)


def _kernel(rows: pd.DataFrame) -> pd.Series:
    return _text(rows["kernel_short"], "na").str.replace(r"\s", "_", regex=True)


def _params(rows: pd.DataFrame) -> pd.Series:
    """The numbers that matter; else bytes and kind of a copy; else the inputs of the op."""
    category = as_text(rows["category"])
    kind = as_text(rows["copy_kind"]).str.replace(" ", "_", regex=False)
    kind = kind.mask(kind.isna() & (category == "memset"), "memset")
    size, kind = "bytes=" + as_text(rows["bytes"].astype("Int64")), "kind=" + kind
    inputs = _inputs(rows).fillna("na=na")
    of_copies = size.str.cat(kind, sep=",").fillna(size.fillna(kind.fillna(inputs)))
    others = of_copies.where(category.isin(["memcpy", "memset"]), inputs)
    params = as_text(rows["params"]).fillna(others)
    return params.str.replace(r"\s", "", regex=True) + ","


def _inputs(rows: pd.DataFrame) -> pd.Series:
    """The inputs of each op, as its signature has them: `[4,8]f32;[8]f32`."""
    signature = as_text(rows["signature"])
    inputs = {}
    for text in signature.dropna().unique():
        _, _, inside = text.removesuffix(")").partition("(")
        parts, depth = [""], 0
        for char in inside.replace(" ", ""):
            depth += (char in "[(") - (char in "])")
            if char == "," and not depth:
                parts.append("")
            else:
                parts[-1] += char
        inputs[text] = ";".join(part for part in parts if part) or None
    return as_text(signature.map(inputs))


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


_NUMBERS: Final = ("sequence_nr", "other_sequence_nrs")

PYPROF_COLUMNS: Final = {
    column.key: column
    for column in (
        PyprofColumn("idx", "Idx", "Number of the row in the whole profile, from 1.", _idx, ()),
        PyprofColumn("seq", "SeqId", "Autograd's sequence number.", _seq, _NUMBERS),
        PyprofColumn(
            "altseq",
            "AltSeqId",
            "Other sequence numbers of the ops around it, ascending.",
            _altseq,
            _NUMBERS,
        ),
        PyprofColumn("tid", "TId", "Host thread of the launch.", _copied("tid"), ("tid",)),
        PyprofColumn("layer", "Layer", "Layer.", _worded("layer", "-"), ("layer",)),
        PyprofColumn(
            "trace",
            "Trace",
            "The lines that led to it, outermost first; in a table the innermost.",
            _trace,
            ("stack", "source"),
        ),
        PyprofColumn("dir", "Direction", "`fprop`, `bprop` or `na`.", _dir, ("direction",)),
        PyprofColumn(
            "sub",
            "Sub",
            "Number of the kernel in its op call, from 0.",
            _sub,
            ("rank", "op_id", "call_id"),
        ),
        PyprofColumn("mod", "Module", "Namespace of the op.", _mod, ("op",)),
        PyprofColumn("op", "Op", "Name of the op in its namespace.", _op, ("op",)),
        PyprofColumn("kernel", "Kernel", "Short name, blanks as `_`.", _kernel, ("kernel_short",)),
        PyprofColumn(
            "params",
            "Params",
            "The numbers that matter; of copies bytes and kind; else the op's inputs.",
            _params,
            ("params", "category", "copy_kind", "bytes", "signature"),
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
