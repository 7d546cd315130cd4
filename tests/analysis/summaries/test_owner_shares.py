"""The time of kernels of several is shared by bytes, to the nanosecond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from pyprof2.analysis.axes import join_owners
from pyprof2.analysis.summaries.owner_shares import owner_shares

if TYPE_CHECKING:
    from collections.abc import Sequence


def shares(
    kernels: Sequence[tuple[str | None, list[str], int]],
    parts: Sequence[tuple[int, str | None, int | None]],
    depth: int | None = None,
) -> dict[str, int]:
    """Return the shares of layers: of kernels by one layer, several, time; of parts by kernel."""
    rows = pd.DataFrame(
        [
            {"rank": 0, "kernel_id": at, "dur_ns": time, "layer": one,
             "shared_layer": join_owners(several)}
            for at, (one, several, time) in enumerate(kernels)
        ]
    )  # fmt: skip
    columns: Any = zip(*parts, strict=True)
    names = ("kernel_id", "layer", "bytes")
    table = pd.DataFrame(dict(zip(names, columns, strict=True))).assign(rank=0)
    return dict(owner_shares(rows, table, "layer", depth, fold_numbers=False))


def test_a_kernel_is_shared_by_bytes_and_the_rest_of_a_nanosecond_is_somebodys() -> None:
    found = shares([(None, ["a", "b"], 101), ("a", [], 7)], [(0, "a", 30), (0, "b", 10)])

    assert found == {"a": 76 + 7, "b": 25}


def test_parts_of_one_owner_are_one_and_those_of_nobody_none() -> None:
    found = shares(
        [(None, ["a", "b"], 90)], [(0, "a", 10), (0, "a", 20), (0, "b", 15), (0, None, 99)]
    )

    assert found == {"a": 60, "b": 30}


def test_what_has_unknown_bytes_stays_with_all_of_them() -> None:
    kernels = [(None, ["a", "b"], 90), (None, ["b", "a"], 10), (None, [], 5)]
    found = shares(kernels, [(0, "a", 10), (0, "b", None), (1, "a", 0), (1, "b", 0)])

    assert found == {"(shared: a, b)": 100, "(none)": 5}


def test_layers_that_are_one_at_a_depth_have_it_all() -> None:
    found = shares([(None, ["m.a", "m.b"], 90)], [(0, "m.a", 1), (0, "m.b", 2)], depth=1)

    assert found == {"m": 90}
