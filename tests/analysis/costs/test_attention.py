from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pyprof2.analysis.costs import Estimate, estimate
from pyprof2.analysis.costs.attention import band
from pyprof2.signatures import OpCall, Scalar, Tensor
from tests.analysis.costs.calls import bf16, call, known

if TYPE_CHECKING:
    from collections.abc import Sequence

YES, NO = True, False
FULL: Final = "whether it is causal is not recorded: counted in full"


def sdpa(
    q: tuple[int, ...], k: tuple[int, ...], *, causal: bool | None, dtype: str = "bf16"
) -> Estimate:
    shapes = [Tensor(shape, dtype) for shape in (q, k, k)]
    flag = None if causal is None else Scalar(causal)
    more = (Scalar(0.0), flag, None if causal is None else Scalar(NO), None)
    name = "aten::_scaled_dot_product_flash_attention"
    return estimate(OpCall(name, (*shapes, *more)))


def pairs_by_hand(rows: int, keys: int, lower: int | None, upper: int | None) -> int:
    return sum(
        (lower is None or i + lower <= j) and (upper is None or j <= i + upper)
        for i in range(rows)
        for j in range(keys)
    )


limits: Final = st.none() | st.integers(-9, 9)


@given(st.integers(0, 8), st.integers(0, 8), limits, limits)
def test_a_band_holds_as_many_pairs_as_one_can_count(
    rows: int, keys: int, lower: int | None, upper: int | None
) -> None:
    assert band(rows, keys, lower, upper) == pairs_by_hand(rows, keys, lower, upper)


def test_attention_makes_two_products() -> None:
    # 2 batches of 3 heads, 5 rows, 7 keys, width 8: q·k and p·v, 2 FLOPs each
    cost = known(sdpa((2, 3, 5, 8), (2, 3, 7, 8), causal=NO))

    assert cost.flops == 2 * (2 * 3 * 5 * 7 * 8) * 2
    # q and result 240 elements each, k and v 336 each, 30 logarithms of f32
    assert (cost.bytes_read, cost.bytes_written) == (2 * (240 + 2 * 336), 2 * 240 + 4 * 30)
    assert (cost.params, cost.dtype) == ("B=2,H=3,Sq=5,Sk=7,D=8", "bf16")


def test_a_causal_mask_needs_half_and_the_diagonal() -> None:
    cost = known(sdpa((1, 1, 4, 8), (1, 1, 4, 8), causal=YES))

    assert (cost.flops, cost.flops_hi) == (4 * 8 * 10, 4 * 8 * 16)


def test_only_attention_with_a_mask_has_a_note_of_one() -> None:
    shape = (2, 4, 64, 32)
    assert known(sdpa(shape, shape, causal=False)).note == ""
    assert known(sdpa(shape, shape, causal=True)).note.startswith("causal")


def test_a_mask_that_is_not_recorded_counts_in_full_with_the_causal_count_as_bound() -> None:
    found = sdpa((1, 1, 4, 8), (1, 1, 4, 8), causal=None)

    cost = known(found)
    assert (found.status, found.note) == ("assumed", FULL)
    assert (cost.flops_lo, cost.flops, cost.flops_hi) == (4 * 8 * 10, 4 * 8 * 16, 4 * 8 * 16)


def test_grouped_queries_count_their_own_heads_and_read_the_fewer_keys() -> None:
    cost = known(sdpa((1, 8, 16, 4), (1, 2, 16, 4), causal=NO))

    assert cost.flops == 4 * 8 * 16 * 16 * 4
    assert cost.bytes_read == 2 * (8 * 16 * 4 + 2 * 2 * 16 * 4)
    assert cost.params.startswith("B=1,H=8,Hkv=2,")


def test_values_may_have_a_width_of_their_own() -> None:
    q, k, v = bf16(1, 2, 5, 8), bf16(1, 2, 7, 8), bf16(1, 2, 7, 3)

    cost = known(estimate(call("aten::scaled_dot_product_attention", q, k, v, None, 0.0, NO)))

    assert cost.flops == 2 * (2 * 5 * 7) * (8 + 3)
    assert cost.bytes_written == 2 * (2 * 5 * 3) + 4 * 10


def test_one_query_looks_at_all_keys_that_are_cached() -> None:
    q, k = bf16(4, 1, 8, 64), bf16(4, 100, 8, 64)

    decode = call("flash_attn::_flash_attn_forward", q, k, k, 0.0, 0.125, YES, -1, -1)

    assert known(estimate(decode)).flops == 4 * (4 * 8 * 100) * 64


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        pytest.param(-1, -1, 36, id="none"),
        pytest.param(2, 0, 1 + 2 + 3 * 4, id="two back"),
        pytest.param(0, 0, 6, id="only itself"),
        pytest.param(1, 1, 2 + 3 * 4 + 2, id="one to each side"),
    ],
)
def test_a_window_limits_the_pairs(left: int, right: int, pairs: int) -> None:
    q = bf16(1, 6, 1, 8)

    cost = known(
        estimate(call("flash_attn::_flash_attn_forward", q, q, q, 0.0, 0.1, NO, left, right))
    )

    assert cost.flops == 4 * 8 * pairs
    assert cost.flops_hi in (None, 4 * 8 * 36)


@pytest.mark.parametrize(
    ("mask", "pairs"),
    [
        pytest.param(0, 15, id="none"),
        pytest.param(1, 1 + 2 + 3, id="from the top left"),
        pytest.param(2, 3 + 4 + 5, id="from the bottom right"),
    ],
)
def test_the_efficient_kernel_names_its_mask_by_number(mask: int, pairs: int) -> None:
    q, k = bf16(1, 3, 2, 8), bf16(1, 5, 2, 8)
    new = call(
        "aten::_efficient_attention_forward",
        q, k, k, None, None, None, None, None, 0.0, mask, NO, None, None, None,
    )  # fmt: skip
    old = call(
        "aten::_efficient_attention_forward",
        q, k, k, None, None, None, None, 0.0, mask, NO, None, None, None,
    )  # fmt: skip

    for version in (new, old):
        cost = known(estimate(version))
        assert cost.flops == 4 * 8 * 2 * pairs
        assert cost.bytes_written == 2 * (3 * 2 * 8)  # no logarithms were asked for


def test_the_logarithms_count_where_they_are_asked_for() -> None:
    q = bf16(1, 2, 3, 8)
    name = "aten::_scaled_dot_product_efficient_attention"

    with_them, without, unknown = (
        known(estimate(call(name, q, q, q, None, wanted, 0.0, NO))) for wanted in (YES, NO, None)
    )

    assert with_them.bytes_written == 96 + 24
    assert without.bytes_written == 96
    assert (unknown.bytes, unknown.bytes_lo) == (with_them.bytes, without.bytes)


def test_a_bias_is_read() -> None:
    q, bias = bf16(1, 2, 3, 8), bf16(1, 1, 3, 3)

    cost = known(
        estimate(call("aten::_scaled_dot_product_efficient_attention", q, q, q, bias, NO, 0.0, NO))
    )

    assert cost.bytes_read == 3 * 96 + 18


def test_a_fused_backward_makes_five_products() -> None:
    q, k = bf16(2, 3, 5, 8), bf16(2, 3, 7, 8)
    name = "aten::_scaled_dot_product_flash_attention_backward"
    lse = Tensor((2, 3, 5), "f32")

    cost = known(estimate(call(name, q, q, k, k, q, lse, None, None, 5, 7, 0.0, NO, None, None)))

    assert cost.flops == 5 * 2 * (2 * 3 * 5 * 7 * 8)
    # read grad, q, result of 240 elements, k and v of 336, two numbers for each of 30 rows: the
    # logarithm, and the sum of result times grad; write three gradients
    assert cost.bytes_read == 2 * (3 * 240 + 2 * 336) + 2 * 4 * 30
    assert cost.bytes_written == 2 * (240 + 2 * 336)


def test_a_causal_backward_is_two_and_a_half_times_the_causal_forward() -> None:
    q, lse = bf16(1, 4, 2, 8), Tensor((1, 2, 4), "f32")
    forward = call("flash_attn::_flash_attn_forward", q, q, q, 0.0, 0.1, YES, -1, -1)
    backward = call(
        "flash_attn::_flash_attn_backward",
        q, q, q, q, q, lse, q, q, q, 0.0, 0.1, YES, -1, -1,
    )  # fmt: skip

    assert 2 * known(estimate(backward)).flops == 5 * known(estimate(forward)).flops


def packed(lengths: Sequence[int], *, causal: bool | None) -> Estimate:
    """Return the estimate of self-attention over sequences, one after another."""
    rows, heads, width = sum(lengths), 2, 8
    q = bf16(rows, heads, width)
    starts = Tensor((len(lengths) + 1,), "i32")
    longest = max(lengths)
    name = "flash_attn::_flash_attn_varlen_forward"
    return estimate(call(name, q, q, q, starts, starts, longest, longest, 0.0, 0.1, causal, -1, -1))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from([YES, NO, None]))
def test_the_bounds_hold_whatever_the_lengths_are(
    lengths: list[int],
    causal: bool | None,  # noqa: FBT001 - drawn
) -> None:
    cost = known(packed(lengths, causal=causal))

    full = 2 * 4 * 8 * sum(n * n for n in lengths)
    half = 2 * 4 * 8 * sum(n * (n + 1) // 2 for n in lengths)
    truth = {YES: [half], NO: [full], None: [half, full]}[causal]
    low = cost.flops if cost.flops_lo is None else cost.flops_lo
    high = cost.flops if cost.flops_hi is None else cost.flops_hi
    assert low <= min(truth)
    assert max(truth) <= high


@pytest.mark.parametrize(
    ("causal", "pairs"), [pytest.param(NO, 2 * 16, id="full"), pytest.param(YES, 20, id="causal")]
)
def test_sequences_of_one_length_are_counted_exactly(*, causal: bool, pairs: int) -> None:
    found = packed([4, 4], causal=causal)

    assert (found.status, known(found).flops) == ("ok", 2 * 4 * 8 * pairs)


def test_lengths_that_are_not_recorded_are_an_assumption() -> None:
    found = packed([6, 1, 1], causal=NO)

    assert found.status == "assumed"
    assert found.note.startswith("lengths of the sequences not recorded")


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=5))
def test_the_bounds_hold_where_queries_and_keys_differ(lengths: list[tuple[int, int]]) -> None:
    q = bf16(sum(rows for rows, _ in lengths), 2, 8)
    k = bf16(sum(keys for _, keys in lengths), 2, 8)
    starts = Tensor((len(lengths) + 1,), "i32")
    longest = [max(sizes) for sizes in zip(*lengths, strict=True)]

    cost = known(
        estimate(
            call(
                "aten::_flash_attention_forward",
                q, k, k, starts, starts, *longest, 0.0, NO, NO, None,
            )
        )
    )  # fmt: skip

    truth = 2 * 4 * 8 * sum(rows * keys for rows, keys in lengths)
    low = cost.flops if cost.flops_lo is None else cost.flops_lo
    high = cost.flops if cost.flops_hi is None else cost.flops_hi
    assert low <= truth <= high


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), min_size=1, max_size=5),
    st.booleans(),
)
def test_the_bounds_hold_where_the_keys_lie_in_pages(
    sequences: list[tuple[int, int]],
    causal: bool,  # noqa: FBT001 - drawn
) -> None:
    rows = sum(new for new, _ in sequences)
    longest = max(new + cached for new, cached in sequences)
    q, pages = bf16(rows, 2, 8), bf16(64, 16, 1, 8)
    starts, table = Tensor((len(sequences) + 1,), "i32"), Tensor((len(sequences), 4), "i32")
    longest_q = max(new for new, _ in sequences)

    cost = known(
        estimate(
            call(
                "_vllm_fa2_C::varlen_fwd", q, pages, pages, None, starts, starts, None, None,
                table, None, longest_q, longest, 0.0, 0.1, NO, causal, -1, -1, 0.0, NO,
            )
        )
    )  # fmt: skip

    truth = sum(
        band(new, new + cached, None, cached if causal else None) for new, cached in sequences
    )
    assert cost.flops_lo is not None
    assert cost.flops_hi is not None
    assert cost.flops_lo <= 2 * 4 * 8 * truth <= cost.flops_hi


def test_the_math_path_counts_in_full_even_if_causal() -> None:
    q = bf16(1, 2, 4, 8)

    cost = known(
        estimate(call("aten::_scaled_dot_product_attention_math", q, q, q, None, 0.0, YES))
    )

    assert cost.flops == 4 * 2 * 16 * 8


@pytest.mark.parametrize(
    ("name", "more"),
    [
        pytest.param("aten::_scaled_dot_product_efficient_attention", (NO, YES), id="2.0"),
        pytest.param("aten::_scaled_dot_product_cudnn_attention", (0.0, YES, NO), id="2.4"),
    ],
)
def test_older_versions_of_an_op_have_the_mask_elsewhere(name: str, more: tuple[Any, ...]) -> None:
    q = bf16(1, 1, 4, 8)

    assert known(estimate(call(name, q, q, q, *more))).flops == 4 * 8 * 10


@pytest.mark.parametrize(
    ("op", "rows", "keys", "flops"),
    [
        # 8 queries: 4·8·H·D·keys each
        pytest.param("causal", 8, 40, 4 * 2 * 8 * sum(range(33, 41)), id="causal"),
        pytest.param("full", 8, 40, 4 * 2 * 8 * 8 * 40, id="full"),
    ],
)
def test_prefill_in_pages_reads_the_rows_in_use(op: str, rows: int, keys: int, flops: int) -> None:
    q, pages = bf16(rows, 2, 8), bf16(1000, 1, 2, 8)
    starts, table = Tensor((2,), "i32"), Tensor((keys,), "i32")

    cost = known(
        estimate(
            call(
                "aiter::mha_batch_prefill", q, pages, pages, starts, starts, table, rows, keys,
                0.0, 0.1, 0.0, NO, op == "causal",
            )
        )
    )  # fmt: skip

    assert cost.flops == flops
    assert cost.bytes_read == 2 * (rows + 2 * keys) * 16


# --------------------------------------------------------------------------- FlashAttention 3


def flash3(q: Tensor, k: Tensor, *, causal: bool = NO, window: int = -1, **more: Any) -> OpCall:
    """Return a call of `flash_attn_3::fwd`, whose 34 arguments have these places."""
    places = {
        "value_query": 5, "starts_q": 7, "starts_k": 8, "used_k": 11, "longest_q": 12,
        "longest_k": 13, "pages": 14, "chunk": 27,
    }  # fmt: skip
    inputs: list[Any] = [None] * 34
    inputs[:3] = q, k, k
    inputs[23:28] = 0.1, causal, window, -1, 0
    for name, item in more.items():
        inputs[places[name]] = item
    return call("flash_attn_3::fwd", *inputs)


def test_flash_attention_3_counts_the_pairs_under_the_diagonal() -> None:
    q = bf16(1, 4, 1, 8)

    cost = known(estimate(flash3(q, q, causal=YES)))

    assert (cost.flops, cost.flops_hi) == (4 * 8 * 10, 4 * 8 * 16)
    # q, k, v and the result of 32 elements each, 4 logarithms
    assert (cost.bytes_read, cost.bytes_written) == (3 * 64, 64 + 16)


def test_flash_attention_3_has_a_window() -> None:
    q = bf16(1, 4, 1, 8)

    # Each query sees itself and the one before: 1 + 2 + 2 + 2.
    assert known(estimate(flash3(q, q, causal=YES, window=1))).flops == 4 * 8 * 7


def test_flash_attention_3_takes_packed_sequences() -> None:
    q, starts = bf16(8, 2, 8), Tensor((3,), "i32")
    places: dict[str, Any] = {
        "starts_q": starts,
        "starts_k": starts,
        "longest_q": 4,
        "longest_k": 4,
    }

    cost = known(estimate(flash3(q, q, **places)))

    assert cost.flops == 4 * 8 * 2 * (16 + 16)


def test_a_cache_of_unknown_filling_is_no_full_cache() -> None:
    # Two sequences of one new query each, in a cache of 100 keys each.
    q, cache, used = bf16(2, 1, 4, 8), bf16(2, 100, 1, 8), Tensor((2,), "i32")

    unknown = estimate(flash3(q, cache, causal=YES, used_k=used))
    found = estimate(flash3(q, cache, causal=YES, used_k=used, longest_q=1, longest_k=30))

    assert unknown.status == "no_shapes"
    assert unknown.note == "the lengths of the cached sequences are not in the recording"
    cost = known(found)
    assert found.status == "assumed"
    assert (cost.flops_lo, cost.flops) == (4 * 8 * 4 * 2, 4 * 8 * 4 * 2 * 30)
    # 64 elements of q, 2 caches of 2·30 rows of 8
    assert cost.bytes_read == 2 * (64 + 2 * 2 * 30 * 8)


def test_a_window_limits_what_a_query_sees_of_a_cache() -> None:
    q, pages, table = bf16(1, 1, 1, 8), bf16(50, 16, 1, 8), Tensor((1, 4), "i32")
    used = Tensor((1,), "i32")

    cost = known(
        estimate(
            flash3(q, pages, causal=YES, window=9, used_k=used, pages=table, longest_k=40)
        )
    )  # fmt: skip

    assert cost.flops == 4 * 8 * 10


def test_8_bit_queries_give_a_result_of_16_bits() -> None:
    q = Tensor((1, 4, 1, 8), "f8e4m3")

    cost = known(estimate(flash3(q, q)))

    assert (cost.bytes_read, cost.bytes_written) == (3 * 32, 2 * 32 + 16)


def test_a_second_query_multiplies_the_values_once_more() -> None:
    q, k = bf16(1, 2, 1, 8), bf16(1, 3, 1, 8)

    cost = known(estimate(flash3(q, k, value_query=bf16(1, 2, 1, 8))))

    assert cost.flops == 3 * 2 * 8 * 6


def test_chunks_leave_the_count_open() -> None:
    q = bf16(1, 4, 1, 8)

    assert estimate(flash3(q, q, causal=YES, chunk=2)).status == "no_shapes"


def test_flash_attention_3_backward_makes_five_products() -> None:
    q, lse = bf16(1, 4, 1, 8), Tensor((1, 1, 4), "f32")
    inputs = [q, q, q, q, q, lse, *[None] * 9, 0.1, YES, -1, -1, 0.0, NO, 0]

    cost = known(estimate(call("flash_attn_3::bwd", *inputs)))

    assert cost.flops == 5 * 2 * 8 * 10
    assert cost.bytes_written == 3 * 64


# --------------------------------------------------------------------------- xformers

XFORMERS: Final = "xformers::efficient_attention"


def test_xformers_names_its_mask_by_number_in_both_versions() -> None:
    q, k = bf16(1, 3, 2, 8), bf16(1, 5, 2, 8)
    new = (q, k, k, None, None, None, None, None, 0.0, 2, NO, 0.1, None, None)
    old = (q, k, k, None, None, None, None, 0.0, NO, 2, 0.1, None, None)

    for inputs in (new, old):
        cost = known(estimate(call(f"{XFORMERS}_forward_cutlass", *inputs)))
        assert cost.flops == 4 * 8 * 2 * (3 + 4 + 5)
        assert cost.bytes_written == 2 * 3 * 2 * 8


def test_xformers_backward_makes_five_products_in_both_versions() -> None:
    q, lse = bf16(1, 4, 1, 8), Tensor((1, 1, 4), "f32")
    new = (q, q, q, q, None, q, None, None, 4, 4, lse, 0.0, None, None, 1, NO, 0.1, None, None)
    old = (q, q, q, q, None, None, None, 4, 4, lse, q, 0.0, 0, 0, 1, 0.1, -1, None)

    for inputs in (new, old):
        cost = known(estimate(call(f"{XFORMERS}_backward_cutlass", *inputs)))
        assert cost.flops == 5 * 2 * 8 * 10


def test_xformers_flash_backward_has_its_gradients_elsewhere_in_older_versions() -> None:
    q, lse = bf16(1, 4, 1, 8), Tensor((1, 1, 4), "f32")
    new = (NO, q, q, q, q, q, lse, None, None, 4, 4, 0.0, 0.1, YES, -1, -1, None)
    old = (q, q, q, q, q, lse, q, q, q, None, None, 4, 4, 0.0, 0.1, YES)

    for inputs in (new, old):
        cost = known(estimate(call("xformers_flash::flash_bwd", *inputs)))
        assert (cost.flops, cost.bytes_written) == (5 * 2 * 8 * 10, 3 * 64)


def test_xformers_flash_3_is_causal_where_its_version_says_so() -> None:
    q = bf16(1, 4, 1, 8)
    tail = (None, None, None, None, NO, -1, -1)
    new = (q, q, q, None, None, None, None, 4, 4, 0.0, 0.1, YES, *tail)
    old = (q, q, q, None, None, None, 4, 4, 0.0, 0.1, YES)

    for inputs in (new, old):
        assert known(estimate(call("xformers_flash3::flash_fwd", *inputs))).flops == 4 * 8 * 10


# --------------------------------------------------------------------------- vLLM's pages


@pytest.mark.parametrize(("version", "more"), [("v1", 0), ("v2", 3)])
def test_one_query_for_each_sequence_looks_at_the_longest(version: str, more: int) -> None:
    # 2 sequences of at most 10 keys, 4 heads of width 8 on 2 heads of k, pages of 16.
    q, pages, table, used = bf16(2, 4, 8), bf16(50, 2, 1, 16, 8), Tensor((2, 1)), Tensor((2,))
    inputs = [q, *[q] * more, q, pages, pages, 2, 0.1, table, used, 16, 10, None, "auto"]

    found = estimate(call(f"_C::paged_attention_{version}", *inputs))

    cost = known(found)
    assert found.status == "assumed"
    assert (cost.flops_lo, cost.flops, cost.flops_hi) == (4 * 8 * 8, 4 * 8 * 80, 4 * 8 * 80)
    assert (cost.bytes_read, cost.bytes_written) == (2 * (64 + 2 * 2 * 10 * 2 * 8), 128)
