"""Raw tables go to disk in parts and come back whole."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from pyprof2.recording import RAW_SCHEMAS, Spool, TextCodes, code_column, int_column

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


def add(spool: Spool, names: list[str | None], starts: list[int | None]) -> None:
    codes = spool.texts["launches"]["name"]
    column = [None if name is None else codes[name] for name in names]
    spool.append("launches", {"name": column, "start_ns": starts}, len(names))


def test_parts_come_back_in_order_with_null_for_what_was_not_given(spool: Spool) -> None:
    add(spool, ["a", "b"], [5, None])
    add(spool, ["b", None], [2**62 + 1, 7])
    spool.finish()

    table = spool.read("launches", ["start_ns", "name", "tid"])

    assert table.to_pydict() == {
        "start_ns": [5, None, 2**62 + 1, 7], "name": ["a", "b", "b", None], "tid": [None] * 4,
    }  # fmt: skip


def test_texts_that_came_later_are_known_to_earlier_parts(spool: Spool) -> None:
    add(spool, ["a"], [1])
    add(spool, ["b"], [2])
    spool.finish()

    codes, words = code_column(spool.read("launches"), "name")

    assert [words[code] for code in codes] == ["a", "b"]


@pytest.mark.parametrize("table", RAW_SCHEMAS)
def test_a_table_without_rows_has_its_columns(spool: Spool, table: str) -> None:
    spool.append(table, {}, 0)
    spool.finish()

    assert spool.read(table).schema.equals(RAW_SCHEMAS[table])
    assert spool.read(table).num_rows == 0


def test_a_spool_that_is_finished_goes_to_another_process(spool: Spool) -> None:
    add(spool, ["a"], [1])
    spool.finish()

    other = pickle.loads(pickle.dumps(spool))  # noqa: S301  (our own)

    assert other.read("launches", ["name"]).to_pydict() == {"name": ["a"]}


def test_null_becomes_the_stand_in(spool: Spool) -> None:
    add(spool, [None, "a"], [None, 3])
    spool.finish()
    table = spool.read("launches")

    assert int_column(table, "start_ns", -7).tolist() == [-7, 3]
    assert code_column(table, "name")[0].tolist() == [-1, 0]


def test_a_new_key_gets_the_next_code() -> None:
    codes = TextCodes()

    assert [codes[key] for key in ("a", "b", "a", ("c", 1))] == [0, 1, 0, 2]
