"""Tables fit the terminal, and show nothing but text."""

from __future__ import annotations

import sys
import unicodedata

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.reports.cells import bold, clean, render, shorten, terminal_width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("void f<(int)4>", "void f<(int)4>", id="plain"),
        pytest.param("\x1b[2J", r"\x1b[2J", id="escape"),
        pytest.param("a\r\nb\tc", r"a\r\nb\tc", id="lines and tabs"),
        pytest.param("\x9b31m", r"\x9b31m", id="C1 escape"),
        pytest.param("\u202egnp", r"\u202egnp", id="right to left"),
        pytest.param("\ud800", r"\ud800", id="half a surrogate"),
        pytest.param("café 网络", "café 网络", id="letters"),
    ],
)
def test_what_a_terminal_acts_on_is_escaped(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text())
def test_clean_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isprintable()


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        pytest.param("layer", "…rs.3.mlp", id="a path keeps its end"),
        pytest.param("op", "…rs.3.mlp", id="an op keeps its end"),
        pytest.param("signature", "encoder.…", id="arguments keep their start"),
        pytest.param("kernel_short", "enco….mlp", id="a name keeps both"),
    ],
)
def test_where_text_is_cut_depends_on_what_it_is(column: str, shown: str) -> None:
    assert shorten("encoder.layers.3.mlp", 9, column) == shown


def test_text_that_fits_is_not_cut() -> None:
    assert shorten("abc", 3, "op") == "abc"


def test_a_demangled_name_loses_its_return_type_first() -> None:
    assert shorten("void gemm<4>(int)", 17, "kernel") == "void gemm<4>(int)"
    assert shorten("void gemm<4>(int)", 12, "kernel") == "gemm<4>(int)"
    assert shorten("void gemm<4>(int)", 11, "kernel") == "gemm<4>(in…"


FRAME = pd.DataFrame(
    {
        "op": ["aten::_scaled_dot_product_flash_attention", "aten::mm"],
        "time_ns": [123_456_789, 1000],
        "tflops": [512.3, float("nan")],
        "gbps": [float("nan")] * 2,
        "recompute": pd.array([True, None], "boolean"),
    }
)


def test_units_stand_in_the_header_and_null_is_a_dash() -> None:
    table, left_out = render(FRAME, [], 100)

    assert table.splitlines() == [
        "op                                         time ms  TFLOP/s  GB/s  recompute",
        "-----------------------------------------  -------  -------  ----  ---------",
        "aten::_scaled_dot_product_flash_attention  123.457      512     -        yes",
        "aten::mm                                     0.001        -     -          -",
    ]
    assert left_out == []


def test_a_narrow_table_cuts_text_and_then_drops_columns_the_empty_ones_first() -> None:
    table, left_out = render(FRAME, [], 40, ["tflops", "gbps", "recompute"])

    assert left_out == ["gbps", "tflops"]
    assert (
        table.splitlines()[2:]
        == [
            "…lash_attention  123.457        yes",
            "aten::mm           0.001          -",
        ]
        or max(map(len, table.splitlines())) <= 40
    )


def test_columns_that_were_asked_for_stay() -> None:
    table, left_out = render(FRAME, [], 10)

    assert left_out == []
    assert "recompute" in table


def test_rows_below_the_line_say_what_they_are() -> None:
    table, _ = render(FRAME[["op", "time_ns"]], [("total", {"time_ns": 123_457_789})], 30)

    assert table.splitlines()[-2:] == [
        "---------------------  -------",
        "total                  123.458",
    ]


@given(
    names=st.lists(st.text(max_size=60), min_size=1, max_size=5),
    width=st.integers(40, 120),
)
def test_no_line_is_wider_than_the_terminal(names: list[str], width: int) -> None:
    frame = pd.DataFrame({"op": names, "layer": names[::-1], "dur_ns": range(len(names))})

    table, _ = render(frame, [("total", {"dur_ns": 10})], width)

    lines = table.splitlines()
    assert len(lines) == len(names) + 4
    assert max(_cells(line) for line in lines) <= width


def _cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)


def test_wide_characters_take_two_cells() -> None:
    frame = pd.DataFrame({"layer": ["网络网络", "fc"], "dur_ns": [1, 2]})

    table, _ = render(frame, [], 80)

    assert table.splitlines()[2:] == ["网络网络   0.001", "fc         0.002"]


def test_the_mark_of_a_cut_is_one_that_the_terminal_can_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ascii:
        encoding = "ascii"

    monkeypatch.setattr(sys, "stdout", Ascii())

    assert shorten("abcdef", 4, "layer") == "~def"


def test_the_width_is_that_asked_for_or_that_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "77")

    assert terminal_width(50) == 50
    assert terminal_width(None) == 77


@pytest.mark.parametrize(
    ("is_terminal", "no_color", "shown"),
    [
        pytest.param(True, "", "\x1b[1mop\x1b[0m", id="terminal"),
        pytest.param(True, "1", "op", id="NO_COLOR"),
        pytest.param(False, "", "op", id="pipe"),
    ],
)
def test_only_a_terminal_without_no_color_gets_bold(
    is_terminal: bool,  # noqa: FBT001 - a case
    no_color: str,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stream:
        def isatty(self) -> bool:
            return is_terminal

    monkeypatch.setattr(sys, "stdout", Stream())
    monkeypatch.setenv("NO_COLOR", no_color)

    assert bold("op") == shown


def test_an_empty_table_has_its_header() -> None:
    table, _ = render(FRAME[:0], [], 80)

    assert table.splitlines()[0] == "op  time us  TFLOP/s  GB/s  recompute"
