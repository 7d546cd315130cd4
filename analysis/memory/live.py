"""Memory that lives at a moment, by category, layer, line and op: rows that sum to the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.axes import check_known_once
from pyprof2.analysis.memory import categories
from pyprof2.analysis.memory.categories import CATEGORIES, CERTAINTIES, PHASES, Lives
from pyprof2.analysis.memory.curves import NO_NUMBER, START
from pyprof2.analysis.memory.tags import exact
from pyprof2.columns import as_pandas, lookup, text_array
from pyprof2.recording import code_column, int_column
from pyprof2.tables import real, text, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.memory.curves import MemoryCurve
    from pyprof2.analysis.memory.tags import Tagged
    from pyprof2.columns import TextColumn

AXES: Final = (
    "category", "certainty", "layer", "line", "op", "phase", "released", "step", "line_before",
)  # fmt: skip
"""The axes that live bytes may be summed along."""

BEFORE: Final = "(before the recording)"
ROUNDING: Final = "(rounding)"
LIBRARY: Final = "(library code)"
NEVER: Final = "(never)"
RECORDED: Final = "(in the recording)"
_NONE: Final = {
    "op": "(no op)", "layer": "(no layer)", "phase": "(no phase)", "step": "(no step)",
}  # fmt: skip
_FOREVER: Final = 1 << 62
_UNCOUNTED: Final = _FOREVER + 1
"""The end of what stays for ever, and is of an unknown number of blocks."""

ROW_COLUMNS: Final = (
    whole("rank", "Process in the job.", nullable=False),
    text("device_type", "`cuda`, `hip`, `xpu` or `cpu`.", nullable=False),
    whole("device", "Ordinal of the device; null for the CPU."),
    text("category", "What it is for; `several` where blocks of the row differ."),
    text("certainty", "`exact`, `inferred` or `none`: the least of the row's blocks."),
    text("layer", "Layer that allocated it; in backward that of the forward op."),
    text("line", "`path:line` that allocated it; in backward that of the forward op."),
    text("op", "Innermost op that allocated it."),
    text("phase", "What the host was at when it was allocated."),
    text("released", "The same when it was released."),
    text("step", "The step in which it was allocated."),
    text("line_before", "Of what was there before the recording: the line, if known."),
    whole("bytes", "What lives at the moment.", "B", nullable=False),
    whole("blocks", "Number of blocks; null where it is not known."),
    real("share_pct", "Share of the sum of the rows of the device.", "%"),
)
"""The columns of what is summed; of the axes only those that were asked for."""


def check_axes(axes: Sequence[str]) -> None:
    """Raise UsageError for an axis that there is not, or that is named twice."""
    check_known_once(axes, AXES, "of memory")


def entries(curve: MemoryCurve, tagged: Tagged | None = None) -> pd.DataFrame:
    """Return everything that lived at any time, as rows that add up at each moment.

    Args:
        curve: of one device.
        tagged: what the recorded program said of its blocks.

    Returns:
        One row per block, and for what is known of the rest: the axes, `bytes`, the moments
        `begin` (the first at which it lives) and `end` (the first at which it does not), and
        whether the program `tagged` of it. Where the base is not known, what is released of it
        counts as less than nothing.
    """
    blocks = curve.blocks
    before = blocks.before if curve.base is not None else blocks.before[:0]
    parts = [_of_blocks(curve, tagged), _of_releases(curve, before, tagged)]
    if curve.base is None:
        # Releases of what was there before count as less than nothing: its size is not known.
        gone, sizes = blocks.before.tolist(), curve.change[blocks.before].tolist()
        rows = zip(sizes, gone, strict=True)
        parts.append(_plain_rows([(BEFORE, "unknown", "none", BEFORE, *each) for each in rows]))
    else:
        parts.append(_of_rest(curve, curve.base + int(curve.change[blocks.before].sum()), tagged))
    filled = [part for part in parts if part.num_rows]
    table = pa.concat_tables(filled) if filled else _plain_rows([])
    return as_pandas(table.unify_dictionaries(), ("begin", "end", "bytes"))


def _of_blocks(curve: MemoryCurve, tagged: Tagged | None) -> pa.Table:
    """Return the blocks that were allocated in the recording."""
    rows, free = curve.blocks.alloc, curve.blocks.free
    phase, step = phases_and_steps(curve)
    lives = Lives(phase[rows], step[rows], lookup(phase, free, -1), lookup(step, free, 0), free < 0)
    events = curve.events
    op, layer = (_at(code_column(events, name), rows) for name in ("op", "layer"))
    category = categories.infer(lives, op, categories.trained_steps(phase, step))
    certainty = _certainty(category)
    if tagged is not None:
        category, is_sure = exact(category, curve.blocks, lives, tagged)
        certainty = np.where(is_sure, CERTAINTIES.index("exact"), _certainty(category))
    released = np.where(lives.never, len(PHASES), lives.ended_in)
    return _table(
        {
            "category": (category, CATEGORIES),
            "certainty": (certainty, CERTAINTIES),
            "layer": _filled(layer, _NONE["layer"]),
            "line": _lines(curve, rows),
            "op": _filled(op, _NONE["op"]),
            "phase": _filled((lives.began_in, PHASES), _NONE["phase"]),
            "released": _filled((released, [*PHASES, NEVER]), _NONE["phase"]),
            "step": _steps(curve, step, rows),
            "line_before": (np.zeros(len(rows), np.int64), [RECORDED]),
        },
        begin=rows,
        end=np.where(free < 0, _FOREVER, free),
        size=curve.change[rows],
        tagged=None if tagged is None else tagged.category >= 0,
    )


def phases_and_steps(curve: MemoryCurve) -> tuple[Int, Int]:
    """Return phase and step of each event; without step ranges steps follow from the phases."""
    phase = categories.phase_codes(code_column(curve.events, "phase"))
    step = int_column(curve.events, "step", NO_NUMBER)
    known = step[step != NO_NUMBER]
    if not len(known):
        return phase, categories.derived_steps(phase)
    # An event between two step ranges counts to the one before.
    before = int(known.min()) - 1
    return phase, np.maximum.accumulate(np.where(step == NO_NUMBER, before, step))


def _certainty(category: Int) -> Int:
    unknown = CATEGORIES.index("unknown")
    return np.where(category == unknown, CERTAINTIES.index("none"), CERTAINTIES.index("inferred"))


def _at(column: tuple[Any, Sequence[str | None]], rows: Int) -> TextColumn:
    codes, words = column
    return codes[rows], words


def _filled(column: TextColumn, word: str) -> TextColumn:
    """Return the column with a word for null."""
    codes, words = column
    return np.where(codes >= 0, codes, len(words)), [*words, word]


def _lines(curve: MemoryCurve, rows: Int) -> TextColumn:
    codes, words = _at(code_column(curve.events, "source"), rows)
    op = code_column(curve.events, "op")[0][rows]
    stack = int_column(curve.events, "stack_id", -1)[rows]
    without_op, without_stack = (len(words), len(words) + 1)
    bare = np.where(op < 0, without_op, without_stack)
    filled = np.where(codes >= 0, codes, np.where(stack >= 0, len(words) + 2, bare))
    return filled, [*words, *curve.lineless, LIBRARY]


def _steps(curve: MemoryCurve, step: Int, rows: Int) -> TextColumn:
    """Return the recorded steps as text; those that were derived are none."""
    recorded = int_column(curve.events, "step", NO_NUMBER)
    known = (recorded != NO_NUMBER)[rows]
    numbers, place = np.unique(step[rows], return_inverse=True)
    return _filled((np.where(known, place, -1), [str(n) for n in numbers.tolist()]), _NONE["step"])


def _of_releases(curve: MemoryCurve, rows: Int, tagged: Tagged | None) -> pa.Table:
    """Return what was there before the recording, and was released in it."""
    phase, _ = phases_and_steps(curve)
    category = categories.infer_before(phase[rows])
    certainty = _certainty(category)
    if tagged is not None:
        known = np.isin(rows, tagged.before.free)
        category[known] = tagged.before.category[_places(tagged.before.free, rows[known])]
        certainty[known] = CERTAINTIES.index("exact")
    before: TextColumn = (np.zeros(len(rows), np.int64), [BEFORE])
    texts = dict.fromkeys(AXES, before) | {
        "category": (category, CATEGORIES),
        "certainty": (certainty, CERTAINTIES),
        "released": _filled((phase[rows], PHASES), _NONE["phase"]),
    }
    return _table(texts, begin=np.full(len(rows), START), end=rows, size=-curve.change[rows])


def _places(values: Int, wanted: Int) -> Int:
    """Return where each wanted value stands; all of them do."""
    order = np.argsort(values, kind="stable")
    found: Int = order[np.searchsorted(values[order], wanted)]
    return found


def _of_rest(curve: MemoryCurve, rest: int, tagged: Tagged | None) -> pa.Table:
    """Return what was there before the recording, and stays."""
    held = [
        (BEFORE, each.category, each.certainty, each.line or BEFORE, each.bytes, START)
        for each in curve.held
    ]
    if curve.rounding:
        held.append((ROUNDING, "unknown", "none", ROUNDING, curve.rounding, START))
    if tagged is not None:
        category, size = (
            c[tagged.before.free < 0] for c in (tagged.before.category, tagged.before.bytes)
        )
        held += [
            (BEFORE, CATEGORIES[code], "exact", BEFORE, int(size[category == code].sum()), START)
            for code in np.unique(category).tolist()
        ]
    rest -= sum(each[4] for each in held)
    if rest:
        has_phases = not curve.held and tagged is None and code_column(curve.events, "phase")[1]
        words = ("parameter_or_buffer", "inferred") if has_phases else ("unknown", "none")
        held.append((BEFORE, *words, BEFORE, rest, START))
    return _plain_rows(held)


def _plain_rows(rows: list[tuple[str, str, str, str, int, int]]) -> pa.Table:
    """Return rows of word, category, certainty, line, bytes and the moment of the beginning."""
    names, kinds, sure, lines, size, begin = zip(*rows, strict=True) if rows else ((),) * 6
    code = np.arange(len(rows))
    words: TextColumn = (code, list(names))
    texts = dict.fromkeys(AXES, words) | {
        "category": (code, list(kinds)),
        "certainty": (code, list(sure)),
        "line_before": (code, list(lines)),
        "released": (np.zeros(len(rows), np.int64), [NEVER]),
    }
    end = np.full(len(rows), _UNCOUNTED)
    return _table(texts, begin=np.array(begin, np.int64), end=end, size=np.array(size, np.int64))


def _table(
    texts: dict[str, TextColumn], *, begin: Int, end: Int, size: Int, tagged: Bool | None = None
) -> pa.Table:
    columns = {name: text_array(texts.pop(name)) for name in AXES}
    known = np.zeros(len(size), bool) if tagged is None else tagged
    return pa.table(columns | {"begin": begin, "end": end, "bytes": size, "tagged": known})


def live_at(rows: pd.DataFrame, moment: int) -> pd.DataFrame:
    """Return the entries that live at a moment."""
    return rows[(rows["begin"] <= moment) & (rows["end"] > moment)]


def summarize(curve: MemoryCurve, rows: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """Return entries summed along axes, the most bytes first.

    Args:
        curve: of which device.
        rows: some of its entries.
        axes: some of `AXES`.

    Returns:
        `rank`, `device_type`, `device`, the axes, `category`, `certainty`, `bytes`, `blocks` and
        `share_pct`.
    """
    check_axes(axes)
    by = rows.groupby(list(axes), observed=True, sort=True)
    sums = by.agg(bytes=("bytes", "sum"), blocks=("bytes", "size"), _rest=("end", "max"))
    # Memory that stays from before the recording is of an unknown number of blocks.
    sums["blocks"] = sums["blocks"].astype("Int64").mask(sums.pop("_rest") == _UNCOUNTED)
    sums = sums.reset_index()
    if "category" not in axes:
        sums["category"] = _common_category(rows, list(axes))
    if "certainty" not in axes:
        order = {name: at for at, name in enumerate(CERTAINTIES)}
        code = rows.assign(_code=rows["certainty"].astype(object).map(order))
        least = code.groupby(list(axes), observed=True, sort=True)["_code"].max()
        sums["certainty"] = [CERTAINTIES[int(at)] for at in least]
    sums = sums.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)
    sums["share_pct"] = 100 * sums["bytes"] / max(1, int(sums["bytes"].sum()))
    import pandas as pd

    sums["rank"] = curve.rank
    sums["device_type"] = curve.device_type
    sums["device"] = pd.Series([curve.device] * len(sums), dtype="Int64")
    return sums[[c.name for c in ROW_COLUMNS if c.name in sums]]


def _common_category(rows: pd.DataFrame, axes: list[str]) -> list[str]:
    """Return the category of each sum, `several` where its rows differ."""
    by = rows.assign(_text=rows["category"].astype(object)).groupby(axes, observed=True, sort=True)
    found = by["_text"].agg(["nunique", "first"])
    return [
        step if count == 1 else "several"
        for count, step in zip(found["nunique"], found["first"], strict=True)
    ]
