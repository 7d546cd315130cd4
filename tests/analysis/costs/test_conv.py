from __future__ import annotations

from typing import Any, Final

import pytest

from pyprof2.analysis.costs import Cost, Evidence, estimate
from pyprof2.signatures import Tensor
from tests.analysis.costs.calls import call, f32, known

YES, NO = True, False


X: Final = f32(2, 6, 9, 9)
WEIGHT: Final = f32(4, 6, 3, 3)
OUT: Final = f32(2, 4, 5, 5)
ONE_PASS: Final = 2 * (2 * 4 * 5 * 5) * (6 * 3 * 3)
"""Stride 2, padding 1: every element of the output meets 54 weights."""

UNRECORDED: Final = [None] * 7
"""What a recording of 2021 has of stride, padding and the like."""


def test_a_convolution_without_stride_needs_the_size_of_its_output() -> None:
    recorded = call("aten::cudnn_convolution", X, WEIGHT, *UNRECORDED)

    alone = estimate(recorded)
    told = known(estimate(recorded, Evidence(output=Tensor(OUT.shape))))

    assert (alone.status, alone.cost) == ("no_shapes", None)
    assert "stride and padding" in alone.note
    assert told.flops == ONE_PASS
    assert told.bytes == 4 * (2 * 6 * 81 + 4 * 54 + 200)


def test_the_input_of_the_next_call_is_assumed_to_be_the_output_where_it_fits() -> None:
    recorded = call("aten::conv2d", X, WEIGHT, *UNRECORDED)

    found = estimate(recorded, Evidence(following=OUT))

    assert (found.status, known(found).flops) == ("assumed", ONE_PASS)
    assert found.note.endswith("the output has the size of the next call's input")


@pytest.mark.parametrize(
    "following",
    [f32(2, 5, 5, 5), f32(3, 4, 5, 5), f32(2, 4, 10, 5), f32(2, 4, 25), f32(2, 4)],
    ids=["other channels", "another batch", "larger", "fewer dimensions", "two dimensions"],
)
def test_the_input_of_the_next_call_is_not_the_output_where_it_does_not_fit(
    following: Tensor,
) -> None:
    found = estimate(call("aten::conv2d", X, WEIGHT, *UNRECORDED), Evidence(following=following))

    assert (found.status, found.cost) == ("no_shapes", None)


def test_a_stride_that_is_recorded_counts_whatever_the_next_call_gets() -> None:
    recorded = call("aten::conv2d", X, WEIGHT, None, [1, 1], [1, 1], [1, 1], 1)

    found = estimate(recorded, Evidence(following=OUT))

    assert (found.status, known(found).flops) == ("ok", 2 * (2 * 4 * 9 * 9) * (6 * 3 * 3))


def test_the_gradient_of_the_weight_takes_the_weights_size_from_the_forward_op() -> None:
    backward = call("aten::cudnn_convolution_backward_weight", None, OUT, X, *UNRECORDED)
    forward = call("aten::cudnn_convolution", X, WEIGHT, *UNRECORDED)

    alone = estimate(backward)
    paired = known(estimate(backward, Evidence(forward=forward)))

    assert (alone.status, alone.cost) == ("no_shapes", None)
    assert paired.flops == ONE_PASS
    assert (paired.bytes_read, paired.bytes_written) == (4 * (200 + 972), 4 * 216)


def test_the_gradient_of_the_weight_takes_a_recorded_size() -> None:
    backward = call("aten::cudnn_convolution_backward_weight", [4, 6, 3, 3], OUT, X)

    assert known(estimate(backward)).flops == ONE_PASS


def test_the_gradient_of_the_input_has_its_flops_without_the_forward_op() -> None:
    backward = call("aten::cudnn_convolution_backward_input", None, OUT, WEIGHT, *UNRECORDED)

    alone = known(estimate(backward))
    paired = known(estimate(backward, Evidence(forward=call("aten::cudnn_convolution", X, WEIGHT))))

    assert (alone.flops, alone.bytes) == (ONE_PASS, None)
    assert (paired.flops, paired.bytes) == (ONE_PASS, 4 * (200 + 216 + 972))


@pytest.mark.parametrize(
    ("mask", "passes", "read", "written"),
    [
        pytest.param([YES, YES, YES], 2, 3 * 200 + 216 + 972, 972 + 216 + 4, id="all"),
        pytest.param([YES, YES, NO], 2, 2 * 200 + 216 + 972, 972 + 216, id="no bias"),
        pytest.param([NO, YES, NO], 1, 200 + 972, 216, id="weight"),
        pytest.param([YES, NO, NO], 1, 200 + 216, 972, id="input"),
        pytest.param([NO, NO, YES], 0, 200, 4, id="bias"),
        pytest.param("[False, True, False]", 1, 200 + 972, 216, id="weight, as text"),
    ],
)
def test_only_the_gradients_that_the_mask_asks_for_count(
    mask: Any, passes: int, read: int, written: int
) -> None:
    args = ([4], [2, 2], [1, 1], [1, 1], NO, [0, 0], 1, mask)

    cost = known(estimate(call("aten::convolution_backward", OUT, X, WEIGHT, *args)))

    # grad_output of 200 elements is read for each of them.
    assert cost.flops == passes * ONE_PASS
    assert (cost.bytes_read, cost.bytes_written) == (4 * read, 4 * written)


def test_a_mask_that_is_not_recorded_is_bounded_by_one_and_both_gradients() -> None:
    found = estimate(call("aten::cudnn_convolution_backward", X, OUT, WEIGHT, *[None] * 8))

    cost = known(found)
    assert found.status == "assumed"
    assert (cost.flops_lo, cost.flops, cost.flops_hi) == (ONE_PASS, 2 * ONE_PASS, 2 * ONE_PASS)
    # The weight's gradient alone; both; that of the bias too: 4 elements, and grad once more.
    both = 2 * 200 + 2 * (216 + 972)
    assert (cost.bytes_lo, cost.bytes, cost.bytes_hi) == tuple(
        4 * count for count in (200 + 216 + 972, both, both + 200 + 4)
    )


def test_an_input_without_a_batch_is_a_batch_of_one() -> None:
    args = (None, [1, 1], [0, 0], [1, 1], 1)

    cost = known(estimate(call("aten::conv2d", f32(6, 9, 9), WEIGHT, *args)))

    assert cost.flops == 2 * (4 * 7 * 7) * 54


@pytest.mark.parametrize(
    ("padding", "side"), [pytest.param("same", 9, id="same"), pytest.param("valid", 7, id="valid")]
)
def test_padding_may_be_a_word(padding: str, side: int) -> None:
    cost = known(estimate(call("aten::conv2d", X, WEIGHT, None, [1, 1], padding, [1, 1], 1)))

    assert cost.bytes_written == 4 * 2 * 4 * side * side


def test_one_number_holds_for_all_dimensions() -> None:
    cost = known(estimate(call("aten::conv2d", X, WEIGHT, None, [2], [1], [1], 1)))

    assert cost.flops == ONE_PASS


def test_a_transposed_convolution_counts_its_input() -> None:
    # 4 channels of 5x5 each meet 6·3·3 weights; the output is 9x9 again
    args = (None, [2, 2], [1, 1], [0, 0], 1, [1, 1])

    cost = known(estimate(call("aten::conv_transpose2d", OUT, f32(4, 6, 3, 3), *args)))

    assert cost.flops == ONE_PASS
    assert cost.bytes_written == 4 * 2 * 6 * 9 * 9


def test_the_bias_is_read_and_adding_it_is_no_flop() -> None:
    def cost_with(bias: Tensor | None) -> Cost:
        args = (bias, [2, 2], [1, 1], [1, 1], NO, [0, 0], 1)
        return known(estimate(call("aten::convolution", X, WEIGHT, *args)))

    without, biased = cost_with(None), cost_with(f32(4))

    assert biased.flops == without.flops
    assert (biased.bytes or 0) - (without.bytes or 0) == 16


def test_the_params_name_what_matters() -> None:
    args = (None, [2, 2], [1, 1], [1, 1], NO, [0, 0], 2)

    cost = known(estimate(call("aten::convolution", X, f32(4, 3, 3, 3), *args)))

    assert cost.params == "N=2,C=6,K=4,in=9x9,out=5x5,window=3x3,groups=2"


def test_the_ops_of_one_network_without_strides_add_up() -> None:
    """ResNet-50's first layer and a strided 1x1 one, as recorded in 2021."""
    stem = call("aten::cudnn_convolution", f32(32, 3, 224, 224), f32(64, 3, 7, 7), *UNRECORDED)
    down = call("aten::cudnn_convolution", f32(32, 256, 56, 56), f32(512, 256, 1, 1), *UNRECORDED)

    found = [
        known(estimate(stem, Evidence(output=f32(32, 64, 112, 112)))).flops,
        known(estimate(down, Evidence(output=f32(32, 512, 28, 28)))).flops,
    ]

    assert found == [2 * 32 * 64 * 112 * 112 * 147, 2 * 32 * 512 * 28 * 28 * 256]
