"""Three processes call every kind of collective over gloo: what is marked is what they called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest

from pyprof2.api.run import Run, load, parse
from tests.nsys_runs import nsys_profile

pytest.importorskip("torch")

SCRIPT: Final = Path(__file__).with_name("run_marked.py")
ROOT: Final = SCRIPT.parents[3]
RANKS, STEPS = 3, 2
SAYS: Final = (
    "kind", "group_ranks", "in_bytes", "out_bytes", "send_bytes_to_others",
    "recv_bytes_from_others", "dtype", "uneven", "root", "peer", "asynchronous",
)  # fmt: skip


def _recorded(sink: str, folder: Path) -> Run:
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(SCRIPT), sink, str(folder)]
    files = [folder / f"rank{rank}.json" for rank in range(RANKS)]
    if sink == "nvtx":
        files = [nsys_profile(command, folder / "job", cwd=folder, env=env)]
    else:
        subprocess.run(command, check=True, env=env, timeout=500, cwd=folder, capture_output=True)
    return load(parse(files, folder / "job.pyprof2"))


def called(rank: int, *, rebuilds: bool) -> list[tuple[Any, ...]]:
    """Return what a rank calls in a step, by hand; see `step` of the program."""
    after, before = (rank + 1) % RANKS, (rank - 1) % RANKS
    parts = 4 * (3 * rank + 6)  # it sends 1 to 3, 2 to 4 or 3 to 5 numbers to the three
    others = parts - 4 * (2 * rank + 1)
    everybody, nothing = (0, 1, 2), (None, None)

    def of_all(kind: str, into: int, out: int, dtype: str | None = "f32", **more: Any) -> Any:
        root, later = more.get("root"), more.get("later", False)
        return kind, everybody, into, out, *nothing, dtype, None, root, None, later

    def between(kind: str, size: int, peer: int) -> Any:
        moved = (size, 0) if kind == "send" else (0, size)
        return kind, everybody, size, size, *moved, "f32", None, None, peer, True

    return [
        of_all("all_reduce", 40, 40),
        *[of_all("all_reduce", 160, 160, "f64", later=True)] * 2,
        *([("broadcast", (0, 2), 120, 120, *nothing, "f32", None, 2, None, False)] * (rank != 1)),
        ("all_to_all", everybody, parts, parts, others, others, "f32", True, None, None, False),
        of_all("all_gather", 16, 48),
        *[between("send", size, 1) for size in (20, 24) if rank == 0],
        *[between("recv", size, 0) for size in (20, 24) if rank == 1],
        between("send", 28, after),
        between("recv", 28, before),
        of_all("barrier", 0, 0, None),
        # Sharded: two of the six rows of eight numbers each; and back.
        of_all("all_gather", 64, 192),
        of_all("reduce_scatter", 192, 64),
        # In its second step DDP tells the others of its buckets.
        *[of_all("broadcast", size, size, "i32", root=0, later=True) for size in (12, 4)]
        * rebuilds,
        of_all("all_reduce", 36, 36, later=True),
    ]


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(
        tuple(v) if hasattr(v, "__len__") and not isinstance(v, str) else None if pd.isna(v) else v
        for v in row
    )


def _of_rank(found: pd.DataFrame, rank: int) -> pd.DataFrame:
    """Return the members of the last steps, in the order of the calls."""
    own = found[(found["rank"] == rank)].sort_values("issued_ns")
    count = sum(len(called(rank, rebuilds=step == 0)) for step in range(STEPS))
    last = len(own) - 1 if own["kind"].iloc[-1] == "barrier" else len(own)  # of the end
    return own.iloc[last - count : last]


@pytest.mark.minutes
@pytest.mark.parametrize("sink", ["kineto", pytest.param("nvtx", marks=pytest.mark.nsys)])
def test_what_is_marked_is_what_was_called(sink: str, tmp_path: Path) -> None:
    found = _recorded(sink, tmp_path).collectives
    groups: dict[Any, list[Any]] = {}
    for rank in range(RANKS):
        own = _of_rank(found, rank)
        told = [_plain(row) for row in own[list(SAYS)].itertuples(index=False)]
        wanted = [row for step in range(STEPS) for row in called(rank, rebuilds=step == 0)]
        assert told == wanted
        of_all = own["group_size"].eq(RANKS) & ~own["kind"].isin(["send", "recv"])
        groups.setdefault("all", []).append(own[of_all]["instance_id"].tolist())
        for peer in range(RANKS):
            of_peer = own[own["peer"] == peer]
            for kind, key in (("send", (rank, peer)), ("recv", (peer, rank))):
                ids = of_peer[of_peer["kind"] == kind]["instance_id"].tolist()
                groups.setdefault(key, []).append(ids)

    # The n-th call of a group is one instance, on all ranks: no number was guessed.
    assert set(found["match"]) == {"marker"}
    assert set(found["seq_source"]) == {"marker"}
    for ids in groups.values():
        assert all(each == ids[0] for each in ids)
    assert len(groups["all"][0]) == len(set(groups["all"][0])) == 9 * STEPS + 2
