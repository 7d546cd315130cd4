"""How tables of a store are written: nothing is lost, files are small, and say what is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from pyprof2.store.folder import read_rank, write_table
from tests.builders import canonical

if TYPE_CHECKING:
    from pathlib import Path

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1


def _irregular(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return starts of kernels: some us apart, never twice the same."""
    steps = np.random.default_rng(7).integers(900, 40_000, count)
    return np.cumsum(steps) + 1_700_000_000_000_000_000


def test_whole_numbers_come_back_however_far_apart_they_are(tmp_path: Path) -> None:
    """Written as differences, which do not fit into 64 bits here; and null between them."""
    numbers = [LEAST, GREATEST, None, LEAST, 0, -1, GREATEST, None, 1]
    rows = [{"step": n, "flops": None} for n in numbers]

    write_table(tmp_path, "kernels", 0, [canonical("kernels", *rows)])

    found = read_rank(tmp_path, "kernels", 0, ["step", "flops"])
    assert found["step"].to_pylist() == numbers
    assert found["flops"].to_pylist() == [None] * len(numbers)


def test_times_take_less_room_than_written_as_they_are(tmp_path: Path) -> None:
    """Steps of below 2**16 ns need 2 bytes each; the times as they are 2.6, compressed."""
    starts = _irregular(20_000)
    rows = [{"start_ns": start} for start in starts.tolist()]

    write_table(tmp_path, "kernels", 0, [canonical("kernels", *rows)])

    metadata = pq.read_metadata(tmp_path / "kernels" / "rank-0.parquet")
    column = metadata.row_group(0).column(metadata.schema.names.index("start_ns"))
    assert column.total_compressed_size < 2.2 * len(starts)


@pytest.mark.parametrize(
    ("name", "bounds"), [("start_ns", (5, 90)), ("step", (-3, 8)), ("op", None), ("kernel", None)]
)
def test_a_file_says_the_bounds_of_numbers_and_none_of_texts(
    tmp_path: Path, name: str, bounds: tuple[int, int] | None
) -> None:
    """Parts are chosen by the bounds of numbers; those of long texts are dear to find."""
    rows = [{"start_ns": s, "step": n, "op": "aten::mm"} for s, n in ((5, 8), (90, -3), (7, None))]

    write_table(tmp_path, "kernels", 0, [canonical("kernels", *rows)])

    metadata = pq.read_metadata(tmp_path / "kernels" / "rank-0.parquet")
    column = metadata.row_group(0).column(metadata.schema.names.index(name))
    statistics = column.statistics
    assert (statistics and (statistics.min, statistics.max)) == bounds
