"""A profile summed along axes, from the tables `sums` and `sum_calls` instead of the kernels.

What `pyprof2.analysis.summaries.profile.select` and `summarize` give of all rows, these give of
sums; in Python's own numbers, since there are few rows, and to import pandas takes longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.summaries.profile_columns import (
    AXES,
    COPY_CATEGORIES,
    FINE,
    FINEST,
    LARGEST_SUM,
    MORE_COLUMNS,
    NONE,
    RATE_SCALES,
    SUMMARY_COLUMNS,
    compile_pattern,
    key_name,
)
from pyprof2.listings import Listed, Listing, in_order, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import TypeAlias

    Columns: TypeAlias = Mapping[str, list[Any]]

NUMBERS: Final = ("rank", "stream")
"""The keys that are numbers."""
_PATTERNS: Final = ("layer", "op", "kernel", "range")
_CHOICES: Final = ("rank", "direction", "category", "stream")
_TEXTS: Final = ("tensor_core_missed", "roofline_flag")
_SUMMED: Final = tuple(column.name for column in SUMMARY_COLUMNS)
_MEASURES: Final = (*_SUMMED, *(column.name for column in MORE_COLUMNS))


@dataclass(frozen=True)
class StoredSums:
    """Rows of `sums`, of one rank after another.

    Attributes:
        columns: by name; `helps` names rows of all ranks.
        calls: rows that op calls have kernels in, and how many have some in just these.
        rows: those that are chosen.
    """

    columns: Mapping[str, Sequence[Any]]
    calls: Sequence[tuple[Sequence[int], int]]
    rows: Sequence[int]

    @classmethod
    def of(cls, ranks: Iterable[Sequence[Columns]]) -> StoredSums:
        """Put the tables `sums` and `sum_calls` of ranks together."""
        columns: dict[str, list[Any]] = {}
        calls: list[tuple[Sequence[int], int]] = []
        count = 0
        for sums, own in ranks:
            shifted = [
                None if rows is None else [count + row for row in rows] for rows in sums["helps"]
            ]
            for name, values in {**sums, "helps": shifted}.items():
                columns.setdefault(name, []).extend(values)
            sets = ([count + row for row in rows] for rows in own["rows"])
            calls += zip(sets, own["op_calls"], strict=True)
            count += len(shifted)
        return cls(columns, calls, range(count))

    def select(self, selection: Mapping[str, Any]) -> StoredSums:
        """Return the rows that fit; arguments as of `profile.select`, without `step`.

        Raises:
            UsageError: a regular expression is malformed.
        """
        tests: list[tuple[str, Callable[[Any], bool]]] = []
        for name in _PATTERNS:
            if selection.get(name) is not None:
                found = partial(_is_found, compile_pattern(selection[name]).search, {})
                tests.append((name, found))
        for name in _CHOICES:
            wanted = selection.get(name)
            if wanted is not None:
                wanted = (wanted,) if name == "rank" else wanted
                tests.append((name, partial(_is_one_of, frozenset(wanted))))
        if not selection.get("copies", True):
            tests.append(("category", lambda category: category not in COPY_CATEGORIES))
        rows = self.rows
        for name, fits in tests:
            values = self.columns[name]
            rows = [row for row in rows if fits(values[row])]
        return StoredSums(self.columns, self.calls, rows)

    def total(self) -> dict[str, Any]:
        """Return what `profile.total_row` gives; null is None."""
        (row,) = self._measured([list(self.rows)])
        return {name: row[name] for name in _SUMMED}

    def summarize(
        self, by: Sequence[str], depth: int | None = None, *, fold_numbers: bool = False
    ) -> Listed:
        """Return what `profile.summarize` gives with `more`; null is None."""
        keys = {AXES[axis]: self._keys(AXES[axis], depth, fold_numbers) for axis in by}
        groups: dict[tuple[Any, ...], list[int]] = {}
        for row in self.rows:
            groups.setdefault(tuple(key[row] for key in keys.values()), []).append(row)
        measured = self._measured(list(groups.values()))
        table = {
            name: Listing([group[at] for group in groups], name not in NUMBERS)
            for at, name in enumerate(keys)
        }
        for name in _MEASURES:
            table[name] = Listing([row[name] for row in measured], name in _TEXTS)
        sort = [("time_ns", False), *((name, True) for name in keys)]
        return taken(table, in_order(table, sort))

    def _keys(self, column: str, depth: int | None, fold_numbers: bool) -> Sequence[Any]:  # noqa: FBT001
        values = self.columns[column]
        if column in NUMBERS:
            return values
        names = {
            name: key_name(column, depth, fold_numbers, NONE if name is None else name)
            for name in set(values)
        }
        return [names[value] for value in values]

    def _measured(self, groups: Sequence[list[int]]) -> list[dict[str, Any]]:
        """Return `SUMMARY_COLUMNS` and `MORE_COLUMNS` of groups of rows."""
        whole = self.sum("time_ns", self.rows)
        calls = self._op_calls(groups)
        return [
            self._measure(rows, op_calls, whole)
            for rows, op_calls in zip(groups, calls, strict=True)
        ]

    def _op_calls(self, groups: Sequence[list[int]]) -> list[int]:
        """Return how many op calls have kernels in each group."""
        group_of = {row: at for at, rows in enumerate(groups) for row in rows}
        found = [0] * len(groups)
        for rows, count in self.calls:
            for at in {group_of[row] for row in rows if row in group_of}:
                found[at] += count
        return found

    def _measure(self, rows: list[int], op_calls: int, whole: int) -> dict[str, Any]:
        time, count = self.sum("time_ns", rows), self.sum("count", rows)
        of = self.columns
        least, most = (
            choose((of[name][row] for row in rows), default=None)
            for choose, name in ((min, "min_ns"), (max, "max_ns"))
        )
        telling = self._telling(rows)
        return {
            "count": count,
            "op_calls": op_calls,
            "time_ns": time,
            "share_pct": time / whole * 100 if whole else None,
            "mean_ns": time / count if count else None,
            "min_ns": least,
            "max_ns": most,
            "flops": self._known_sum("flops", telling),
            "bytes": self._known_sum("bytes", rows),
            **self._rates(rows, telling),
            **self._more(rows),
        }

    def _telling(self, rows: list[int]) -> list[int]:
        """Return the rows that tell of FLOPs: see `profile._tells_flops`."""
        category, told = self.columns["category"], self.columns["told_count"]
        kernels = [row for row in rows if category[row] not in COPY_CATEGORIES]
        known = not kernels or any(told[row] for row in kernels)
        return rows if known else kernels

    def _rates(self, rows: list[int], telling: list[int]) -> dict[str, float | None]:
        """Return the columns that are sum over sum, of helpers only beside the work they help."""
        own, helps = set(rows), self.columns["helps"]
        beside = {r for r in rows if helps[r] is None or not own.isdisjoint(helps[r])}
        timed = [row for row in rows if row in beside]
        of_flops = [row for row in telling if row in beside]
        found = {
            "tflops": self._ratio("flops", "flops_ns", of_flops),
            "gbps": self._ratio("bytes", "bytes_ns", timed),
            "intensity": self._ratio("both_flops", "both_bytes", telling),
            "roofline_pct": self._roof(timed),
            "tensor_core_pct": self._ratio("tensor_core_ns", "tensor_core_known_ns", rows),
            "costed_pct": self._ratio("costed_ns", "time_ns", rows),
        }
        return {
            name: None if (rate := found[name]) is None else scale * rate
            for name, scale in RATE_SCALES.items()
        }

    def _ratio(self, above: str, below: str, rows: list[int]) -> float | None:
        bottom = self.sum(below, rows)
        return float(self.sum(above, rows)) / float(bottom) if bottom else None

    def _roof(self, rows: list[int]) -> float | None:
        fs, ys = (self._ratio(name, "least_ns", rows) for name in ("least_fs", "least_ys"))
        return None if fs is None or ys is None else (fs + ys / FINEST) / FINE

    def _known_sum(self, name: str, rows: list[int]) -> int | None:
        """Return a sum; None where nothing is known, or 64 bits cannot hold it."""
        found = self.sum(name, rows)
        known = self.sum(f"{name}_count", rows)
        return found if known and found <= LARGEST_SUM else None

    def _more(self, rows: list[int]) -> dict[str, Any]:
        """Return `MORE_COLUMNS`: see `profile._missed`."""
        reason, missed = self._most("tensor_core_missed", rows)
        could = self.sum("tensor_core_used_ns", rows) + sum(missed.values())
        known = missed or self.sum("tensor_core_used_count", rows)
        flag, flagged = self._most("roofline_flag", rows)
        helps = self.columns["helps"]
        working = self.sum("time_ns", (row for row in rows if helps[row] is None))
        return {
            "tensor_core_missed_ns": sum(missed.values()) if known else None,
            "tensor_core_missed_pct": 100 * sum(missed.values()) / could if could else None,
            "tensor_core_missed": reason,
            "roofline_flag": flag if flag and flagged[flag] >= working / 2 else None,
        }

    def _most(self, name: str, rows: list[int]) -> tuple[str | None, dict[str, int]]:
        """Return the text that stands for most of the time, and the time of each."""
        texts, time = self.columns[name], self.columns["time_ns"]
        sums: dict[str, int] = {}
        for row in rows:
            if texts[row] is not None:
                sums[texts[row]] = sums.get(texts[row], 0) + time[row]
        return min(sums, key=lambda text: (-sums[text], text), default=None), sums

    def sum(self, name: str, rows: Iterable[int]) -> int:
        """Return the sum of a column over rows."""
        values = self.columns[name]
        return sum(values[row] for row in rows)

    @property
    def tensor_core_pct(self) -> float | None:
        """The share of the time that used Tensor Cores, of that with a verdict."""
        share = self._ratio("tensor_core_ns", "tensor_core_known_ns", list(self.rows))
        return None if share is None else 100 * share

    def time_by(self, column: str) -> dict[str, int]:
        """Return the time of each text of a column, in the order in which they come."""
        return self._most(column, list(self.rows))[1]

    def known_share(self, axis: str) -> float:
        """Return the share of the time that has a key along an axis."""
        if axis == "step":
            known = self.sum("step_ns", self.rows)
        else:
            values = self.columns[AXES[axis]]
            known = self.sum("time_ns", (row for row in self.rows if values[row] is not None))
        return known / (self.sum("time_ns", self.rows) or 1)

    def has_several(self, axis: str, line: str) -> bool:
        """Whether a line of code has more than one key along an axis."""
        source, values = self.columns["source"], self.columns[AXES[axis]]
        return len({values[row] for row in self.rows if source[row] == line}) > 1


def _is_found(search: Callable[[str], object], known: dict[str, bool], text: str | None) -> bool:
    """Whether something is found in a text, each distinct one of which is searched once."""
    if text is None:
        return False
    if text not in known:
        known[text] = search(text) is not None
    return known[text]


def _is_one_of(wanted: Collection[Any], value: Any) -> bool:
    return value in wanted or (value is None and NONE in wanted)


def names_rows(sums: Columns, calls: Columns) -> bool:
    """Whether the rows that two tables of a rank name exist: a store may come from anywhere."""
    named = chain.from_iterable(rows or () for rows in (*sums["helps"], *calls["rows"]))
    count = len(sums["helps"])
    return all(row is not None and 0 <= row < count for row in named)
