"""The programs that start the processes of a job, and what they tell each process of its place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

LAUNCHERS: Final = {
    "torchrun": "torchrun",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate": "accelerate launch",
    "accelerate-launch": "accelerate launch",
    "accelerate.commands.launch": "accelerate launch",
    "accelerate.commands.accelerate_cli": "accelerate launch",
    "deepspeed": "deepspeed --no_local_rank --module",
    "deepspeed.launcher.runner": "deepspeed --no_local_rank --module",
}
"""Launchers that are Python, by program and module, and how each starts a module."""

_SLURM: Final = "SLURM_PROCID"
_VARIABLES: Final = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate, deepspeed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMIX_RANK", "PMIX_SIZE"),  # PMIx: Open MPI 5, PRRTE, srun --mpi=pmix
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, Cray
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH2
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),  # jsrun
    (_SLURM, "SLURM_NTASKS"),  # srun
)
"""The variables of rank and number of ranks. The first one that is set counts: what starts a
process itself stands ahead of what the job was started with."""


class Place(NamedTuple):
    """The place of a process in its job; None for what is not known."""

    rank: int | None
    size: int | None


def place_in_job(environment: Mapping[str, str] = os.environ) -> Place:
    """Return the rank of this process as its launcher says it, and of how many."""
    for of_rank, of_size in _VARIABLES:
        rank, size = (_number(environment.get(name, "")) for name in (of_rank, of_size))
        # Slurm sets it in whatever it runs, also where that is one process, or starts others.
        if rank is not None and (of_rank != _SLURM or (size or 0) > 1):
            return Place(rank, size)
    return Place(None, None)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
