"""Where ops were called is read beside them, and not believed where it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2 import problems
from pyprof2.markers import MEMBER, OpPlace, PlacesById, format_places, parse_places
from tests.kineto_events import load_events, node, op, read, trace

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

MM: Final = OpPlace("aten::mm", "blocks.0", "net", outermost=False, source="lib.py:3\nmodel.py:7")
ADD: Final = OpPlace("aten::add", "net", "net", outermost=True, source="model.py:9")


def table(*rows: tuple[int, OpPlace], by: Any = "record_function_id") -> PlacesById:
    places = list(dict.fromkeys(place for _, place in rows))
    numbers = [places.index(place) for _, place in rows]
    ids = np.array([number for number, _ in rows], np.int64)
    return PlacesById(by, ids, np.array(numbers, np.int64), places)


def member(*rows: tuple[int, OpPlace], **options: Any) -> dict[str, Any]:
    return {MEMBER: msgspec.Raw(format_places(table(*rows, **options)).encode())}


def noted(name: str, ts: int, dur: int, record: int, **args: Any) -> Any:
    return op(name, ts, dur, **{"Record function id": record}, **args)


def found(run: Run, *columns: str) -> list[tuple[Any, ...]]:
    rows = run.ops[list(columns)].astype(object)
    return [tuple(row) for row in rows.where(rows.notna(), None).to_numpy().tolist()]


COLUMNS: Final = ("op", "layer", "source", "library_source", "source_evidence")


def test_an_op_has_the_place_of_its_id(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, noted("aten::mm", 0, 5, 7), noted("aten::add", 10, 5, 9),
        noted("aten::sub", 20, 5, 11), **member((7, MM), (9, ADD)),
    )  # fmt: skip

    assert found(run, *COLUMNS) == [
        ("aten::mm", "blocks.0", "lib.py:3", "lib.py:3", "record_function_id"),
        ("aten::add", "net", "model.py:9", "model.py:9", "record_function_id"),
        ("aten::sub", None, None, None, None),
    ]


def test_ops_around_and_inside_have_the_place_of_the_one_that_has_one(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        noted("aten::linear", 0, 20, 1),
        noted("aten::t", 1, 2, 2),
        noted("aten::mm", 4, 10, 3), noted("aten::empty", 5, 1, 4),
        noted("aten::add", 15, 2, 5),
        **member((3, MM), (5, ADD)),
    )  # fmt: skip

    assert found(run, "op", "layer", "source_evidence") == [
        ("aten::linear", "blocks.0", "inside"),
        ("aten::t", "blocks.0", "around"),
        ("aten::mm", "blocks.0", "record_function_id"),
        ("aten::empty", "blocks.0", "around"),
        ("aten::add", "net", "record_function_id"),
    ]


def test_backward_that_has_no_forward_op_has_a_place_all_the_same(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        node("MmBackward0", 0, 20, seq=5),
        noted("aten::mm", 1, 5, 3, tid=102),
        **member((3, MM)),
    )

    assert found(run, "op", "direction", "layer", "source_evidence") == [
        ("MmBackward0", "backward", None, None),
        ("aten::mm", "backward", "blocks.0", "record_function_id"),
    ]


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([noted("aten::mm", 0, 5, 7), noted("aten::mm", 10, 5, 7)], problems.PLACES_DOUBLE),
        ([noted("aten::add", 0, 5, 7)], problems.PLACE_OF_OTHER),
    ],
    ids=["twice", "of another op"],
)
def test_an_id_that_may_mean_another_op_is_not_used(
    events: list[Any], problem: str, tmp_path: Path
) -> None:
    path = trace(tmp_path, *events, noted("aten::add", 30, 5, 9), **member((7, MM), (9, ADD)))
    recording = read(path)

    assert recording.problems == {problem: 1}
    assert recording.places is not None
    assert recording.places.ids.tolist() == [9]
    assert found(load_events(tmp_path, *events, **member((7, MM))), "layer")[0] == (None,)


def test_an_id_that_stands_twice_in_the_rows_is_not_used(tmp_path: Path) -> None:
    recording = read(trace(tmp_path, noted("aten::mm", 0, 5, 7), **member((7, MM), (7, MM))))

    assert recording.problems == {problems.PLACES_DOUBLE: 1}
    assert recording.places is not None
    assert not len(recording.places.ids)


def test_ids_of_ops_that_are_not_there_are_counted(tmp_path: Path) -> None:
    recording = read(trace(tmp_path, noted("aten::mm", 0, 5, 7), **member((7, MM), (9, ADD))))

    assert recording.skipped[problems.PLACES_LOST] == 1
    assert not recording.problems


def test_an_op_without_an_id_has_no_place(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, noted("aten::mm", 0, 5, 0), op("aten::mm", 10, 5), **member((7, MM))
    )

    assert found(run, "layer") == [(None,), (None,)]


def test_lines_of_frames_are_not_used_where_places_are_made_of_them(tmp_path: Path) -> None:
    from tests.kineto_events import frame

    run = load_events(
        tmp_path,
        frame("model.py(4): forward", 0, 40),
        op("aten::mm", 1, 5, id=3), op("aten::mul", 10, 5, id=4),
        **member((3, MM), by="external_id"),
    )  # fmt: skip

    assert found(run, "op", "source", "source_evidence") == [
        ("aten::mm", "lib.py:3", "external_id"),
        ("aten::mul", None, None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "7", "{}", '{"pyprof2":2,"by":"record_function_id","ids":[],"rows":[],"places":[]}',
        '{"pyprof2":1,"by":"name","ids":[],"rows":[],"places":[]}',
        '{"pyprof2":1,"by":"external_id","ids":[1],"rows":[0],"places":[]}',
        '{"pyprof2":1,"by":"external_id","ids":[1,2],"rows":[0],"places":[["a",null,null,false,null]]}',
        '{"pyprof2":1,"by":"external_id","ids":[-1],"rows":[0],"places":[["a",null,null,false,null]]}',
        '{"pyprof2":1,"by":"external_id","ids":[%d,%d,9],"rows":[0,0,0],"places":[["",null,null,false,null]]}'
        .replace("%d", str((1 << 62) - 1)),
    ],
)  # fmt: skip
def test_a_member_of_another_form_is_not_used(text: str, tmp_path: Path) -> None:
    assert parse_places(text.encode()) is None
    recording = read(
        trace(tmp_path, noted("aten::mm", 0, 5, 1), **{MEMBER: msgspec.Raw(text.encode())})
    )

    assert recording.problems == {problems.METADATA_WRONG: 1}
    assert recording.places is None


texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
places = st.builds(
    OpPlace, st.text(st.characters(exclude_categories=["Cs"])), texts, texts, st.booleans(), texts
)


@given(st.lists(st.tuples(st.integers(1, 1 << 50), places)))
def test_what_is_written_is_what_is_read(rows: list[tuple[int, OpPlace]]) -> None:
    written = table(*sorted(rows, key=lambda row: row[0]))
    text = format_places(written)
    again = parse_places(text.encode())

    # Kineto copies it as it is, but for what it takes for an escape.
    assert "\\" not in text
    assert text.isascii()
    assert again is not None
    assert again.ids.tolist() == written.ids.tolist()
    assert again.rows.tolist() == written.rows.tolist()
    assert list(again.places) == list(written.places)


def test_the_frames_of_a_slow_reader_agree(tmp_path: Path) -> None:
    """Each op of a random tree has the place of the nearest around, else of the first inside."""
    random = np.random.default_rng(0)
    events: list[tuple[str, int, int, int]] = []

    def add(begin: int, end: int, depth: int) -> None:
        at = begin
        while end - at > 4 and depth < 5:
            stop = int(random.integers(at + 3, end))
            events.append(("aten::mm", at, stop, len(events) + 1))
            add(at + 1, stop - 1, depth + 1)
            at = stop + 1

    add(0, 2000, 0)
    placed = {number for *_, number in events if random.random() < 0.15}
    own = {
        number: OpPlace("aten::mm", None, None, outermost=False, source=f"model.py:{number}")
        for number in placed
    }
    run = load_events(
        tmp_path,
        *(noted(name, begin, end - begin, number) for name, begin, end, number in events),
        **member(*sorted(own.items())),
    )

    expected = []
    for _, begin, end, number in events:
        inside = [e for e in events if begin <= e[1] and e[2] <= end and e[3] in placed]
        around = [e for e in events if e[1] <= begin and end <= e[2]]
        # From the op itself outwards: its own place, that of one around, or the first in one.
        line = None
        if number in placed:
            line = number
        elif above := [e for e in around if e[3] in placed]:
            line = max(above, key=lambda e: e[1])[3]
        elif inside:
            line = min(inside, key=lambda e: e[1])[3]
        else:
            for outer in sorted(around, key=lambda e: -e[1]):
                within = [
                    e for e in events if outer[1] <= e[1] and e[2] <= outer[2] and e[3] in placed
                ]
                if within:
                    line = min(within, key=lambda e: e[1])[3]
                    break
        expected.append(None if line is None else f"model.py:{line}")
    lines = run.ops["source"]
    assert [None if pd.isna(line) else line for line in lines] == expected
    assert 0 < sum(line is not None for line in expected) < len(events)
