"""Which process of a job this is, as those that start jobs say it."""

from __future__ import annotations

import pytest

from pyprof2.markers import place_in_job

IN_ORDER = {
    "RANK": "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "PMIX_RANK": "PMIX_SIZE",
    "PMI_RANK": "PMI_SIZE",
    "MV2_COMM_WORLD_RANK": "MV2_COMM_WORLD_SIZE",
    "JSM_NAMESPACE_RANK": "JSM_NAMESPACE_SIZE",
    "SLURM_PROCID": "SLURM_NTASKS",
}


@pytest.mark.parametrize("rank", IN_ORDER)
def test_each_launcher_tells_rank_and_size(rank: str) -> None:
    assert place_in_job({rank: "3", IN_ORDER[rank]: "8"}) == (3, 8)
    assert place_in_job({rank: "-1", IN_ORDER[rank]: "8"}) == (None, None)
    assert place_in_job({rank: "²", IN_ORDER[rank]: "8"}) == (None, None)


def test_the_first_variable_counts() -> None:
    everything = {name: str(n) for n, pair in enumerate(IN_ORDER.items(), start=2) for name in pair}
    for n, (rank, size) in enumerate(IN_ORDER.items(), start=2):
        assert place_in_job(everything) == (n, n)
        del everything[rank]
        # The size of one launcher says nothing of the job of another.
        assert place_in_job(everything) != (n, n)
        del everything[size]


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        ({"SLURM_PROCID": "0"}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, 0),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "PMI_RANK": "0"}, 0),
        ({"PMIX_RANK": "1"}, 1),
        ({"RANK": "0", "WORLD_SIZE": "1"}, 0),
        ({"RANK": "first", "OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({}, None),
    ],
)
def test_slurm_says_a_rank_where_it_starts_several(
    environment: dict[str, str], rank: int | None
) -> None:
    assert place_in_job(environment).rank == rank
