"""Values as the page takes them: columns with each text once, times from a rank's first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.reports import cells

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyprof2.api.run import Run


MOST_TEXT: Final = 4000
"""A longer text is cut: a name that fills a page says no more than its beginning."""


def table(
    frame: pd.DataFrame, shown: Mapping[str, Callable[[str], str]] | None = None
) -> dict[str, Any]:
    """Return a frame as `{"rows": n, "columns": {name: column}}`.

    Args:
        frame: numbers, bools and texts; null in any column becomes None, long text is cut.
        shown: of columns of text: how a text is to be shown; it becomes the column's `shown`.
    """
    return {
        "rows": len(frame),
        "columns": {
            str(name): column(frame[name], (shown or {}).get(str(name))) for name in frame.columns
        },
    }


def column(values: pd.Series, shown: Callable[[str], str] | None = None) -> Any:
    """Return a column: a list, or of text its distinct texts and their places, -1 for null."""
    if _is_text(values):
        return text_column(values, shown)
    plain = values.astype(object)
    return plain.where(values.notna(), None).tolist()


def column_values(made: dict[str, Any], name: str) -> list[Any]:
    """Return the values of a column of numbers of a made table."""
    found: list[Any] = made["columns"][name]
    return found


def numbers(values: pd.Series) -> list[Any]:
    """Return whole numbers, null as None; a text that stands for several stays."""
    return [None if pd.isna(v) else v if isinstance(v, str) else int(v) for v in values]


def _is_text(values: pd.Series) -> bool:
    if not isinstance(values.dtype, pd.CategoricalDtype) and values.dtype != object:
        return pd.api.types.is_string_dtype(values.dtype)
    kind = pd.api.types.infer_dtype(values, skipna=True)
    return kind in {"string", "categorical", "empty"}


def text_column(
    values: pd.Series, shown: Callable[[str], str] | None = None
) -> dict[str, list[Any]]:
    """Return the distinct texts of a column, in order of first use, and the place of each row's."""
    codes, texts = pd.factorize(values.astype(object))
    found: dict[str, list[Any]] = {
        "texts": [cut(str(text)) for text in texts],
        "ids": codes.tolist(),
    }
    if shown is not None:
        found["shown"] = [cut(shown(str(text))) for text in texts]
    return found


def cut(text: str, most: int = MOST_TEXT) -> str:
    """Return a text, of a longer one than `most` the beginning."""
    return text if len(text) <= most else f"{text[:most]}…"


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as objects, null as None, texts cut."""
    return [
        {name: cut(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in cells.records(frame)
    ]


def zeros(run: Run) -> dict[int, int]:
    """Return the first time that was recorded of each rank, on the clock of the trace."""
    trace = run.trace[["rank", "start_ns"]].dropna()
    found = trace.groupby("rank", observed=True)["start_ns"].min()
    known = dict(zip(found.index.tolist(), found.astype("int64").tolist(), strict=True))
    return {rank: known.get(rank, 0) for rank in run.summary["ranks"]}


def from_zero(rank: pd.Series, time: pd.Series, zero: dict[int, int]) -> pd.Series:
    """Return times of these ranks from the first that was recorded of each."""
    return time - np.array([zero[each] for each in rank.tolist()] or [0], np.int64)[: len(time)]
