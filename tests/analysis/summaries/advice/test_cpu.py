"""Rules where no device worked: each on what it is for, with a stake that the eye can check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.summaries.advice.advise import advice_of_facts
from pyprof2.analysis.summaries.advice.facts import INPUT, facts_of_host
from pyprof2.analysis.time.host_time import host_time
from pyprof2.analysis.time.idle import INPUT as IDLE_INPUT
from pyprof2.parsers.formats import FORMATS
from tests.analysis.summaries.advice.recordings import US, event
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS: Final = 4
STEP_US: Final = 10_000
_LOADER: Final = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
_LOCK: Final = "<built-in method acquire of _thread.lock object at 0x7f00>"


def _advised(
    ops: Sequence[tuple[float, float] | tuple[float, float, str]],
    *ranges: tuple[float, float, str, str],
) -> tuple[pd.DataFrame, dict[Any, Any]]:
    """Return the findings by rule, and the joint bound, of four equal steps of 10 ms.

    Args:
        ops: start in a step and length of each, in us, and its line.
        *ranges: start and length of each, its name and kind.
    """
    rows: dict[str, list[dict[str, Any]]] = {"ops": [], "ranges": []}
    for step in range(STEPS):
        at = step * STEP_US
        rows["ranges"].append(event(at, STEP_US, name=f"ProfilerStep#{step}", kind="step"))
        rows["ranges"] += [event(at + s, d, name=n, kind=k) for s, d, n, k in ranges]
        rows["ops"] += [
            event(at + s, d, op="aten::mm", source=next(iter(line), "net.py:5"))
            for s, d, *line in ops
        ]
    rows["trace"] = [{"start_ns": 0, "end_ns": STEPS * STEP_US * US, "profiler": "kineto"}]
    tables = {name: canonical(name, *rows.get(name, [])) for name in {*INPUT, *IDLE_INPUT}}
    times = host_time({name: tables[name].select(IDLE_INPUT[name]) for name in IDLE_INPUT})
    facts = facts_of_host(
        lambda name: InMemory(tables[name].select(INPUT[name])), times, FORMATS[0].advice
    )
    found, bounds = advice_of_facts([facts])
    return found.set_index("rule"), bounds.to_dict("records")[0]


@pytest.mark.parametrize(
    ("slug", "ops", "ranges", "stake_us"),
    [
        pytest.param("data-loading", [(3200, 6800)], [(0, 3200, _LOADER, "annotation")], 3200),
        pytest.param("waiting", [(500, 9500)], [(0, 500, _LOCK, "python")], 500),
        pytest.param("python", [(1000, 9000)], [(0, 1000, "log.py(3): log", "python")], 1000),
        pytest.param("short-ops", [(20 * n, 10) for n in range(500)], [], 5000),
    ],
)
def test_a_rule_names_the_time_at_stake(
    slug: str, ops: list[tuple[float, float]], ranges: list[Any], stake_us: int
) -> None:
    found, bound = _advised(ops, *ranges)

    row = found.loc[slug]
    assert row["status"] == "fires"
    assert (row["at_stake_lo_ns"], row["at_stake_hi_ns"]) == (0, STEPS * stake_us * US)
    assert row["expected_ns"] == STEPS * stake_us * US
    others = ["data-loading", "waiting", "python", "short-ops"]
    others.remove(slug)
    assert "fires" not in set(found.loc[others, "status"])
    assert bound["window_ns"] == STEPS * STEP_US * US


def test_waiting_for_data_is_of_the_line_that_it_ends_at() -> None:
    loads: list[Any] = [(3000, 10, "data.py:11"), (3100, 90, "train.py:15"), (3200, 6800)]
    found, _ = _advised(loads, (0, 3200, _LOADER, "annotation"))

    row = found.loc["data-loading"]
    assert (row["source"], row["at_stake_hi_ns"]) == ("data.py:11", STEPS * 3200 * US)


def test_long_ops_have_no_time_that_can_be_named() -> None:
    found, _ = _advised([(0, 6000)])

    row = found.loc["long-ops"]
    assert (row["status"], row["severity"], row["source"]) == ("fires", "info", "net.py:5")
    assert pd.isna(row["at_stake_hi_ns"])


def test_what_was_not_recorded_is_unknown_and_not_python() -> None:
    found, _ = _advised([(0, 6000)])

    assert found.loc["python", "status"] == "unknown"
    assert "with_stack" in str(found.loc["python", "needs"])


def test_a_step_that_only_computes_has_no_finding_of_the_host() -> None:
    found, bound = _advised([(0, 10_000)])

    slugs = ["data-loading", "waiting", "python", "short-ops"]
    assert set(found.loc[slugs, "status"]) == {"silent"}
    assert bound["bound_ns"] == 0
