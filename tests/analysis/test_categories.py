"""The category of a row is the most trusted of what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pyprof2.analysis.categories import first_category
from pyprof2.columns import named, only

if TYPE_CHECKING:
    from pyprof2.columns import TextColumn


def column(*texts: str | None) -> TextColumn:
    """A text column of which each row has a code of its own."""
    codes = [-1 if text is None else row for row, text in enumerate(texts)]
    return np.array(codes, np.int64), list(texts)


def categories(*sources: TextColumn) -> list[str | None]:
    codes, words = first_category(len(sources[0][0]), sources)
    return [words[code] for code in codes]


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("matmul", "conv", "matmul"), (None, "conv", "conv"), ("other", "conv", "conv"),
        ("", "conv", "conv"), ("other", None, "other"), (None, None, "other"),
    ],
)  # fmt: skip
def test_the_first_that_says_something_counts(
    first: str | None, second: str | None, wanted: str
) -> None:
    assert categories(column(first), column(second)) == [wanted]


def test_rows_are_apart() -> None:
    assert categories(column("matmul", None), column("conv", "norm")) == ["matmul", "norm"]


def test_a_source_may_count_for_some_rows_or_for_one_text_only() -> None:
    source = column("comm", "copy", "comm")

    keep = only(source, np.array([True, True, False]))
    assert categories(keep) == ["comm", "copy", "other"]
    assert categories(named(source, "comm")) == ["comm", "other", "comm"]


def test_no_rows_have_no_categories() -> None:
    assert categories(column()) == []
