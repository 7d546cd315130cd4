"""Lines of real traces: both ledgers add up, and are what `prof` says of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from pyprof2.api import run_time
from pyprof2.api.run import load

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

KEYS = ["rank", "step"]


def _by_step(rows: pd.DataFrame, name: str) -> dict[tuple[int, int], int]:
    """Return the sum of a column by rank and step, -1 for none; sums of 0 are left out."""
    sums: dict[tuple[int, int], int] = {}
    columns = rows["rank"].tolist(), rows["step"].fillna(-1).tolist(), rows[name].tolist()
    for rank, step, time in zip(*columns, strict=True):
        sums[int(rank), int(step)] = sums.get((int(rank), int(step)), 0) + int(time)
    return {key: time for key, time in sums.items() if time}


def test_both_ledgers_of_every_recording_add_up(real_trace: Path) -> None:
    run = load(real_trace)
    lines = run.tables.frame("lines")
    device, host = (lines[lines["ledger"] == name] for name in ("device", "host"))
    work = pd.concat([run.kernels[[*KEYS, "dur_ns"]], run.copies[[*KEYS, "dur_ns"]]])

    assert _by_step(device, "time_ns") == _by_step(work, "dur_ns")
    if len(run.steps):
        steps = run.steps.drop_duplicates(["rank", "host_start_ns"])
        assert _by_step(host, "time_ns") == _by_step(steps, "host_dur_ns")
        assert _by_step(device, "idle_caused_ns") == (
            _by_step(run.idle, "time_ns") if len(device) else {}
        )
    else:
        recorded = (run.trace["end_ns"] - run.trace["start_ns"]).sum()
        assert host["time_ns"].sum() == recorded
    if len(device):
        busy = device["time_ns"].sum() - device["overlap_ns"].sum()
        assert busy == run_time.idle_windows(run.tables)["busy_ns"].sum()
    # All time of ops is in one of the two trees of the host.
    both = lines[lines["ledger"] != "device"]
    assert both[both["op"].notna()]["time_ns"].sum() == run.ops["self_ns"].sum()


def test_the_tree_of_every_step_is_what_prof_says_of_it(real_trace: Path) -> None:
    run = load(real_trace)
    if run.summary["no_gpu"]:
        pytest.skip("no work of a device in it")
    steps = sorted({int(step) for step in run.tables.frame("lines")["step"].dropna()})

    for step in steps[:3]:
        profile = run.profile("direction", step=step)
        table = run.lines(step=step)
        of_prof = {row["direction"]: int(row["time_ns"]) for row in profile.to_dict("records")}
        assert table["own_ns"].sum() == sum(of_prof.values())
        roots = table[table["depth"] == 1]
        for phase in ("backward", "optimizer", "other"):
            assert roots[f"{phase}_ns"].sum() == of_prof.get(phase, 0)
        forward = roots["forward_ns"].sum() + roots["recompute_ns"].sum()
        assert forward == of_prof.get("forward", 0)
        sources = run.profile("source", step=step).set_index("source")["time_ns"]
        assert _of_own_lines(table) == {
            k: int(v) for k, v in sources.items() if k != "(none)" and v
        }


def _of_own_lines(table: pd.DataFrame) -> dict[str, int]:
    """Return the time of each line that is the innermost one of the user's own on a path."""
    from pyprof2.frames import is_own_path

    source: dict[int, str | None] = {-1: None}
    times: dict[str, int] = {}
    for row in table.to_dict("records"):
        above = source[-1 if pd.isna(row["parent_id"]) else row["parent_id"]]
        is_own = row["kind"] == "line" and is_own_path(row["name"].rpartition(":")[0])
        source[row["node_id"]] = row["name"] if is_own else above
        line = source[row["node_id"]]
        if line is not None and row["own_ns"]:
            times[line] = times.get(line, 0) + row["own_ns"]
    return times
