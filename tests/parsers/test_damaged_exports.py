"""Damaged exports give a result, or one clear line; `make fuzz` runs many more of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.api import run_profile
from pyprof2.api.run import load
from pyprof2.errors import TraceError
from tests.mutate_sqlite import mutate, read_bases

if TYPE_CHECKING:
    from pathlib import Path

SEEDS: Final = range(20)


@pytest.fixture(scope="module")
def bases() -> list[bytes]:
    """Return the exports that are damaged."""
    return read_bases()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_export_is_read_or_refused_in_one_line(
    tmp_path: Path, bases: list[bytes], seed: int
) -> None:
    mutant = mutate(seed, bases)
    path = tmp_path / "x.sqlite"
    path.write_bytes(mutant.content)
    try:
        run = load(path)
    except TraceError as error:
        line = str(error)
        assert line.startswith(f"{path}: ")
        assert line.isprintable()
    else:
        assert len(run_profile.rows_of(run.tables)) >= 0
        assert len(run.check()) > 0
    assert path.read_bytes() == mutant.content
    assert [file.name for file in tmp_path.iterdir()] == ["x.sqlite"]


def test_a_seed_always_gives_the_same_damage(bases: list[bytes]) -> None:
    assert [mutate(seed, bases) for seed in SEEDS] == [mutate(seed, bases) for seed in SEEDS]


def test_undamaged_bases_are_read(tmp_path: Path, bases: list[bytes]) -> None:
    for number, content in enumerate(bases):
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(content)

        assert len(load(path).ops) == (30, 80)[number]
