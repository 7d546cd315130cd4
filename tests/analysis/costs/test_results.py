from __future__ import annotations

import pytest

from pyprof2.analysis.costs import estimate, result_inside
from pyprof2.signatures import Input, OpCall, Scalar, Tensor


def bf16(*shape: int) -> Tensor:
    return Tensor(shape, "bf16")


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
    assert result_inside(call, views) == result


def test_a_gather_of_whole_matrices_moves_each_matrix_for_each_row() -> None:
    """512 rows each take one of 8 expert matrices of 1 MiB: they are read at most 8 times."""
    result = result_inside(ROWS, [inside(WEIGHTS, [512, 512, 1024], [0, 1024, 1])])

    found = estimate(ROWS, output=result)

    assert found.cost is not None
    assert found.cost.bytes_written == 512 * 2**20
    assert found.cost.bytes_read == 8 * 2**20
    assert found.cost.bytes_hi is not None
    assert found.cost.bytes_hi >= 2 * 512 * 2**20
