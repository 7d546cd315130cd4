"""Phases and kinds of layer of an inference server: `prof --by phase,kind`, a line in headings.

Two runs are compared by `compare --by phase,kind`. Batches differ from run to run, so times are for
one token that went in: a batch with twice as many tokens is not slower because of it. What a batch
was is above the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.serving.batches import DECODE, PREFILL
from pyprof2.analysis.serving.costs import COLUMNS, shares_of_peak
from pyprof2.analysis.serving.steps import OUTSIDE
from pyprof2.api import run_serving
from pyprof2.columns import as_text, with_text
from pyprof2.errors import refuse
from pyprof2.reports.table import drawn
from pyprof2.result_tables import SERVING_DIFFERENCE, SERVING_KINDS, SERVING_PHASES, SERVING_STEPS
from pyprof2.units import counted, format_rate

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.api.run import Run
    from pyprof2.reports.files import Target


_NO_STEPS: Final = (
    "no step of an inference server is recorded: vLLM, SGLang, ATOM, TensorRT-LLM and xDiT name "
    "theirs; --step-pattern reads names of others"
)
_UNKNOWN: Final = "unknown"
_KEYS: Final = ("phase", "kind")
_ALL_PCT: Final = 100
_LEFT_OUT: Final = "activations are left out; MFU: of the peak for the type of each kind of layer"
_TAKEN: Final = "keys and values are taken to have 16 bits"
_MILLION: Final = 1e6
_HOUR: Final = 3600
_TYPES: Final = {"int64": "Int64", "double": "float64"}
_SUMMED: Final = ("new_tokens", "out_least", "out_most", "span_ns", "gap_ns", "host_ns", "wait_ns")
_TABLE: Final = (
    "phase", "steps", "requests", "new_tokens", "out_least", "device_ns", "share_pct", "span_ns",
    "gap_ns", "host_ns", "wait_ns", "in_per_s", "out_per_s", "in_price", "out_price",
)  # fmt: skip
_TIMES: Final = ("device_ns", "span_ns", "gap_ns", "period_ns", "host_ns", "wait_ns")
_STEP_TABLE: Final = (
    "rank", "step", "phase", "requests", "new_tokens", "keys", "out_least", "device_ns",
    "share_pct", "span_ns", "gap_ns", "period_ns", "host_ns", "wait_ns",
)  # fmt: skip
_WORK: Final = {
    "flops": ("GFLOP", 1e9), "bytes": ("MB", 1e6), "tflops": ("TFLOP/s", 1), "gbps": ("GB/s", 1),
}  # fmt: skip
"""Intervals of a kind: header and unit."""


@dataclass(frozen=True)
class ServingQuery:
    """The rows that are asked for of a server.

    Attributes:
        by: `phase`, `kind` or both; or `step`.
        model: the configuration; None: none is given.
        tp: how many ranks share it; None: not given.
        pattern: of the names of steps; None: those that are known.
        price: of a device for an hour; None: not given.
        rank: only this one; None: all.
    """

    by: tuple[str, ...]
    model: Path | None = None
    tp: int | None = None
    pattern: str | None = None
    price: float | None = None
    rank: int | None = None


def show_serving(run: Run, query: ServingQuery, target: Target) -> None:
    """Write the phases of a server's steps, or their kinds of layer, and how to read them.

    Raises:
        UsageError: the configuration is of another model than the recording, or `tp` is needed.
    """
    run_serving.check_shards(run.tables, query.tp)
    if "kind" in query.by:
        kinds = run_serving.serving_kinds(
            run.tables, query.model, query.tp, query.pattern, rank=query.rank
        )
        _show_kinds(kinds, query, target)
        return
    if query.model is None:
        steps = run.serving_steps(query.pattern)
    else:
        steps = run_serving.serving_costs(run.tables, query.model, query.tp, query.pattern)
    alone = 1 if set(run.trace["world_size"].dropna()) == {1} else None
    devices = steps.attrs.get("shards", query.tp or alone)
    if query.rank is not None:
        steps = steps[steps["rank"] == query.rank]
    if query.by == ("step",):
        _show_steps(steps, target)
        return
    rows = phases(steps, run.tables.peaks, price=query.price and devices and query.price * devices)
    wanted = target.is_text and not rows.empty
    models = run_serving.serving_models(run.tables, query.pattern) if wanted else None
    _show_phases(rows, steps, target, models)


def _show_steps(steps: pd.DataFrame, target: Target) -> None:
    """Write a row for each step."""
    if not target.is_text:
        columns = (*SERVING_STEPS.columns, *SERVING_PHASES.columns)
        target.write_frame(steps, tuple({each.name: each for each in columns}.values()))
        return
    new = steps["c_sq"] + steps["g_sq"]
    rows = steps.assign(
        step=steps["serving_step"],
        phase=as_text(steps["phase"]).fillna(_UNKNOWN),
        new_tokens=new,
        keys=steps["c_sk"] + steps["g_sk"],
        share_pct=100 * steps["device_ns"] / max(1, int(steps["device_ns"].sum())),
    )
    shown = rows[list(_STEP_TABLE)].dropna(axis="columns", how="all")
    if len(set(rows["rank"])) == 1:
        shown = shown.drop(columns="rank")
    table = drawn(
        shown,
        target,
        alike=[name for name in _TIMES if name in shown],
    )
    target.write_lines([*table.lines, "", *_notes(steps)])


def phases(
    steps: pd.DataFrame, device: Device | None = None, *, price: float | None = None
) -> pd.DataFrame:
    """Return the table `serving_phases`: the phases with the most time first, `outside` last.

    Args:
        steps: the table `serving_steps`; or with the costs of each, of `run_serving.serving_costs`.
        device: what ran them, for shares of its peaks; None: not known.
        price: of an hour of all devices that share the model; None: not given.
    """
    new = steps["c_sq"] + steps["g_sq"]
    pace = steps["period_ns"].fillna(steps["span_ns"])
    phases = as_text(steps["phase"]).fillna(_UNKNOWN)
    rows = steps.assign(new_tokens=new, pace_ns=pace, phase=phases)
    total_ns = int(rows["device_ns"].sum())
    found = []
    for phase, own in rows.groupby("phase", sort=False, observed=True):
        row: dict[str, Any] = {
            "phase": phase,
            "steps": int(own["serving_step"].notna().sum()),
            "requests": own["requests"].astype("float64").mean(),
            "device_ns": int(own["device_ns"].sum()),
        }
        # A sum over steps of which one is unknown would be of fewer steps than it says.
        for name in (*_SUMMED, "pace_ns"):
            total = _sum(own[name], whole=True)
            row[name] = None if total is None else int(total)
        row["share_pct"] = 100 * row["device_ns"] / total_ns if total_ns else None
        for rate, tokens in (("in_per_s", "new_tokens"), ("out_per_s", "out_least")):
            known = row[tokens] is not None and row["pace_ns"]
            row[rate] = 1e9 * row[tokens] / row["pace_ns"] if known else None
        for end, of_phase in (("in", PREFILL), ("out", DECODE)):
            row[f"{end}_price"] = None
            if price is not None and phase == of_phase and row[f"{end}_per_s"]:
                row[f"{end}_price"] = _MILLION * price / _HOUR / row[f"{end}_per_s"]
        row |= dict.fromkeys(COLUMNS)
        if COLUMNS[0] in own:
            # At least what is known of; at most nothing, where that of one step is not.
            row |= {name: _sum(own[name], whole=name.endswith("most")) for name in COLUMNS}
        row |= shares_of_peak(row, device, row["pace_ns"])
        found.append(row)
    found.sort(key=lambda row: (row["phase"] == OUTSIDE, -row["device_ns"]))
    kinds = {column.name: _TYPES.get(str(column.type)) for column in SERVING_PHASES.columns}
    numbers = {name: kind for name, kind in kinds.items() if kind}
    rows = pd.DataFrame(found, columns=SERVING_PHASES.names).astype(numbers)
    return with_text(rows, [name for name in kinds if name not in numbers])


def _sum(column: pd.Series, *, whole: bool) -> float | None:
    """Return the sum of what is known; None: nothing is, or, if it is to be whole, not all."""
    unknown = column.isna()
    return None if unknown.all() or (whole and unknown.any()) else float(column.sum())


def _show_phases(
    rows: pd.DataFrame,
    steps: pd.DataFrame,
    target: Target,
    models: tuple[dict[str, list[Any]], list[str]] | None,
) -> None:
    """Write the phases; `models`: what the recording says of them, and who they may be."""
    if not target.is_text:
        target.write_frame(rows, SERVING_PHASES.columns)
        return
    if rows.empty or models is None:
        target.write_lines([_NO_STEPS])
        return
    shown = rows[list(_TABLE)].dropna(axis="columns", how="all")
    table = drawn(shown, target, alike=[name for name in _TIMES if name in shown])
    words = []
    if COLUMNS[0] in steps:
        words = list(costs_in_words(rows, steps.attrs))
    elif models[0]:
        words = [_facts(*models)]
    target.write_lines([*table.lines, "", *words, *_notes(steps)])


def _facts(recorded: Mapping[str, list[Any]], names: list[str]) -> str:
    """Say what is known of the model without its configuration."""
    said = ", ".join(f"{name} {', '.join(map(str, recorded[name]))}" for name in recorded)
    who = f"not contradicted: {', '.join(names)}" if names else "no model that is known has them"
    return f"the model: {said}; {who}; --model CONFIG says what it costs"


def _show_kinds(kinds: pd.DataFrame, query: ServingQuery, target: Target) -> None:
    """Write the time and work by kind of layer, by phase if it is asked for."""
    if "phase" not in query.by:
        kinds = _over_phases(kinds).assign(_of=0)
    else:
        kinds = kinds.assign(phase=as_text(kinds["phase"]).fillna(_UNKNOWN))
        of_phase = kinds.groupby("phase", observed=True)["device_ns"].sum()
        kinds["_of"] = kinds["phase"].map(of_phase)
    kinds = kinds.sort_values(["_of", "device_ns"], ascending=False, kind="stable")
    kinds = kinds[[name for name in SERVING_KINDS.names if name in query.by or name not in _KEYS]]
    if not target.is_text:
        columns = [each for each in SERVING_KINDS.columns if each.name in kinds]
        target.write_frame(kinds, columns)
        return
    if kinds.empty:
        target.write_lines([_NO_STEPS])
        return
    shown = kinds[[*query.by, "count", "device_ns", "share_pct"]]
    work = {
        header: [
            _between(row, name, unit) if row[f"{name}_least"] else None
            for row in kinds.astype(object).where(kinds.notna(), None).to_dict("records")
        ]
        for name, (header, unit) in _WORK.items()
    }
    texts = pd.DataFrame(work, kinds.index)
    shown = pd.concat([shown, texts, kinds[["costed_pct"]]], axis="columns")
    table = drawn(shown.dropna(axis="columns", how="all"), target, alike=["device_ns"])
    known = (kinds["costed_pct"].fillna(0) * kinds["device_ns"]).sum() / kinds["device_ns"].sum()
    how = ", by shapes of ops and the configuration"
    if not query.model:
        how = " exactly, by shapes of ops; --model says more, --by op has what is assumed"
    notes = [f"the work of {known:.1f} % of the time is known{how}"]
    if "linear" in set(kinds["kind"]):
        notes.append("linear: products that neither a module nor their order tells apart")
    target.write_lines([*table.lines, "", *notes])


def _over_phases(kinds: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each kind put together."""
    rows = []
    for kind, own in kinds.groupby("kind", sort=False, observed=True):
        time_ns = int(own["device_ns"].sum())
        row: dict[str, Any] = {
            "kind": kind,
            "count": int(own["count"].sum()),
            "device_ns": time_ns,
            "share_pct": own["share_pct"].sum(),
            "costed_pct": (own["costed_pct"].fillna(0) * own["device_ns"]).sum() / max(1, time_ns),
            "cost_from": own["cost_from"].iloc[0] if len(set(own["cost_from"])) == 1 else None,
        }
        for name, rate, unit in (("flops", "tflops", 1e3), ("bytes", "gbps", 1)):
            for end in ("least", "most"):
                total = _sum(own[f"{name}_{end}"], whole=True)
                row[f"{name}_{end}"] = total
                row[f"{rate}_{end}"] = None
                if total is not None and time_ns:
                    row[f"{rate}_{end}"] = total / time_ns / unit
        rows.append(row)
    return pd.DataFrame(rows, columns=SERVING_KINDS.names)


def costs_in_words(rows: pd.DataFrame, about: Mapping[Hashable, Any]) -> Iterator[str]:
    """Say of each phase what the model's configuration makes of it."""
    experts, touched = about["experts"]
    for row in rows[rows["phase"] != OUTSIDE].to_dict("records"):
        work = [
            f"{_between(row, 'flops', 1e12)} TFLOP",
            f"{_between(row, 'bytes', 1e9)} GB",
            f"MFU {_between(row, 'mfu', 1, '_pct')} %",
            f"MBU {_between(row, 'mbu', 1, '_pct')} %",
        ]
        if (words := _bound(row, about["ridge"])) is not None:
            work.append(words)
        if row["phase"] in touched:
            read = f"{format_rate(touched[row['phase']])} of {experts} experts"
            work.append(f"{read} of a layer if routing is uniform")
        yield f"{row['phase']}: {', '.join(text for text in work if _UNKNOWN not in text)}"
        if max(row["mfu_least_pct"] or 0, row["mbu_least_pct"] or 0) > _ALL_PCT:
            yield "  more than the device can do: the configuration, --device or --tp is not right"
    taken = "" if about["cache_bits"] else f"; {_TAKEN}"
    yield f"of the model the recording says too: {', '.join(about['checked'])}{taken}"
    yield _LEFT_OUT


def _bound(row: Mapping[Hashable, Any], ridge: float | None) -> str | None:
    """Say whether FLOPs or bytes limit a phase; None: the device's ridge is between, or unknown."""
    ends = [row[f"{name}_{end}"] for name in ("flops", "bytes") for end in ("least", "most")]
    if ridge is None or any(pd.isna(each) for each in ends) or not ends[2]:
        return None
    least, most = ends[0] / ends[3], ends[1] / ends[2]
    if least <= ridge <= most:
        return None
    what = "memory" if most < ridge else "compute"
    texts = dict.fromkeys((format_rate(least), format_rate(most)))
    return f"{' to '.join(texts)} FLOP/B of {format_rate(ridge)} at the ridge: {what}-bound"


def _between(row: Mapping[Hashable, Any], name: str, unit: float, ending: str = "") -> str:
    least, most = (row[f"{name}_{end}{ending}"] for end in ("least", "most"))
    if pd.isna(least):
        return _UNKNOWN
    if pd.isna(most):
        return f"at least {format_rate(least / unit)}"
    texts = [format_rate(each / unit) for each in (least, most)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _notes(steps: pd.DataFrame) -> Iterator[str]:
    own = steps[steps["serving_step"].notna()]
    dialects = ", ".join(sorted(set(own["dialect"].dropna())))
    words = counted(len(own), "step")
    yield f"{words} by the names of {dialects}; work belongs to the step that launched it"
    ranks = own["rank"].nunique()
    if ranks > 1:
        yield f"of {ranks} ranks together: those that share a model name the same batches"
    if own["period_ns"].isna().all():
        yield "rates are over the span of a step: one alone has no distance to the next"
    wrong = own[own["contradiction"].notna()]
    if len(wrong):
        first = wrong["contradiction"].iloc[0]
        words = counted(len(wrong), "step")
        yield f"{words} without sums of requests and tokens, which contradict each other: {first}"
    yield "each step: run.serving_steps() of pyprof2.load(TRACE)"


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
        kinds, tokens = run_serving.serving_kinds(run.tables), _batches(run)
        if not tokens or kinds.empty:
            refuse(f"{name}: no step of an inference server, or no work of a device, is recorded")
        sums = kinds.groupby(list(by), dropna=False, observed=True)["device_ns"].sum()
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
    target.write_lines([*_heading(names, batches), "", *table.lines, *_difference_notes(batches)])


def _batches(run: Run) -> dict[Hashable, dict[str, float | None]]:
    """Return of each phase its steps, and the requests, new tokens and keys of all of them."""
    steps = run.serving_steps()
    own = steps[steps["serving_step"].notna()]
    tokens, keys = (own[f"c_{name}"] + own[f"g_{name}"] for name in ("sq", "sk"))
    rows = own.assign(tokens=tokens, keys=keys)
    found: dict[Hashable, dict[str, float | None]] = {}
    for phase, each in rows.groupby("phase", sort=False, observed=True):
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


def _difference_notes(batches: Sequence[dict[Hashable, dict[str, float | None]]]) -> Iterator[str]:
    yield ""
    yield "times are for one token that went in; of work that no step launched there is none"
    for phase in batches[0]:
        if phase not in batches[1]:
            continue
        sizes = [_size(each[phase])[1] for each in batches]
        if None not in sizes and max(sizes) > _LIKE * min(sizes):  # type: ignore[type-var, operator]
            words = " and ".join(format_rate(each or 0) for each in sizes)
            yield f"{phase}: requests have {words} keys, so their attention is not the same work"
