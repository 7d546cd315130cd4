"""Kinds of layer: the part of a language model that each activity of a server's steps is of.

An op's name says it, else the kernel's name. Products with weights are distinguished by the
module that they are in; where no module is recorded, as in replayed graphs, by their order: between
attention, activation and experts a layer has a fixed list of them. Where the number is another,
which is which is not known, and they stay `linear`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.hardware.kernel_names import bounded
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyprof2.analysis.intervals import Bool, Int

QKV: Final = "qkv"
OUT: Final = "o"
GATE_UP: Final = "gate_up"
DOWN: Final = "down"
EXPERTS: Final = "experts"
ROUTER: Final = "router"
LM_HEAD: Final = "lm_head"
LINEAR: Final = "linear"
ATTENTION: Final = "attention"
KV_WRITE: Final = "kv_write"
COPY: Final = "copy"
_ACTIVATION: Final = "activation"
_OTHER: Final = "other"
KINDS: Final = (
    QKV, OUT, GATE_UP, DOWN, EXPERTS, ROUTER, LM_HEAD, LINEAR, ATTENTION, KV_WRITE, "rope", "norm",
    _ACTIVATION, "sampling", "communication", COPY, _OTHER,
)  # fmt: skip
COLUMNS: Final = ("device", "start_ns", "category", "kernel_short", "op", "layer")
"""The columns of kernels that their kinds follow from."""

_CODE: Final = {kind: code for code, kind in enumerate(KINDS)}
_NAMES: Final = {
    "communication": "nccl rccl all_?reduce all_?gather reduce_?scatter all_?to_?all "
    "cross_device_reduce",
    ROUTER: "topk_?(softmax|sigmoid|gating) grouped_topk fused_topk fused_gate router ^TopK$ "
    "^_topk_forward routing::|routing(Indices|Renorm|DeepSeek)",
    EXPERTS: "moe expert ^SortTokens$ matmul_ogs _combined_routing bitmatrix grouped_gemm "
    "groupproblemshape m_grouped ^bmm_.*(swiglu|E2m1|dynB) _finalize_matmul_scatter",
    KV_WRITE: "reshape_and_cache store_(kv_?)?cache set_(mla_)?kv concat_and_cache append_paged",
    "rope": "rotary rope",
    ATTENTION: "(unified|paged|ragged)_attention _attention_ scaled_dot_product fmha _mha_ mha_ "
    "flash_attn flash_fwd mla_(decode|prefill) (BatchDecode|BatchPrefill)With ^reduce_segments "
    "^_fwd_(grouped_)?kernel merge_attn merge_state",
    "norm": "(rms|layer)_?norm",
    COPY: r"^triton_\w*fused__to_copy_\d+$",
    _ACTIVATION: "act_and_mul silu swiglu gelu",
    "sampling": "argmax multinomial sampl top_?k_?top_?p gumbel penalt exponential_ "
    "aten::(sort|topk|_?softmax|_?log_softmax)",
}
"""Parts of the names of ops and kernels of each kind, the first one that fits."""
_BY_NAME: Final = tuple(
    (kind, re.compile("|".join(words.split()), re.IGNORECASE)) for kind, words in _NAMES.items()
)
_BY_CATEGORY: Final = {
    "comm": "communication", "attention": ATTENTION, "norm": "norm", "matmul": LINEAR,
    "copy": COPY, "cat": COPY, "memcpy": COPY, "memset": COPY, "random": "sampling",
}  # fmt: skip
_FIRST: Final = ("comm", "attention")
"""Categories that say more than a name."""
_SPLIT: Final = bounded(r"split_?k.*reduce|reduce.*split_?k|PostGSU", re.IGNORECASE)
"""Kernels that add up the parts of the product before them."""
_BY_MODULE: Final = tuple(
    (kind, bounded(pattern, re.IGNORECASE))
    for kind, pattern in (
        (LM_HEAD, r"lm_?head$|logitsprocessor$"),
        (ROUTER, r"(^|\.)(gate|router)$|(moe|sparse)\w*\.replicatedlinear$"),
        (EXPERTS, r"experts?(\.|$)"),
        (QKV, r"(qkv|q|k|v|q_[ab]|kv_[ab]|kv_a_proj_with|fused_qkv_a)_?(proj|mqa)\w*$"),
        (QKV, r"qkvparallellinear$"),
        (OUT, r"att\w*\.(o_proj|out_proj|rowparallellinear)$"),
        (GATE_UP, r"(gate_up|gate|up)_proj$|mlp\.mergedcolumnparallellinear$"),
        (DOWN, r"down_proj$|mlp\.rowparallellinear$"),
    )
)
_NUMBER: Final = re.compile(r"_\d+(?=\.|$)")
_MARKS: Final = (ATTENTION, _ACTIVATION, EXPERTS)
_EDGE: Final = len(_MARKS)
"""Stands for the begin and the end of a step among the marks."""
_ORDER: Final = {
    (ATTENTION, _ACTIVATION): (OUT, GATE_UP), (_ACTIVATION, ATTENTION): (DOWN, QKV),
    (ATTENTION, EXPERTS): (OUT, ROUTER), (EXPERTS, ATTENTION): (QKV,), (None, ATTENTION): (QKV,),
    (_ACTIVATION, None): (DOWN, LM_HEAD), (EXPERTS, None): (LM_HEAD,),
}  # fmt: skip
"""The products between two marks; None: the begin or the end of a step."""


def kinds_of(kernels: pa.Table, step: Int, *, by_module: bool = True) -> Int:
    """Return the kind of each kernel as a code into `KINDS`.

    Args:
        kernels: a table of them, with `COLUMNS`.
        step: of each the position of its step; -1: none, so its order says nothing.
        by_module: whether modules count; without, products are distinguished by order alone.
    """
    (ops, op_names), (names, kernel_names), (categories, category_names), (layers, paths) = (
        code_column(kernels, name) for name in ("op", "kernel_short", "category", "layer")
    )
    triples, at = np.unique(np.stack([ops, names, categories]), axis=1, return_inverse=True)
    texts = [[*each, None] for each in (op_names, kernel_names, category_names)]
    of_triple = [
        _kind(*(text[code] for text, code in zip(texts, triple, strict=True)))
        for triple in triples.T.tolist()
    ]
    found = np.array([_CODE[kind] for kind in of_triple], np.int64)[at.ravel()]
    is_linear = found == _CODE[LINEAR]
    if by_module:
        bare = [_NUMBER.sub("", path) for path in (*paths, "")]
        found_by = (
            next((kind for kind, each in _BY_MODULE if each.search(path)), LINEAR) for path in bare
        )
        of_module = np.array([_CODE[kind] for kind in found_by])
        found[is_linear] = of_module[layers[is_linear]]
    device, start = (int_column(kernels, name, -1) for name in ("device", "start_ns"))
    is_part = np.array([bool(_SPLIT.search(name)) for name in (*kernel_names, "")])[names]
    rows = np.lexsort((start, device, step))
    rows = rows[step[rows] >= 0]
    if len(rows):
        begins = (np.diff(step[rows], prepend=-1) != 0) | (np.diff(device[rows], prepend=-2) != 0)
        _tell_by_order(rows, begins, found, is_linear, is_part)
    return found


@lru_cache(maxsize=1 << 14)
def _kind(op: str | None, kernel: str | None, category: str | None) -> str:
    """Return the kind by an op, else by a kernel's name, else by its category."""
    if category in _FIRST:
        return _BY_CATEGORY[category]
    # Names of kernels of products are made up of sizes and types: an op says more.
    names = (op,) if op and category == "matmul" else (op, kernel)
    for name in filter(None, names):
        for kind, pattern in _BY_NAME:
            if pattern.search(name):
                return kind
    return _BY_CATEGORY.get(category or "", _OTHER)


def _tell_by_order(rows: Int, begins: Bool, found: Int, is_linear: Bool, is_part: Bool) -> None:
    """Set the kinds of the products of steps that are not known yet, by their order.

    Args:
        rows: the kernels of steps, by step and device, in order of time.
        begins: which of them is the first of its step on its device.
        found: the kinds of all kernels; it is changed.
        is_linear: which of all are products with weights.
        is_part: which add up the parts of a product.
    """
    kind = found[rows]
    mark = np.full(len(rows), -1)
    for code, name in enumerate(_MARKS):
        mark[kind == _CODE[name]] = code
    at, edge = np.flatnonzero(mark >= 0), np.flatnonzero(begins)
    # An edge is before its kernel, and the last one is after all.
    bound = np.concatenate([2 * at + 1, 2 * edge, [2 * len(rows)]])
    what = np.append(mark[at], np.full(len(edge) + 1, _EDGE))[np.argsort(bound)]
    bound.sort()
    product = np.flatnonzero(is_linear[rows] & ~is_part[rows])
    gap = np.searchsorted(bound, 2 * product + 1, "right") - 1
    counts = np.bincount(gap, minlength=len(bound))
    place = np.arange(len(product)) - np.searchsorted(gap, gap, "left")
    names: Sequence[str | None] = (*_MARKS, None)
    for (before, after), kinds in _ORDER.items():
        fits = (what[gap] == names.index(before)) & (what[gap + 1] == names.index(after))
        fits &= (counts[gap] == len(kinds)) & (kind[product] == _CODE[LINEAR])
        codes = np.array([_CODE[each] for each in kinds])
        found[rows[product[fits]]] = codes[place[fits]]
    # A sum of the parts of a product is of its kind.
    run = np.cumsum(begins)
    parts = np.flatnonzero(is_linear[rows] & is_part[rows])
    last = np.searchsorted(product, parts) - 1
    known = (last >= 0) & (len(product) > 0)
    parts, last = parts[known], product[last[known]]
    same = run[parts] == run[last]
    found[rows[parts[same]]] = found[rows[last[same]]]
