"""Sums along an axis against a slow count of the same rows, one after another."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from tests.builders import profile_rows, summarized, total_of


def _made(seed: int, count: int = 400) -> list[dict[str, Any]]:
    rng = random.Random(seed)  # noqa: S311 - rows, not secrets
    return [
        {
            "rank": rng.choice((0, 1, 70_000)),
            "op": rng.choice(("a", "b", None)),
            "op_id": rng.choice((None, 0, 1, 2, 1 << 30)),
            "step": rng.choice((None, 0, 4)),
            "dur_ns": rng.randrange(1000),
            "flops": rng.choice((None, 0, (1 << 53) + rng.randrange(9))),
            "bytes": rng.choice((None, rng.randrange(1 << 40))),
        }
        for _ in range(count)
    ]


def _counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a person would count."""
    times = [row["dur_ns"] for row in rows]
    known = [row["flops"] for row in rows if row["flops"] is not None]
    return {
        "count": len(rows),
        "op_calls": len({(r["rank"], r["op_id"]) for r in rows if r["op_id"] is not None}),
        "time_ns": sum(times),
        "min_ns": min(times),
        "max_ns": max(times),
        "flops": sum(known) if known else None,
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("by", [["op"], ["step", "op"], ["rank", "step"]], ids=",".join)
def test_each_key_has_the_sums_of_its_rows(seed: int, by: list[str]) -> None:
    rows = _made(seed)
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[tuple("(none)" if row[n] is None and n == "op" else row[n] for n in by)].append(row)

    found = summarized(profile_rows(*rows), by).astype(object)
    found = found.where(found.notna(), None)

    assert {
        tuple(r[n] for n in by): {name: r[name] for name in _counted(rows)}
        for r in found.to_dict("records")
    } == {key: _counted(own) for key, own in groups.items()}


def test_the_total_counts_each_op_call_once_across_ranks_far_apart() -> None:
    rows = _made(9)

    total = total_of(profile_rows(*rows))

    assert {name: total[name] for name in _counted(rows)} == _counted(rows)
