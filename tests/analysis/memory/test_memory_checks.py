"""Checks of what a program tagged, memory of inference, and settings for fragmentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyprof2.analysis.memory.curves import curves_of_rank
from pyprof2.analysis.memory.profile import MemoryProfile
from tests.builders import canonical

_ON: dict[str, Any] = {"device_type": "cuda", "device": 0}


def _profile(rows: list[dict[str, Any]], tags: list[dict[str, Any]]) -> MemoryProfile:
    default = _ON | {"pid": 1, "tid": 1}
    table = canonical(
        "memory", *({"time_ns": 10 * at} | default | row for at, row in enumerate(rows))
    )
    told = canonical("memory_tags", *({"rank": 0, "time_ns": 1000} | tag for tag in tags))
    return MemoryProfile(Path("x"), list(curves_of_rank([table], told, 0)), tags=told)


def _held(**sizes: int) -> MemoryProfile:
    """Return a profile after a step of Adam in which each category is one block of a size."""
    rows = [{"address": at, "bytes": size} for at, size in enumerate(sizes.values())]
    tags: list[dict[str, Any]] = [
        _ON | {"moment": "optimizer", "category": name, "address": at, "bytes": size}
        for at, (name, size) in enumerate(sizes.items())
    ]
    return _profile(rows, [{"moment": "optimizer", "name": "Adam"}, *tags])


@pytest.mark.parametrize(
    ("gradient", "state", "words"),
    [
        pytest.param(100, 204, [], id="as it should be"),
        pytest.param(99, 204, [], id="a parameter without a gradient"),
        pytest.param(101, 204, ["gradients take 101 B, parameters 100 B"], id="gradients"),
        pytest.param(
            100, 200, [("the optimizer's state takes 200 B, two numbers for each parameter and a "
                       "count take 204 B")], id="state",
        ),
        pytest.param(101, 104, ["gradients take", "the optimizer's state takes 104 B"], id="both"),
    ],
)  # fmt: skip
def test_gradients_above_parameters_and_a_state_that_is_not_adams_are_noted(
    gradient: int, state: int, words: list[str]
) -> None:
    # One parameter tensor of 100 B: Adam keeps 2 · 100 + 4.
    notes = _held(parameter=100, gradient=gradient, optimizer_state=state).notes_of(0)

    assert len(notes) == len(words)
    assert all(note.startswith(start) for note, start in zip(notes, words, strict=True))


def test_a_state_of_another_optimizer_is_not_measured_by_adam() -> None:
    profile = _held(parameter=100, gradient=100, optimizer_state=100)
    names = profile.tags
    assert names is not None
    place = names.column_names.index("name")
    plain = names.set_column(place, names.field(place), _of_sgd(names))

    assert MemoryProfile(Path("x"), profile.curves, tags=plain).notes_of(0) == []
    assert len(profile.notes_of(0)) == 1


def _of_sgd(tags: Any) -> Any:
    import pyarrow as pa

    names = ["SGD" if name == "Adam" else name for name in tags["name"].to_pylist()]
    return pa.array(names).dictionary_encode().cast(tags["name"].type)


def test_in_inference_a_cache_is_what_lives_on_and_nothing_is_an_activation() -> None:
    forward = {"phase": "forward", "op": "aten::cat"}
    rows: list[dict[str, Any]] = []
    # Each token's keys and values, 64 B, stay; 16 B of scores are gone with the token.
    for token in range(4):
        own = forward | {"step": token}
        rows += [
            own | {"address": 100 + token, "bytes": 64, "source": "cache.py:7"},
            own | {"address": 7, "bytes": 16, "source": "model.py:3"},
            own | {"address": 7, "bytes": -16},
        ]

    profile = _profile(rows, [])
    found = profile.rows(["category", "line"], "peak")

    assert {tuple(row) for row in found[["category", "line", "bytes"]].to_numpy().tolist()} == {
        ("output", "cache.py:7", 4 * 64), ("temporary", "model.py:3", 16),
    }  # fmt: skip
    assert profile.retained(0) is None
