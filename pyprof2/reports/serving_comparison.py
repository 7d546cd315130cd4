"""The difference of two runs of an inference server: `compare --by phase,kind`.

Batches differ from run to run, so times are for one token that went in: a batch with twice as many
tokens is not slower because of it. What a batch was is above the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.errors import UsageError
from pyprof2.reports.table import drawn
from pyprof2.result_tables import SERVING_DIFFERENCE
from pyprof2.units import counted, format_rate

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from pyprof2.api.run import Run
    from pyprof2.reports.files import Target

_LIKE: Final = 1.1
"""How many times as many keys a request may have for its size to count as the same."""


def serving_difference(
    runs: Sequence[Run], names: Sequence[str], by: Sequence[str]
) -> pd.DataFrame:
    """Return table `serving_difference`, the greatest change first.

    Args:
        runs: two of them.
        names: how they are called.
        by: `phase`, or `phase` and `kind`.

    Raises:
        UsageError: a run has no steps of an inference server, or they have no phase in common.
    """
    sides = []
    for run, name in zip(runs, names, strict=True):
        kinds, tokens = run.serving_kinds(), _batches(run)
        if not tokens or kinds.empty:
            msg = f"{name}: no step of an inference server, or no work of a device, is recorded"
            raise UsageError(msg)
        sums = kinds.groupby(list(by), dropna=False)["device_ns"].sum()
        sides.append((sums, tokens))
    rows = []
    for key in dict.fromkeys([*sides[0][0].index, *sides[1][0].index]):
        values = dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True))
        row: dict[str, Any] = {**values}
        for side, (sums, tokens) in zip("ab", sides, strict=True):
            batch = tokens.get(values["phase"])
            time_ns = int(sums.get(key, 0))
            row[f"{side}_device_ns"] = time_ns
            count = batch["tokens"] if batch is not None else None
            row[f"{side}_ns_per_token"] = time_ns / count if count else None
        both = row["a_ns_per_token"], row["b_ns_per_token"]
        if None not in both:
            row["change_ns_per_token"] = both[1] - both[0]
            row["change_pct"] = 100 * (both[1] / both[0] - 1) if both[0] else None
        rows.append(row)
    columns = [name for name in SERVING_DIFFERENCE.names if name != "kind" or "kind" in by]
    found = pd.DataFrame(rows, columns=columns)
    order = found["change_ns_per_token"].abs().sort_values(ascending=False, kind="stable").index
    return found.loc[order].reset_index(drop=True)


def show_serving_difference(
    runs: Sequence[Run], names: Sequence[str], by: Sequence[str], target: Target
) -> None:
    """Write the difference of two runs by phase, or by phase and kind of layer.

    Raises:
        UsageError: as `serving_difference`.
    """
    rows = serving_difference(runs, names, by)
    if not target.is_text:
        target.write_frame(rows, [each for each in SERVING_DIFFERENCE.columns if each.name in rows])
        return
    shown = rows.dropna(axis="columns", how="all")
    table = drawn(shown, target, alike=["a_device_ns", "b_device_ns"])
    batches = [_batches(run) for run in runs]
    target.write_lines([*_heading(names, batches), "", *table.lines, *_notes(batches)])


def _batches(run: Run) -> dict[Hashable, dict[str, float | None]]:
    """Return of each phase its steps, and the requests, new tokens and keys of all of them."""
    steps = run.serving_steps()
    own = steps[steps["serving_step"].notna()]
    tokens, keys = (own[f"c_{name}"] + own[f"g_{name}"] for name in ("sq", "sk"))
    rows = own.assign(tokens=tokens, keys=keys)
    found: dict[Hashable, dict[str, float | None]] = {}
    for phase, each in rows.groupby("phase", sort=False):
        found[phase] = {"steps": len(each)}
        for name in ("requests", "tokens", "keys"):
            # A sum over steps of which one is unknown would be of fewer.
            found[phase][name] = None if each[name].isna().any() else float(each[name].sum())
    return found


def _size(batch: dict[str, float | None]) -> tuple[float | None, float | None]:
    """Return the new tokens and the keys of a request, on average."""
    count = batch["requests"]
    parts = batch["tokens"], batch["keys"]
    return tuple(each / count if each is not None and count else None for each in parts)  # type: ignore[return-value]


def _heading(
    names: Sequence[str], batches: Sequence[dict[Hashable, dict[str, float | None]]]
) -> Iterator[str]:
    for side, name, phases in zip("ab", names, batches, strict=True):
        words = []
        for phase, batch in phases.items():
            steps, requests = int(batch["steps"] or 0), batch["requests"]
            new, keys = _size(batch)
            parts = [f"{phase} {counted(steps, 'step')}"]
            if requests is not None:
                parts.append(f"of {format_rate(requests / steps)} requests")
            sizes = [
                f"{format_rate(each)} {what}"
                for each, what in ((new, "new tokens"), (keys, "keys"))
                if each is not None
            ]
            words.append(" ".join(parts) + (f", each {' and '.join(sizes)}" if sizes else ""))
        yield f"{side} {name}: {'; '.join(words)}"


def _notes(batches: Sequence[dict[Hashable, dict[str, float | None]]]) -> Iterator[str]:
    yield ""
    yield "times are for one token that went in; of work that no step launched there is none"
    for phase in batches[0]:
        if phase not in batches[1]:
            continue
        sizes = [_size(each[phase])[1] for each in batches]
        if None not in sizes and max(sizes) > _LIKE * min(sizes):  # type: ignore[type-var, operator]
            words = " and ".join(format_rate(each or 0) for each in sizes)
            yield f"{phase}: requests have {words} keys, so their attention is not the same work"
