"""The guard of order: it must fit, and better than if all nodes were moved by one, two or three."""

from __future__ import annotations

import numpy as np
import pytest

from pyprof2.analysis.graphs.choice import SHIFTS, Guard


@pytest.mark.parametrize(
    ("own", "moved", "accepted"),
    [
        pytest.param(20, 0, True, id="all fit"),
        pytest.param(10, 8, True, id="half of them"),
        pytest.param(9, 0, False, id="fewer"),
        pytest.param(20, 20, False, id="moved as well"),
        pytest.param(20, 19, True, id="moved a little worse"),
        pytest.param(12, 13, False, id="moved better"),
    ],
)
def test_the_order_is_accepted_where_it_fits_best(
    own: int,
    moved: int,
    accepted: bool,  # noqa: FBT001
) -> None:
    for place in range(len(SHIFTS)):
        shifted = [[0, 20] for _ in SHIFTS]
        shifted[place] = [moved, 20]

        assert Guard.accepts(np.array([[own, 20], *shifted])) == accepted
