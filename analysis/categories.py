"""The category of a row: what kind of work it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.columns import TextColumn, lookup

if TYPE_CHECKING:
    from collections.abc import Sequence


OTHER: Final = "other"

MATRIX_WORK: Final = ("matmul", "conv", "attention", "rnn")
"""Whose FLOPs are those of matrix products: what matrix units can do, and what MFU counts."""


def first_category(count: int, sources: Sequence[TextColumn]) -> TextColumn:
    """Return for each row the first of the sources that has a category, else `other`.

    Args:
        count: number of rows.
        sources: text columns of `count` rows, the most trusted first.
    """
    words = [OTHER]
    result = np.full(count, -1, np.int64)
    for codes, texts in sources:
        for text in texts:
            if text and text not in words:
                words.append(text)
        # "other" says nothing: a later source may know better.
        places = [words.index(text) if text and text != OTHER else -1 for text in texts]
        result = np.where(result >= 0, result, lookup(np.array(places, np.int64), codes, -1))
    return np.where(result >= 0, result, 0), words
