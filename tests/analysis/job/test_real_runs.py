"""Four processes train over gloo: what they send is what the script says; who is late is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from pyprof2.run import Run, load, parse

pytest.importorskip("torch")

SCRIPT: Final = Path(__file__).with_name("run_job.py")
ROOT: Final = SCRIPT.parents[3]
RANKS, STEPS, WIDTH = 4, 4, 64
LAYER: Final = 4 * (WIDTH * WIDTH + WIDTH)
"""Bytes of a layer: weight and bias, f32."""


def _recorded(folder: Path, *args: str) -> Run:
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(SCRIPT), args[0], str(folder), *args[1:]]
    subprocess.run(command, check=True, env=env, timeout=500, cwd=folder)
    files = [folder / f"rank{rank}.json" for rank in range(RANKS)]
    return load(parse(files, folder / "job.pyprof2"))


@pytest.mark.minutes
def test_what_a_sharded_training_sends(tmp_path: Path) -> None:
    """Each layer is gathered for forward and for backward, and its gradients are scattered."""
    found = _recorded(tmp_path, "fsdp").collectives
    counts = found.groupby(["rank", "step", "kind"], observed=True).size().to_dict()

    assert counts == {
        (rank, step, kind): count
        for rank in range(RANKS)
        for step in range(STEPS)
        for kind, count in (("all_gather", 4), ("reduce_scatter", 2))
    }
    small, large = LAYER // RANKS, LAYER
    gathers, scatters = (found[found["kind"] == k] for k in ("all_gather", "reduce_scatter"))
    assert gathers[["in_bytes", "out_bytes"]].drop_duplicates().to_numpy().tolist() == [
        [small, large]
    ]
    assert scatters[["in_bytes", "out_bytes"]].drop_duplicates().to_numpy().tolist() == [
        [large, small]
    ]
    assert gathers.groupby("layer", observed=True).size().to_dict() == {
        "0": 2 * RANKS * STEPS,
        "2": 2 * RANKS * STEPS,
    }
    assert set(found["transport"]) == {"gloo"}
    assert found["wait_ns"].notna().all()


@pytest.mark.minutes
def test_a_late_process_is_who_the_others_wait_for(tmp_path: Path) -> None:
    """One bucket of gradients a step: rank 2 hands it over 20 ms late."""
    run = _recorded(tmp_path, "ddp", "2")
    found = run.ranks.members.query("kind == 'all_reduce'")

    assert found.groupby("rank").size().to_dict() == dict.fromkeys(range(RANKS), STEPS)
    once = found.drop_duplicates("instance_id")
    # Who, not how much: how late it is depends on what else runs on the cores.
    assert once["last_rank"].mode().tolist() == [2]
    assert (found["wait_ns"] + found["transfer_ns"] == found["dur_ns"]).all()
