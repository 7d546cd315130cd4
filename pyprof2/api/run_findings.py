"""The findings of a run: what it lacks, what to change, and what one of its numbers rests on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from pyprof2.api.run_tables import listed
from pyprof2.api.run_time import RunTime
from pyprof2.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.summaries.advice.facts import RankFacts
    from pyprof2.analysis.summaries.findings import Finding
    from pyprof2.api.job import JobOfRanks
    from pyprof2.problems import Advice
    from pyprof2.store.rank_tables import RankTables

_FEW_LINKED_PCT: Final = 50


class RunFindings(RunTime):
    """The findings of a run."""

    if TYPE_CHECKING:  # `Run` has it

        @property
        def ranks(self) -> JobOfRanks:
            """Results over all ranks together."""

    @cached_property
    def _advice(self) -> tuple[pd.DataFrame, pd.DataFrame, list[Finding]]:
        """The findings of rules, their joint bounds, and the pollution seen with this device."""
        from pyprof2.analysis.summaries.advice import advice_of_facts, noting_pollution

        polluted: list[Finding] = []
        of_ranks = self._rank_facts(self._tables.device)
        facts = noting_pollution(of_ranks, polluted)
        return *advice_of_facts(facts), polluted

    def _rank_facts(self, device: Path | str | None = None) -> Iterator[RankFacts]:
        """Yield what rules look at: of ranks whose devices did anything, else of their hosts."""
        from pyprof2.analysis.summaries.advice.facts import INPUT, facts_of_host, facts_of_parts
        from pyprof2.analysis.time.step_windows import OF_WINDOWS, StepWindows

        def of_rank(rank: RankTables) -> Callable[[str], ChunkedTable]:
            return cache(lambda name: rank.chunked(name, INPUT[name]))

        ranks, advice = self._tables.ranks, self.how_to_record
        if self.idle_windows.empty:
            hosts = self.host_times
            own = [rank for rank in ranks if rank.rank in hosts]
            found = (facts_of_host(of_rank(rank), hosts[rank.rank], advice) for rank in own)
            return self._with_events(found)

        devices = self._tables.table("devices").to_pylist()
        job = self.ranks if len(ranks) > 1 else None
        parts = (
            (rank.rank, of_rank(rank), StepWindows.of(rank.read("steps", OF_WINDOWS)))
            for rank in ranks
        )
        windows = self.idle_windows
        return self._with_events(facts_of_parts(parts, windows, devices, advice, device, job))

    def _with_events(self, found: Iterable[RankFacts]) -> Iterator[RankFacts]:
        """Yield facts with why compiled graphs are not fewer, which the manifest says."""
        events = {each["rank"]: each.get("compile_events", ()) for each in self.manifest["ranks"]}
        for facts in found:
            yield replace(facts, compile_events=events.get(facts.rank, ()))

    @property
    def how_to_record(self) -> Advice:
        """How to record what is missing, with the profiler that was used."""
        from pyprof2.analysis.summaries.checks import decided
        from pyprof2.parsers.formats import advice_of

        summary = self._tables.summary
        return decided(summary, self.manifest, advice_of(summary["profilers"]))

    @cached_property
    def warnings(self) -> list[str]:
        """Lines on what makes the profile less than whole, such as damage, loss and few links."""
        from pyprof2.analysis.summaries.checks import problem_lines

        lines = problem_lines(self.manifest)
        linked = self._tables.summary["linked_pct"]
        if linked is not None and linked < _FEW_LINKED_PCT:
            lines.append(f"only {linked:.1f} % of the kernel time belongs to a PyTorch op")
        return lines

    def _findings(self) -> Iterator[Finding]:
        """Yield what the recording lacks and what was repaired."""
        from pyprof2.analysis.summaries import work_checks
        from pyprof2.analysis.summaries.advice import find_pollution
        from pyprof2.analysis.summaries.checks import find_lacks

        tables, advice = self._tables, self.how_to_record
        yield from find_lacks(tables.summary, self.manifest, advice)
        work = []
        for rank, totals in tables.counted:
            counted = rank.read("kernels", work_checks.COUNTED)
            yield from work_checks.find_impossible_work(
                counted, rank.devices(), rank.rank, rank.device
            )
            del counted
            name = "kernels" if totals.has_gpu else "ops"
            parts = rank.in_parts(name, work_checks.NEEDED[name])
            time_ns = totals.work_time_ns
            work.append(work_checks.CountedWork.of(parts, time_ns, has_gpu=totals.has_gpu))
        yield from work_checks.find_work(work, advice)
        if tables.device is None:
            devices = [row for rank in tables.ranks for row in rank.devices()]
            yield from work_checks.find_devices(devices)
        # To put the facts together takes longer than all rules: where they were, it is known.
        noted = tables.device is None and "_advice" in self.__dict__
        yield from self._advice[2] if noted else find_pollution(self._rank_facts())

    def check(self) -> pd.DataFrame:
        """Return what the recording lacks and what was repaired; columns as `pyprof2 check`."""
        from pyprof2.analysis.summaries.findings import findings_table

        return findings_table(self._findings(), several_ranks=len(self._tables.ranks) > 1)

    def _rank_of(self, reference: str, rank: int | None) -> int:
        """Return the rank whose row a reference names.

        Raises:
            UsageError: there is no such rank, or which of several is not said.
        """
        ranks = [each.rank for each in self._tables.ranks]
        if rank is None and len(ranks) > 1:
            refuse(f"{reference}: in which rank? Add --rank N, one of {listed(ranks)}")
        (found, *_) = self._tables.of(rank)
        return found.rank

    def explain_all(self, references: Sequence[tuple[int, str]]) -> Iterator[dict[str, Any]]:
        """Yield what is known of the row that each of several ranks and references names."""
        from pyprof2.analysis.summaries.explain import Explainer, explain, parse_reference

        of_rank = {each.rank: each for each in self._tables.ranks}
        for rank, own in groupby(references, key=lambda each: each[0]):
            wanted = [parse_reference(reference) for _, reference in own]
            known = Explainer(of_rank[rank], wanted, self._tables.device)
            for reference in wanted:
                yield {"rank": rank} | explain(known, reference)
