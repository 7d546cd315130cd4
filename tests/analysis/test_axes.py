"""Axes that are given by name: each known, and named once."""

from __future__ import annotations

import pytest

import pyprof2
from pyprof2.analysis.axes import check_known_once
from pyprof2.errors import UsageError


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["op", "colour"], "no axis 'colour' of idle time; there are op, layer"),
        (
            ["layr"],
            "no axis 'layr' of idle time; did you mean layer? there are op, layer",
        ),
        (["layer", "op", "layer"], "axis 'layer' is named twice; name it once"),
    ],
)
def test_the_wrong_axis_is_named(axes: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_known_once(axes, ("op", "layer"), "of idle time")

    assert str(raised.value) == message


def test_axes_may_come_in_any_order_or_not_at_all() -> None:
    check_known_once(["layer", "op"], ("op", "layer"), "of idle time")
    check_known_once([], ("op", "layer"), "of idle time")


@pytest.mark.parametrize("by", [("op", "op"), "kernel"])
def test_a_comparison_refuses_axes_before_it_reads(by: str | tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"axis 'op' is named twice|no axis 'kernel' of a comp"):
        pyprof2.compare("not there", "nor there", by=by)
