"""A job of one rank has the tables that one of many ranks has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.pipeline.many_ranks import write_job
from pyprof2.pipeline.parsing import parse
from pyprof2.store.folder import STORED, read_table
from tests.kineto_events import launched, op, trace

if TYPE_CHECKING:
    from pathlib import Path

_NOTHING = dict.fromkeys(STORED["clocks"].names, 0)
"""A rank is not off its own clock; it is rank 0."""


def test_the_tables_of_a_single_rank_are_those_that_many_ranks_would_have(tmp_path: Path) -> None:
    for host in ("", "a"):
        work = launched(10, 5, at=20, dur=9, name="ampere_sgemm")
        around = {"host_name": host} if host else {}
        file = trace(tmp_path / f"{host or 'none'}.json", op("aten::mm", 0, 30), work, **around)
        store = parse(file, tmp_path / f"store-{host}")
        names = ("clocks", "parts", "segments", "collectives")
        alone = {name: read_table(store, name).to_pylist() for name in names}

        write_job(store, [0], map)

        assert {name: read_table(store, name).to_pylist() for name in names} == alone
        assert alone["clocks"] == [_NOTHING | {"applied": False, "reason": "the reference"}]
