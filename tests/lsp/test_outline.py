"""Numbers follow edits: fresh, stale, or gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyprof2.frames import line_hashes
from pyprof2.lsp.analysis import anchors, outline, parsed, split_hashes
from pyprof2.lsp.positions import Text

CODE = """import torch


def one(x):
    y = first(x)
    return second(y)


def two(x):
    return third(x)
"""


def found(now: str, before: str | None = CODE) -> dict[int, tuple[int, bool]]:
    """Return by recorded line, from 1, where it is now and whether it is fresh."""
    tree = parsed(now)
    scopes = None if tree is None else outline(tree)
    old = None if before is None else Text(before)
    places = anchors(split_hashes(line_hashes(CODE)), Text(now), scopes, old)
    return {p.recorded + 1: (p.now + 1, p.is_fresh) for p in places}


def test_in_the_recorded_text_every_line_is_fresh_where_it_is() -> None:
    assert found(CODE) == {line: (line, True) for line in range(1, 12)}


def test_lines_move_with_what_is_put_above_them_and_stay_fresh() -> None:
    moved = found("# one\n# two\n" + CODE)

    assert (moved[5], moved[10]) == ((7, True), (12, True))


def test_a_changed_function_is_stale_and_the_other_stays_fresh() -> None:
    now = found(CODE.replace("    return second(y)", "    y = more(y)\n    return second(y)"))

    assert (now[5], now[6], now[10]) == ((5, False), (7, False), (11, True))


def test_a_line_that_is_gone_has_no_number() -> None:
    assert 5 not in found(CODE.replace("    y = first(x)\n", ""))


def test_a_line_with_nearly_the_same_words_is_stale_and_another_is_gone() -> None:
    alike = found(CODE.replace("first(x)", "first(x, 2)"))
    other = found(CODE.replace("y = first(x)", "assert x.shape == (3, 4)"))

    assert alike[5] == (5, False)
    assert 5 not in other


def test_without_the_recorded_text_a_changed_line_is_gone() -> None:
    assert 5 not in found(CODE.replace("first(x)", "first(x, 2)"), before=None)


def test_of_a_half_typed_file_all_that_is_left_is_stale() -> None:
    now = found(CODE.replace("return third(x)", "return third("))

    assert now[5] == (5, False)


def test_blanks_at_the_ends_of_lines_and_other_line_ends_change_nothing() -> None:
    assert found(CODE.replace("\n", "  \r\n")) == found(CODE)


@given(st.lists(st.integers(0, 10), max_size=4), st.integers(0, 10))
def test_a_recorded_line_is_only_where_the_same_line_is(gone: list[int], more: int) -> None:
    lines = [line for at, line in enumerate(CODE.split("\n")) if at not in gone]
    lines.insert(more % (len(lines) + 1), "z = 1")

    for recorded, (now, _) in found("\n".join(lines), before=None).items():
        assert lines[now - 1].strip() == CODE.split("\n")[recorded - 1].strip()
