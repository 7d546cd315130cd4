"""The tables of all ranks of a run, and the totals on which all else that is asked of it rests."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from pyprof2.api.displays import Summary
from pyprof2.columns import as_pandas
from pyprof2.errors import refuse
from pyprof2.recording import has_text
from pyprof2.store.folder import STORED, ranks_of, read_manifest, read_table
from pyprof2.store.rank_tables import RankTables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    import pandas as pd

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.summaries.totals import Totals
    from pyprof2.analysis.time.step_times import TimedStep

_Found = TypeVar("_Found")
_More = ParamSpec("_More")


def listed(numbers: Iterable[int]) -> str:
    """Return numbers as a message names them."""
    return ", ".join(map(str, numbers))


@dataclass
class RunTables:
    """The tables of all ranks of a run; what is found in them is kept with them.

    Attributes:
        path: the store.
        device: name or file of the device whose roofs to use; None: the recorded one.
        source_root: the folder of the user's own code; None: the one that the store was made with.
        first_ids: of one span of each rank, what to add to its ids, by rank and column, to have
            those of all spans.
        label: what messages call it: as the user named it, where `path` is a temporary store.
        whole: the tables of all spans, where these are of one of each rank.
        made: what functions that are `kept` returned, by their names and arguments.
    """

    path: Path
    device: Path | str | None = None
    source_root: str | None = None
    first_ids: Mapping[int, Mapping[str, int]] = field(default_factory=dict, repr=False)
    label: str = field(default="", repr=False)
    whole: RunTables | None = field(default=None, repr=False)
    made: dict[tuple[Any, ...], Any] = field(default_factory=dict, init=False, repr=False)
    _frames: dict[str, pd.DataFrame] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the manifest, which refuses what is no store.

        Raises:
            UsageError: `device` is neither a name that is known nor a file.
        """
        self.manifest = read_manifest(self.path)
        self.label = self.label or str(self.path)
        if self.device is not None:
            from pyprof2.analysis.hardware.verdict import named_device

            named_device(self.device)

    @cached_property
    def ranks(self) -> list[RankTables]:
        """The tables of each rank."""
        return [
            RankTables(self.path, rank, self.device, self.source_root)
            for rank in ranks_of(self.path)
        ]

    def of(self, rank: int | None) -> list[RankTables]:
        """Return the tables of one rank, or of each.

        Raises:
            UsageError: there is no such rank.
        """
        found = [each for each in self.ranks if rank in {None, each.rank}]
        if not found:
            known = listed(each.rank for each in self.ranks)
            refuse(f"rank {rank}: no such rank; there is {known}")
        return found

    def table(self, name: str, columns: Collection[str] | None = None) -> pa.Table:
        """Return columns of a table, or all, the ranks one after another."""
        parts = [rank.read(name, columns) for rank in self.ranks]
        return pa.concat_tables(parts).unify_dictionaries()

    def frame(self, name: str) -> pd.DataFrame:
        """Return a table, the ranks one after another, as a DataFrame, made once."""
        if name not in self._frames:
            self._frames[name] = as_pandas(self.table(name), STORED[name].never_null)
        return self._frames[name]

    def of_each(self, analysis: Callable[[RankTables], pd.DataFrame]) -> pd.DataFrame:
        """Return the results of an analysis of each rank, one after another."""
        import pandas as pd

        return pd.concat([analysis(rank) for rank in self.ranks], ignore_index=True)

    @cached_property
    def source_roots(self) -> list[str]:
        """The folders of the user's own code, the longest first."""
        roots = {root for rank in self.ranks for root in rank.source_roots}
        return sorted(roots, key=len, reverse=True)

    @cached_property
    def spans(self) -> dict[int, list[int]]:
        """The spans of each rank in order of time."""
        traces = ((rank.rank, rank.read("trace", ["span"])["span"]) for rank in self.ranks)
        return {rank: sorted(set(column.to_pylist())) for rank, column in traces}

    def with_ranges(self, kind: str) -> list[RankTables]:
        """Return the ranks that have ranges of a kind."""
        return [
            rank
            for rank in self.ranks
            if has_text(rank.read("ranges", ["kind"]), "kind", (kind,)).any()
        ]

    @cached_property
    def _totals(self) -> list[Totals]:
        """The totals of each rank."""
        from pyprof2.analysis.summaries.totals import Totals

        return [Totals.of(rank.read("summary")) for rank in self.ranks]

    @cached_property
    def counted(self) -> list[tuple[RankTables, Totals]]:
        """The ranks that a profile is of: where any has GPU activity, only those that have."""
        from pyprof2.analysis.summaries.totals import counted

        chosen = {each.rank for each in counted(self._totals)}
        both = zip(self.ranks, self._totals, strict=True)
        return [(rank, totals) for rank, totals in both if rank.rank in chosen]

    @property
    def counted_ranks(self) -> list[RankTables]:
        """The tables of the ranks that a profile is of."""
        return [rank for rank, _ in self.counted]

    @cached_property
    def summary(self) -> Summary:
        """Totals, busy time and coverage."""
        from pyprof2.analysis.summaries.totals import summary

        times: dict[str, int] = {}
        for rank, _ in self.counted:
            for row in rank.read("ledger", ["bin", "time_ns"]).to_pylist():
                times[row["bin"]] = times.get(row["bin"], 0) + row["time_ns"]
        steps = read_table(self.path, "steps", ["step"])["step"].to_pylist()
        return Summary(summary(self._totals, steps, times))

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        """The rows of table `steps` that means are made of: without slow first steps."""
        from pyprof2.analysis.summaries.spent import OF_STEPS
        from pyprof2.analysis.time.step_times import SHARES, TimedStep

        names = dict.fromkeys((*TimedStep._fields, *OF_STEPS, *SHARES))
        rows: list[dict[str, Any]] = read_table(self.path, "steps", [*names]).to_pylist()
        slow = {(each.rank, each.start_ns, each.step) for each in self.slow_starts}
        return [row for row in rows if (row["rank"], row["start_ns"], row["step"]) not in slow]

    @cached_property
    def windows(self) -> list[TimedStep]:
        """The window of each step once, in order of rank and time."""
        from pyprof2.analysis.time.step_times import TimedStep, timed_steps

        return timed_steps(read_table(self.path, "steps", TimedStep._fields))

    @cached_property
    def slow_starts(self) -> set[TimedStep]:
        """The first steps that no mean has; see `pyprof2.analysis.time.step_times.slow_starts`."""
        from pyprof2.analysis.time.step_times import slow_starts

        return slow_starts(self.windows)

    @property
    def peaks(self) -> Device | None:
        """The limits of the devices; None where they are not known, or not all of one kind."""
        from pyprof2.analysis.hardware.verdict import find_peaks, named_device

        if self.device is not None:
            return named_device(self.device)
        found = [find_peaks(row) for row in self.table("devices").to_pylist()]
        first = next(iter(found), None)
        return first if first and all(each and each.name == first.name for each in found) else None

    @property
    def mean_step_ns(self) -> float | None:
        """The mean time of a step over all ranks in ns, as every screen has it; None without steps.

        It is from the step's beginning until the last work ends that it launched. A first step
        that took much longer than the others is left out.
        """
        usual = [each.dur_ns for each in self.windows if each not in self.slow_starts]
        return sum(usual) / len(usual) if usual else None

    def of_span(self, span: int | str) -> RunTables:
        """Return the tables of one span of each rank, or of all; see `Run.of_span`."""
        chosen = {
            rank: own[-1] if span == "latest" else int(span)
            for rank, own in self.spans.items()
            if span == "latest" or span in own
        }
        if span == "all" or all(own == [chosen.get(rank)] for rank, own in self.spans.items()):
            return self
        if not chosen:
            numbers = sorted({number for own in self.spans.values() for number in own})
            refuse(f"span {span}: no such span; there is {listed(numbers)}, latest and all")
        from pyprof2.pipeline.spans import write_spans

        folder = tempfile.mkdtemp(prefix="pyprof2-")
        try:
            store = Path(folder) / "store"
            first_ids = write_spans(self.path, chosen, store)
            found = RunTables(store, self.device, self.source_root, first_ids, self.label, self)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
        return found

    @property
    def span_option(self) -> str:
        """The option of a command line that picks this run of the store, such as ` --span 0`."""
        if self.whole is None:
            return " --span all" if any(len(own) > 1 for own in self.spans.values()) else ""
        latest = {rank: own[-1:] for rank, own in self.whole.spans.items()}
        chosen = next(iter(self.spans.values()))[0]
        return "" if self.spans == latest else f" --span {chosen}"


def kept(
    make: Callable[Concatenate[RunTables, _More], _Found],
) -> Callable[Concatenate[RunTables, _More], _Found]:
    """Have what a function makes of the tables of a run made once, and kept with them."""

    @wraps(make)
    def found(tables: RunTables, /, *args: _More.args, **named: _More.kwargs) -> _Found:
        key = (make.__qualname__, *args, *named.items())
        if key not in tables.made:
            tables.made[key] = make(tables, *args, **named)
        result: _Found = tables.made[key]
        return result

    return found
