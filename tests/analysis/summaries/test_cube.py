"""The cube: its sets against sets of Python's own, and what folding must keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.summaries.cube import (
    KEYS,
    OTHER_STEPS,
    SMALL,
    Cube,
    cube,
)
from pyprof2.analysis.summaries.sets import Sets, distinct_sets
from tests.builders import profile_rows, sums_of


def members(sets: Sets) -> list[set[int]]:
    ends = zip(sets.first[:-1], sets.first[1:], strict=True)
    return [set(sets.rows[begin:end].tolist()) for begin, end in ends]


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), max_size=12))
def test_owners_of_the_same_members_share_a_set(owned: list[list[int]]) -> None:
    pairs = [(owner, member) for owner, own in enumerate(owned) for member in own]
    owner, member = (np.array(c, np.int64) for c in zip(*pairs, strict=True)) if pairs else (
        np.zeros(0, np.int64), np.zeros(0, np.int64))  # fmt: skip

    sets, which = distinct_sets(owner, member)

    made = members(sets)
    assert [made[at] for at in which.tolist()] == [set(own) for own in owned]
    assert len(made) == len({frozenset(each) for each in made})


def many_rows(steps: int = 20, ops: int = 30) -> pd.DataFrame:
    """Return rows of several ranks, steps and ops, each time another number."""
    return profile_rows(
        *(
            {
                "rank": rank, "step": step, "op": f"op{op}", "op_id": step * ops + op,
                "kernel": f"k{op}", "direction": "forward" if op % 2 else "backward",
                "category": "matmul" if op % 3 else "norm", "dur_ns": 1 + rank + 3 * step + 7 * op,
                "flops": 10 * op, "bytes": 5, "cost_status": "ok", "tensor_core": "no",
            }
            for rank in (0, 1)
            for step in range(steps)
            for op in range(ops)
        )
    )  # fmt: skip


def by(found: Cube, *names: str) -> dict[Any, int]:
    """Return the time by keys."""
    times: dict[Any, int] = {}
    for key, time in zip(
        found.keys[list(names)].itertuples(index=False, name=None),
        found.sums["time_ns"],
        strict=True,
    ):
        times[key] = times.get(key, 0) + time
    return times


def test_what_fits_is_not_folded() -> None:
    found = cube(sums_of(many_rows(), *KEYS), 0, {0: [3], 1: [4]}, 10_000)

    assert (len(found.keys), found.others, found.small) == (1200, 0, 0)
    assert list(found.keys) == list(KEYS)


def test_too_many_steps_become_one_beside_those_that_tell() -> None:
    rows = many_rows()

    found = cube(sums_of(rows, *KEYS), 0, {0: [3], 1: [4]}, 200)

    # 19 other steps of each rank.
    assert (len(found.keys), found.others, found.small) == (120, 38, 0)
    times = by(found, "rank", "step")
    assert set(times) == {(0, 3), (0, OTHER_STEPS), (1, 4), (1, OTHER_STEPS)}
    own = rows[(rows["rank"] == 1) & (rows["step"] == 4)]
    assert times[1, 4] == own["dur_ns"].sum()
    assert sum(times.values()) == rows["dur_ns"].sum()


def test_rows_outside_of_steps_stay_outside() -> None:
    rows = many_rows(steps=3)
    rows["step"] = rows["step"].replace(2, pd.NA)

    found = cube(sums_of(rows, *KEYS), 0, {0: [0], 1: [0]}, 130)

    assert {step for _, step in by(found, "rank", "step")} == {0, None, OTHER_STEPS}


def test_too_many_groups_lose_their_names_but_neither_category_nor_direction() -> None:
    rows = many_rows()
    whole = cube(sums_of(rows, *KEYS), 0, {0: [3], 1: [4]}, 10_000)

    found = cube(sums_of(rows, *KEYS), 0, {0: [3], 1: [4]}, 60)

    assert len(found.keys) <= 60
    assert found.small == 120 - (found.keys["op"] != SMALL).sum()
    for names in (["rank"], ["category"], ["direction", "category"]):
        assert by(found, *names) == by(whole, *names)
    # The longest are still there by name.
    assert ("op29",) in by(found, "op")
    assert set(found.keys.loc[found.keys["op"] == SMALL, "kernel"]) == {SMALL}
    assert found.op_calls.sum() == 1200
    assert found.sums["flops"].sum() == rows["flops"].sum()


def test_an_op_call_of_two_kernels_is_one_call_of_both() -> None:
    first = {"op": "o", "op_id": 1, "cost_status": "ok"}
    rows = profile_rows(
        first | {"kernel": "a"}, first | {"kernel": "b"}, {"op_id": 2, "kernel": "a", "op": "o"},
        {"kernel": "c"},
    )  # fmt: skip

    found = cube(sums_of(rows, *KEYS), 0, {}, 100)

    names = found.keys["kernel"].tolist()
    calls = [frozenset(names[at] for at in each) for each in members(found.calls)]
    assert dict(zip(calls, found.op_calls.tolist(), strict=True)) == {
        frozenset("ab"): 1, frozenset("a"): 1,
    }  # fmt: skip


def test_no_rows_are_a_cube_without_rows() -> None:
    found = cube(sums_of(profile_rows({})[:0], *KEYS), 0, {}, 100)

    assert (len(found.keys), len(found.sums), found.op_calls.tolist()) == (0, 0, [])
