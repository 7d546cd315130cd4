"""Columns of values as a file has them, in arrays: numbers, and texts as codes of a dictionary.

What stands once per event is a number here; Python looks at each distinct text once. The words of
a dictionary are in a list that only ever grows, and that all columns of one scanner share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    Int: TypeAlias = NDArray[np.int64]
    Bool: TypeAlias = NDArray[np.bool_]
    Codes: TypeAlias = NDArray[np.int32]
    Kinds: TypeAlias = NDArray[np.uint8]

DURATION_MAX_NS: Final = 10**15
"""11 days: longer ones are overflows of the recorder."""
TIME_MAX_NS: Final = 4 * 10**18
"""The year 2096: start + duration still fits int64."""
_NO_ID: Final = (1 << 32) - 1
"""Stands for no id in recordings: -1 without its sign."""

NO_VALUE, WHOLE, OTHER, FLOAT = range(4)
"""Kinds of a value: none, a whole number, the code of what is no number that fits, a float."""
_EXACT_MAX: Final = 1 << 53
"""Whole numbers up to it are floats, too."""


class Words(dict[Any, int]):
    """A code for each distinct key; looking a new one up gives it the next code.

    Attributes:
        words: what the keys stand for, by code.
    """

    def __init__(self, word_of: Callable[[Any], Any] = lambda key: key) -> None:
        super().__init__()
        self._word_of = word_of
        self.words: list[Any] = []

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self.words)
        self.words.append(self._word_of(key))
        return code


@dataclass(frozen=True)
class Texts:
    """A column of texts, or of what else is worth a dictionary.

    Attributes:
        codes: of each event into `words`; -1 for none.
        words: the dictionary.
    """

    codes: Codes
    words: Sequence[Any]

    @classmethod
    def of(cls, values: Sequence[Any], words: Words) -> Texts:
        """Make a column of values, of which None is none."""
        codes = [-1 if value is None else words[value] for value in values]
        return cls(np.array(codes, np.int32), words.words)

    @classmethod
    def each(cls, values: Sequence[bytes]) -> Texts:
        """Make a column of values that hardly ever come twice; an empty one is none."""
        at = np.arange(len(values), dtype=np.int32)
        return cls(np.where(flags(values), at, np.int32(-1)), values)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, keep: Bool) -> Texts:
        return replace(self, codes=self.codes[keep])

    def to_list(self) -> list[Any]:
        """Return the texts; None for none."""
        words = self.words
        return [None if code < 0 else words[code] for code in self.codes.tolist()]


@dataclass(frozen=True)
class Values:
    """A column of numbers, which may be anything else in a file that is odd.

    Attributes:
        bits: int64: the number; of a float its bits; else the code of the value.
        kinds: `NO_VALUE`, `WHOLE`, `OTHER` or `FLOAT`.
        words: the dictionary of the other values.
        seen: the kinds that may be among them, each as a bit.
    """

    bits: Int
    kinds: Kinds
    words: Sequence[Any]
    seen: int = -1

    @classmethod
    def of(cls, values: Sequence[Any], words: Words) -> Values:
        """Make a column of values, of which None is none."""
        try:
            column = pa.array(values)  # of no given type: floats would become whole numbers
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return cls._of_any(values, words)
        if column.type not in (pa.int64(), pa.null()):
            return cls._of_any(values, words)
        column = column.cast(pa.int64())
        kinds = column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
        return cls(column.fill_null(0).to_numpy(), kinds, words.words)

    @classmethod
    def _of_any(cls, values: Sequence[Any], words: Words) -> Values:
        bits, kinds = np.zeros(len(values), np.int64), np.zeros(len(values), np.uint8)
        for at, value in enumerate(values):
            if isinstance(value, float):
                bits[at], kinds[at] = np.float64(value).view(np.int64), FLOAT
            elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
                bits[at], kinds[at] = value, WHOLE
            elif value is not None:
                bits[at], kinds[at] = words[value], OTHER
        return cls(bits, kinds, words.words)

    def __len__(self) -> int:
        return len(self.bits)

    def __getitem__(self, keep: Bool) -> Values:
        return replace(self, bits=self.bits[keep], kinds=self.kinds[keep])

    @property
    def known(self) -> Bool:
        """Which events have a value."""
        known: Bool = self.kinds != NO_VALUE
        return known

    def to_list(self) -> list[Any]:
        """Return the values; None for none."""
        parts = zip(
            self.bits.tolist(), self.bits.view(np.float64).tolist(), self.kinds, strict=True
        )
        return [
            whole if kind == WHOLE else real if kind == FLOAT else self._other(kind, whole)
            for whole, real, kind in parts
        ]

    def _other(self, kind: int, code: int) -> Any:
        return None if kind == NO_VALUE else self.words[code]

    def filled(self, others: Values) -> Values:
        """Return the values, with others where there are none."""
        if not self.seen & 1 << NO_VALUE:
            return self
        lacks = self.kinds == NO_VALUE
        if not lacks.any():
            return self
        bits = np.where(lacks, others.bits, self.bits)
        kinds = np.where(lacks, others.kinds, self.kinds)
        return replace(self, bits=bits, kinds=kinds, seen=self.seen | others.seen)

    def without_zeros(self) -> Values:
        """Return the values, none for what is zero or an empty text."""
        if self.seen == 1 << NO_VALUE:
            return self
        is_zero = (self.bits == 0) & (self.kinds != OTHER)
        is_zero |= self.is_other(lambda word: not word)
        return replace(
            self,
            kinds=np.where(is_zero, np.uint8(NO_VALUE), self.kinds),
            seen=self.seen | 1 << NO_VALUE,
        )

    def is_other(self, wanted: Callable[[Any], bool]) -> Bool:
        """Return which values are no numbers, and wanted."""
        found: Bool = self.kinds == OTHER
        for at in np.flatnonzero(found).tolist():
            found[at] = wanted(self.words[self.bits[at]])
        return found

    def as_ints(self) -> pa.Array | None:
        """Return the values as int64; None if there are others than whole numbers that fit."""
        if self.seen >> OTHER and len(self.kinds) and self.kinds.max() > WHOLE:
            return None
        return self._column(self.bits)

    def as_floats(self) -> pa.Array | None:
        """Return the values as floats; None if that would not be exact, or there are others."""
        if self.seen == 1 << NO_VALUE:
            return self._column(self.bits.view(np.float64))
        is_whole = self.kinds == WHOLE
        if (self.kinds == OTHER).any() or (np.abs(self.bits[is_whole]) > _EXACT_MAX).any():
            return None
        floats = np.where(is_whole, self.bits.astype(np.float64), self.bits.view(np.float64))
        return self._column(floats)

    def _column(self, numbers: NDArray[Any]) -> pa.Array:
        """Return numbers as a column, null where there is no value."""
        column = pa.array(numbers)
        if not self.seen & 1 << NO_VALUE:
            return column
        if self.seen == 1 << NO_VALUE:
            return pa.nulls(len(numbers), column.type)
        return pa.array(numbers, mask=_mask(self.kinds == NO_VALUE))


def _mask(lacks: Bool) -> Bool | None:
    return lacks if lacks.any() else None


class Meaning:
    """The meaning of each distinct text, as a code of another dictionary; asked once per text."""

    _UNASKED: Final = -2

    def __init__(self, of_text: Callable[[Any], int | None]) -> None:
        self._of_text = of_text
        self._tables: dict[int, tuple[Sequence[Any], Codes]] = {}

    def codes(self, texts: Texts) -> Codes:
        """Return what each text means; -1 for none."""
        # The words are kept beside their table: so no other list can have their id.
        words, table = self._tables.get(id(texts.words), (texts.words, np.array([-1], np.int32)))
        if len(table) <= len(words):
            more = np.full(2 * len(words) + 1 - len(table), self._UNASKED, np.int32)
            table = np.concatenate((table, more))
            self._tables[id(words)] = words, table
        found: Codes = table[texts.codes + 1]
        unasked = texts.codes[found == self._UNASKED]
        if len(unasked):
            for code in np.unique(unasked).tolist():
                meaning = self._of_text(words[code])
                table[code + 1] = -1 if meaning is None else meaning
            found = table[texts.codes + 1]
        return found

    def flags(self, texts: Texts) -> Bool:
        """Return of which texts the meaning is not 0, given that it is a truth."""
        return self.codes(texts) > 0

    def column(self, texts: Texts) -> pa.Array:
        """Return what each text means; null for none."""
        codes = self.codes(texts)
        return pa.array(codes, mask=_mask(codes < 0))


def flags(found: Iterable[object]) -> Bool:
    """Return truths as an array."""
    return np.array([bool(flag) for flag in found], bool)


def known_ids(ids: pa.Array, least: int = 0) -> pa.Array:
    """Return ids; null for -1, signed or not, and for others below `least`: none was recorded."""
    known = pc.and_(pc.greater_equal(ids, least), pc.not_equal(ids, _NO_ID))
    return pc.if_else(known, ids, None)


def is_sensible(time: Int) -> Bool:
    """Return which times are such that a recorder means them."""
    return (time >= -TIME_MAX_NS) & (time <= TIME_MAX_NS)
