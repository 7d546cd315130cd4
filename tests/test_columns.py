"""Columns of codes and of numbers with a stand-in for null."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pyprof2.columns import (
    as_pandas,
    as_text,
    combinations,
    combine_keys,
    distinct,
    groups_of,
    int_array,
    join_rows,
    lookup,
    merge_texts,
    row_of,
    text_array,
    with_text,
)


def texts(codes: list[int], words: list[str | None]) -> list[str | None]:
    found: list[str | None] = text_array((np.array(codes, np.int64), words)).to_pylist()
    return found


@pytest.mark.parametrize(
    ("codes", "words", "wanted"),
    [
        pytest.param([1, 0, -1], ["a", "b"], ["b", "a", None], id="codes"),
        pytest.param([0, 1], ["a", None], ["a", None], id="a text that is null"),
        pytest.param([0, 1], ["a", ""], ["a", None], id="an empty text"),
        pytest.param([0, 1], ["a", "a"], ["a", "a"], id="equal texts"),
        pytest.param([-1, -1], ["a"], [None, None], id="all null"),
        pytest.param([], ["a"], [], id="no rows"),
        pytest.param([], [], [], id="nothing"),
    ],
)
def test_codes_become_texts(
    codes: list[int], words: list[str | None], wanted: list[str | None]
) -> None:
    assert texts(codes, words) == wanted


@pytest.mark.parametrize("values", [1, 3, 40, 3000])
@pytest.mark.parametrize("step", [1, 1 << 55])
def test_distinct_values_are_those_of_numpy(values: int, step: int) -> None:
    column = step * np.random.default_rng(0).integers(-values, values, 3000)
    wanted, place = np.unique(column, return_inverse=True)

    found = distinct(column)

    assert np.array_equal(found[0], wanted)
    assert np.array_equal(found[1], place)


def test_a_text_column_holds_each_text_once_and_none_that_is_not_used() -> None:
    column = text_array((np.array([3, 1, 3]), ["unused", "a", "unused too", "a"]))

    assert column.dictionary.to_pylist() == ["a"]


def test_the_stand_in_becomes_null() -> None:
    column = int_array(np.array([5, -1, 1 << 62]), -1)

    assert column.to_pylist() == [5, None, 1 << 62]
    assert column.type == pa.int64()


@pytest.mark.parametrize(("values", "wanted"), [([7, 8], [8, -9, 7]), ([], [-9, -9, -9])])
def test_positions_that_are_none_give_the_stand_in(values: list[int], wanted: list[int]) -> None:
    at = np.array([1, -1, 0])

    assert lookup(np.array(values, np.int64), at, -9).tolist() == wanted


def test_the_second_column_fills_what_the_first_lacks() -> None:
    first = np.array([0, -1, -1]), ["a"]
    second = np.array([1, 0, -1]), ["x", "y"]

    assert text_array(merge_texts(first, second)).to_pylist() == ["a", "x", None]


def test_whole_numbers_stay_whole_in_pandas() -> None:
    table = pa.table(
        {
            "key": pa.array([2**62 + 1]), "maybe": pa.array([None], pa.int64()),
            "flag": pa.array([None], pa.bool_()), "share": pa.array([0.5]),
            "text": pa.array(["a"]).dictionary_encode(),
        }
    )  # fmt: skip

    found = as_pandas(table, ["key"])

    kinds = {name: str(kind) for name, kind in found.dtypes.items()}
    assert kinds == {
        "key": "int64", "maybe": "Int64", "flag": "boolean", "share": "float64",
        "text": "category",
    }  # fmt: skip
    assert found["key"].tolist() == [2**62 + 1]


@pytest.mark.parametrize(
    "key",
    [
        pytest.param([5, -3, 5, 1 << 61, -3], id="unsorted"),
        pytest.param([1, 2, 3], id="all apart"),
        pytest.param([4, 4], id="all equal"),
        pytest.param([], id="none"),
    ],
)
def test_groups_are_those_that_sorting_finds(key: list[int]) -> None:
    rows = np.array(key, np.int64)

    first, group = groups_of(rows)

    _, wanted_first, wanted_group = np.unique(rows, return_index=True, return_inverse=True)
    assert first.tolist() == wanted_first.tolist()
    assert group.tolist() == wanted_group.tolist()


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param([[3, 1, 3, 1, 2], [0, 0, 0, 1, 0]], id="some equal"),
        pytest.param([[-(1 << 62), 1 << 61, -(1 << 62)], [1 << 40, 0, 1 << 40]], id="far apart"),
        pytest.param([[0, 1 << 24, 0], [0, 0, (1 << 40) - 1]], id="together more than 64 bits"),
        pytest.param([[7, 7, 7]], id="all equal"),
        pytest.param([[], []], id="none"),
    ],
)
def test_combinations_are_numbered_as_they_come(columns: list[list[int]]) -> None:
    rows = [*zip(*columns, strict=True)]
    known = [*dict.fromkeys(rows)]

    first, place = combinations([np.array(column, np.int64) for column in columns])

    assert place.tolist() == [known.index(row) for row in rows]
    assert first.tolist() == [rows.index(each) for each in known]


def test_combinations_of_codes_of_one_byte_do_not_wrap() -> None:
    columns = [np.array(each, np.int8) for each in ([0, 1, 0, 1], [-100, 99, 27, 83])]

    assert combinations(columns)[1].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_keys_of_several_columns_sort_as_the_columns_do(seed: int) -> None:
    draw = np.random.default_rng(seed)
    kinds: list[tuple[int, int]] = [(0, 3), (-1, 40), (5, 6), (10**12, 10**12 + 2), (0, 10**9)]
    columns = [
        np.where(
            draw.random(50) < 0.2, -(1 << 62), draw.integers(kinds[kind][0], kinds[kind][1], 50)
        )
        if seed % 2
        else draw.integers(kinds[kind][0], kinds[kind][1], 50)
        for kind in draw.integers(0, len(kinds), 4)
    ]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    place = {key: at for at, key in enumerate(sorted({*rows}))}

    assert combine_keys(*columns).tolist() == [place[key] for key in rows]
    for column in columns:
        values, inverse = distinct(column)
        assert values.tolist() == sorted({*column.tolist()})
        assert values[inverse].tolist() == column.tolist()


@pytest.mark.parametrize("ids", [[0, 1, 2, 3], [0, 2, 3], [1, 2, 3], [0, 0, 2], []])
def test_the_row_of_an_id_is_where_it_stands(ids: list[int]) -> None:
    wanted = [3, -1, 0, 9, 1]

    found = row_of(np.array(ids, np.int64), np.array(wanted)).tolist()

    assert found == [ids.index(each) if each in ids else -1 for each in wanted]


@pytest.mark.parametrize("most", [3, 1 << 40, 1 << 62])
@pytest.mark.parametrize("rows", [0, 1, 50])
def test_the_first_row_of_each_key_and_the_key_of_each_row_are_as_they_come(
    most: int, rows: int
) -> None:
    draw = np.random.default_rng(rows)
    few = np.array([-most, -1, 0, most])
    keys = [
        few[draw.integers(0, 4, rows)],
        few[draw.integers(1, 3, rows)],
        few[draw.integers(0, 3, rows)],
    ]

    first, place = combinations(keys)

    seen: dict[tuple[int, ...], int] = {}
    every = zip(*(key.tolist() for key in keys), strict=True)
    wanted = [seen.setdefault(key, len(seen)) for key in every]
    assert place.tolist() == wanted
    assert first.tolist() == [wanted.index(number) for number in range(len(seen))]


@pytest.mark.parametrize("kind", ["category", object])
def test_what_is_missing_is_no_text(kind: str | type) -> None:
    words = as_text(pd.Series(["nan", None, "b"], dtype=kind))

    assert (words[0], words[2], words.isna().tolist()) == ("nan", "b", [False, True, False])
    assert words.dtype == pd.Series(["a"]).dtype


@pytest.mark.parametrize("kind", ["category", "Int64", "float64", object])
def test_columns_of_nothing_are_text_too(kind: str | type) -> None:
    for values in ([], [None, None]):
        words = as_text(pd.Series(values, dtype=kind))
        assert words.dtype == pd.Series(["a"]).dtype
        assert words.isna().all()


def test_text_of_numbers_is_theirs_and_other_columns_stay() -> None:
    rows = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1, 2]})

    made = with_text(rows, ["a"])

    assert made.fillna({"a": "-"}).to_dict("list") == {"a": ["1", "-"], "b": [1, 2]}


def test_rows_are_joined_whatever_categories_they_have() -> None:
    first = pd.DataFrame({"kind": pd.Categorical(["a", None]), "n": pd.array([1, 2], "Int64")})
    other = pd.DataFrame({"kind": pd.Categorical([None, "b"]), "n": pd.array([3, None], "Int64")})
    none = first.iloc[:0].assign(kind=pd.Categorical([]))

    mixed, same = join_rows([first, none, other]), join_rows([first, first])

    assert mixed["kind"].dropna().tolist() == ["a", "b"]
    assert mixed["kind"].dtype == pd.Series(["a"]).dtype
    assert (str(same["kind"].dtype), str(mixed["n"].dtype)) == ("category", "Int64")
