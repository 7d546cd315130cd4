"""Values that all raw tables of a Kineto recording share: numbers, times, threads, short texts."""

from __future__ import annotations

import re
from collections import Counter
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.columns import combinations
from pyprof2.parsers._columns import DURATION_MAX_NS, TIME_MAX_NS, Meaning, is_sensible
from pyprof2.parsers._names import COPY_KINDS
from pyprof2.problems import EVENT_TIME, NEGATIVE_DURATION, WRONG_TYPE
from pyprof2.recording import TextCodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyprof2.parsers._columns import Texts, Values
    from pyprof2.parsers._kineto_columns import EventColumns
    from pyprof2.recording import Spool

_DIM3: Final = re.compile(rb"\[\d{1,10},\d{1,10},\d{1,10}\]")
_COPY_NAME: Final = re.compile(r"Memcpy (\w+)(?: \((\w[\w ]*) -> (\w[\w ]*)\))?")
_WORD_AND_NUMBER: Final = re.compile(r"(?:[^\W\d_]+[ _:#-]?)?0*(\d{1,18}) ?")
_LABEL: Final = re.compile(r"(.*\D)\d{1,18}\s*")
_DIGITS_MAX: Final = 36  # what fits a decimal128 in any case


class Numbers:
    """Makes columns of numbers of values of any type; what is lost is counted in `problems`."""

    def __init__(self, problems: Counter[str]) -> None:
        self._problems = problems

    def ints(self, values: Values) -> pa.Array:
        """Return whole numbers as a column; what is no number is null, and counted."""
        column = values.as_ints()
        if column is None:
            known = values.to_list()
            column = pa.array([to_int(value) for value in known], pa.int64())
            self._count_lost(known, column)
        return column

    def floats(self, values: Values) -> pa.Array:
        """Return numbers as a column; what is no number is null, and counted."""
        column = values.as_floats()
        if column is None:
            known = values.to_list()
            column = pa.array([_to_float(value) for value in known], pa.float64())
            self._count_lost(known, column)
        return column

    def _count_lost(self, values: Sequence[Any], column: pa.Array) -> None:
        lost = column.null_count - values.count(None)
        if lost:
            self._problems[WRONG_TYPE] += lost


def label_of(text: str) -> str | None:
    """Return what stands before the number of a process or device: `[TP00]` in `[TP00] 81`."""
    found = _LABEL.fullmatch(text)
    return found[1].strip() or None if found else None


def parse_us(values: Sequence[Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return decimal texts of µs as int64 ns, and which of them are numbers that fit.

    Exact: the digits go through decimals, never through floats. Digits finer than a ns are
    rounded half up.
    """
    if not values:
        return np.empty(0, np.int64), np.empty(0, bool)
    views: Iterable[Any] = map(memoryview, values)
    lengths = np.fromiter(map(len, views), np.int32, len(values))
    digits = b"".join(values)
    # Arrow crashes on some exponents, and is silently wrong on numbers that are too long.
    if lengths.max() > _DIGITS_MAX or b"e" in digits or b"E" in digits:
        return _parse_us_singly(values)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    texts = pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(digits))
    try:
        decimals = texts.cast(pa.decimal128(28, 3))
    except pa.ArrowInvalid:
        try:
            decimals = pc.round(texts.cast(pa.decimal128(38, 15)), 3, "half_up").cast(
                pa.decimal128(28, 3)
            )
        except pa.ArrowInvalid:
            return _parse_us_singly(values)
    # A decimal128 is two words, the low one first; the values that fit int64 need only that.
    words = np.frombuffer(decimals.buffers()[1], np.int64).reshape(-1, 2)
    return words[:, 0].copy(), words[:, 1] == (words[:, 0] >> 63)


def _parse_us_singly(
    values: Sequence[Any],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    times = [_parse_us_text(bytes(value)) for value in values]
    good = np.array([time is not None for time in times])
    return np.array([time or 0 for time in times], np.int64), good


def _parse_us_text(text: bytes) -> int | None:
    try:
        value = Decimal(text.decode().strip('"'))
        if not value.is_finite() or (value and value.adjusted() > 18):
            return None
    except (InvalidOperation, ValueError):  # among them bytes that are no text
        return None
    # Ties go up, also below zero.
    rounding = ROUND_HALF_DOWN if value.is_signed() else ROUND_HALF_UP
    time = int(value.quantize(Decimal("0.001"), rounding).scaleb(3))
    return time if abs(time) < 1 << 62 else None


def first_of(*values: Any) -> Any:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


def filled(values: Sequence[Any], others: Iterable[Any]) -> Sequence[Any]:
    """Return values, with others where they are None."""
    if None not in values:
        return values
    pairs = zip(values, others, strict=True)
    return [other if value is None else value for value, other in pairs]


def to_int(value: Any) -> int | None:
    """Return a whole number that fits int64, given as a number or as text; else None."""
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    is_whole = not isinstance(value, float) or number == value
    return number if is_whole and -(1 << 63) <= number < 1 << 63 else None


def whole_numbers(values: Values) -> pa.Array:
    """Return whole numbers as a column; what is none, as number or as text, is null."""
    column = values.as_ints()
    if column is None:
        column = pa.array([to_int(value) for value in values.to_list()], pa.int64())
    return column


def addresses(values: Values) -> pa.Array:
    """Return addresses as a column of uint64; some recorders print them as signed numbers."""
    column = values.as_ints()
    if column is None:
        numbers: list[int | None] = []
        for value in values.to_list():
            try:
                number = int(value)
            except (TypeError, ValueError, OverflowError):
                number = 1 << 64  # as what does not fit
            fits = -(1 << 63) <= number < 1 << 64
            numbers.append(number & ((1 << 64) - 1) if fits else None)
        return pa.array(numbers, pa.uint64())
    return column.view(pa.uint64())


def _to_float(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if np.isfinite(number) else None


def dim3_code(codes: TextCodes, raw: bytes) -> int | None:
    """Return the code of `x,y,z`; None for what is no list of three counts."""
    text = b"".join(raw.split())
    return codes[text[1:-1].decode()] if _DIM3.fullmatch(text) else None


def copy_kind_code(codes: TextCodes, name: str) -> int | None:
    """Return the code of `h2d` and the kinds of memory for `Memcpy HtoD (Pinned -> Device)`."""
    match = _COPY_NAME.match(name)
    if not match or match[1] not in COPY_KINDS:
        return None
    hosts = {word.lower() for word in match.groups()[1:] if word in ("Pageable", "Pinned")}
    return codes[" ".join([COPY_KINDS[match[1]], *sorted(hosts)])]


class TableContext:
    """The state that the builders of the tables have in common.

    Attributes:
        spool: the raw tables.
        problems, annotated: as in `Recording`.
        span: the first start and the last end of what the program did.
        numbers: reads numbers, and counts what is none.
        signatures: the codes of the signatures of ops.
        process_labels: as in `Recording`.
    """

    def __init__(self, spool: Spool, problems: Counter[str]) -> None:
        self.spool = spool
        self.problems = problems
        self.annotated: Counter[str] = Counter()
        self.span = [TIME_MAX_NS, -TIME_MAX_NS]
        self.numbers = Numbers(problems)
        self.signatures = TextCodes()
        self.process_labels: dict[int, str] = {}
        self._meanings: dict[tuple[str, str], Meaning] = {}
        self._threads = TextCodes()
        self._texts_of: dict[tuple[str, int], str] = {}

    def times(
        self, events: EventColumns, *, may_be_zero: bool = True, in_span: bool = True
    ) -> tuple[EventColumns, dict[str, Any]]:
        """Return the events whose times make sense, and their columns start_ns and dur_ns."""
        start, dur = events.start_ns, events.dur_ns
        negative = events.timed & (dur < 0)
        if negative.any():
            self.problems[NEGATIVE_DURATION] += int(negative.sum())
            dur = np.maximum(dur, 0)
        good = events.timed & is_sensible(start) & (dur <= DURATION_MAX_NS)
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
        """Return the columns pid and tid."""
        return {
            "pid": self.thread_ids(events.pid, "process"),
            "tid": self.thread_ids(events.tid, "thread"),
        }

    def thread_ids(self, values: Values, of: str) -> pa.Array:
        """Return ids of processes, threads or streams as numbers; `of` says which they are.

        A text is an id of its own, but for a word and a number, as `stream 7`: that is the number.
        """
        column = values.as_ints()
        if column is not None:
            return column
        first, place = combinations((values.kinds, values.bits))
        known = values[first].to_list()
        ids = {value: to_int(value) for value in dict.fromkeys(known)}
        for value in [value for value, number in ids.items() if number is None]:
            if value is not None:
                ids[value] = self._text_id(str(value), of)
        return pa.array([ids[value] for value in known], pa.int64()).take(pa.array(place))

    def _text_id(self, text: str, of: str) -> int:
        word = _WORD_AND_NUMBER.fullmatch(text)
        number = to_int(word[1]) if word else None
        if number is None or self._texts_of.setdefault((of, number), text) != text:
            number = (1 << 40) + self._threads[text]
            number = number if of == "stream" else -number
        label = label_of(text)
        if of == "process" and label is not None:
            self.process_labels[number] = label
        return number

    def labels(self, table: str, pids: Values) -> pa.Array:
        """Return what the file writes before the numbers of devices, as codes of a raw table."""
        if pids.as_ints() is not None:
            return pa.nulls(len(pids), pa.int32())
        codes = self.spool.texts[table]["process"]
        texts = [label_of(pid) if isinstance(pid, str) else None for pid in pids.to_list()]
        return pa.array([None if text is None else codes[text] for text in texts], pa.int32())

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
