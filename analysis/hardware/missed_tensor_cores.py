"""Work that Tensor Cores could have done and did not, and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.hardware.verdict import sizes_of
from pyprof2.columns import combine_keys, groups_of, text_array
from pyprof2.recording import code_column, has_text, int_column, summed

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.analysis.intervals import Bool
    from pyprof2.columns import TextColumn

VECTOR: Final = "a product with a vector"
F32: Final = "f32 without TF32"
SIZES: Final = "sizes that are no multiples of {step}"
HALF: Final = "f32, which these units take in half precision alone"
CHOICE: Final = "the library chose another kernel"

_ADVICE: Final = {
    VECTOR: "take several at once: a vector has too little work for matrix units",
    F32: "torch.set_float32_matmul_precision('high'), or autocast to bf16",
    SIZES.partition("{")[0]: "pad the sizes: with odd ones libraries fall back to CUDA cores",
    HALF: "torch.autocast to bfloat16, or to float16 with a GradScaler",
    CHOICE: "convolutions: channels_last, torch.backends.cudnn.benchmark; or a newer library",
}

_STEPS: Final = {"f16": 8, "bf16": 8, "f8": 16, "i8": 16, "u8": 16, "f4": 32, "f64": 2}
"""dtype: the multiple (16 bytes) that products and convolutions run well with.

Source: NVIDIA, "Matrix Multiplication Background User's Guide", "Tensor Core Requirements".
"""
_SINGLE: Final = ("f32", "c64")


def missed_reasons(kernels: pa.Table, *, in_half: bool = True) -> TextColumn:
    """Return why each kernel missed the Tensor Cores; null where it used them or never could.

    Only kernels that did a part of their op's FLOPs count: helpers have no work for them.

    Args:
        kernels: rows of the canonical table `kernels`.
        in_half: whether float32 that only half precision brings there has missed them too.
    """
    as_it_is = could = _is_true(kernels["tensor_core_eligible"])
    if in_half:
        half = _is_true(kernels["tensor_core_eligible_half"])
        could = as_it_is | (half & has_text(kernels, "compute_dtype", ("f32",)))
    worked = int_column(kernels, "flops", 0) > 0
    rows = np.flatnonzero(has_text(kernels, "tensor_core", ("no",)) & could & worked)
    texts = [code_column(kernels, name) for name in ("compute_dtype", "params", "device_type")]
    texts.append((as_it_is.astype(np.int64), ["", "eligible"]))
    reasons: list[str] = []
    which = np.full(kernels.num_rows, -1, np.int64)
    if len(rows):
        first, which[rows] = groups_of(combine_keys(*(codes[rows] for codes, _ in texts)))
        for row in rows[first].tolist():
            said = ((words[codes[row]] or "") if codes[row] >= 0 else "" for codes, words in texts)
            reasons.append(_reason(*said))
    return which, reasons


def _is_true(column: pa.ChunkedArray) -> Bool:
    found: Bool = column.fill_null(False).to_numpy()  # noqa: FBT003
    return found


def _reason(dtype: str, params: str, device_type: str, as_it_is: str) -> str:
    sizes = sizes_of(params)
    if 1 in (sizes.get("M"), sizes.get("N")) and "window" not in params:
        return VECTOR
    if not as_it_is:
        return HALF
    if dtype in _SINGLE and device_type != "hip":
        return F32
    step = _STEPS.get(dtype if dtype in _STEPS else dtype.removeprefix("q")[:2], 1)
    # The sizes that the operands are contiguous in: of a convolution its channels.
    names = ("C", "K") if "window" in params else ("N", "K")
    groups = sizes.get("groups", 1) or 1
    is_odd = any(sizes[name] // groups % step for name in names if name in sizes)
    return SIZES.format(step=step) if is_odd else CHOICE


def advice_on(reason: str) -> str:
    """Return the advice on a reason."""
    return next((text for words, text in _ADVICE.items() if reason.startswith(words)), "")


def missed_time(kernels: pa.Table) -> pd.DataFrame:
    """Return the GPU time that could have been on Tensor Cores and was not, by reason and place.

    Args:
        kernels: canonical table `kernels`.

    Returns:
        One row for all kernels that missed them for one `reason` in one `place` (its layer; where
        it has none, its op): these, their `count` and `time_ns`.
    """
    import pandas as pd

    reasons = text_array(missed_reasons(kernels))
    rows = kernels.append_column("reason", reasons).filter(reasons.is_valid())
    rows, sums = summed(rows, ["reason", "layer", "op"], "dur_ns")
    reason, layer, op = (rows[name].cast(pa.string()) for name in ("reason", "layer", "op"))
    place = pc.coalesce(layer, op, pa.scalar(""))
    return pd.DataFrame({"reason": reason.to_pylist(), "place": place.to_pylist()} | sums)
