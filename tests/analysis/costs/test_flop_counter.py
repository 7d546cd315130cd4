"""PyTorch's own counter agrees, where it is right."""

from __future__ import annotations

from typing import Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from pyprof2.analysis.costs import Cost, estimate
from pyprof2.signatures import OpCall

torch = pytest.importorskip("torch", reason="the counter is torch's")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402 - it needs torch

from tests.analysis.costs.recorder import as_call  # noqa: E402 - it needs torch

sizes: Final = st.integers(1, 40)
aten: Final = torch.ops.aten


def t(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.empty(*shape, dtype=dtype, device="meta")


def count(func: Any, *args: Any, **kwargs: Any) -> tuple[int, Cost]:
    """Return the counter's FLOPs of one op, and our cost of the same call."""
    with FlopCounterMode(display=False) as counter:
        func(*args, **kwargs)
    found = estimate(as_call(func, args, kwargs))
    assert found.cost is not None, found
    return counter.get_total_flops(), found.cost


@given(sizes, sizes, sizes, sizes)
def test_products_agree(batch: int, m: int, n: int, k: int) -> None:
    calls = (
        (aten.mm.default, t(m, k), t(k, n)),
        (aten.addmm.default, t(n), t(m, k), t(k, n)),
        (aten.bmm.default, t(batch, m, k), t(batch, k, n)),
        (aten.baddbmm.default, t(batch, m, n), t(batch, m, k), t(batch, k, n)),
    )
    for func, *args in calls:
        theirs, ours = count(func, *args)
        assert ours.flops == theirs


@st.composite
def convolutions(draw: st.DrawFn, *, grouped: bool) -> dict[str, Any]:
    """Any convolution whose output is not empty."""
    spatial = draw(st.integers(1, 3))
    dims = st.integers(1, spatial and 3)
    groups = draw(st.integers(1, 3)) if grouped else 1
    transposed = draw(st.booleans())
    several = st.lists(dims, min_size=spatial, max_size=spatial)
    window, stride, dilation = draw(several), draw(several), draw(several)
    padding = draw(st.lists(st.integers(0, 1), min_size=spatial, max_size=spatial))
    length = draw(st.integers(9, 12))
    inner, outer = draw(dims), draw(dims)
    if transposed:
        padding = [0] * spatial
        weight = t(groups * inner, outer, *window)
    else:
        weight = t(groups * outer, inner, *window)
    return {
        "x": t(draw(st.integers(1, 4)), groups * inner, *[length] * spatial),
        "weight": weight,
        "args": (stride, padding, dilation, transposed, [0] * spatial, groups),
        "channels": groups * outer,
    }


@settings(max_examples=60)
@given(convolutions(grouped=True), st.booleans())
def test_convolutions_agree(case: dict[str, Any], bias: bool) -> None:  # noqa: FBT001 - drawn
    x, weight = case["x"], case["weight"]
    extra = t(case["channels"]) if bias else None

    theirs, ours = count(aten.convolution.default, x, weight, extra, *case["args"])

    out = aten.convolution.default(x, weight, extra, *case["args"])
    assert ours.flops == theirs
    assert ours.bytes_written == out.nbytes


@settings(max_examples=60)
@given(convolutions(grouped=False), st.booleans(), st.booleans())
def test_gradients_of_convolutions_agree(
    case: dict[str, Any],
    wants_x: bool,  # noqa: FBT001 - drawn
    wants_weight: bool,  # noqa: FBT001 - drawn
) -> None:
    x, weight = case["x"], case["weight"]
    grad = aten.convolution.default(x, weight, None, *case["args"])
    mask = [wants_x, wants_weight, True]

    theirs, ours = count(
        aten.convolution_backward.default,
        grad, x, weight, [case["channels"]], *case["args"], mask,
    )  # fmt: skip

    assert ours.flops == theirs


@given(sizes, st.integers(1, 4), sizes, sizes, sizes, st.integers(1, 3))
def test_fused_attention_agrees_forward_and_backward(
    batch: int, kv_heads: int, rows: int, keys: int, width: int, group: int
) -> None:
    heads = kv_heads * group
    q = t(batch, heads, rows, width, dtype=torch.bfloat16)
    k, v = (t(batch, heads, keys, width, dtype=torch.bfloat16) for _ in range(2))

    flash = aten._scaled_dot_product_flash_attention.default
    theirs, ours = count(flash, q, k, v)
    assert ours.flops == theirs

    lse = t(batch, heads, rows)
    seed = t(2, dtype=torch.int64)
    theirs, ours = count(
        aten._scaled_dot_product_flash_attention_backward.default,
        q, q, k, v, q, lse, None, None, rows, keys, 0.0, False, seed, seed,
    )  # fmt: skip
    assert ours.flops == theirs


@pytest.mark.parametrize(
    ("groups", "flops"),
    [
        # One depthwise convolution: both gradients take 2·|out|·9 each.
        pytest.param(32, 2 * 2 * (8 * 32 * 30 * 30) * 9, id="depthwise"),
        pytest.param(4, 2 * 2 * (8 * 32 * 30 * 30) * 8 * 9, id="grouped"),
    ],
)
def test_the_weight_gradient_of_groups_counts_once(groups: int, flops: int) -> None:
    x, weight = t(8, 32, 32, 32), t(32, 32 // groups, 3, 3)
    args = ([1, 1], [0, 0], [1, 1], False, [0, 0], groups)
    grad = aten.convolution.default(x, weight, None, *args)

    theirs, ours = count(
        aten.convolution_backward.default, grad, x, weight, None, *args, [True, True, False]
    )

    assert ours.flops == flops
    assert theirs == flops // 2 * (1 + groups)  # its error, on which we do not agree


@pytest.mark.parametrize(
    ("func", "args", "flops"),
    [
        pytest.param(aten.mv.default, (t(8, 16), t(16)), 2 * 8 * 16, id="mv"),
        pytest.param(aten.addmv.default, (t(8), t(8, 16), t(16)), 2 * 8 * 16, id="addmv"),
        pytest.param(aten.dot.default, (t(16), t(16)), 2 * 16, id="dot"),
    ],
)
def test_what_the_counter_leaves_out_counts(func: Any, args: tuple[Any, ...], flops: int) -> None:
    theirs, ours = count(func, *args)

    assert (theirs, ours.flops) == (0, flops)


def test_the_counter_ignores_a_causal_mask_and_we_do_not() -> None:
    q = t(2, 4, 16, 8, dtype=torch.bfloat16)

    theirs, ours = count(aten._scaled_dot_product_flash_attention.default, q, q, q, is_causal=True)

    assert theirs == 4 * 2 * 4 * 16 * 16 * 8
    assert (ours.flops, ours.flops_hi) == (4 * 2 * 4 * (16 * 17 // 2) * 8, theirs)


def test_the_calls_are_those_of_the_schema() -> None:
    call = as_call(aten.addmm.default, (t(3), t(2, 4), t(4, 3)), {})

    assert isinstance(call, OpCall)
    assert [type(item).__name__ for item in call.inputs] == ["Tensor"] * 3 + ["Scalar"] * 2
