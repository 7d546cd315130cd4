"""Five parts and idle time add up to the window, and why HTA's numbers are others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd
import pytest

from pyprof2.analysis.job.rank_parts import INPUT, PARTS, five_parts
from pyprof2.analysis.time.step_windows import StepWindows
from pyprof2.api.run import load
from tests.analysis.job.hta import breakdown
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from pyprof2.store.rank_tables import RankTables

WORK = (
    [canonical(
        "kernels",
        {"kernel_id": 0, "start_ns": 0, "dur_ns": 10, "device": 0, "category": "matmul"},
        {"kernel_id": 1, "start_ns": 6, "dur_ns": 14, "device": 0, "category": "comm"},
        {"kernel_id": 2, "start_ns": 30, "dur_ns": 10, "device": 0, "category": "comm"},
    )],
    [canonical("copies", {"kernel_id": 3, "start_ns": 18, "dur_ns": 6, "device": 0})],
)  # fmt: skip


def _parts(rank: RankTables) -> tuple[Iterator[pa.Table], Iterator[pa.Table]]:
    kernels, copies = (rank.in_parts(name, columns) for name, columns in INPUT.items())
    return kernels, copies


def test_by_hand() -> None:
    """K 0-10; C 6-20 and 30-40; M 18-24."""
    (row,) = five_parts(*WORK, None).to_dict("records")

    assert [row[f"{name}_ns"] for name in PARTS] == [6, 18, 4, 4, 2, 6]
    assert (row["window_ns"], row["busy_ns"]) == (40, 34)
    assert row["overlap_pct"] == pytest.approx(100 * 4 / 24)


def test_exposed_communication_is_exposed_wait_and_transfer() -> None:
    """The first member waits 6 of its 14, of which 4 are beside the kernel."""
    waits = pd.DataFrame({"kernel_id": [1], "start_ns": [6], "dur_ns": [14], "wait_ns": [6]})
    (row,) = five_parts(*WORK, None, waits).to_dict("records")

    names = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_unmatched_ns")
    assert [row[name] for name in names] == [2, 6, 10]
    assert sum(row[name] for name in names) == row["comm_only_ns"]


def test_windows_cut_the_work() -> None:
    windows = StepWindows(*(pd.array(v).to_numpy() for v in ([1, 2], [0, 8], [8, 50])))
    found = five_parts(*WORK, windows)

    assert found["step"].tolist() == [1, 2]
    assert found["comp_comm_ns"].tolist() == [2, 2]
    assert found[[f"{name}_ns" for name in PARTS]].sum(axis=1).tolist() == [8, 42]


WANTED: Final = {
    ("kineto/dlrm_v100_w0.json.gz", 0): (
        13009000, 6590000, 773000, 5537000, 19000, 261000, 0, 6419000, 4.5016,
    ),
    ("kineto/hta_diff_control_a100.json.gz", 3): (
        464594000, 388587000, 180696000, 86554000, 19330000, 75614000, 26393000, 76007000, 46.2372,
    ),
    ("kineto/hta_df_index_v100_ddp.json.gz", 1): (
        1732965000, 1000613000, 620516000, 357343000, 22754000, 0, 0, 732352000, 0,
    ),
    ("nsight/mfu_2gpu_before.sqlite", 0): (
        299848812, 273817787, 253690832, 17172652, 2954303, 0, 0, 26031025, 0,
    ),
    ("nsight/mfu_2gpu_before.sqlite", 1): (
        298661551, 267275916, 256095624, 8229100, 2951192, 0, 0, 31385635, 0,
    ),
}  # fmt: skip
"""Window, busy, the parts, and overlap in %, by an independent prototype."""


@pytest.mark.parametrize(("trace", "device"), WANTED)
def test_real_recordings(shared_trace: Callable[[str], Path], trace: str, device: int) -> None:
    run = load(shared_trace(trace))
    found = pd.concat([five_parts(*_parts(r), None) for r in run.tables.ranks])
    row = found[found["device"] == device].iloc[0]

    names = ["window_ns", "busy_ns", *(f"{name}_ns" for name in PARTS), "overlap_pct"]
    assert row[names].tolist() == pytest.approx(list(WANTED[trace, device]), abs=5e-5)


@pytest.mark.kept("hta_diff_control_a100-wanted0")
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("hta_diff_control_a100", (62119, 234760, 86525, 383404, 47.03)),
        ("hta_df_index_v100_ddp", (643612, 496485, 256572, 1396669, 0.0)),
    ],
)
def test_hta_drops_the_last_step_and_what_has_no_launch(
    shared_trace: Callable[[str], Path], name: str, wanted: tuple[float, ...]
) -> None:
    """Its numbers, ours beside them; ours are of the whole recording, and so never smaller."""
    path = shared_trace(f"kineto/{name}.json.gz")
    hta = breakdown(path)
    run = load(path)
    (row,) = five_parts(*_parts(run.tables.ranks[0]), None).to_dict("records")
    ours = {
        "idle": row["idle_ns"], "compute": row["compute_ns"],
        "non_compute": row["busy_ns"] - row["compute_ns"], "kernel": row["window_ns"],
    }  # fmt: skip

    unlaunched = int(run.kernels["launch_ns"].isna().sum())
    lines = [f"{name}: us; HTA leaves out the last step and {unlaunched} kernels without launch"]
    lines += [f"{key:12} {getattr(hta, key):10} {ns / 1000:14.3f}" for key, ns in ours.items()]
    print("\n".join(lines))  # noqa: T201
    assert (*hta[:4], round(hta.overlap_pct, 2)) == wanted
    assert all(ns / 1000 >= getattr(hta, key) for key, ns in ours.items())
