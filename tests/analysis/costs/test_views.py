from __future__ import annotations

import pytest

from pyprof2.analysis.costs import estimate, seen_in_views
from pyprof2.signatures import Input, OpCall, Scalar, Tensor
from tests.analysis.costs.calls import bf16


def inside(x: Tensor, *values: list[int]) -> OpCall:
    rest: tuple[Input, ...] = tuple(Scalar(item) for item in values)
    return OpCall("aten::as_strided", (x, *rest, None))


WEIGHTS = bf16(8, 512, 1024)
ROWS = OpCall("aten::index", (WEIGHTS, None))
SUM = OpCall("aten::sum", (bf16(256, 2, 512), None, None, None))


@pytest.mark.parametrize(
    ("call", "views", "result"),
    [
        pytest.param(
            ROWS, [inside(WEIGHTS, [512, 512, 1024], [0, 1024, 1])], bf16(512, 512, 1024),
            id="indexing gives its input the shape of the result",
        ),
        pytest.param(ROWS, [inside(bf16(512))], None, id="another view"),
        pytest.param(ROWS, [inside(WEIGHTS)], None, id="size not recorded"),
        pytest.param(
            SUM, [inside(bf16(256, 512))], bf16(256, 512),
            id="a reduction gives its result the shape of the input",
        ),
        pytest.param(SUM, [inside(bf16(256, 2, 512))], None, id="a view of the input"),
        pytest.param(SUM, [], None, id="nothing inside"),
        pytest.param(
            OpCall("aten::mm", (bf16(2, 2),)), [inside(bf16(2))], None, id="an op that is silent"
        ),
    ],
)  # fmt: skip
def test_the_ops_inside_tell_the_result(
    call: OpCall, views: list[OpCall], result: Tensor | None
) -> None:
    assert seen_in_views(call, views).output == result


def on(op: str, x: Tensor) -> OpCall:
    return OpCall(op, (x, None))


PLACES = Tensor((512,), "i64")
ONE = Tensor((1,), "i64")
ROW = Tensor((512,), "i64", (1,))
REPEATED = Tensor((512,), "i64", (0,))
NARROW = Tensor((512,), "i32")
MASK = Tensor((8, 512), "bool")


@pytest.mark.parametrize(
    ("others", "indices"),
    [
        pytest.param([on("aten::reshape", PLACES)], (PLACES,), id="reshaped"),
        pytest.param([on("aten::reshape", PLACES)] * 2, (PLACES,) * 2, id="two"),
        pytest.param(
            [on("aten::expand", ONE), *[on("aten::reshape", PLACES)] * 2], (),
            id="one is expanded to the other, and nobody knows which",
        ),
        pytest.param(
            [on("aten::expand", ONE), on("aten::reshape", ROW), on("aten::reshape", REPEATED)],
            (ROW, REPEATED), id="strides tell which is expanded",
        ),
        pytest.param(
            [on("aten::to", NARROW), on("aten::reshape", PLACES)], (NARROW,),
            id="a type that is widened first",
        ),
        pytest.param(
            [*[on("aten::remainder", PLACES)] * 2, on("aten::reshape", PLACES)], (PLACES,) * 2,
            id="sorted: two are made one, which is reshaped",
        ),
        pytest.param([on("aten::masked_fill_", WEIGHTS)], (), id="filled without a mask's shape"),
        pytest.param(
            [OpCall("aten::masked_fill_", (WEIGHTS, MASK, None))], (MASK,), id="filled under a mask"
        ),
        pytest.param(
            [on("aten::nonzero", MASK), *[on("aten::reshape", PLACES)] * 2], (MASK,),
            id="a mask is what was given",
        ),
        pytest.param(
            [on("aten::nonzero", MASK), *[on("aten::reshape", PLACES)] * 3], (),
            id="a mask beside an index",
        ),
        pytest.param([on("aten::reshape", WEIGHTS)], (), id="no index"),
    ],
)  # fmt: skip
def test_the_ops_inside_tell_the_indices(others: list[OpCall], indices: tuple[Tensor, ...]) -> None:
    assert seen_in_views(ROWS, others).indices == indices
    assert seen_in_views(OpCall("aten::_index_put_impl_", ROWS.inputs), others).indices == indices


@pytest.mark.parametrize(
    ("after", "result"),
    [
        pytest.param(on("aten::view", bf16(1, 2, 512)), (1, 2, 512), id="kept dimensions"),
        pytest.param(on("aten::_reshape_alias", bf16(1, 1, 512)), (1, 1, 512), id="older"),
        pytest.param(on("aten::mul", bf16(1, 2, 512)), None, id="no view"),
        pytest.param(on("aten::view", bf16(2, 512)), None, id="another rank"),
        pytest.param(on("aten::view", bf16(1, 4, 512)), None, id="another shape"),
        pytest.param(on("aten::view", bf16(256, 2, 512)), None, id="the input again"),
        pytest.param(on("aten::view", Tensor((1, 2, 512), "f32")), None, id="another type"),
        pytest.param(None, None, id="nothing"),
    ],
)
def test_a_view_right_after_tells_what_a_reduction_kept(
    after: OpCall | None, result: tuple[int, ...] | None
) -> None:
    found = seen_in_views(SUM, [], after).output

    assert (found and found.shape) == result


def test_a_gather_of_whole_matrices_moves_each_matrix_for_each_row() -> None:
    """512 rows each take one of 8 expert matrices of 1 MiB: they are read at most 8 times."""
    evidence = seen_in_views(ROWS, [inside(WEIGHTS, [512, 512, 1024], [0, 1024, 1])])

    found = estimate(ROWS, evidence)

    assert found.cost is not None
    assert found.cost.bytes_written == 512 * 2**20
    assert found.cost.bytes_read == 8 * 2**20
    assert found.cost.bytes_hi is not None
    assert found.cost.bytes_hi >= 2 * 512 * 2**20
