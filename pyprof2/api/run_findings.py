"""The findings of a run: what it lacks, what to change, and what one of its numbers rests on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from pyprof2.api import run_time
from pyprof2.api.run_tables import kept, listed
from pyprof2.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from pyprof2.analysis.summaries.advice.facts import RankFacts
    from pyprof2.analysis.summaries.findings import Finding
    from pyprof2.api.run_tables import RunTables
    from pyprof2.problems import Advice

_FEW_LINKED_PCT: Final = 50
PREDICTION: Final = "predict:"
"""How the reference of a prediction begins."""


@kept
def advice_of_run(tables: RunTables) -> tuple[pd.DataFrame, pd.DataFrame, list[Finding]]:
    """The findings of rules, their joint bounds, and the pollution seen with this device."""
    from pyprof2.analysis.summaries.advice import advice_of_facts, noting_pollution

    polluted: list[Finding] = []
    of_ranks = rank_facts(tables, tables.device)
    facts = noting_pollution(of_ranks, polluted)
    return *advice_of_facts(facts), polluted


def rank_facts(tables: RunTables, device: Path | str | None = None) -> Iterator[RankFacts]:
    """Yield what rules look at: of ranks whose devices did anything, else of their hosts."""
    from pyprof2.analysis.summaries.advice.facts import facts_of_host, facts_of_parts
    from pyprof2.analysis.time.step_windows import OF_WINDOWS, StepWindows
    from pyprof2.api.job import job_of_ranks

    ranks, advice = tables.ranks, how_to_record(tables)
    if run_time.idle_windows(tables).empty:
        hosts = run_time.host_times(tables)
        own = [rank for rank in ranks if rank.rank in hosts]
        found = (facts_of_host(cache(rank.parts), hosts[rank.rank], advice) for rank in own)
        return _with_events(tables, found)

    devices = tables.table("devices").to_pylist()
    job = job_of_ranks(tables) if len(ranks) > 1 else None
    parts = (
        (rank.rank, cache(rank.parts), StepWindows.of(rank.read("steps", OF_WINDOWS)))
        for rank in ranks
    )
    windows = run_time.idle_windows(tables)
    return _with_events(tables, facts_of_parts(parts, windows, devices, advice, device, job))


def _with_events(tables: RunTables, found: Iterable[RankFacts]) -> Iterator[RankFacts]:
    """Yield facts with why compiled graphs are not fewer, which the manifest says."""
    events = {each["rank"]: each.get("compile_events", ()) for each in tables.manifest["ranks"]}
    for facts in found:
        yield replace(facts, compile_events=events.get(facts.rank, ()))


def how_to_record(tables: RunTables) -> Advice:
    """How to record what is missing, with the profiler that was used."""
    from pyprof2.analysis.summaries.checks import decided
    from pyprof2.parsers.formats import advice_of

    summary = tables.summary
    return decided(summary, tables.manifest, advice_of(summary["profilers"]))


@kept
def warnings(tables: RunTables) -> list[str]:
    """Lines on what makes the profile less than whole, such as damage, loss and few links."""
    from pyprof2.analysis.summaries.checks import problem_lines

    lines = problem_lines(tables.manifest)
    linked = tables.summary["linked_pct"]
    if linked is not None and linked < _FEW_LINKED_PCT:
        lines.append(f"only {linked:.1f} % of the kernel time belongs to a PyTorch op")
    return lines


def _findings(tables: RunTables) -> Iterator[Finding]:
    """Yield what the recording lacks and what was repaired."""
    from pyprof2.analysis.summaries import work_checks
    from pyprof2.analysis.summaries.advice import find_pollution
    from pyprof2.analysis.summaries.checks import find_lacks

    advice = how_to_record(tables)
    yield from find_lacks(tables.summary, tables.manifest, advice)
    work = []
    for rank, totals in tables.counted:
        counted = rank.read("kernels", work_checks.COUNTED)
        yield from work_checks.find_impossible_work(counted, rank.devices(), rank.rank, rank.device)
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
    noted = tables.device is None and ("advice_of_run",) in tables.made
    yield from advice_of_run(tables)[2] if noted else find_pollution(rank_facts(tables))


def check(tables: RunTables) -> pd.DataFrame:
    """Return what the recording lacks and what was repaired; columns as `pyprof2 check`."""
    from pyprof2.analysis.summaries.findings import findings_table

    return findings_table(_findings(tables), several_ranks=len(tables.ranks) > 1)


def explain_row(tables: RunTables, reference: str, rank: int | None) -> dict[str, Any]:
    """Return all that is known of one kernel or op; see `Run.explain`."""
    from pyprof2.analysis.summaries.explain import parse_reference

    if reference.startswith(PREDICTION):
        from pyprof2.api.prediction import PredictedStep, devices_of

        (device,) = devices_of(reference.removeprefix(PREDICTION))
        return PredictedStep(tables).explain(device)

    parse_reference(reference)
    ranks = [each.rank for each in tables.ranks]
    if rank is None and len(ranks) > 1:
        refuse(f"{reference}: in which rank? Add --rank N, one of {listed(ranks)}")
    (found, *_) = tables.of(rank)
    return next(explain_all(tables, [(found.rank, reference)]))


def explain_all(
    tables: RunTables, references: Sequence[tuple[int, str]]
) -> Iterator[dict[str, Any]]:
    """Yield what `Run.explain` returns for each of several ranks and references, in their order.

    The tables of a rank are read once for the references that follow one another, and of
    them only the rows that these lead to.
    """
    from pyprof2.analysis.summaries.explain import Explainer, explain, parse_reference

    tables = tables.whole or tables  # ids are those of all spans
    of_rank = {each.rank: each for each in tables.ranks}
    for rank, own in groupby(references, key=lambda each: each[0]):
        wanted = [parse_reference(reference) for _, reference in own]
        known = Explainer(of_rank[rank], wanted, tables.device)
        for reference in wanted:
            yield {"rank": rank} | explain(known, reference)
