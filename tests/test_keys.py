"""Keys of rows: distinct values without sorting, several columns as one number."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pyprof2.columns import combine_keys, distinct, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def numbers(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([7, 5, 7, 6, 5], id="close together"),
        pytest.param([-3, -1, -3], id="below zero"),
        pytest.param([4, 4], id="one value"),
        pytest.param([1 << 40, 3, 1 << 40], id="far apart"),
        pytest.param([-(1 << 63), (1 << 63) - 1], id="the whole range"),
        pytest.param([], id="none"),
    ],
)
def test_distinct_values_are_in_order_and_give_the_rows_back(values: list[int]) -> None:
    found, place = distinct(numbers(*values))

    assert found.tolist() == sorted(set(values))
    assert [found.tolist()[at] for at in place.tolist()] == values
    assert values_of(numbers(*values)).tolist() == sorted(set(values))


COLUMNS: list[tuple[list[int], ...]] = [
    ([0, 0, 1, 1], [5, 6, 5, 5]),
    ([3, 3, 3], [1, 2, 1]),
    ([-1, 0, -1], [0, -1, -1]),
    ([0, 1 << 61, 0], [0, 1 << 61, 1 << 61]),
    ([], []),
]


@pytest.mark.parametrize("columns", COLUMNS)
def test_keys_are_equal_where_all_columns_are(columns: tuple[list[int], ...]) -> None:
    keys = combine_keys(*(numbers(*column) for column in columns)).tolist()

    rows = list(zip(*columns, strict=True))
    for (one, a), (other, b) in itertools.product(zip(rows, keys, strict=True), repeat=2):
        assert (a == b) == (one == other)
