"""What all raw tables of a Kineto recording are built with: times, threads, and what texts mean."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.parsers._columns import Meaning
from pyprof2.parsers._kineto_values import Numbers, to_int
from pyprof2.problems import EVENT_TIME, NEGATIVE_DURATION
from pyprof2.recording import Spool, TextCodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.parsers._columns import Bool, Int, Texts, Values
    from pyprof2.parsers._kineto_columns import EventColumns

_DURATION_MAX_NS: Final = 10**15  # 11 days: longer ones are overflows of the recorder
TIME_MAX_NS: Final = 4 * 10**18
"""The year 2096: start + duration still fits int64."""


class Shared:
    """What the builders of the tables have in common.

    Attributes:
        spool: the raw tables.
        problems, annotated: as in `Recording`.
        span: the first start and the last end of what the program did.
        numbers: reads numbers, and counts what is none.
        signatures: the codes of the signatures of ops.
    """

    def __init__(self, spool: Spool, problems: Counter[str]) -> None:
        self.spool = spool
        self.problems = problems
        self.annotated: Counter[str] = Counter()
        self.span = [TIME_MAX_NS, -TIME_MAX_NS]
        self.numbers = Numbers(problems)
        self.signatures = TextCodes()
        self._meanings: dict[tuple[str, str], Meaning] = {}
        self._threads = TextCodes()

    def times(
        self, events: EventColumns, *, may_be_zero: bool = True, in_span: bool = True
    ) -> tuple[EventColumns, dict[str, Any]]:
        """Return the events whose times make sense, and their columns start_ns and dur_ns."""
        start, dur = events.start_ns, events.dur_ns
        negative = events.timed & (dur < 0)
        if negative.any():
            self.problems[NEGATIVE_DURATION] += int(negative.sum())
            dur = np.maximum(dur, 0)
        good = events.timed & is_sensible(start) & (dur <= _DURATION_MAX_NS)
        if not may_be_zero:
            good &= (start != 0) | (dur != 0)
        if not good.all():
            self.problems[EVENT_TIME] += int((~good).sum())
            events, start, dur = events.where(good), start[good], dur[good]
        if len(start) and in_span:
            self.span[0] = min(self.span[0], int(start.min()))
            self.span[1] = max(self.span[1], int((start + dur).max()))
        return events, {"start_ns": start, "dur_ns": dur}

    def thread(self, events: EventColumns) -> dict[str, Any]:
        return {"pid": self.thread_ids(events.pid), "tid": self.thread_ids(events.tid)}

    def thread_ids(self, values: Values) -> pa.Array:
        column = values.as_ints()
        if column is not None:
            return column
        # Texts among them: once per distinct one.
        known = values.to_list()
        ids = {value: self._thread_id(value) for value in dict.fromkeys(known)}
        return pa.array([ids[value] for value in known], pa.int64())

    def meaning(self, table: str, column: str, of_text: Callable[[Any], int | None]) -> Meaning:
        """Return what texts mean in a column, which is remembered."""
        found = self._meanings.get((table, column))
        if found is None:
            found = self._meanings[table, column] = Meaning(of_text)
        return found

    def coded(self, table: str, column: str, texts: Texts) -> pa.Array:
        """Return texts as codes of the dictionary of a column of a raw table."""
        codes = self.spool.texts[table][column]
        return self.meaning(table, column, codes.__getitem__).column(texts)

    def _thread_id(self, value: int | str | None) -> int | None:
        """Return a number for a thread that is named by text: its digits, or one of its own."""
        number = to_int(value)
        if number is not None or value is None:
            return number
        digits = re.search(r"\d+", str(value))
        number = to_int(digits[0].lstrip("0") or "0") if digits else None
        return -(1 << 40) - self._threads[value] if number is None else number


def is_sensible(time: Int) -> Bool:
    """Return which times are such that a recorder means them."""
    return (time >= -TIME_MAX_NS) & (time <= TIME_MAX_NS)
