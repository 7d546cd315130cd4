"""Costs of lines of code, as text for people, or as a file."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.summaries.line_profile import COLUMNS
from pyprof2.analysis.time.line_ops import PHASES
from pyprof2.analysis.time.line_tree import FILE, LINE, NO_SOURCE, OP, THREAD
from pyprof2.api import run_time
from pyprof2.frames import shown_line
from pyprof2.reports import cells
from pyprof2.reports.heading import step_numbers
from pyprof2.reports.steps import energy_lines
from pyprof2.reports.table import drawn
from pyprof2.units import counted, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.summaries.line_profile import LineProfile, LineQuery
    from pyprof2.api.run import Run
    from pyprof2.reports.files import Target

_ROWS_SHOWN: Final = 30
_ENTERED: Final = " > "
_LEDGERS: Final = {
    "device": "time of kernels and copies, by the line that launched them",
    "host": "time of the step's thread, by the line that it ran",
}
_DROPPABLE: Final = (
    "min_ns", "max_ns", "tflops", "tensor_core_pct", "other_ns", "idle_caused_ns", "overall_calls",
    "module",
)  # fmt: skip
_NO_SOURCE_PCT: Final = 50
FUNCTIONS: Final = (
    "frames of torch.profiler: a line is where its function begins; pyprof2.init() records calls"
)


def show(run: Run, query: LineQuery, target: Target, top: int | None) -> None:
    """Write the tree of lines.

    Args:
        run: the run.
        query: which lines.
        target: where to write.
        top: how many rows of the text; None: about a screen.

    Raises:
        UsageError: there is no such ledger, step, rank or module.
    """
    profile = run_time.line_profile(run.tables, query)
    if not target.is_text:
        target.write_frame(profile.table, COLUMNS, top)
        return
    outline = _Outline(profile.table, run.tables.source_roots)
    nodes = outline.largest(top or _ROWS_SHOWN)
    table = _columns(profile, query, outline.rows(nodes))
    target.write_lines(
        [
            *_heading(run, profile, query),
            *([FUNCTIONS] if run_time.lines_are_functions(run.tables) else []),
            *energy_lines(run, profile.ranks),
            "",
            *_drawn(table, profile, query, target),
            *_rest(outline, nodes, profile),
            *_notes(profile),
        ]
    )


# -- which rows are shown, and their names ----------------------------------------------


class _Outline:
    """The tree with each chain of single children as one row."""

    def __init__(self, table: pd.DataFrame, roots: list[str]) -> None:
        """Take the rows of a profile, and the folders of the user's own code."""
        self._table, self._roots = table, roots
        self._kind, self._name = table["kind"].tolist(), table["name"].tolist()
        self._time, self._own = table["time_ns"].tolist(), table["own_ns"].tolist()
        self._weight = (table["time_ns"] + table["idle_caused_ns"].fillna(0)).tolist()
        self._children: dict[int, list[int]] = {}
        for node, parent in enumerate(table["parent_id"].fillna(-1).astype(int).tolist()):
            if self._weight[node]:
                self._children.setdefault(parent, []).append(node)

    def largest(self, count: int) -> list[tuple[list[int], int]]:
        """Return chains of nodes with their depth in the table, in the order of the tree.

        Those are shown whose time is the largest, each after all that it is in.
        """
        chosen: dict[int, tuple[list[int], int]] = {}
        waiting = [self._entry(node, 0) for node in self._children.get(-1, [])]
        heapq.heapify(waiting)
        while waiting and len(chosen) < count:
            *_, first, depth = heapq.heappop(waiting)
            chain = self._chain(first)
            chosen[first] = chain, depth
            for child in self._children.get(chain[-1], []):
                heapq.heappush(waiting, self._entry(child, depth + 1))
        return [chosen[first] for first in sorted(chosen)]

    def _entry(self, node: int, depth: int) -> tuple[int, int, int, int]:
        return -self._time[node], -self._weight[node], node, depth

    def count(self) -> int:
        """Return how many rows there are in all."""
        waiting, count = list(self._children.get(-1, [])), 0
        while waiting:
            count += 1
            waiting += self._children.get(self._chain(waiting.pop())[-1], [])
        return count

    def _chain(self, node: int) -> list[int]:
        """Return a node with those below it, as long as each is all that the one before has."""
        chain = [node]
        while self._kind[node] != THREAD and not self._own[node]:
            below = self._children.get(node, [])
            if len(below) != 1 or self._weight[below[0]] != self._weight[node]:
                break
            node = below[0]
            chain.append(node)
        return chain

    def rows(self, nodes: list[tuple[list[int], int]]) -> pd.DataFrame:
        """Return the row of each chain's last node, with its label."""
        ends = [chain[-1] for chain, _ in nodes]
        files: list[str] = []
        labels = []
        for chain, depth in nodes:
            del files[depth:]
            label, file = self._label(chain, files[-1] if files else "")
            files.append(file)
            labels.append(f"{'  ' * depth}{label}")
        return self._table.iloc[ends].assign(line=labels).reset_index(drop=True)

    def _label(self, chain: list[int], file: str) -> tuple[str, str]:
        """Return the label of a chain inside of a file, and the file that it ends in."""
        lines = [self._name[node] for node in chain if self._kind[node] == LINE]
        others = [self._name[node] for node in chain if self._kind[node] not in (LINE, FILE)]
        if not lines:
            paths = [self._name[node] for node in chain if self._kind[node] == FILE]
            shown = [shown_line(f"{path}:1", self._roots)[:-2] for path in paths]
            return " ".join([*others, *shown]), paths[-1] if paths else file
        first, last = lines[0], lines[-1]
        words = [self._shown(first, file)]
        if len(lines) > 1:
            between = first if len(lines) == 2 else lines[-2]
            words += [] if len(lines) == 2 else ["…"]
            words.append(self._shown(last, between.rpartition(":")[0]))
        return " ".join([_ENTERED.join(words).replace(" > … > ", " … "), *others]), _file(last)

    def _shown(self, line: str, file: str) -> str:
        """Return a line as people want to see it; in the file that is known only its number."""
        if _file(line) == file:
            return f":{line.rpartition(':')[2]}"
        return shown_line(line, self._roots)


def _file(line: str) -> str:
    return line.rpartition(":")[0]


# -- the table -----------------------------------------------------------------------------------


def _columns(profile: LineProfile, query: LineQuery, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of the text: times and calls of a step, on average where not said."""
    steps = max(1, len(profile.steps))
    whole = profile.table[profile.table["parent_id"].isna()]
    columns: dict[str, Any] = {"line": rows["line"], "module": rows["module"]}
    columns["share_pct"] = rows["share_pct"]
    columns |= {"median_ns": rows["median_ns"]}
    if steps > 1:
        columns |= {name: rows[name] for name in ("min_ns", "max_ns")}
    spent = [f"{phase}_ns" for phase in PHASES if whole[f"{phase}_ns"].sum()]
    for name in spent if len(spent) > 1 else []:
        columns[name] = _none_of_zero(rows[name]) / steps
    columns["calls"] = _per_step(rows["calls"], steps)
    flops, time = rows["flops"].astype("Float64"), rows["time_ns"] * rows["costed_pct"] / 100
    # No FLOPs are no rate: the known work of the line may be a helper of unknown work.
    columns["tflops"] = (flops.where(flops > 0) / time.where(time > 0) / 1000).astype(float)
    if profile.ledger == "device":
        columns["tensor_core_pct"] = rows["tensor_core_pct"]
        columns["idle_caused_ns"] = _none_of_zero(rows["idle_caused_ns"]) / steps
    if query.within is not None:
        columns["overall_ns"] = rows["overall_ns"].astype(float) / steps
        columns["overall_calls"] = _per_step(rows["overall_calls"], steps)
    return pd.DataFrame(columns)


def _none_of_zero(values: pd.Series) -> pd.Series:
    """Return times with null for none: an empty cell is quicker to read."""
    return values.astype("Float64").where(values > 0).astype(float)


def _per_step(calls: pd.Series, steps: int) -> pd.Series:
    """Return calls of a step on average; whole numbers where all are."""
    found = calls.astype("Float64") / steps
    found = found.where(found > 0)
    return found.astype("Int64") if (found.dropna() % 1 == 0).all() else found.astype(float)


def _drawn(
    table: pd.DataFrame, profile: LineProfile, query: LineQuery, target: Target
) -> list[str]:
    footer = _footer(profile, query)
    alike = [str(n) for n in table if str(n).endswith("_ns") and n != "idle_caused_ns"]
    if target.form == "markdown":
        # Markdown shows no blanks at the start of a cell.
        bare = [label.lstrip(" ") for label in table["line"]]
        depths = [(len(a) - len(b)) // 2 for a, b in zip(table["line"], bare, strict=True)]
        table = table.assign(line=[f"{'· ' * n}{b}" for n, b in zip(depths, bare, strict=True)])
    return drawn(table, target, footer, droppable=_DROPPABLE, alike=alike).lines


def _footer(profile: LineProfile, query: LineQuery) -> list[tuple[str, dict[str, Any]]]:
    asked = query.phase is not None or query.within is not None
    found = [("of it, as asked", profile.part_ns)] if asked else []
    found.append(("the step" if len(profile.steps) < 2 else "a step", profile.step_ns))
    return [
        (
            words,
            {
                "share_pct": 100 * int(times.sum()) / max(1, profile.total_ns),
                "median_ns": float(np.median(times)),
                "min_ns": int(times.min()),
                "max_ns": int(times.max()),
            },
        )
        for words, times in found
    ]


# -- heading and notes ----------------------------------------------------------------------


def _heading(run: Run, profile: LineProfile, query: LineQuery) -> Iterator[str]:
    """Give the ledger, the steps and their time that the table is about."""
    chosen = set(profile.steps)
    windows = [each for each in run.tables.windows if (each.rank, each.step) in chosen]
    if query.steps is None:  # those without a line, too, as all other means have them
        of_ranks = [each for each in run.tables.windows if each.rank in profile.ranks]
        windows = [each for each in of_ranks if each not in run.tables.slow_starts]
    numbers = sorted({each.step for each in windows})
    parts = [*([query.phase] if query.phase else []), *([query.within] if query.within else [])]
    yield cells.bold(f"{_LEDGERS[profile.ledger]}{''.join(f'; only {part}' for part in parts)}")
    if not numbers:
        yield "no steps were recorded: the whole recording is one"
        return
    ranks = f" of {len(profile.ranks)} ranks" if len(profile.ranks) > 1 else ""
    word = "step" if len(numbers) == 1 else "steps"
    lengths = [each.dur_ns for each in windows]
    # As prof has it: until the last work ends that the step launched.
    mean = f" of {format_time(sum(lengths) // len(lengths))}" if lengths else ""
    each = " each" if lengths[1:] else ""
    numbered = f"{word} {step_numbers(numbers)}{ranks}{mean}{each}"
    yield f"{numbered}; {format_time(profile.total_ns)} in all"
    for rank, number in profile.apart:
        place = f"rank {rank}: " if len(profile.ranks) > 1 else ""
        yield f"{place}step {number}, the first one, is slow and left out; --step {number}"


def _rest(
    outline: _Outline, nodes: list[tuple[list[int], int]], profile: LineProfile
) -> Iterator[str]:
    more = outline.count() - len(nodes)
    if more:
        yield f"{counted(more, 'more row')}: --top {len(nodes) + more}"
    threads = profile.table["kind"].eq(THREAD)
    if threads.any():
        yield "other threads are trees of their own, and no part of the steps' time"


def _notes(profile: LineProfile) -> Iterator[str]:
    """Name the limits of the table."""
    table = profile.table
    lost = table[table["name"].eq(NO_SOURCE) & table["parent_id"].isna()]["time_ns"].sum()
    in_ops = table[table["kind"].eq(OP)]["own_ns"].sum()
    if in_ops and 100 * lost > _NO_SOURCE_PCT * in_ops:
        yield "few lines were recorded: record with pyprof2.init(), or with_stack=True"
