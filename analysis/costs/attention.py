"""Scaled dot product attention: the fused ops of PyTorch, and those of flash-attn and others.

q has b·h_q heads of s_q rows and width d, k and v have b·h_k heads of s_k rows and widths d and
d_v (grouped-query attention: h_k < h_q). A *pair* is a query row and a key row that it looks
at: s_q·s_k of them, fewer under a causal mask or a window.

FLOPs: forward 2·b·h_q·pairs·(d + d_v), the two products; softmax is not counted. A fused
backward makes five products: the scores again, then the gradients of the probabilities, of v, q
and k: 2·b·h_q·pairs·(3d + 2d_v). A causal call has the pairs under the diagonal as its FLOPs and
the full count as `flops_hi`. Whether it is causal is not in some recordings: then the full
count stands, and the causal one is `flops_lo`.

Bytes: q, k, v, a bias, the result, and the logarithm of the sum (f32 for each query row);
backward reads the result and its gradient too, and for each query row another f32, the sum of the
products of these two, which a first pass makes; it writes the gradients.

Source: Dao et al., FlashAttention; checked against `torch.utils.flop_counter`, which ignores
causality.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import (
    bounded,
    flag,
    fresh,
    integer,
    like,
    maybe_tensor,
    numel,
    refuse,
    tally,
    tensor,
    value,
)
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import OpCall, Scalar, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class _Places:
    """Where an op has its arguments; -1: nowhere.

    Attributes:
        causal: whether it is causal; for the `efficient` ops, the kind of mask.
        window: the first of two window sizes; -1 or None there is no limit.
        lengths: cumulative lengths of the sequences of q; those of k follow.
        longest: length of the longest sequence of q; that of k follows.
        q: the query; key and value follow. Of a backward op: the gradient, before these.
        heads_first: (b, h, s, d), not (b, s, h, d); of three dimensions: (s, h, d).
        bias: a tensor added to the scores.
        lse: the flag that asks for the logarithm of the sum; -1: always written.
        bottom_right: the diagonal ends at the last query and the last key.
        result: for a backward op, where the result stands; the logarithm of the sum follows.
        pages: the table of pages, where keys lie in pages.
        used: how many keys of each sequence are in use, where keys lie in a cache.
        value_query: a second query, multiplied with the values to give more scores.
        chunk: the size of chunks that attend to themselves only; 0 is none.
    """

    causal: int = -1
    window: int = -1
    lengths: int = -1
    longest: int = -1
    _: KW_ONLY
    q: int = 0
    heads_first: bool = False
    bias: int = -1
    lse: int = -1
    bottom_right: bool = False
    result: int = -1
    pages: int = -1
    used: int = -1
    value_query: int = -1
    chunk: int = -1


_flash: Final = partial(_Places, bottom_right=True)
_heads: Final = partial(_Places, heads_first=True)

_FLASH3: Final = _flash(24, 25, 7, 12, pages=14, used=11, value_query=5, chunk=27)
_CUTLASS: Final = _Places(9, 13, 4, 6, bias=3, lse=10, used=12)
_FORWARD: Final = {
    "aten::_flash_attention_forward": _flash(8, 11, 3, 5, pages=15),
    "aten::_flash_attention_forward_no_dropout_inplace": _flash(9, 12, 4, 6, q=1, pages=16),
    "aten::_scaled_dot_product_flash_attention": _heads(4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _heads(4, bias=5),
    "aten::_efficient_attention_forward": _Places(9, 13, 4, 6, bias=3, lse=10),
    "aten::_scaled_dot_product_efficient_attention": _heads(6, bias=3, lse=4),
    "aten::_scaled_dot_product_cudnn_attention": _heads(6, bias=3, lse=4),
    "aten::_cudnn_attention_forward": _heads(10, -1, 4, 6, bias=3, lse=8),
    "aten::_scaled_dot_product_fused_attention_overrideable": _heads(5, bias=3),
    "aten::scaled_dot_product_attention": _heads(5, bias=3),
    "aten::_triton_scaled_dot_attention": _heads(),
    "flash_attn::_flash_attn_forward": _flash(5, 6),
    "flash_attn::_flash_attn_varlen_forward": _flash(9, 10, 3, 5, pages=15),
    "_vllm_fa2_C::varlen_fwd": _flash(15, 16, 4, 10, pages=8),
    "xformers_flash::flash_fwd": _flash(10, 11, 3, 6, pages=14, used=5),
    "xformers_flash3::flash_fwd": _flash(11, 17, 3, 7, pages=15, used=5),
    "xformers::efficient_attention_forward_cutlass": _CUTLASS,
    "flash_attn_3::fwd": _FLASH3,
    "_vllm_fa3_C::fwd": _FLASH3,
    "sgl_kernel::fwd": _FLASH3,
    "aiter::mha_fwd": _flash(5, 6),
    "aiter::_flash_attn_forward": _flash(5, 6),
    "aiter::fmha_v3_fwd": _flash(5, 6),
    "aiter::mha_varlen_fwd": _flash(12, 13, 3, 5, pages=18),
    "aiter::fmha_v3_varlen_fwd": _flash(12, 13, 3, 5, pages=19),
}
_BACKWARD: Final = {
    "aten::_flash_attention_backward": _flash(11, 15, 6, 8, result=4),
    "aten::_scaled_dot_product_flash_attention_backward": _heads(11, -1, 6, 8, result=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _heads(7, bias=8, result=4),
    "aten::_efficient_attention_backward": _Places(14, 18, 6, 8, bias=4, result=5),
    "aten::_scaled_dot_product_efficient_attention_backward": _heads(11, bias=4, result=5),
    "aten::_scaled_dot_product_cudnn_attention_backward": _heads(14, bias=8, result=4),
    "aten::_cudnn_attention_backward": _heads(14, -1, 9, 11, bias=8, result=4),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _heads(13, bias=4, result=6),
    "flash_attn::_flash_attn_backward": _flash(11, 12, result=4),
    "flash_attn::_flash_attn_varlen_backward": _flash(15, 16, 9, 11, result=4),
    "xformers_flash::flash_bwd": _flash(13, 14, 7, 9, q=1, result=5),
    "xformers::efficient_attention_backward_cutlass": _Places(14, 18, 6, 8, bias=4, result=5),
    "flash_attn_3::bwd": _flash(16, 17, 9, 13, result=4),
}
"""The ops, forward and backward, and where their arguments are."""

_EARLIER: Final = {
    "xformers::efficient_attention_forward_cutlass": (
        8, bool, replace(_CUTLASS, window=12, lse=8, used=11, longest=-1)
    ),
    "xformers::efficient_attention_backward_cutlass": (
        7, int, _Places(14, 17, 5, 7, bias=4, result=10)
    ),
    "xformers_flash::flash_bwd": (12, int, _flash(15, -1, 9, 11, result=4)),
    "xformers_flash3::flash_fwd": (6, int, _flash(10, -1, 3, 6, used=5)),
    "aiter::mha_varlen_fwd": (10, bool, _flash(11, 12, 3, 5, pages=17)),
    "aiter::fmha_v3_varlen_fwd": (10, bool, _flash(11, 12, 3, 5, pages=18)),
}  # fmt: skip
"""Versions of before: which input has which type in them, and where the arguments were."""


def _places(call: OpCall, table: Mapping[str, _Places]) -> _Places:
    """Return where the arguments of this version of the op are."""
    at, kind, earlier = _EARLIER.get(call.op, (-1, int, _Places()))
    return earlier if isinstance(value(call, at), kind) else table[call.op]


@dataclass(frozen=True)
class _AttentionSizes:
    """Sizes of one call; `batch` sequences of q rows, all of the same length if not `packed`."""

    batch: int
    heads: int
    rows: int
    keys: int
    width: int
    value_width: int

    def pairs(self, lower: int | None = None, upper: int | None = None) -> Size:
        """Pairs of all heads whose key is from `lower` to `upper` beyond the query."""
        heads = Size(self.batch, "B") * Size(self.heads, "H")
        rows, keys = Size(self.rows, "Sq"), Size(self.keys, "Sk")
        if lower is upper is None:
            return heads * rows * keys
        if lower is None and upper == 0 and keys >= rows:
            return heads * (rows * (rows + 1) // 2)
        return heads * Size(band(self.rows, self.keys, lower, upper), "pairs")

    def widths(self, keys: int = 1, values: int = 1) -> Size:
        """Terms of products over the width of keys and over that of values, so many of each."""
        return keys * Size(self.width, "D") + values * Size(self.value_width, "Dv")


def band(rows: int, columns: int, lower: int | None, upper: int | None) -> int:
    """Return how many (i, j), i < `rows`, j < `columns`, have i + `lower` <= j <= i + `upper`.

    None is no limit. In closed form, so that it takes no time for long sequences.
    """
    within = rows * columns if upper is None else _up_to(rows, columns, upper)
    before = 0 if lower is None else _up_to(rows, columns, lower - 1)
    return max(within - before, 0)


def _up_to(rows: int, columns: int, upper: int) -> int:
    """Return how many (i, j) have j <= i + `upper`.

    Row i has min(max(i + upper + 1, 0), columns) of them.
    """

    def below(end: int) -> int:
        if end <= 0:
            return 0
        ramp = min(end, columns)
        return ramp * (ramp + 1) // 2 + (end - ramp) * columns

    return below(upper + rows) - below(upper)


def _sizes(q: Tensor, k: Tensor, v: Tensor, places: _Places) -> _AttentionSizes:
    shapes = [_batched(item.shape, heads_first=places.heads_first) for item in (q, k, v)]
    (batch, heads, rows, width), (_, _, keys, _), (*_, value_width) = shapes
    return _AttentionSizes(batch, heads, rows, keys, width, value_width)


def _batched(shape: tuple[int, ...], *, heads_first: bool) -> tuple[int, int, int, int]:
    """Return batch, heads, rows, width, whatever the layout."""
    *batch, one, other, width = shape
    return (numel(batch), one, other, width) if heads_first else (numel(batch), other, one, width)


@dataclass(frozen=True)
class _AttendedPairs:
    """Pairs over all heads: what is needed, the bounds, and what was assumed of them."""

    value: int
    least: int
    most: int
    assumed: str = ""


def _work(call: OpCall, places: _Places, sizes: _AttentionSizes) -> _AttendedPairs:
    """Return the pairs of a call: sequences of one length, packed ones, or keys in a cache."""
    chunk = value(call, places.chunk)
    if isinstance(chunk, int) and chunk > 0:
        refuse("chunks attend to themselves only, and where they begin is not in the recording")
    if _is_cached(call, places):
        # Keys lie in a cache: a row looks at as many as its sequence has, at least at itself.
        causal, (back, _) = _causality(call, places)[0], _window(call, places)
        longest = integer(call, places.longest + 1) if places.longest >= 0 else None
        if longest is None:
            refuse("the lengths of the cached sequences are not in the recording")
        rows, count = sizes.batch * sizes.rows, _sequences(call, places, sizes.batch)
        return _cached(sizes.heads, rows, count, longest, causal=causal, back=back)
    if _is_packed(call, places):
        return _packed(call, places, sizes)
    return _dense(sizes, *_causality(call, places), *_window(call, places))


_UNKNOWN_CAUSAL: Final = "whether it is causal is not recorded: counted in full"


def _dense(
    sizes: _AttentionSizes,
    causal: bool | None,  # noqa: FBT001 - what _causality returns
    bottom_right: bool,  # noqa: FBT001
    back: int | None,
    ahead: int | None,
) -> _AttendedPairs:
    """All sequences have one length, so the pairs of the mask are known exactly."""
    shift = sizes.keys - sizes.rows if bottom_right else 0
    lower = None if back is None else shift - back
    limit = 0 if causal else ahead
    needed = sizes.pairs(lower, None if limit is None else shift + limit)
    if causal is not None:
        return _AttendedPairs(needed, needed, sizes.pairs())
    # From the top left or from the bottom right, whichever has fewer pairs.
    least = sizes.pairs(lower, min(0, sizes.keys - sizes.rows))
    return _AttendedPairs(needed, min(least, needed), sizes.pairs(), _UNKNOWN_CAUSAL)


def _causality(call: OpCall, places: _Places) -> tuple[bool | None, bool]:
    """Return whether it is causal (None: not recorded), and whether from the bottom right."""
    if places.causal < 0:
        return False, False
    at = _shifted(call, places)
    if call.op in _MASK_KINDS:
        mask = integer(call, at)
        return (None if mask is None else mask > 0), mask == 2
    return flag(call, at), places.bottom_right


_MASK_KINDS: Final = {
    "aten::_efficient_attention_forward", "aten::_efficient_attention_backward",
    "xformers::efficient_attention_forward_cutlass",
    "xformers::efficient_attention_backward_cutlass",
}  # fmt: skip
"""Ops whose mask is 0: none, 1: causal from the top left, 2: from the bottom right."""


def _shifted(call: OpCall, places: _Places) -> int:
    """Return where the causal flag stands in this version of the op's schema."""
    at = places.causal
    if call.op == "aten::_efficient_attention_forward" and isinstance(value(call, 9), bool):
        return 8  # PyTorch 2.1 had no max_seqlen_k
    if call.op == "aten::_scaled_dot_product_efficient_attention" and isinstance(
        value(call, 3), bool
    ):
        return 4  # PyTorch 2.0 had no bias
    if call.op == "aten::_scaled_dot_product_cudnn_attention" and isinstance(
        call.inputs[3], Scalar
    ):
        return 4  # PyTorch 2.4 had neither bias nor the flag for the logarithm
    if call.op == "aten::_scaled_dot_product_flash_attention" and len(call.inputs) >= 10:
        return 7  # with scales of quantised operands
    return at


def _window(call: OpCall, places: _Places) -> tuple[int | None, int | None]:
    """Return how far a query looks back and ahead; None: without limit."""
    if places.window < 0:
        return None, None
    if call.op in _MASK_KINDS:
        reach = integer(call, places.window)
        return (None if not reach else reach - 1), None
    sides = (integer(call, places.window), integer(call, places.window + 1))
    left, right = (side if side is not None and side >= 0 else None for side in sides)
    return left, right


def _is_packed(call: OpCall, places: _Places) -> bool:
    """Whether sequences of different lengths lie one after another."""
    found = maybe_tensor(call, places.lengths)
    return found is not None and len(found.shape) == 1 and found.shape[0] > 1


def _is_cached(call: OpCall, places: _Places) -> bool:
    """Whether keys and values lie in a cache, of which the sequences use a part."""
    paged = maybe_tensor(call, places.pages) is not None
    return (paged and _is_packed(call, places)) or maybe_tensor(call, places.used) is not None


def has_lengths_of_its_own(call: OpCall) -> bool:
    """Return whether the lengths of sequences are in a tensor, so that each call has others."""
    if call.op in _PAGED_OPS:
        return True
    table = next((each for each in (_FORWARD, _BACKWARD) if call.op in each), None)
    if table is None:
        return False
    places = _places(call, table)
    return _is_packed(call, places) or _is_cached(call, places)


def _sequences(call: OpCall, places: _Places, batch: int) -> int:
    """Return how many sequences there are, where they may be packed."""
    return tensor(call, places.lengths).shape[0] - 1 if _is_packed(call, places) else batch


_EVEN: Final = "lengths of the sequences not recorded: one is the longest, the others are even"


def _packed(call: OpCall, places: _Places, sizes: _AttentionSizes) -> _AttendedPairs:
    """Sequences of different lengths: their total, number and longest are known, not each.

    If all are as long as the longest, the count is exact. Where queries and keys have the same
    total and longest they are taken to belong together: then the squares of the lengths sum to
    the least if the others share the rest evenly, which is assumed, and to the most if as many
    as possible are as long as the longest. Otherwise each query is taken to look at as many keys
    as the mean. Which rows and keys belong together is not known, so the lower bound is none.
    """
    count = tensor(call, places.lengths).shape[0] - 1
    rows, keys = sizes.batch * sizes.rows, sizes.batch * sizes.keys
    long_q, long_k = integer(call, places.longest), integer(call, places.longest + 1)
    causal, _ = _causality(call, places)
    if long_q is None or long_k is None:
        refuse("the lengths of the sequences are not in the recording")
    if rows == count * long_q and keys == count * long_k:
        one = _AttentionSizes(count, sizes.heads, long_q, long_k, sizes.width, sizes.value_width)
        return _dense(one, causal, places.bottom_right, *_window(call, places))
    if rows == keys and long_q == long_k:
        # The least and the most that the squares of the lengths can sum to.
        rest, others = rows - long_q, count - 1
        each, over = divmod(rest, others) if others else (0, 0)
        even = long_q**2 + over * (each + 1) ** 2 + (others - over) * each**2
        times, left = divmod(rows, long_q)
        full = times * long_q**2 + left**2
        value_ = (even + rows) // 2 if causal else even
    else:
        full = min(rows * long_k, keys * long_q)
        value_ = min(rows * keys // count, full)
    note = _EVEN if causal is not None else f"{_EVEN}; {_UNKNOWN_CAUSAL}"
    pairs = Size(sizes.heads, "H") * Size(value_, "pairs")
    return _AttendedPairs(pairs, 0, sizes.heads * full, note)


_PAGED: Final = "lengths of the cached sequences not recorded: all taken as the longest"


def _cached(
    heads: int,
    rows: int,
    count: int,
    longest: int,
    *,
    causal: bool | None,
    back: int | None = None,
) -> _AttendedPairs:
    most = heads * rows * longest
    each = -(-rows // count)
    end = longest - each
    pairs = band(each, longest, None if back is None else end - back, end if causal else None)
    value_ = Size(min(heads * count * pairs, most), "pairs")
    return _AttendedPairs(value_, heads * rows, most, _PAGED)


def _params(sizes: _AttentionSizes, k: Tensor, places: _Places) -> str:
    kv_heads = _batched(k.shape, heads_first=places.heads_first)[1]
    heads = f"H={sizes.heads}" + (f",Hkv={kv_heads}" if kv_heads != sizes.heads else "")
    width = f"D={sizes.width}"
    if sizes.value_width != sizes.width:
        width += f",Dv={sizes.value_width}"
    return f"B={sizes.batch},{heads},Sq={sizes.rows},Sk={sizes.keys},{width}"


def _cost(
    work: _AttendedPairs, per_pair: int, tallied: Cost, span: tuple[int | None, int | None]
) -> Cost:
    flops = (work.least * per_pair, work.most * per_pair)
    exact = not work.assumed and flops == (tallied.flops, tallied.flops)
    whole = span[0] == span[1]
    if exact and whole:
        return tallied
    return bounded(
        tallied, work.assumed, None if exact else flops, None if whole else span,
        note="" if work.assumed else _OPTIONAL if exact else _MASKED,
    )  # fmt: skip


_MASKED: Final = "causal, or in a window: the pairs in need; all of them are the upper bound"
_OPTIONAL: Final = "what may be left out is counted in the bytes: that it was is not recorded"


@cost_of(*_FORWARD, category="attention")
def attention(call: OpCall) -> Cost:
    """q, k, v -> result: flops 2·b·h_q·pairs·(d + d_v); see the module."""
    places = _places(call, _FORWARD)
    q, k, v = (tensor(call, places.q + at) for at in range(3))
    sizes = _sizes(q, k, v, places)
    work = _work(call, places, sizes)
    second = maybe_tensor(call, places.value_query)
    widths = sizes.widths() + (Size(second.shape[-1], "Dqv") if second else 0)
    cached, paged = (k, v), _is_cached(call, places)
    if paged:  # the rows of keys and values that the sequences use at most
        count, longest = _sequences(call, places, sizes.batch), integer(call, places.longest + 1)
        cached = _rows_of(k, count * (longest or 0)), _rows_of(v, count * (longest or 0))
    out = fresh((*q.shape[:-1], sizes.value_width), _result_dtype(q))
    wanted = flag(call, _lse_place(call, places)) if places.lse >= 0 else True
    lse = None if wanted is False else fresh(q.shape[:-1], "f32")
    tallied = tally(
        2 * work.value * widths,
        read=[q, second, *cached, maybe_tensor(call, places.bias)],
        written=[out, lse],
        params=_params(sizes, k, places),
    )
    least = tally(
        read=[q, second, *((None,) if paged else (k, v)), maybe_tensor(call, places.bias)],
        written=[out, lse if wanted else None],
    )
    return _cost(work, 2 * widths, tallied, (least.bytes, tallied.bytes))


def _result_dtype(q: Tensor) -> str | None:
    """Return the type of the result: that of the query, but bf16 for one of 8 bits."""
    return "bf16" if (q.dtype or "").startswith("f8") else q.dtype


def _rows_of(pages: Tensor, rows: int) -> Tensor:
    *slots, heads, width = pages.shape
    return fresh((min(rows, numel(slots)), heads, width), pages.dtype)


def _lse_place(call: OpCall, places: _Places) -> int:
    """Return where the flag for the logarithm stands in this version of the op's schema."""
    if call.op == "aten::_efficient_attention_forward" and isinstance(value(call, 9), bool):
        return 9
    if isinstance(value(call, 3), bool):
        return 3
    return places.lse


@cost_of(*_BACKWARD, category="attention")
def attention_backward(call: OpCall) -> Cost:
    """Gradient, q, k, v, result, logarithm -> gradients of q, k, v: 2·b·h_q·pairs·(3d + 2d_v).

    bytes: all of them, a bias, and one more f32 for each query row.
    """
    places = _places(call, _BACKWARD)
    q, k, v = (tensor(call, places.q + at) for at in range(1, 4))
    sizes = _sizes(q, k, v, places)
    work = _work(call, places, sizes)
    widths = sizes.widths(3, 2)
    grad, bias = (maybe_tensor(call, at) for at in (places.q, places.bias))
    out, row = fresh((*q.shape[:-1], sizes.value_width), q.dtype), fresh(q.shape[:-1], "f32")
    tallied = tally(
        2 * work.value * widths,
        read=[grad or out, q, k, v, out, row, row, bias],
        written=[like(q), like(k), like(v)],
        dtype=q.dtype,
        params=_params(sizes, k, places),
    )
    return _cost(work, 2 * widths, tallied, (tallied.bytes, tallied.bytes))


@cost_of("aten::_scaled_dot_product_attention_math", category="attention")
def math_attention(call: OpCall) -> Cost:
    """Attention as separate products over whole matrices: 2·b·h_q·s_q·s_k·(d + d_v), causal or not.

    bytes: q, k, v, mask and the result; the scores, which it also writes and reads, are those of
    the ops inside.
    """
    q, k, v = (tensor(call, at) for at in range(3))
    places = _Places(heads_first=True)
    sizes = _sizes(q, k, v, places)
    out = fresh((*q.shape[:-1], sizes.value_width), q.dtype)
    return tally(
        2 * sizes.pairs() * sizes.widths(),
        read=[q, k, v, maybe_tensor(call, 3)],
        written=[out],
        params=_params(sizes, k, places),
    )


@cost_of("aiter::mha_batch_prefill", category="attention")
def batch_prefill(call: OpCall) -> Cost:
    """Rows (t, h, d), pages of k and v, cumulative lengths, first pages, pages, longest q and k.

    Each query looks at no more keys than the longest sequence has, and at least at itself.
    Assumed: all sequences as long as the longest; causal ones count the pairs under the diagonal.
    bytes: q, the rows of k and v in use, the result.
    """
    q, k, v = (tensor(call, at) for at in range(3))
    count = tensor(call, 3).shape[0] - 1
    longest_k, causal = integer(call, 7), flag(call, 12)
    if longest_k is None or count < 1:
        refuse("the lengths of the cached sequences are not in the recording")
    rows, heads, width = q.shape
    work = _cached(heads, rows, count, longest_k, causal=causal)
    kv = [_rows_of(item, count * longest_k) for item in (k, v)]
    out = fresh((rows, heads, v.shape[-1]), q.dtype)
    widths = Size(width, "D") + Size(v.shape[-1], "Dv")
    tallied = tally(2 * work.value * widths, read=[q, *kv], written=[out])
    least = tally(read=[q], written=[out])
    return _cost(work, 2 * widths, tallied, (least.bytes, tallied.bytes))


_ROCM_PAGED: Final = "_rocm_C::paged_attention"
_PAGED_OPS: Final = ("_C::paged_attention_v1", "_C::paged_attention_v2", _ROCM_PAGED)


@cost_of(*_PAGED_OPS, category="attention")
def paged_attention(call: OpCall) -> Cost:
    """Result, …, one query (b, h, d) for each sequence, pages of k and v, heads of k, …, longest.

    flops 4·b·h·keys·d. Assumed: all sequences as long as the longest; at least one key each.
    bytes: q, the rows of k and v in use, the result.
    """
    at = 1 if call.op.endswith("v1") else 4
    q, k, v = (tensor(call, at + place) for place in range(3))
    # Later versions of ROCm's have where the queries of each sequence begin, before the lengths.
    more = call.op == _ROCM_PAGED and integer(call, at + 7) is None
    heads_k, longest = integer(call, at + 3), integer(call, at + 8 + more)
    if not heads_k or longest is None:
        refuse("the lengths of the cached sequences are not in the recording")
    batch, heads, width = q.shape
    work = _cached(heads, batch, batch, longest, causal=False)
    used = batch * longest * heads_k * width
    kv = [fresh((min(used, numel(item.shape)),), item.dtype) for item in (k, v)]
    tallied = tally(4 * work.value * Size(width, "D"), read=[q, *kv], written=[like(q)])
    least = tally(read=[q], written=[like(q)])
    return _cost(work, 4 * width, tallied, (least.bytes, tallied.bytes))
