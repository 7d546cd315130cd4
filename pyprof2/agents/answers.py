"""The six tools: each takes names and ids, and returns an answer that an agent has room for."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.summaries.explain import parse_reference
from pyprof2.api import run_profile, run_time
from pyprof2.api.comparison import compare as compare_runs
from pyprof2.api.run import Run
from pyprof2.api.run_tables import RunTables
from pyprof2.columns import as_text
from pyprof2.errors import UsageError, refuse
from pyprof2.pipeline.parsing import parse_found
from pyprof2.reports import explanation, files
from pyprof2.reports.files import NOT_RECORDED, call, envelope, evidence_of, meanings
from pyprof2.reports.ranks import by_rank
from pyprof2.store import queries
from pyprof2.store.folder import STORED, is_store
from pyprof2.store.remote import Readable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from pyprof2.agents.folders import Folders

    Answer = dict[str, Any]

BYTES: Final = 6_000
"""The longest answer, as JSON: 2,000 tokens where a token has three bytes, and most have more."""

_FORCES: Final = "; --allow-mismatch compares all the same"
"""The end of a message on a comparison: it is for who types commands."""
_ROWS: Final = 25
_MOST_ROWS: Final = 100
"""So many rows of SQL, each text of at most `_CELL` characters, in at most `_SECONDS`."""
_CELL: Final = 200
_SECONDS: Final = 10.0
_FEW: Final = 5
_FILTERS: Final = (
    "rank", "step", "layer", "op", "kernel", "range", "direction", "category", "device",
    "stream",
)  # fmt: skip
_TEXTS: Final = ("layer", "op", "kernel", "range")
_LISTS: Final = ("direction", "category", "device", "stream")
_KERNEL: Final = (
    "kernel_id", "op_id", "rank", "step", "dur_ns", "kernel_short", "op", "layer", "source",
    "direction", "tflops", "gbps", "roofline_pct", "tensor_core",
)  # fmt: skip
_FIND: Final = (
    "rule", "severity", "finding", "expected_ns", "at_stake_lo_ns", "at_stake_hi_ns", "source",
    "remedy", "evidence",
)  # fmt: skip
_SUMS: Final = (
    "count", "time_ns", "share_pct", "flops", "bytes", "tflops", "gbps", "roofline_pct",
    "tensor_core_pct",
)  # fmt: skip


@dataclass
class _Opened:
    """A recording that was opened: its id and name, its run, the folder of its temporary store."""

    id: str
    name: str
    run: Run
    scratch: Path | None


@dataclass
class AgentTools:
    """The tools of an agent, and the recordings that it opened, by their ids.

    Attributes:
        folders: where recordings may lie.
    """

    folders: Folders
    _opened: dict[str, _Opened] = field(default_factory=dict)

    def open(self, trace: str = "") -> Answer:
        """Open a recording by its name, or list what there is; the id is for the calls after it."""
        if not trace:
            names, more = self.folders.listed()
            return self._fitted(
                {"recordings": names, "more": more}, {"found": "by their endings, not read"},
                [call("open", trace=name) for name in names[:1]],
            )  # fmt: skip
        found = self.folders.find(trace)
        same = (each for each in self._opened.values() if each.name == str(found))
        opened = next(same, None) or self._read(found)
        run = opened.run
        counts = {name: run.table(name).num_rows for name in STORED}
        data = {
            "id": opened.id,
            "ranks": run.summary["ranks"],
            "steps": run.summary["steps"],
            "devices": run.summary["devices"] or None,
            "tables": {name: count for name, count in counts.items() if count},
            "empty_tables": [name for name, count in counts.items() if not count],
        }
        return self._fitted(data, evidence_of(run), [call("overview", trace=opened.id)])

    def overview(self, trace: str = "") -> Answer:
        """Say where the time went, what stands out, and what to change."""
        opened = self._of(trace)
        run = opened.run
        from pyprof2.analysis.summaries.totals import total_utilization
        from pyprof2.reports.heading import disturbances, figures, sentence

        advice, summary = run.advise(), run.summary
        fires = advice[advice["status"] == "fires"]
        silent = advice[advice["status"] == "unknown"]
        gpu = ("kernel_count", "kernel_time_ns", "copy_time_ns", "busy_ns")
        without = dict.fromkeys(gpu if summary["no_gpu"] else ())
        idle = run.idle_profile(("cause",))
        data = {
            "says": sentence(run, disturbances(advice)),
            "figures": {each.name: [each.value, each.note] for each in figures(run)},
            "totals": {name: summary[name] for name in (*gpu, "op_count", "op_time_ns")}
            | without
            | {"recorded_ns": run.spent.recorded_ns or None, "steps": len(summary["steps"])}
            | total_utilization(run_time.utilization_rows(run.tables)),
            "idle": idle[["cause", "time_ns", "window_pct"]].head(_FEW).to_dict("records"),
            "findings": fires[list(_FIND)].head(_FEW).to_dict("records"),
            "cannot_judge": sorted(set(silent["rule"])),
            "top_ops": self._sums(opened, ("op",), {}).head(_FEW)[
                ["op", "time_ns", "share_pct", "id"]
            ].to_dict("records"),
        }  # fmt: skip
        if len(summary["ranks"]) > 1:
            from pyprof2.reports.ranks import answers

            data["which_rank_is_slow"] = answers(run.ranks)[:3]
        made = {
            "figures": "of the steps, else of all that was recorded",
            "totals": "sums of the tables; mfu_pct and hfu_pct: FLOPs over what the peak allows",
            "idle": "each ns without a kernel or copy has one cause; window_pct: of the recorded",
            "findings": "rules of `pyprof2 advise`; times at stake overlap: never add them up",
        }
        following = [call("top", trace=opened.id, axis=axis) for axis in ("layer", "source")]
        following += [call("top", trace=opened.id, axis="idle:cause,source")]
        return self._fitted(data, evidence_of(run, made), following, ("cannot_judge", "top_ops"))

    def top(
        self,
        axis: str = "op",
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the name in the tool's interface
        columns: Sequence[str] = (),
        trace: str = "",
        skip: int = 0,
    ) -> Answer:
        """Return the rows with the most time along an axis, each with an id for `explain`."""
        opened = self._of(trace)
        kind, _, rest = axis.partition(":")
        named = tuple(each.strip() for each in (rest or kind).split(","))
        along: dict[str, Callable[[], pd.DataFrame]] = {
            "idle": lambda: opened.run.idle_profile(named if rest else ("cause",)),
            "memory": lambda: opened.run.memory_profile(named if rest else ("category",)),
            "findings": lambda: opened.run.advise()[["status", "rank", *_FIND, "needs"]],
            "lacks": opened.run.check,
            "ranks": lambda: by_rank(opened.run.ranks),
            "kernel": lambda: self._kernels(opened, filter or {}, columns),
        }
        if kind in along and kind != "kernel" and filter:
            refuse(f"axis {axis!r} takes no filter: leave it out")
        rows = along[kind]() if kind in along else self._sums(opened, named, filter or {}, columns)
        known = [name for name in columns if name in rows]
        if missing := [name for name in columns if name not in rows]:
            msg = f"no column {missing[0]!r} along {axis!r}; there are {', '.join(map(str, rows))}"
            raise UsageError(msg)
        if known:
            keys = [name for name in rows if name in (*named, "id")]
            rows = rows[list(dict.fromkeys([*keys, *known]))]
        made = evidence_of(opened.run, meanings(_columns_of(kind), map(str, rows)))
        shown = rows.iloc[max(0, skip) :].head(_ROWS)
        data: dict[str, Any] = {
            "axis": axis,
            "filter": dict(filter or {}),
            "rows": shown.to_dict("records"),
            "of": len(rows),
        }
        if not len(rows):
            data["says"] = "nothing fits the filter" if filter else NOT_RECORDED
        again: dict[str, Any] = {"trace": opened.id, "axis": axis}
        again |= ({"filter": dict(filter)} if filter else {}) | (
            {"columns": known} if known else {}
        )
        ids = [row["id"] for row in data["rows"] if isinstance(row.get("id"), str)]
        return self._fitted(
            data, made, [call("explain", id=each) for each in ids[:1]], rows=(skip, again)
        )

    def explain(self, id: str) -> Answer:  # noqa: A002 - the name in the tool's interface
        """Say everything that is known of one kernel or op, and what each number rests on."""
        trace, rank, reference = _parts(id)
        parse_reference(reference)
        opened = self._of(trace)
        facts = opened.run.explain(reference, rank)
        sections = {name: list(lines) for name, lines in explanation.sections(facts)}
        cost, roof = (facts[name] or {} for name in ("cost", "roof"))
        op, kernel = (facts[name] or {} for name in ("op", "kernel"))
        numbers = {
            "dur_ns": kernel.get("dur_ns", op.get("dur_ns")),
            "flops": cost.get("flops"), "bytes": cost.get("bytes"),
            "tflops": roof.get("tflops"), "gbps": roof.get("gbps"),
            "roofline_pct": roof.get("roofline_pct"), "bound": roof.get("bound"),
            "step": kernel.get("step", op.get("step")), "layer": op.get("layer"),
            "source": op.get("source"), "op": op.get("op"), "direction": op.get("direction"),
            "signature": op.get("signature"),
        }  # fmt: skip
        data = {
            "id": id,
            "numbers": numbers,
            "says": {n: lines for n, lines in sections.items() if lines},
        }
        evidence = evidence_of(opened.run, {"says": "each section names what its numbers rest on"})
        place = f"{opened.id}/rank{facts['rank']}"
        around = [*(op.get("inside") or ()), (facts["pair"] or {}).get("forward")]
        following = [call("explain", id=f"{place}/op:{each['op_id']}") for each in around if each]
        return self._fitted(data, evidence, following[:3])

    def compare(self, a: str, b: str) -> Answer:
        """Say what makes the steps of b slower or faster than those of a, in terms that add up."""
        before, after = self._of(a), self._of(b)
        evidence = {name: evidence_of(each.run) for name, each in (("a", before), ("b", after))}
        evidence["terms"] = {
            "add up": "to the difference of a step, exactly; lo_ns, hi_ns: 2 std. errors"
        }
        following = [call("overview", trace=each.id) for each in (before, after)]
        try:
            found = compare_runs(before.run, after.run)
        except UsageError as error:
            why = str(error).removesuffix(_FORCES)
            return self._fitted({"comparable": False, "why": why}, evidence, following)
        from pyprof2.reports.comparison import parts_by, term_rows

        steps = [float(each) for each in found.comparison.step_ns]
        names = ("metric", "a_ns", "b_ns", "lo_ns", "hi_ns")
        data = {
            "comparable": True, "a": before.id, "b": after.id,
            "a_step_ns": steps[0], "b_step_ns": steps[1],
            "difference_ns": steps[1] - steps[0], "steps": list(found.comparison.steps),
            "remarks": found.remarks,
            "totals": found.comparison.totals[list(names)].to_dict("records"),
            "terms": term_rows(found.comparison).to_dict("records"),
            "largest_parts": parts_by(found.comparison, ("layer", "op")).head(8).to_dict("records"),
        }  # fmt: skip
        return self._fitted(data, evidence, following, ("largest_parts", "terms", "totals"))

    def sql(self, query: str, trace: str = "") -> Answer:
        """Return the rows of one SELECT over the tables of a recording."""
        opened = self._of(trace)
        found = queries.query(opened.run.path, query, seconds=_SECONDS, rows=_MOST_ROWS)
        rows = [_shorter(row, _CELL) for row in found.table.to_pylist()]
        evidence = evidence_of(
            opened.run, {"all": "as `DESCRIBE` of the tables, and the query, say"}
        )
        evidence["limits"] = f"{_MOST_ROWS} rows, {_SECONDS:g} s"
        return self._fitted({"rows": rows, "more": found.more}, evidence, [], ("rows",))

    def close(self) -> None:
        """Delete what was written to read recordings."""
        for opened in self._opened.values():
            if opened.scratch is not None:
                shutil.rmtree(opened.scratch, ignore_errors=True)
        self._opened.clear()

    def _read(self, found: Path) -> _Opened:
        """Read a store, or parse a recording into a temporary one."""
        scratch: Path | None = None
        if is_store(found):
            run = Run(RunTables(found))
        else:
            scratch = Path(tempfile.mkdtemp(prefix="pyprof2-"))
            try:
                # Two deep: torch's notes of graphs are looked for one above the recording's folder.
                stage = scratch / "in" / "beside"
                stage.mkdir(parents=True)
                staged = self.folders.lay_out(found, stage)
                named = Readable([staged], [(f"{stage}/", "")])
                run = Run(RunTables(parse_found(named, scratch / "store", looks_at_code=False)))
            except BaseException as error:
                shutil.rmtree(scratch, ignore_errors=True)
                error.args = tuple(str(each).replace(f"{scratch}/", "") for each in error.args)
                raise
        opened = _Opened(f"t{len(self._opened) + 1}", str(found), run.of_span("latest"), scratch)
        self._opened[opened.id] = opened
        return opened

    def _of(self, trace: str) -> _Opened:
        """Return what has an id; without one what was opened last.

        Raises:
            UsageError: nothing has it.
        """
        if not trace and self._opened:
            return list(self._opened.values())[-1]
        if trace not in self._opened:
            there = ", ".join(self._opened) or "none"
            refuse(f"no recording {trace!r} is open; open(trace) gives an id; there is: {there}")
        return self._opened[trace]

    def _kernels(
        self, opened: _Opened, chosen: Mapping[str, Any], columns: Sequence[str]
    ) -> pd.DataFrame:
        """Return kernels and copies, without a GPU op calls, the longest first."""
        from pyprof2.analysis.summaries.profile import select
        from pyprof2.analysis.summaries.profile_columns import columns_of
        from pyprof2.tables import PROFILE_COLUMNS

        asked = [name for name in columns if name in PROFILE_COLUMNS]
        selection = _selection(chosen)
        rows = run_profile.rows_of(opened.run.tables, {*_KERNEL, *asked, *columns_of(selection)})
        rows = select(rows, **selection).sort_values("dur_ns", ascending=False, kind="stable")
        ids = [_id(opened, row) for row in rows[["rank", "kernel_id", "op_id"]].to_dict("records")]
        names = list(dict.fromkeys([*_KERNEL[2:], *asked]))
        return rows[names].assign(id=ids)[["id", *names]]

    def _sums(
        self,
        opened: _Opened,
        axes: Sequence[str],
        chosen: Mapping[str, Any],
        more: Sequence[str] = (),
    ) -> pd.DataFrame:
        """Return sums along axes, each with the id of the longest kernel that is its alone."""
        from pyprof2.analysis.axes import NONE
        from pyprof2.analysis.summaries.profile import select
        from pyprof2.analysis.summaries.profile_columns import (
            AXES,
            asked_columns,
            axis_named,
            columns_of,
        )

        run, selection = opened.run, _selection(chosen)
        asked = [
            c.name for c in asked_columns([axis_named(each) for each in axes]) if c.name in more
        ]
        found = run.profile(axes, columns=asked, span="all", **selection)
        keys = [AXES[axis_named(axis)] for axis in axes]
        wanted = {*keys, "rank", "kernel_id", "op_id", "dur_ns", *columns_of(selection)}
        rows = select(run_profile.rows_of(run.tables, wanted), **selection).reset_index(drop=True)
        texts = as_text(rows[keys].astype(object).where(rows[keys].notna(), NONE))
        longest = (
            rows.groupby([texts[key] for key in keys], observed=True)["dur_ns"].idxmax().tolist()
        )
        named = texts.iloc[longest].itertuples(index=False, name=None)
        parts = rows[["rank", "kernel_id", "op_id"]].iloc[longest].to_dict("records")
        ids = {key: _id(opened, row) for key, row in zip(named, parts, strict=True)}
        shown = as_text(found[keys].astype(object).where(found[keys].notna(), NONE))
        own: list[Any] = [ids.get(key) for key in shown.itertuples(index=False, name=None)]
        names = [*keys, *(n for n in found if n in _SUMS), *(n for n in more if n in found)]
        return found[list(dict.fromkeys(names))].assign(id=own)

    def _fitted(
        self,
        data: dict[str, Any],
        evidence: Mapping[str, Any],
        following: Sequence[Any],
        lists: Sequence[str] = (),
        rows: tuple[int, Mapping[str, Any]] | None = None,
    ) -> Answer:
        """Return an answer of `BYTES` at most.

        Args:
            data: the answer.
            evidence: what it rests on.
            following: the calls that lead on.
            lists: of the data, which lose rows at their end where it is too long, one by one.
            rows: that `rows` of the data lose theirs: how many came before, and the call for more.
        """
        left: dict[str, int] = {}
        for name in [*lists, *(["rows"] if rows is not None else [])]:
            whole = list(data[name])
            while data[name] and _size(data, evidence, following) > BYTES - 400:
                data[name] = data[name][: len(data[name]) * 3 // 4]
            if len(data[name]) < len(whole):
                left[name] = len(whole) - len(data[name])
        if left:
            data["left_out"] = left
        if rows is not None:
            skip, again = rows
            shown = skip + len(data["rows"])
            if data["rows"] and shown < data["of"]:
                following = [*following, call("top", **again, skip=shown)]
        answer = envelope(data, evidence, following, brief=True)
        return answer if len(files.json_text(answer).encode()) <= BYTES else _cut(answer)


def _size(data: Any, evidence: Any, following: Any) -> int:
    return len(files.json_text(envelope(data, evidence, following, brief=True)).encode())


def _cut(answer: Answer) -> Answer:
    """Return an answer with the longest texts of its data cut, until it fits."""
    for most in (120, 60, 30, 15):
        answer = {
            **answer,
            "data": _shorter(answer["data"], most),
            "cut": f"texts of over {most} characters",
        }
        if len(files.json_text(answer).encode()) <= BYTES:
            return answer
    return {**answer, "data": "too long: ask for fewer columns", "cut": "all of the data"}


def _shorter(value: Any, most: int) -> Any:
    if isinstance(value, dict):
        return {key: _shorter(each, most) for key, each in value.items()}
    if isinstance(value, list):
        return [_shorter(each, most) for each in value[:12]]
    return f"{value[:most]}…" if isinstance(value, str) and len(value) > most else value


def _id(opened: _Opened, row: Mapping[Any, Any]) -> str:
    is_op = opened.run.summary["no_gpu"]
    kind = f"op:{row['op_id']}" if is_op else f"kernel:{row['kernel_id']}"
    return f"{opened.id}/rank{row['rank']}/{kind}"


def _parts(text: str) -> tuple[str, int, str]:
    """Return recording, rank and reference of an id.

    Raises:
        UsageError: it is none.
    """
    trace, _, rest = text.partition("/rank")
    rank, _, reference = rest.partition("/")
    if not rank.isdecimal():
        refuse(f"{text!r}: no id; the rows of top have ids as t1/rank0/kernel:7")
    return trace, int(rank), reference


def _selection(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return a filter as `run.profile` takes it: texts are found as they are, | between several.

    Raises:
        UsageError: it names what cannot be filtered by.
    """
    import re

    unknown = next((name for name in chosen if name not in (*_FILTERS, "copies")), None)
    if unknown is not None:
        refuse(f"no filter {unknown!r}; there is {', '.join(_FILTERS)} and copies")
    found: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    for name, value in list(found.items()):
        if name in _TEXTS:
            # No regular expressions: one can be made to take forever.
            found[name] = "|".join(map(re.escape, str(value).split("|")))
        elif name in _LISTS:
            found[name] = value if isinstance(value, list) else [value]
        elif name == "step":
            first, _, last = str(value).partition(":")
            if not all(part.strip().lstrip("-").isdecimal() for part in (first, last or first)):
                refuse(f"step {value!r}: give a number, or first:last")
            found[name] = (int(first), int(last or first))
    return found


def _columns_of(kind: str) -> list[Any]:
    """Return the columns of the rows along a kind of axis, with what they mean."""
    from pyprof2.analysis.memory.live import ROW_COLUMNS
    from pyprof2.analysis.summaries.idle_profile import SUMMARY_COLUMNS as OF_IDLE
    from pyprof2.analysis.summaries.profile_columns import MORE_COLUMNS, SUMMARY_COLUMNS
    from pyprof2.result_tables import ADVICE, FINDINGS
    from pyprof2.tables import IDLE, KERNELS

    special = {
        "idle": (*IDLE.columns, *OF_IDLE), "memory": ROW_COLUMNS, "findings": ADVICE.columns,
        "lacks": FINDINGS.columns,
    }  # fmt: skip
    return [*special.get(kind, (*KERNELS.columns, *MORE_COLUMNS, *SUMMARY_COLUMNS))]
